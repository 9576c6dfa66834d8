//! Llama, and its relatives: Qwen2 (biases of q, k and v), Qwen3 (norms of queries and keys), Qwen3-MoE.

use alloc::{format, string::String, vec::Vec};

use super::{MAX_ENTRIES, MAX_LAYERS, MAX_WIDTH, decoder};
use crate::{
    Result,
    model::{
        config::Config,
        decoder::{
            DecoderConfig, DecoderNames, ExpertNames, Experts, FeedForward, FeedForwardNames, Mixer,
            MixerNames, SublayerNames, Sublayers,
        },
    },
    op::Scoring,
};

pub fn read(config: &Config) -> Result<DecoderConfig> {
    let model_type = config.string("model_type")?;
    let qwen3 = matches!(model_type.as_str(), "qwen3" | "qwen3_moe");
    let count = config.count("num_hidden_layers", MAX_LAYERS)?;
    let hidden = config.count("hidden_size", MAX_WIDTH)?;
    let heads = config.count("num_attention_heads", MAX_WIDTH)?;
    let activation = config.opt_string("hidden_act")?.unwrap_or_else(|| "silu".into());
    if !matches!(activation.as_str(), "silu" | "swish") {
        return Err(
            config.wrong("hidden_act", &format!("is `{activation}`; decoders are computed with silu"))
        );
    }
    if config.opt_bool("mlp_bias")? == Some(true) {
        return Err(
            config.wrong("mlp_bias", "is true; no released model has such biases and they are not read")
        );
    }
    if config.opt_bool("use_sliding_window")? == Some(true) {
        return Err(config.wrong("use_sliding_window", "is true, which is not supported"));
    }
    refuse_bidirectional(config)?;
    let all_biases = config.opt_bool("attention_bias")?.unwrap_or(false);
    let mixer = Mixer::Attention {
        kv_heads: config.opt_count("num_key_value_heads", MAX_WIDTH)?.unwrap_or(heads),
        qk_norm: qwen3,
        bias: all_biases || model_type == "qwen2",
        out_bias: all_biases,
    };
    let dense = config.opt_count("intermediate_size", MAX_WIDTH)?.map(|width| FeedForward::Dense { width });
    let experts = if model_type == "qwen3_moe" { Some(experts(config)?) } else { None };
    let dense_only = config.opt_wholes("mlp_only_layers", MAX_LAYERS)?.unwrap_or_default();
    let step = config.opt_count("decoder_sparse_step", MAX_LAYERS)?.unwrap_or(1);
    let mut layers = Vec::new();
    for at in 0..count {
        let sparse = experts.filter(|_| !dense_only.contains(&at) && (at + 1).is_multiple_of(step));
        let Some(feed_forward) = sparse.or(dense) else {
            return Err(config.wrong("intermediate_size", "is missing"));
        };
        layers.push(Sublayers { mixer, feed_forward });
    }
    Ok(DecoderConfig {
        model_type,
        vocab: config.count("vocab_size", MAX_ENTRIES)?,
        hidden,
        heads,
        head_dim: config.opt_count("head_dim", MAX_WIDTH)?.unwrap_or(hidden / heads),
        max_positions: config.count("max_position_embeddings", MAX_ENTRIES)?,
        norm_eps: config.positive("rms_norm_eps")?,
        rope: decoder::rope(config, 1e4)?,
        tied: config.opt_bool("tie_word_embeddings")?.unwrap_or(false),
        bidirectional: false,
        interleaved: false,
        names: names(&layers),
        layers,
    })
}

/// Refuses encoders that are made of these decoders.
fn refuse_bidirectional(config: &Config) -> Result<()> {
    let classes = config.opt_strings("architectures")?.unwrap_or_default();
    if let Some(class) = classes.iter().find(|class| class.contains("Bidirectional")) {
        return Err(config.wrong("architectures", &format!("is `{class}`, which is not supported")));
    }
    for (key, causal) in [("is_causal", true), ("use_bidirectional_attention", false)] {
        if config.opt_bool(key)? == Some(!causal) {
            return Err(config.wrong(key, &format!("is {}; only causal models are supported here", !causal)));
        }
    }
    Ok(())
}

fn experts(config: &Config) -> Result<FeedForward> {
    let key = if config.get("num_experts").is_some() { "num_experts" } else { "num_local_experts" };
    Ok(FeedForward::Experts(Experts {
        count: config.count(key, MAX_WIDTH)?,
        used: config.count("num_experts_per_tok", 64)?,
        width: config.count("moe_intermediate_size", MAX_WIDTH)?,
        scoring: Scoring::Softmax,
        bias: false,
        normalize: config.opt_bool("norm_topk_prob")?.unwrap_or(false).then_some(0.0),
        scale: 1.0,
    }))
}

fn names(layers: &[Sublayers]) -> DecoderNames {
    let layer = |(i, kind): (usize, &Sublayers)| {
        let within = |name: &str| format!("layers.{i}.{name}");
        SublayerNames {
            mixer_norm: within("input_layernorm"),
            mixer: MixerNames::Attention {
                q: within("self_attn.q_proj"),
                k: within("self_attn.k_proj"),
                v: within("self_attn.v_proj"),
                out: within("self_attn.o_proj"),
                q_norm: within("self_attn.q_norm"),
                k_norm: within("self_attn.k_norm"),
            },
            feed_forward_norm: within("post_attention_layernorm"),
            feed_forward: match kind.feed_forward {
                FeedForward::Dense { .. } => FeedForwardNames::Dense {
                    gate: within("mlp.gate_proj"),
                    up: within("mlp.up_proj"),
                    down: within("mlp.down_proj"),
                },
                FeedForward::Experts(_) => FeedForwardNames::Experts {
                    router: within("mlp.gate"),
                    bias: None,
                    experts: ExpertNames::Separate {
                        prefix: within("mlp.experts"),
                        gate: String::from("gate_proj"),
                        up: String::from("up_proj"),
                        down: String::from("down_proj"),
                    },
                },
            },
        }
    };
    DecoderNames {
        embedding: "embed_tokens".into(),
        final_norm: "norm".into(),
        head: "lm_head".into(),
        layers: layers.iter().enumerate().map(layer).collect(),
    }
}
