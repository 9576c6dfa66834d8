//! The fuzz targets: each takes any bytes and must return. What was accepted must keep its promises.

use std::{str, sync::Arc};

use inferencelayer_engine::{
    Result,
    backend::Backend,
    batch::EncBatch,
    checkpoint::{
        Element, Folder, Gguf, Loader, MemoryFile, MemoryFolder, Part, Safetensors, Shards, TensorSource,
        open_weights, shard_names,
    },
    embed::{Embedder, Head, HeadStep},
    model::{Encoder, EncoderConfig, arch::read_encoder, config::Config},
    op::PoolMode,
    pooling::EmbedOut,
    reference::Reference,
    task::block_on,
};

/// A safetensors file as it is.
pub fn safetensors(data: &[u8]) {
    if let Ok(file) = open(data.to_vec()) {
        check_source(&file, data.len() as u64);
    }
}

/// A safetensors file whose length field is always right, so that the checks behind it are reached: the header, a
/// zero byte, the tensors.
pub fn header(data: &[u8]) {
    safetensors(&framed(data));
}

/// An index, and one file that may be among those it names: the index, a zero byte, then as in [`header`].
pub fn shards(data: &[u8]) {
    let (index, file) = split(data);
    let Ok(index) = str::from_utf8(index) else { return };
    let Ok(names) = shard_names("index", index) else { return };
    assert!(names.iter().all(|n| !n.contains('/') && n != ".."), "a name leads out of the folder: {names:?}");
    let file = framed(file);
    let size = file.len() as u64;
    let Ok(file) = open(file) else { return };
    if let Ok(source) = Shards::new("index", index, vec![file]) {
        check_source(&source, size);
    }
}

/// A GGUF file as it is.
pub fn gguf(data: &[u8]) {
    let file = MemoryFile::new("fuzzed", data.to_vec());
    let Ok(model) = block_on(Gguf::open(Box::new(file))) else { return };
    check_source(&model, data.len() as u64);
    let metadata = model.metadata();
    for key in metadata.keys() {
        let value = metadata.get(key).expect("a listed key");
        let text = format!("{value}");
        assert!(text.len() < 1000, "{key} is not shortened: {text}");
        if let Ok(Some(count)) = metadata.opt_count(key, 100) {
            assert!(
                (1..=100).contains(&count) && metadata.opt_per_layer(key, 3, 100) == Ok(Some(vec![count; 3]))
            );
        }
        if let Ok(Some(strings)) = metadata.opt_strings(key) {
            assert!((0..=strings.len()).map(|i| strings.get(i)).eq(strings.iter().map(Some).chain([None])));
        }
        if let Ok(Some(values)) = metadata.opt_i32s(key) {
            assert_eq!(metadata.opt_u32s(key).is_ok(), values.iter().all(|v| *v >= 0));
        }
    }
}

/// What is before the first zero byte and what is after.
fn split(data: &[u8]) -> (&[u8], &[u8]) {
    let mut parts = data.splitn(2, |b| *b == 0);
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

fn framed(data: &[u8]) -> Vec<u8> {
    let (header, tensors) = split(data);
    [&(header.len() as u64).to_le_bytes(), header, tensors].concat()
}

fn open(file: Vec<u8>) -> Result<Safetensors> {
    block_on(Safetensors::open(Box::new(MemoryFile::new("fuzzed", file))))
}

/// Every tensor of a file that was accepted lies in it, can be read and has the bytes its shape says.
fn check_source(source: &dyn TensorSource, size: u64) {
    let backend = Reference::new();
    let mut loader = Loader::new(source, &backend);
    for name in source.names() {
        let info = source.tensor(name).expect("a listed tensor");
        assert!(info.offset + info.bytes <= size, "{name} lies outside the file");
        let values = block_on(loader.values(&Part::new(name, info.shape.clone())));
        match info.element {
            Element::Weight(_) => {
                let count: usize = info.shape.iter().product();
                assert_eq!(values.expect("an accepted tensor is read").len(), count, "{name}");
            }
            Element::Other(_) => assert!(values.is_err(), "{name} has no weight's type"),
        }
    }
}

/// A `config.json`: what is accepted has a geometry that nothing later divides by zero or overflows on.
pub fn config(data: &[u8]) {
    let Some(config) = read_config(data) else { return };
    config.check().expect("what was read was checked");
    assert!(config.heads * config.head_dim() == config.hidden && config.hidden > 0 && config.vocab > 0);
    assert!(
        config.max_tokens() > 0 && config.max_tokens() <= config.max_positions && config.norm_eps.is_finite()
    );
    assert_eq!(config.layers.len(), config.names.layers.len());
    // No weights: an error that names the first tensor missing, however large the model would be.
    let mut folder = MemoryFolder::new("empty");
    folder.insert("model.safetensors", &b"\x02\0\0\0\0\0\0\0{}"[..]);
    assert!(load(&folder, config, &Reference::new()).is_err());
}

/// A checkpoint: `config.json`, a zero byte, then as in [`header`]. One that loads also encodes.
pub fn checkpoint(data: &[u8]) {
    encode(data);
}

/// Vectors of two short texts, if the checkpoint loads.
pub fn encode(data: &[u8]) -> Option<Vec<Vec<f32>>> {
    let (config, weights) = split(data);
    let config = read_config(config)?;
    let mut folder = MemoryFolder::new("fuzzed");
    folder.insert("model.safetensors", framed(weights));
    let backend: Arc<dyn Backend> = Arc::new(Reference::new());
    let encoder = load(&folder, config, &*backend).ok()?;
    let width = encoder.config().hidden;
    let head = Head { pooling: vec![PoolMode::Mean], steps: vec![HeadStep::Normalize], dim: None };
    let mut embedder = Embedder::new(backend, encoder, head, 8, false).ok()?;
    // An error where the model has one token or takes but one.
    let batch = EncBatch::from_seqs(vec![vec![0, 1, 0], vec![0]]);
    let EmbedOut::Pooled(vectors) = embedder.encode_blocking(&batch).ok()? else { return None };
    assert!(vectors.len() == 2 && vectors.iter().all(|v| v.len() == width));
    Some(vectors)
}

fn read_config(data: &[u8]) -> Option<EncoderConfig> {
    let text = str::from_utf8(data).ok()?;
    read_encoder(&Config::parse("config.json", text).ok()?).ok()
}

fn load(folder: &dyn Folder, config: EncoderConfig, backend: &dyn Backend) -> Result<Encoder> {
    let source = block_on(open_weights(folder, ""))?;
    block_on(Encoder::load(config, &*source, backend))
}
