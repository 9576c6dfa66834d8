//! A checkpoint in several safetensors files with an index.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    string::String,
    vec::Vec,
};

use serde::Deserialize;

use super::{Reading, Safetensors, TensorInfo, TensorSource};
use crate::{Error, Result};

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

fn parse(index_name: &str, text: &str) -> Result<Index> {
    serde_json::from_slice(text.as_bytes()).map_err(|e| Error::Malformed {
        file: index_name.into(),
        why: format!("is no index of safetensors files: {e}"),
    })
}

/// The files that a `model.safetensors.index.json` names, in order.
///
/// # Errors
/// `Malformed` if it is no such index, or names a file outside the folder.
pub fn shard_names(index_name: &str, text: &str) -> Result<Vec<String>> {
    let mut names = BTreeSet::new();
    names.extend(parse(index_name, text)?.weight_map.into_values());
    if let Some(name) = names.iter().find(|n| n.contains(['/', '\\']) || n.starts_with('.')) {
        let why = format!("names the file `{name}`; only files beside it are read");
        return Err(Error::Malformed { file: index_name.into(), why });
    }
    Ok(names.into_iter().collect())
}

/// Several safetensors files as one source.
#[derive(Debug)]
pub struct Shards {
    index_name: String,
    files: Vec<Safetensors>,
    tensors: BTreeMap<String, TensorInfo>,
}

impl Shards {
    /// Merges `files`, which are those that [`shard_names`] gave, in this order.
    ///
    /// # Errors
    /// `Malformed` if two files hold a tensor of the same name, `MissingTensor` if a file lacks one that the
    /// index promises.
    pub fn new(index_name: &str, text: &str, files: Vec<Safetensors>) -> Result<Self> {
        let names = shard_names(index_name, text)?;
        let mut tensors = BTreeMap::new();
        for (at, file) in files.iter().enumerate() {
            for (name, info) in file.tensors() {
                if tensors.insert(name.clone(), TensorInfo { file: at, ..info.clone() }).is_some() {
                    let why = format!("tensor `{name}` is in another file of the checkpoint already");
                    return Err(Error::Malformed { file: file.name().into(), why });
                }
            }
        }
        for (tensor, file) in parse(index_name, text)?.weight_map {
            let promised = names.iter().position(|n| *n == file);
            if tensors.get(&tensor).map(|t| t.file) != promised {
                return Err(Error::MissingTensor { tensor, file });
            }
        }
        Ok(Shards { index_name: index_name.into(), files, tensors })
    }
}

impl TensorSource for Shards {
    fn name(&self) -> &str {
        &self.index_name
    }

    fn names(&self) -> Vec<&str> {
        self.tensors.keys().map(String::as_str).collect()
    }

    fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name)
    }

    fn read<'a>(&'a self, tensor: &'a TensorInfo, offset: u64, out: &'a mut [u8]) -> Reading<'a> {
        self.files[tensor.file].file().read_at(tensor.offset + offset, out)
    }
}
