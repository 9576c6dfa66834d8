//! Finds a folder's weights, and the parts of a GGUF model.

use alloc::{boxed::Box, format, vec, vec::Vec};

use super::{Folder, Gguf, Safetensors, Shards, TensorSource, read_text, shard_names, split_names};
use crate::{Error, Result};

/// Says how to convert what PyTorch saved of a whole model.
const CONVERT_MODEL: &str = "from transformers import AutoModel; \
    AutoModel.from_pretrained(folder).save_pretrained(folder, safe_serialization=True)";

/// Says how to convert what PyTorch saved of one module.
const CONVERT_MODULE: &str = "import torch, safetensors.torch; \
    safetensors.torch.save_file(torch.load(file, weights_only=True), 'model.safetensors')";

/// Opens a model's `<path>model.safetensors`, or the files of `<path>model.safetensors.index.json`. `path` is
/// empty or ends in `/`.
///
/// # Errors
/// `Read` if there are none, saying how to convert what PyTorch saved if that is there; those of
/// [`Safetensors::open`] and [`Shards::new`].
pub async fn open_weights(folder: &dyn Folder, path: &str) -> Result<Box<dyn TensorSource>> {
    open_or_advise(folder, path, CONVERT_MODEL).await
}

/// [`open_weights`] for a module of sentence-transformers that is not the model.
///
/// # Errors
/// As [`open_weights`].
pub async fn open_module_weights(folder: &dyn Folder, path: &str) -> Result<Box<dyn TensorSource>> {
    open_or_advise(folder, path, CONVERT_MODULE).await
}

async fn open_or_advise(folder: &dyn Folder, path: &str, advice: &str) -> Result<Box<dyn TensorSource>> {
    let (single, index) = ("model.safetensors", "model.safetensors.index.json");
    if let Some(file) = folder.open(&format!("{path}{single}")).await? {
        return Ok(Box::new(Safetensors::open(file).await?));
    }
    let index_path = format!("{path}{index}");
    if let Some(text) = read_text(folder, &index_path).await? {
        let index_name = format!("{}/{index_path}", folder.name());
        let mut files = Vec::new();
        for name in shard_names(&index_name, &text)? {
            let name = format!("{path}{name}");
            let Some(file) = folder.open(&name).await? else {
                let why = format!("is missing, though {index} names it; download it");
                return Err(Error::Read { file: format!("{}/{name}", folder.name()), why });
            };
            files.push(Safetensors::open(file).await?);
        }
        return Ok(Box::new(Shards::new(&index_name, &text, files)?));
    }
    for pickled in ["pytorch_model.bin", "pytorch_model.bin.index.json"] {
        if folder.open(&format!("{path}{pickled}")).await?.is_some() {
            let file = format!("{}/{path}{pickled}", folder.name());
            let why = format!(
                "holds pickled Python objects, which are not read; convert it to safetensors with Python: {advice}"
            );
            return Err(Error::Read { file, why });
        }
    }
    let why = format!("is missing (nor is there {index}): is this a checkpoint folder?");
    Err(Error::Read { file: format!("{}/{path}{single}", folder.name()), why })
}

/// Opens a GGUF model in a folder by the name of its file, or of any of its files if it has several.
///
/// # Errors
/// `Read` naming the file that is missing; those of [`Gguf::open_split`].
pub async fn open_gguf(folder: &dyn Folder, name: &str) -> Result<Gguf> {
    let names = split_names(name).unwrap_or_else(|| vec![name.into()]);
    let mut files = Vec::new();
    for part in &names {
        let Some(file) = folder.open(part).await? else {
            let why = match names.len() {
                1 => "is missing".into(),
                count => format!("is missing, though the model has {count} parts; download it"),
            };
            return Err(Error::Read { file: format!("{}/{part}", folder.name()), why });
        };
        files.push(file);
    }
    Gguf::open_split(files).await
}
