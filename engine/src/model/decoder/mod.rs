//! The one decoder: each layer is a mixer (attention or short convolution) and a feed-forward (dense or experts).
//!
//! Its layers go on from what caches keep, or take whole sequences and keep nothing, as embedding models do; some of
//! these are bidirectional and do no other.

mod caches;
mod load;
mod names;
mod record;
mod rope;

use alloc::{format, string::String, vec::Vec};
use core::ops::Range;

pub use caches::{CacheOptions, Caches};
pub use names::{DecoderNames, ExpertNames, FeedForwardNames, MixerNames, SublayerNames};
pub use record::{DecoderStage, Kept, Rows, Wanted};
pub use rope::{RopeConfig, RopeScaling};

use crate::{
    Error, Result,
    backend::Capabilities,
    op::{NormParams, Scoring},
    tensor::Weight,
};

/// What mixes tokens in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mixer {
    /// Attention with grouped queries.
    Attention {
        kv_heads: usize,
        /// RMS norm of queries and keys, head by head, before rotation.
        qk_norm: bool,
        /// Biases of q, k and v.
        bias: bool,
        /// Bias of the output projection.
        out_bias: bool,
    },
    /// Gated short convolution (LFM2).
    ShortConv { taps: usize, bias: bool },
}

/// What follows the mixer in a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FeedForward {
    /// SwiGLU of this width.
    Dense {
        width: usize,
    },
    Experts(Experts),
}

/// A mixture of SwiGLU experts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Experts {
    pub count: usize,
    /// Experts that a token uses.
    pub used: usize,
    pub width: usize,
    pub scoring: Scoring,
    /// A bias that steers the choice and not the weights.
    pub bias: bool,
    /// Divide the weights by their sum plus this.
    pub normalize: Option<f32>,
    pub scale: f32,
}

/// One layer's kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sublayers {
    pub mixer: Mixer,
    pub feed_forward: FeedForward,
}

/// A decoder's geometry, as its architecture read it.
#[derive(Debug, Clone, PartialEq)]
pub struct DecoderConfig {
    pub model_type: String,
    pub vocab: usize,
    pub hidden: usize,
    pub heads: usize,
    pub head_dim: usize,
    /// Longest context that the model is made for.
    pub max_positions: usize,
    pub norm_eps: f32,
    pub rope: RopeConfig,
    /// The output matrix is the table of embeddings.
    pub tied: bool,
    /// A token sees its whole sequence, not only what precedes it: attention is not causal and convolutions are centred.
    /// Such a model embeds and generates nothing.
    pub bidirectional: bool,
    /// Rows of q and k are stored for interleaved rotation (llama in GGUF).
    pub interleaved: bool,
    pub layers: Vec<Sublayers>,
    pub names: DecoderNames,
}

impl DecoderConfig {
    /// Checks what no single key shows.
    ///
    /// # Errors
    /// `Config`, naming the key.
    pub fn check(&self) -> Result<()> {
        let wrong = |key: &str, why: String| Err(Error::Config { key: key.into(), why });
        let (hidden, heads, head_dim) = (self.hidden, self.heads, self.head_dim);
        if !hidden.is_multiple_of(4) {
            return wrong("hidden_size", format!("{hidden} is not a multiple of 4, which is not supported"));
        }
        if !head_dim.is_multiple_of(8) || head_dim > 256 {
            return wrong("head_dim", format!("heads of {head_dim} dimensions are not supported"));
        }
        for (at, layer) in self.layers.iter().enumerate() {
            if let (Mixer::ShortConv { taps, .. }, true) = (layer.mixer, self.bidirectional)
                && taps != 3
            {
                let why = format!("is {taps}; centred convolutions of 3 taps are supported (layer {at})");
                return wrong("conv_L_cache", why);
            }
            if let Mixer::Attention { kv_heads, .. } = layer.mixer
                && (kv_heads == 0 || !heads.is_multiple_of(kv_heads))
            {
                let why = format!("{kv_heads} key heads do not divide {heads} heads (layer {at})");
                return wrong("num_key_value_heads", why);
            }
            let (width, key) = match layer.feed_forward {
                FeedForward::Dense { width } => (width, "intermediate_size"),
                FeedForward::Experts(e) if e.used > e.count => {
                    let why = format!("{} of {} experts", e.used, e.count);
                    return wrong("num_experts_per_tok", why);
                }
                FeedForward::Experts(e) => (e.width, "moe_intermediate_size"),
            };
            if !width.is_multiple_of(4) {
                return wrong(key, format!("{width} is not a multiple of 4, which is not supported"));
            }
        }
        Ok(())
    }

    /// Bytes of caches that one token needs in all layers, if a value takes `value` bytes.
    pub fn cache_bytes_per_token(&self, value: usize) -> usize {
        let kv = |l: &Sublayers| match l.mixer {
            Mixer::Attention { kv_heads, .. } => 2 * kv_heads * self.head_dim * value,
            Mixer::ShortConv { .. } => 0,
        };
        self.layers.iter().map(kv).sum()
    }
}

/// A matrix and its bias.
type Projection = (Weight, Option<Weight>);

#[derive(Debug)]
enum MixerWeights {
    Attention {
        kv_heads: usize,
        qkv: Projection,
        q_norm: Option<NormParams>,
        k_norm: Option<NormParams>,
        out: Projection,
    },
    ShortConv {
        input: Projection,
        /// `[taps, hidden]`
        taps: Weight,
        bias: Option<Weight>,
        out: Projection,
    },
}

#[derive(Debug)]
enum FeedForwardWeights {
    Dense { gate_up: Weight, down: Weight },
    Experts { config: Experts, router: Weight, bias: Option<Weight>, gate_up: Weight, down: Weight },
}

#[derive(Debug)]
struct Layer {
    mixer_norm: NormParams,
    mixer: MixerWeights,
    feed_forward_norm: NormParams,
    feed_forward: FeedForwardWeights,
}

/// A decoder with its weights in a backend's memory.
#[derive(Debug)]
pub struct Decoder {
    config: DecoderConfig,
    /// Layers that are loaded; others belong to other shards.
    range: Range<usize>,
    /// Positions that the rotary table has.
    context: usize,
    capabilities: Capabilities,
    /// Only if the first layer is loaded.
    embedding: Option<Weight>,
    layers: Vec<Layer>,
    /// Only if the last layer is loaded.
    final_norm: Option<NormParams>,
    /// `[vocab up to a multiple of 4, hidden]`, only with the last layer, and where text is generated.
    head: Option<Weight>,
    rope: Weight,
}

impl Decoder {
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// The layers that are loaded.
    pub fn layers(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Most positions of one sequence.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Columns of the logits: the vocabulary, up to a multiple of 4.
    pub fn logit_columns(&self) -> usize {
        self.config.vocab.next_multiple_of(4)
    }
}
