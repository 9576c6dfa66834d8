//! ModernBERT: pre-norm, gated feed-forward, rotary positions, most layers with a local window.

use alloc::{format, string::String, vec, vec::Vec};

use super::{MAX_ENTRIES, MAX_LAYERS, MAX_WIDTH};
use crate::{
    Result,
    model::{EncoderConfig, LayerKind, LayerNames, Names, NormOrder, Positions, config::Config},
};

/// No table confirms this key, and the rotary tables are as long as it says.
const MAX_POSITIONS: usize = 1 << 20;

const GLOBAL: &str = "full_attention";
const LOCAL: &str = "sliding_attention";

pub fn read(config: &Config) -> Result<EncoderConfig> {
    let layers = config.count("num_hidden_layers", MAX_LAYERS)?;
    for key in ["attention_bias", "mlp_bias"] {
        if config.opt_bool(key)? == Some(true) {
            return Err(config.wrong(key, "is true; no released model has such biases and they are not read"));
        }
    }
    Ok(EncoderConfig {
        model_type: config.string("model_type")?,
        vocab: config.count("vocab_size", MAX_ENTRIES)?,
        hidden: config.count("hidden_size", MAX_WIDTH)?,
        heads: config.count("num_attention_heads", MAX_WIDTH)?,
        intermediate: config.count("intermediate_size", MAX_WIDTH)?,
        max_positions: config.count("max_position_embeddings", MAX_POSITIONS)?,
        positions: Positions { first: 0, uncounted: None },
        token_types: 0,
        activation: config.activation("hidden_activation")?,
        norm_eps: config.positive("norm_eps")?,
        order: NormOrder::Pre,
        gated: true,
        linear_bias: false,
        norm_bias: config.opt_bool("norm_bias")?.unwrap_or(false),
        layers: kinds(config, layers)?,
        names: names(layers),
    })
}

/// Which layers attend to everything: said by `layer_types`, in older files every n-th.
fn kinds(config: &Config, layers: usize) -> Result<Vec<LayerKind>> {
    let types = match config.opt_strings("layer_types")? {
        Some(types) if types.len() != layers => {
            let why = format!("lists {} layers of {layers}", types.len());
            return Err(config.wrong("layer_types", &why));
        }
        Some(types) => types,
        None => {
            let every = config.count("global_attn_every_n_layers", MAX_LAYERS)?;
            (0..layers).map(|i| String::from(if i % every == 0 { GLOBAL } else { LOCAL })).collect()
        }
    };
    // `local_attention` is the whole width; half of it counts to either side.
    let window = config.count("local_attention", MAX_ENTRIES)? / 2;
    let (global, local) =
        (theta(config, GLOBAL, "global_rope_theta")?, theta(config, LOCAL, "local_rope_theta")?);
    let kind = |name: &String| match name.as_str() {
        GLOBAL => Ok(LayerKind { window: None, rope_theta: Some(global) }),
        LOCAL => Ok(LayerKind { window: Some(window), rope_theta: Some(local) }),
        _ => Err(config.wrong("layer_types", &format!("has `{name}`; {GLOBAL} and {LOCAL} are supported"))),
    };
    types.iter().map(kind).collect()
}

/// Base of the rotary embedding of one kind of layer, in the old key or nested in `rope_parameters`.
fn theta(config: &Config, kind: &str, old_key: &str) -> Result<f32> {
    let Some(all) = config.opt_object("rope_parameters")? else {
        if config.get("rope_scaling").is_some() {
            return Err(config.wrong("rope_scaling", "is set, which is not supported"));
        }
        return config.positive(old_key);
    };
    let Some(parameters) = all.opt_object(kind)? else { return Err(all.wrong(kind, "is missing")) };
    if let Some(rope_type) = parameters.opt_string("rope_type")?
        && rope_type != "default"
    {
        let why = format!("is `{rope_type}`; only `default` is supported");
        return Err(parameters.wrong("rope_type", &why));
    }
    parameters.positive("rope_theta")
}

fn names(layers: usize) -> Names {
    let layer = |i: usize| {
        let within = |name: &str| format!("layers.{i}.{name}");
        LayerNames {
            // The embedding's norm serves the first layer.
            input_norm: (i > 0).then(|| within("attn_norm")),
            qkv: vec![within("attn.Wqkv")],
            attention_out: within("attn.Wo"),
            middle_norm: within("mlp_norm"),
            up: within("mlp.Wi"),
            down: within("mlp.Wo"),
            output_norm: None,
        }
    };
    Names {
        word: "embeddings.tok_embeddings".into(),
        position: None,
        token_type: None,
        embedding_norm: "embeddings.norm".into(),
        layers: (0..layers).map(layer).collect(),
        final_norm: Some("final_norm".into()),
        relative_bias: None,
    }
}
