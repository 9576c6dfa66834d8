//! One file for each architecture: reads its `config.json`, names its tensors, no layer maths.

mod bert;
mod decoder;
mod distilbert;
mod gguf;
mod lfm2;
mod llama;
mod modernbert;
mod mpnet;
mod roberta;
mod xlm_roberta;

use alloc::{format, vec::Vec};

use super::{EncoderConfig, LayerKind, TextConfig, config::Config, decoder::DecoderConfig};
use crate::{Error, Result};

/// Largest sizes that are believed; beyond them a configuration is taken to be damaged.
const MAX_LAYERS: usize = 1024;
const MAX_WIDTH: usize = 1 << 18;
const MAX_ENTRIES: usize = 1 << 26;

pub use gguf::read_gguf;

type Reader = fn(&Config) -> Result<EncoderConfig>;
type DecoderReader = fn(&Config) -> Result<DecoderConfig>;

/// Architectures by `model_type`.
const READERS: [(&str, Reader); 6] = [
    ("bert", bert::read),
    ("distilbert", distilbert::read),
    ("modernbert", modernbert::read),
    ("mpnet", mpnet::read),
    ("roberta", roberta::read),
    ("xlm-roberta", xlm_roberta::read),
];

/// Decoders by `model_type`.
const DECODERS: [(&str, DecoderReader); 7] = [
    ("lfm2", lfm2::read),
    ("lfm2_bidirectional", lfm2::read),
    ("lfm2_moe", lfm2::read),
    ("llama", llama::read),
    ("qwen2", llama::read),
    ("qwen3", llama::read),
    ("qwen3_moe", llama::read),
];

/// Reads the `config.json` of a model that generates text.
///
/// # Errors
/// As [`read_encoder`]; for a bidirectional model too, which embeds.
pub fn read_decoder(config: &Config) -> Result<DecoderConfig> {
    let decoder = read_layers(config)?;
    if decoder.bidirectional {
        let why = "is that of a bidirectional model, which embeds text and does not generate text";
        let named = config.get("architectures").is_some();
        return Err(config.wrong(if named { "architectures" } else { "model_type" }, why));
    }
    Ok(decoder)
}

fn read_layers(config: &Config) -> Result<DecoderConfig> {
    let model_type = config.string("model_type")?;
    let Some((_, reader)) = DECODERS.iter().find(|(name, _)| *name == model_type) else {
        let known = &mut DECODERS.iter().map(|(name, _)| *name);
        return Err(unknown(config, &model_type, "does not generate text here", known));
    };
    let decoder = reader(config)?;
    decoder.check()?;
    Ok(decoder)
}

/// Whether a `config.json` is that of a model that embeds and does nothing else.
///
/// # Errors
/// `Config` if `model_type` is missing, or a value has another type.
pub fn only_embeds(config: &Config) -> Result<bool> {
    let model_type = config.string("model_type")?;
    let encoder = READERS.iter().any(|(name, _)| *name == model_type);
    Ok(encoder || model_type.starts_with("lfm2") && lfm2::bidirectional(config)?)
}

/// Whether [`read_decoder`] knows this `model_type`.
pub fn reads_decoders(model_type: &str) -> bool {
    DECODERS.iter().any(|(name, _)| *name == model_type)
}

/// The values of `model_type` that [`read_text`] knows.
pub fn supported() -> impl Iterator<Item = &'static str> {
    READERS.iter().map(|(name, _)| *name).chain(DECODERS.iter().map(|(name, _)| *name))
}

/// Reads the `config.json` of a model that embeds: an encoder, or a decoder whose layers take whole sequences.
///
/// # Errors
/// As [`read_encoder`].
pub fn read_text(config: &Config) -> Result<TextConfig> {
    let model_type = config.string("model_type")?;
    if READERS.iter().any(|(name, _)| *name == model_type) {
        return read_encoder(config).map(TextConfig::Encoder);
    }
    if reads_decoders(&model_type) {
        return read_layers(config).map(TextConfig::Decoder);
    }
    Err(unknown(config, &model_type, "is not supported", &mut supported()))
}

/// The error for a `model_type` that is none of these.
fn unknown(config: &Config, model_type: &str, why: &str, known: &mut dyn Iterator<Item = &str>) -> Error {
    let known: Vec<&str> = known.collect();
    let why = format!("is `{model_type}`, which {why}; supported are {}", known.join(", "));
    config.wrong("model_type", &why)
}

/// Reads an encoder's `config.json`.
///
/// # Errors
/// `Config`, naming the key: one that is missing, holds an impossible value, or a `model_type` that is unknown.
pub fn read_encoder(config: &Config) -> Result<EncoderConfig> {
    let model_type = config.string("model_type")?;
    let Some((_, reader)) = READERS.iter().find(|(name, _)| *name == model_type) else {
        let known = &mut READERS.iter().map(|(name, _)| *name);
        return Err(unknown(config, &model_type, "is not an encoder that is supported", known));
    };
    let encoder = reader(config)?;
    encoder.check()?;
    Ok(encoder)
}

/// Layers that attend to everything and have no rotary embedding.
fn plain_layers(count: usize) -> Vec<LayerKind> {
    (0..count).map(|_| LayerKind { window: None, rope_theta: None }).collect()
}

/// Refuses what BERT-like configurations can ask for and no released embedding model does.
fn refuse_variants(config: &Config) -> Result<()> {
    if let Some(kind) = config.opt_string("position_embedding_type")?
        && kind != "absolute"
    {
        let why = format!("is `{kind}`; only `absolute` is supported");
        return Err(config.wrong("position_embedding_type", &why));
    }
    for key in ["is_decoder", "add_cross_attention"] {
        if config.opt_bool(key)? == Some(true) {
            return Err(config.wrong(key, "is true; only encoders are supported"));
        }
    }
    Ok(())
}
