//! DistilBERT: BERT without token types, with keys and names of its own.

use alloc::{format, vec};

use super::{MAX_ENTRIES, MAX_LAYERS, MAX_WIDTH, plain_layers, refuse_variants};
use crate::{
    Result,
    model::{EncoderConfig, LayerNames, Names, NormOrder, Positions, config::Config},
};

/// The architecture fixes it.
const NORM_EPS: f32 = 1e-12;

pub fn read(config: &Config) -> Result<EncoderConfig> {
    refuse_variants(config)?;
    let layers = config.count("n_layers", MAX_LAYERS)?;
    Ok(EncoderConfig {
        model_type: config.string("model_type")?,
        vocab: config.count("vocab_size", MAX_ENTRIES)?,
        hidden: config.count("dim", MAX_WIDTH)?,
        heads: config.count("n_heads", MAX_WIDTH)?,
        intermediate: config.count("hidden_dim", MAX_WIDTH)?,
        max_positions: config.count("max_position_embeddings", MAX_ENTRIES)?,
        positions: Positions { first: 0, uncounted: None },
        token_types: 0,
        activation: config.activation("activation")?,
        norm_eps: NORM_EPS,
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
        let within = |name: &str| format!("transformer.layer.{i}.{name}");
        LayerNames {
            input_norm: None,
            qkv: vec![within("attention.q_lin"), within("attention.k_lin"), within("attention.v_lin")],
            attention_out: within("attention.out_lin"),
            middle_norm: within("sa_layer_norm"),
            up: within("ffn.lin1"),
            down: within("ffn.lin2"),
            output_norm: Some(within("output_layer_norm")),
        }
    };
    Names {
        word: "embeddings.word_embeddings".into(),
        position: Some("embeddings.position_embeddings".into()),
        token_type: None,
        embedding_norm: "embeddings.LayerNorm".into(),
        layers: (0..layers).map(layer).collect(),
        final_norm: None,
        relative_bias: None,
    }
}
