//! Small checkpoints in `tests/fixtures`, with what transformers and sentence-transformers compute from them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use inferencelayer_engine::{
    Error,
    backend::Backend,
    checkpoint::{
        Folder, Gguf, Loader, MemoryFolder, ReadAt, Reading, TensorSource, open_weights,
        read_text as read_text_file,
    },
    model::{
        Encoder, EncoderConfig, TextModel,
        arch::{read_decoder, read_encoder, read_gguf, read_text},
        config::Config,
        decoder::{Decoder, DecoderConfig},
    },
    op::PoolMode,
    task::block_on,
};
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, de::DeserializeOwned};

/// A fixture's folder on disk.
#[derive(Debug, Clone)]
pub struct Fixture {
    name: String,
    path: PathBuf,
}

impl Fixture {
    pub fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name);
        Fixture { name: name.into(), path }
    }

    /// All its files in memory, to be changed.
    pub fn in_memory(&self) -> MemoryFolder {
        let mut folder = MemoryFolder::new(self.name.clone());
        for entry in fs::read_dir(&self.path).expect("the fixture is there").flatten() {
            if entry.path().is_file() {
                let name = entry.file_name().into_string().expect("a UTF-8 file name");
                folder.insert(name, fs::read(entry.path()).expect("a readable fixture"));
            }
        }
        folder
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The texts of `texts.json`.
    pub fn texts(&self) -> Vec<String> {
        let texts: Texts = self.json("texts.json");
        texts.texts
    }

    /// The queries of `texts.json`.
    pub fn queries(&self) -> Vec<String> {
        let texts: Texts = self.json("texts.json");
        texts.queries
    }

    /// The text pairs of `pairs.json`, and the length they were cut to.
    pub fn pairs(&self) -> (Vec<(String, String)>, usize) {
        let pairs: Pairs = self.json("pairs.json");
        (pairs.pairs, pairs.max_length)
    }

    fn json<T: DeserializeOwned>(&self, name: &str) -> T {
        let bytes = fs::read(self.path.join(name)).unwrap_or_else(|e| panic!("{}/{name}: {e}", self.name));
        serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{}/{name}: {e}", self.name))
    }

    pub fn expected(&self) -> Expected {
        Expected(fs::read(self.path.join("expected.safetensors")).expect("expected.safetensors"))
    }
}

#[derive(Deserialize)]
struct Texts {
    texts: Vec<String>,
    #[serde(default)]
    queries: Vec<String>,
}

#[derive(Deserialize)]
struct Pairs {
    pairs: Vec<(String, String)>,
    max_length: usize,
}

impl Folder for Fixture {
    fn name(&self) -> &str {
        &self.name
    }

    fn open<'a>(&'a self, path: &'a str) -> Reading<'a, Option<Box<dyn ReadAt>>> {
        Box::pin(async move {
            match fs::File::open(self.path.join(path)) {
                Ok(file) => {
                    let size = file.metadata().map_err(|e| failed(path, &e))?.len();
                    Ok(Some(Box::new(DiskFile { name: path.into(), size, file }) as Box<dyn ReadAt>))
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(e) => Err(failed(path, &e)),
            }
        })
    }
}

struct DiskFile {
    name: String,
    size: u64,
    file: fs::File,
}

impl ReadAt for DiskFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at<'a>(&'a self, offset: u64, out: &'a mut [u8]) -> Reading<'a> {
        use std::os::unix::fs::FileExt;
        let done = self.file.read_exact_at(out, offset).map_err(|e| failed(&self.name, &e));
        Box::pin(std::future::ready(done))
    }
}

fn failed(file: &str, error: &io::Error) -> Error {
    Error::Read { file: file.into(), why: error.to_string() }
}

/// Expected values by name.
pub struct Expected(Vec<u8>);

impl Expected {
    fn open(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.0).expect("a safetensors file")
    }

    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.open().names().into_iter().map(String::from).collect();
        names.sort();
        names
    }

    pub fn has(&self, name: &str) -> bool {
        self.open().tensor(name).is_ok()
    }

    pub fn shape(&self, name: &str) -> Vec<usize> {
        self.open().tensor(name).unwrap_or_else(|e| panic!("{name}: {e}")).shape().to_vec()
    }

    pub fn floats(&self, name: &str) -> Vec<f32> {
        let open = self.open();
        let tensor = open.tensor(name).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(tensor.dtype(), Dtype::F32, "{name}");
        tensor.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    }

    pub fn ids(&self, name: &str) -> Vec<u32> {
        let open = self.open();
        let tensor = open.tensor(name).unwrap_or_else(|e| panic!("{name}: {e}"));
        match tensor.dtype() {
            Dtype::I64 => tensor.data().as_chunks().0.iter().map(|b| i64::from_le_bytes(*b) as u32).collect(),
            Dtype::I32 => tensor.data().as_chunks().0.iter().map(|b| i32::from_le_bytes(*b) as u32).collect(),
            other => panic!("{name} is {other:?}"),
        }
    }

    /// A ragged list kept as `<name>` and `<stem>_offsets`.
    pub fn ragged(&self, name: &str, offsets: &str) -> Vec<Vec<u32>> {
        let (flat, ends) = (self.ids(name), self.ids(offsets));
        ends.windows(2).map(|w| flat[w[0] as usize..w[1] as usize].to_vec()).collect()
    }
}

/// One of the fixtures that embed, with what its module folder says.
#[derive(Debug, Clone, Copy)]
pub struct EncoderFixture {
    pub name: &'static str,
    pub pooling: PoolMode,
    pub unit: bool,
}

pub const ENCODERS: [EncoderFixture; 6] = [
    EncoderFixture { name: "bert", pooling: PoolMode::Mean, unit: true },
    EncoderFixture { name: "roberta", pooling: PoolMode::Mean, unit: false },
    EncoderFixture { name: "xlmr", pooling: PoolMode::Cls, unit: true },
    EncoderFixture { name: "mpnet", pooling: PoolMode::Mean, unit: true },
    EncoderFixture { name: "distilbert", pooling: PoolMode::Mean, unit: true },
    EncoderFixture { name: "modernbert", pooling: PoolMode::Mean, unit: true },
];

/// All that embed: the encoders, and those that are made of a decoder's layers.
pub const EMBEDDERS: [EncoderFixture; 9] = {
    let [bert, roberta, xlmr, mpnet, distilbert, modernbert] = ENCODERS;
    let lfm2 = EncoderFixture { name: "lfm2_bidirectional", pooling: PoolMode::Cls, unit: true };
    let causal = EncoderFixture { name: "lfm2_embedding_causal", pooling: PoolMode::LastToken, unit: true };
    let qwen3 = EncoderFixture { name: "qwen3_embedding", pooling: PoolMode::LastToken, unit: true };
    [bert, roberta, xlmr, mpnet, distilbert, modernbert, lfm2, causal, qwen3]
};

/// Loads a folder's model that embeds, for sequences of any length.
///
/// # Errors
/// The engine's.
pub fn load_text(folder: &dyn Folder, backend: &dyn Backend) -> inferencelayer_engine::Result<TextModel> {
    let text = block_on(read_text_file(folder, "config.json"))?.expect("config.json");
    let config = read_text(&Config::parse("config.json", &text)?)?;
    let source = block_on(open_weights(folder, ""))?;
    block_on(TextModel::load(config, usize::MAX, &mut Loader::new(&*source, backend)))
}

/// Reads an encoder's `config.json`.
///
/// # Errors
/// The engine's.
pub fn read_config(folder: &dyn Folder) -> inferencelayer_engine::Result<EncoderConfig> {
    let text = block_on(read_text_file(folder, "config.json"))?.expect("config.json");
    read_encoder(&Config::parse("config.json", &text)?)
}

/// Loads a folder's encoder.
///
/// # Errors
/// The engine's.
pub fn load_encoder(folder: &dyn Folder, backend: &dyn Backend) -> inferencelayer_engine::Result<Encoder> {
    let config = read_config(folder)?;
    let source = block_on(open_weights(folder, ""))?;
    block_on(Encoder::load(config, &*source, backend))
}

/// The decoder fixtures in safetensors.
pub const DECODERS: [&str; 8] = [
    "lfm2",
    "lfm2_bf16_ffadjust",
    "lfm2_moe",
    "qwen3_tied",
    "qwen3_untied_sharded",
    "qwen3_moe",
    "llama",
    "qwen2",
];

/// The decoder fixtures in GGUF.
pub const GGUF_DECODERS: [&str; 3] = ["gguf_lfm2", "gguf_llama", "gguf_qwen3"];

/// Loads layers of a folder's decoder, or of its `model.gguf`.
///
/// # Errors
/// The engine's.
pub fn load_decoder(
    folder: &dyn Folder,
    backend: &dyn Backend,
    layers: Option<std::ops::Range<usize>>,
) -> inferencelayer_engine::Result<Decoder> {
    let load = |config: DecoderConfig, source: &dyn TensorSource| {
        let (layers, context) = (layers.unwrap_or(0..config.layers.len()), config.max_positions.min(256));
        block_on(Decoder::load_layers(config, layers, context, &mut Loader::new(source, backend)))
    };
    if let Some(file) = block_on(folder.open("model.gguf"))? {
        let file = block_on(Gguf::open(file))?;
        return load(read_gguf(&file)?, &file);
    }
    let text = block_on(read_text_file(folder, "config.json"))?.expect("config.json");
    let config = read_decoder(&Config::parse("config.json", &text)?)?;
    load(config, &*block_on(open_weights(folder, ""))?)
}
