//! BERT: post-norm, absolute positions, token types. RoBERTa and XLM-RoBERTa share its names.

use alloc::{format, vec};

use super::{MAX_ENTRIES, MAX_LAYERS, MAX_WIDTH, plain_layers, refuse_variants};
use crate::{
    Result,
    model::{EncoderConfig, LayerNames, Names, NormOrder, Positions, config::Config},
};

pub fn read(config: &Config) -> Result<EncoderConfig> {
    refuse_variants(config)?;
    let layers = config.count("num_hidden_layers", MAX_LAYERS)?;
    Ok(EncoderConfig {
        model_type: config.string("model_type")?,
        vocab: config.count("vocab_size", MAX_ENTRIES)?,
        hidden: config.count("hidden_size", MAX_WIDTH)?,
        heads: config.count("num_attention_heads", MAX_WIDTH)?,
        intermediate: config.count("intermediate_size", MAX_WIDTH)?,
        max_positions: config.count("max_position_embeddings", MAX_ENTRIES)?,
        positions: Positions { first: 0, uncounted: None },
        token_types: config.count("type_vocab_size", MAX_ENTRIES)?,
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
            qkv: vec![
                within("attention.self.query"),
                within("attention.self.key"),
                within("attention.self.value"),
            ],
            attention_out: within("attention.output.dense"),
            middle_norm: within("attention.output.LayerNorm"),
            up: within("intermediate.dense"),
            down: within("output.dense"),
            output_norm: Some(within("output.LayerNorm")),
        }
    };
    Names {
        word: "embeddings.word_embeddings".into(),
        position: Some("embeddings.position_embeddings".into()),
        token_type: Some("embeddings.token_type_embeddings".into()),
        embedding_norm: "embeddings.LayerNorm".into(),
        layers: (0..layers).map(layer).collect(),
        final_norm: None,
        relative_bias: None,
    }
}
