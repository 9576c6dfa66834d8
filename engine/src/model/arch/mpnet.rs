//! MPNet: post-norm, RoBERTa's positions, and a bias for relative positions that all layers share.

use alloc::{format, vec};

use super::{MAX_ENTRIES, MAX_LAYERS, MAX_WIDTH, plain_layers, refuse_variants};
use crate::{
    Result,
    model::{EncoderConfig, LayerNames, Names, NormOrder, Positions, config::Config},
};

/// The architecture fixes it, whatever `pad_token_id` says.
const PADDING: u32 = 1;

pub fn read(config: &Config) -> Result<EncoderConfig> {
    refuse_variants(config)?;
    let layers = config.count("num_hidden_layers", MAX_LAYERS)?;
    let buckets = config.count("relative_attention_num_buckets", MAX_ENTRIES)?;
    if buckets != crate::model::RELATIVE_BUCKETS {
        let why = format!("is {buckets}; only {} are supported", crate::model::RELATIVE_BUCKETS);
        return Err(config.wrong("relative_attention_num_buckets", &why));
    }
    Ok(EncoderConfig {
        model_type: config.string("model_type")?,
        vocab: config.count("vocab_size", MAX_ENTRIES)?,
        hidden: config.count("hidden_size", MAX_WIDTH)?,
        heads: config.count("num_attention_heads", MAX_WIDTH)?,
        intermediate: config.count("intermediate_size", MAX_WIDTH)?,
        max_positions: config.count("max_position_embeddings", MAX_ENTRIES)?,
        positions: Positions { first: PADDING + 1, uncounted: Some(PADDING) },
        token_types: 0,
        activation: config.activation("hidden_act")?,
        norm_eps: config.positive("layer_norm_eps")?,
        order: NormOrder::Post,
        gated: false,
        linear_bias: true,
        norm_bias: true,
        layers: plain_layers(layers),
        names: names(layers),
    })
}

fn names(layers: usize) -> Names {
    let layer = |i: usize| {
        let within = |name: &str| format!("encoder.layer.{i}.{name}");
        LayerNames {
            input_norm: None,
            qkv: vec![within("attention.attn.q"), within("attention.attn.k"), within("attention.attn.v")],
            attention_out: within("attention.attn.o"),
            middle_norm: within("attention.LayerNorm"),
            up: within("intermediate.dense"),
            down: within("output.dense"),
            output_norm: Some(within("output.LayerNorm")),
        }
    };
    Names {
        word: "embeddings.word_embeddings".into(),
        position: Some("embeddings.position_embeddings".into()),
        token_type: None,
        embedding_norm: "embeddings.LayerNorm".into(),
        layers: (0..layers).map(layer).collect(),
        final_norm: None,
        relative_bias: Some("encoder.relative_attention_bias".into()),
    }
}
