//! Decoders in GGUF files, whose keys and tensor names are the same for all architectures.

use alloc::{format, string::String, vec::Vec};

use super::{MAX_ENTRIES, MAX_LAYERS, MAX_WIDTH};
use crate::{
    Result,
    checkpoint::{Gguf, TensorSource, gguf::Metadata},
    model::decoder::{
        DecoderConfig, DecoderNames, ExpertNames, Experts, FeedForward, FeedForwardNames, Mixer, MixerNames,
        RopeConfig, RopeScaling, SublayerNames, Sublayers,
    },
    op::Scoring,
};

/// What files of one architecture do not say.
struct Traits {
    name: &'static str,
    qk_norm: bool,
    /// Biases of q, k and v.
    bias: bool,
    /// Rows of q and k are in the order of interleaved rotation.
    interleaved: bool,
    final_norm: &'static str,
    /// Used where the file has no `expert_gating_func`.
    scoring: Scoring,
    /// What expert weights are divided by besides their sum.
    normalize: Option<f32>,
}

const PLAIN: Traits = Traits {
    name: "",
    qk_norm: false,
    bias: false,
    interleaved: false,
    final_norm: "output_norm",
    scoring: Scoring::Softmax,
    normalize: Some(0.0),
};

const ARCHITECTURES: [Traits; 6] = [
    Traits { name: "lfm2", qk_norm: true, final_norm: "token_embd_norm", ..PLAIN },
    Traits {
        name: "lfm2moe",
        qk_norm: true,
        final_norm: "token_embd_norm",
        scoring: Scoring::Sigmoid,
        normalize: Some(1e-6),
        ..PLAIN
    },
    Traits { name: "llama", interleaved: true, ..PLAIN },
    Traits { name: "qwen2", bias: true, ..PLAIN },
    Traits { name: "qwen3", qk_norm: true, ..PLAIN },
    Traits { name: "qwen3moe", qk_norm: true, ..PLAIN },
];

/// Frequencies' divisors of Llama 3.
const ROPE_FREQS: &str = "rope_freqs.weight";

/// Reads a decoder's geometry from a GGUF file.
///
/// # Errors
/// `Config`, naming the key: one that is missing, holds an impossible value, or an architecture that is unknown.
pub fn read_gguf(file: &Gguf) -> Result<DecoderConfig> {
    let metadata = file.metadata();
    let architecture = metadata.string("general.architecture")?;
    let Some(traits) = ARCHITECTURES.iter().find(|t| t.name == architecture) else {
        let known: Vec<&str> = ARCHITECTURES.iter().map(|t| t.name).collect();
        let why = format!("is `{architecture}`, which is not supported; supported are {}", known.join(", "));
        return Err(metadata.wrong("general.architecture", &why));
    };
    let decoder = Reader { file, metadata, traits }.read()?;
    decoder.check()?;
    Ok(decoder)
}

struct Reader<'a> {
    file: &'a Gguf,
    metadata: &'a Metadata,
    traits: &'a Traits,
}

impl Reader<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.traits.name)
    }

    fn count(&self, name: &str, limit: usize) -> Result<usize> {
        self.metadata.count(&self.key(name), limit)
    }

    fn opt_count(&self, name: &str, limit: usize) -> Result<Option<usize>> {
        self.metadata.opt_count(&self.key(name), limit)
    }

    fn read(&self) -> Result<DecoderConfig> {
        let count = self.count("block_count", MAX_LAYERS)?;
        let hidden = self.count("embedding_length", MAX_WIDTH)?;
        let heads = self.count("attention.head_count", MAX_WIDTH)?;
        let kv_key = self.key("attention.head_count_kv");
        let kv_heads = self.metadata.opt_per_layer(&kv_key, count, MAX_WIDTH)?;
        let kv_heads = kv_heads.unwrap_or_else(|| alloc::vec![heads; count]);
        let head_dim = self.opt_count("attention.key_length", MAX_WIDTH)?.unwrap_or(hidden / heads);
        if self.opt_count("attention.value_length", MAX_WIDTH)?.is_some_and(|v| v != head_dim) {
            let key = self.key("attention.value_length");
            return Err(self.metadata.wrong(&key, "is not the key length, which is not supported"));
        }
        if let Some(rotated) = self.opt_count("rope.dimension_count", MAX_WIDTH)?
            && rotated != head_dim
        {
            let why = format!("is {rotated} of heads of {head_dim}: partial rotation is not supported");
            return Err(self.metadata.wrong(&self.key("rope.dimension_count"), &why));
        }
        let mut layers = Vec::new();
        let dense = self.opt_count("leading_dense_block_count", count)?.unwrap_or(0);
        let experts = self.experts()?;
        let width_key = self.key("feed_forward_length");
        let widths = self.metadata.opt_per_layer(&width_key, count, MAX_WIDTH)?;
        for (at, kv_heads) in kv_heads.into_iter().enumerate() {
            let mixer = match kv_heads {
                0 => Mixer::ShortConv { taps: self.count("shortconv.l_cache", 8)?, bias: false },
                kv_heads => Mixer::Attention {
                    kv_heads,
                    qk_norm: self.traits.qk_norm,
                    bias: self.traits.bias,
                    out_bias: false,
                },
            };
            let feed_forward = match (experts, &widths) {
                (Some(experts), _) if at >= dense => FeedForward::Experts(experts),
                (_, Some(widths)) => FeedForward::Dense { width: widths[at] },
                _ => return Err(self.metadata.wrong(&width_key, "is missing")),
            };
            layers.push(Sublayers { mixer, feed_forward });
        }
        Ok(DecoderConfig {
            model_type: self.traits.name.into(),
            vocab: self.vocab()?,
            hidden,
            heads,
            head_dim,
            max_positions: self.count("context_length", MAX_ENTRIES)?,
            norm_eps: self.metadata.positive(&self.key("attention.layer_norm_rms_epsilon"))?,
            rope: self.rope()?,
            tied: self.file.tensor("output.weight").is_none(),
            bidirectional: false,
            interleaved: self.traits.interleaved,
            names: self.names(&layers),
            layers,
        })
    }

    /// The table's rows: the key is often missing.
    fn vocab(&self) -> Result<usize> {
        if let Some(vocab) = self.opt_count("vocab_size", MAX_ENTRIES)? {
            return Ok(vocab);
        }
        match self.file.tensor("token_embd.weight").and_then(|t| t.shape.first().copied()) {
            Some(rows) if (1..=MAX_ENTRIES).contains(&rows) => Ok(rows),
            _ => Err(self.metadata.wrong(&self.key("vocab_size"), "is missing, and so is token_embd.weight")),
        }
    }

    fn rope(&self) -> Result<RopeConfig> {
        let number = |name: &str| self.metadata.opt_positive(&self.key(name)).map(|v| v.map(f64::from));
        let kind_key = self.key("rope.scaling.type");
        let kind = self.metadata.opt_string(&kind_key)?.unwrap_or("none");
        let factor = number("rope.scaling.factor")?;
        let missing = |name: &str| self.metadata.wrong(&self.key(name), "is missing");
        let original = match number("rope.scaling.original_context_length")? {
            Some(original) => original,
            None => self.count("context_length", MAX_ENTRIES)? as f64,
        };
        let scaling = match kind {
            _ if self.file.tensor(ROPE_FREQS).is_some() => {
                RopeScaling::Divisors { tensor: ROPE_FREQS.into() }
            }
            "none" => RopeScaling::None,
            "linear" => RopeScaling::Linear { factor: factor.ok_or_else(|| missing("rope.scaling.factor"))? },
            "yarn" => RopeScaling::Yarn {
                factor: factor.ok_or_else(|| missing("rope.scaling.factor"))?,
                attention_factor: number("rope.scaling.attn_factor")?,
                fast: number("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                slow: number("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
                original,
            },
            other => {
                let why = format!("is `{other}`, which is not supported; none, linear and yarn are");
                return Err(self.metadata.wrong(&kind_key, &why));
            }
        };
        Ok(RopeConfig { theta: number("rope.freq_base")?.unwrap_or(1e4), scaling })
    }

    fn experts(&self) -> Result<Option<Experts>> {
        let Some(count) = self.opt_count("expert_count", MAX_WIDTH)? else { return Ok(None) };
        let gating = self.key("expert_gating_func");
        let scoring = match self.metadata.opt_u64(&gating)? {
            None => self.traits.scoring,
            Some(1) => Scoring::Softmax,
            Some(2) => Scoring::Sigmoid,
            Some(other) => {
                let why = format!("is {other}; 1 (softmax) and 2 (sigmoid) are supported");
                return Err(self.metadata.wrong(&gating, &why));
            }
        };
        let normalize = self.metadata.opt_bool(&self.key("expert_weights_norm"))?.unwrap_or(true);
        Ok(Some(Experts {
            count,
            used: self.count("expert_used_count", 64)?,
            width: self.count("expert_feed_forward_length", MAX_WIDTH)?,
            scoring,
            bias: scoring == Scoring::Sigmoid,
            normalize: self.traits.normalize.filter(|_| normalize),
            scale: self.metadata.opt_positive(&self.key("expert_weights_scale"))?.unwrap_or(1.0),
        }))
    }

    fn names(&self, layers: &[Sublayers]) -> DecoderNames {
        let layer = |(i, kind): (usize, &Sublayers)| {
            let within = |name: &str| format!("blk.{i}.{name}");
            SublayerNames {
                mixer_norm: within("attn_norm"),
                mixer: match kind.mixer {
                    Mixer::Attention { .. } => MixerNames::Attention {
                        q: within("attn_q"),
                        k: within("attn_k"),
                        v: within("attn_v"),
                        out: within("attn_output"),
                        q_norm: within("attn_q_norm"),
                        k_norm: within("attn_k_norm"),
                    },
                    Mixer::ShortConv { .. } => MixerNames::ShortConv {
                        input: within("shortconv.in_proj"),
                        conv: within("shortconv.conv"),
                        out: within("shortconv.out_proj"),
                    },
                },
                feed_forward_norm: within("ffn_norm"),
                feed_forward: match kind.feed_forward {
                    FeedForward::Dense { .. } => FeedForwardNames::Dense {
                        gate: within("ffn_gate"),
                        up: within("ffn_up"),
                        down: within("ffn_down"),
                    },
                    FeedForward::Experts(e) => FeedForwardNames::Experts {
                        router: within("ffn_gate_inp"),
                        bias: e.bias.then(|| within("exp_probs_b.bias")),
                        experts: ExpertNames::Stacked {
                            gate: within("ffn_gate_exps"),
                            up: within("ffn_up_exps"),
                            down: within("ffn_down_exps"),
                        },
                    },
                },
            }
        };
        DecoderNames {
            embedding: "token_embd".into(),
            final_norm: self.traits.final_norm.into(),
            head: "output".into(),
            layers: layers.iter().enumerate().map(layer).collect(),
        }
    }
}
