//! LFM2: short convolutions and attention in turns; LFM2-MoE has experts in all but the first layers. The family's
//! encoders are bidirectional and share all else.

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

/// What weights are divided by besides their sum (`Lfm2MoeSparseMoeBlock`).
const NORMALIZE_EPS: f32 = 1e-6;

pub fn read(config: &Config) -> Result<DecoderConfig> {
    let count = config.count("num_hidden_layers", MAX_LAYERS)?;
    let hidden = config.count("hidden_size", MAX_WIDTH)?;
    let heads = config.count("num_attention_heads", MAX_WIDTH)?;
    let kv_heads = config.opt_count("num_key_value_heads", MAX_WIDTH)?.unwrap_or(heads);
    let attention = attention_layers(config, count)?;
    let moe = config.string("model_type")? == "lfm2_moe";
    let dense = FeedForward::Dense { width: width(config, moe)? };
    let (dense_layers, experts) = match moe {
        true => (config.opt_whole("num_dense_layers", count)?.unwrap_or(0), experts(config)?),
        false => (count, dense),
    };
    let conv = Mixer::ShortConv {
        taps: config.opt_count("conv_L_cache", 8)?.unwrap_or(3),
        bias: config.opt_bool("conv_bias")?.unwrap_or(false),
    };
    let full = Mixer::Attention { kv_heads, qk_norm: true, bias: false, out_bias: false };
    let layers: Vec<Sublayers> = (0..count)
        .map(|at| Sublayers {
            mixer: if attention[at] { full } else { conv },
            feed_forward: if at < dense_layers { dense } else { experts },
        })
        .collect();
    let tied = match config.opt_bool("tie_word_embeddings")? {
        Some(tied) => tied,
        None => config.opt_bool("tie_embedding")?.unwrap_or(true),
    };
    Ok(DecoderConfig {
        model_type: config.string("model_type")?,
        vocab: config.count("vocab_size", MAX_ENTRIES)?,
        hidden,
        heads,
        head_dim: config.opt_count("head_dim", MAX_WIDTH)?.unwrap_or(hidden / heads),
        max_positions: config.count("max_position_embeddings", MAX_ENTRIES)?,
        norm_eps: config.opt_positive("norm_eps")?.unwrap_or(1e-5),
        rope: decoder::rope(config, 1e6)?,
        tied,
        bidirectional: bidirectional(config)?,
        interleaved: false,
        names: names(&layers),
        layers,
    })
}

/// Whether this is one of the family's encoders. Their configurations are the decoders' but for the name of the class:
/// `Lfm2BidirectionalModel`, or another with a head that is not read. Transformers has a `model_type` of its own for them.
pub fn bidirectional(config: &Config) -> Result<bool> {
    let classes = config.opt_strings("architectures")?.unwrap_or_default();
    let own_type = config.string("model_type")? == "lfm2_bidirectional";
    Ok(own_type || classes.iter().any(|class| class.starts_with("Lfm2Bidir")))
}

/// Which layers attend.
fn attention_layers(config: &Config, count: usize) -> Result<Vec<bool>> {
    if let Some(types) = config.opt_strings("layer_types")? {
        if types.len() != count {
            let why = format!("has {} entries for {count} layers", types.len());
            return Err(config.wrong("layer_types", &why));
        }
        return types
            .iter()
            .map(|kind| match kind.as_str() {
                "full_attention" => Ok(true),
                "conv" => Ok(false),
                other => {
                    Err(config.wrong("layer_types", &format!("holds `{other}`, which is not supported")))
                }
            })
            .collect();
    }
    match config.opt_wholes("full_attn_idxs", count.saturating_sub(1))? {
        Some(indices) => Ok((0..count).map(|at| indices.contains(&at)).collect()),
        None => Ok(alloc::vec![true; count]),
    }
}

/// Width of the dense feed-forward: `block_ff_dim` where there is one, adjusted as the model does it.
fn width(config: &Config, moe: bool) -> Result<usize> {
    let ff = match config.opt_count("block_ff_dim", MAX_WIDTH)? {
        Some(ff) => ff,
        None => config.count("intermediate_size", MAX_WIDTH)?,
    };
    if moe || !config.opt_bool("block_auto_adjust_ff_dim")?.unwrap_or(true) {
        return Ok(ff);
    }
    let two_thirds = 2 * ff / 3;
    let Some(multiplier) = config.opt_positive("block_ffn_dim_multiplier")? else { return Ok(two_thirds) };
    let multiple = config.opt_count("block_multiple_of", MAX_WIDTH)?.unwrap_or(256);
    let scaled = (f64::from(multiplier) * two_thirds as f64) as usize;
    Ok(scaled.next_multiple_of(multiple))
}

fn experts(config: &Config) -> Result<FeedForward> {
    let normalize = config.opt_bool("norm_topk_prob")?.unwrap_or(true);
    Ok(FeedForward::Experts(Experts {
        count: config.count("num_experts", MAX_WIDTH)?,
        used: config.count("num_experts_per_tok", 64)?,
        width: config.count("moe_intermediate_size", MAX_WIDTH)?,
        scoring: Scoring::Sigmoid,
        bias: config.opt_bool("use_expert_bias")?.unwrap_or(true),
        normalize: normalize.then_some(NORMALIZE_EPS),
        scale: config.opt_positive("routed_scaling_factor")?.unwrap_or(1.0),
    }))
}

fn names(layers: &[Sublayers]) -> DecoderNames {
    let layer = |(i, kind): (usize, &Sublayers)| {
        let within = |name: &str| format!("layers.{i}.{name}");
        SublayerNames {
            mixer_norm: within("operator_norm"),
            mixer: match kind.mixer {
                Mixer::Attention { .. } => MixerNames::Attention {
                    q: within("self_attn.q_proj"),
                    k: within("self_attn.k_proj"),
                    v: within("self_attn.v_proj"),
                    out: within("self_attn.out_proj"),
                    q_norm: within("self_attn.q_layernorm"),
                    k_norm: within("self_attn.k_layernorm"),
                },
                Mixer::ShortConv { .. } => MixerNames::ShortConv {
                    input: within("conv.in_proj"),
                    conv: within("conv.conv"),
                    out: within("conv.out_proj"),
                },
            },
            feed_forward_norm: within("ffn_norm"),
            feed_forward: match kind.feed_forward {
                FeedForward::Dense { .. } => FeedForwardNames::Dense {
                    gate: within("feed_forward.w1"),
                    up: within("feed_forward.w3"),
                    down: within("feed_forward.w2"),
                },
                FeedForward::Experts(e) => FeedForwardNames::Experts {
                    router: within("feed_forward.gate"),
                    bias: e.bias.then(|| within("feed_forward.expert_bias")),
                    experts: ExpertNames::Separate {
                        prefix: within("feed_forward.experts"),
                        gate: String::from("w1"),
                        up: String::from("w3"),
                        down: String::from("w2"),
                    },
                },
            },
        }
    };
    DecoderNames {
        embedding: "embed_tokens".into(),
        final_norm: "embedding_norm".into(),
        head: "lm_head".into(),
        layers: layers.iter().enumerate().map(layer).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_feed_forward_widths() {
        for (ff, adjusted) in [(6656, 4608), (10_240, 6912), (12_288, 8192)] {
            let text = format!(r#"{{"block_ff_dim":{ff},"block_ffn_dim_multiplier":1.0}}"#);
            let config = Config::parse("config.json", &text).unwrap();
            assert_eq!(width(&config, false).unwrap(), adjusted);
        }
        let text = r#"{"block_ff_dim":10752,"block_auto_adjust_ff_dim":false}"#;
        assert_eq!(width(&Config::parse("config.json", text).unwrap(), false).unwrap(), 10_752);
    }
}
