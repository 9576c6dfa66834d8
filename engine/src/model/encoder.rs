//! What one encoder architecture has that another has not, and the encoder itself.

use alloc::{collections::BTreeMap, format, string::String, vec::Vec};
use core::ops::Range;

use crate::{
    Error, Result,
    op::{Activation, NormParams},
    tensor::{DType, Weight},
};

/// Where an encoder's layers normalise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormOrder {
    /// After each residual sum (BERT). The stream between layers is normalised, and kept like other activations.
    Post,
    /// Before attention and feed-forward (ModernBERT), and once at the end. The stream is kept in f32.
    Pre,
}

/// How tokens get their position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Positions {
    /// Position of the first token.
    pub first: u32,
    /// Tokens with this id get position `first − 1` and are not counted, as RoBERTa's padding.
    pub uncounted: Option<u32>,
}

/// What may differ from layer to layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerKind {
    /// Attend to `|i − j| ≤ window` only.
    pub window: Option<usize>,
    /// Base of the rotary embedding, where there is one.
    pub rope_theta: Option<f32>,
}

/// Modules of one layer, by name without `.weight` and `.bias`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerNames {
    /// Before attention (pre-norm); the first layer of some models has none.
    pub input_norm: Option<String>,
    /// One module that holds q, k and v, or three.
    pub qkv: Vec<String>,
    pub attention_out: String,
    /// After the attention's residual sum (post-norm), or before the feed-forward (pre-norm).
    pub middle_norm: String,
    pub up: String,
    pub down: String,
    /// After the feed-forward's residual sum (post-norm).
    pub output_norm: Option<String>,
}

/// An encoder's modules, by name without `.weight` and `.bias`, and without the prefix that a checkpoint may
/// put before all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// Tables, in the order in which they are summed.
    pub word: String,
    pub position: Option<String>,
    pub token_type: Option<String>,
    pub embedding_norm: String,
    pub layers: Vec<LayerNames>,
    /// Pre-norm only.
    pub final_norm: Option<String>,
    /// `[32, heads]`: bias of each bucket of relative positions, added to scores in every layer.
    pub relative_bias: Option<String>,
}

/// An encoder's geometry, as its architecture read it from `config.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct EncoderConfig {
    pub model_type: String,
    pub vocab: usize,
    pub hidden: usize,
    pub heads: usize,
    /// Width of the feed-forward.
    pub intermediate: usize,
    /// Entries of the position table; for models without, the longest sequence.
    pub max_positions: usize,
    pub positions: Positions,
    /// Entries of the token type table; 0 if there is none.
    pub token_types: usize,
    pub activation: Activation,
    pub norm_eps: f32,
    pub order: NormOrder,
    /// The feed-forward is `act(gate) ⊙ up`, gate's rows first.
    pub gated: bool,
    pub linear_bias: bool,
    pub norm_bias: bool,
    pub layers: Vec<LayerKind>,
    pub names: Names,
}

impl EncoderConfig {
    pub fn head_dim(&self) -> usize {
        self.hidden / self.heads
    }

    /// Most tokens of one sequence.
    pub fn max_tokens(&self) -> usize {
        self.max_positions.saturating_sub(self.positions.first as usize)
    }

    /// Checks what no single key shows.
    ///
    /// # Errors
    /// `Config`, naming the key.
    pub fn check(&self) -> Result<()> {
        let wrong = |key: &str, why: String| Err(Error::Config { key: key.into(), why });
        let (hidden, heads) = (self.hidden, self.heads);
        if !hidden.is_multiple_of(heads) {
            return wrong("num_attention_heads", format!("{heads} heads do not divide {hidden} dimensions"));
        }
        let (head_dim, rotary) = (self.head_dim(), self.layers.iter().any(|l| l.rope_theta.is_some()));
        if !head_dim.is_multiple_of(if rotary { 8 } else { 4 }) || head_dim > 256 {
            return wrong("num_attention_heads", format!("heads of {head_dim} dimensions are not supported"));
        }
        if !self.intermediate.is_multiple_of(4) {
            let why = format!("{} is not a multiple of 4, which is not supported", self.intermediate);
            return wrong("intermediate_size", why);
        }
        if self.max_tokens() == 0 {
            let why = format!("{} leaves no position for a token", self.max_positions);
            return wrong("max_position_embeddings", why);
        }
        Ok(())
    }
}

/// One layer's weights.
#[derive(Debug)]
pub(super) struct Layer {
    pub input_norm: Option<NormParams>,
    pub qkv: (Weight, Option<Weight>),
    pub attention_out: (Weight, Option<Weight>),
    pub middle_norm: NormParams,
    pub up: (Weight, Option<Weight>),
    pub down: (Weight, Option<Weight>),
    pub output_norm: Option<NormParams>,
}

/// A text encoder with its weights in a backend's memory.
#[derive(Debug)]
pub struct Encoder {
    pub(super) config: EncoderConfig,
    /// Layers that are loaded; others belong to other shards.
    pub(super) range: Range<usize>,
    /// Element type of activations.
    pub(super) activations: DType,
    /// Only if the first layer is loaded.
    pub(super) embedding: Option<Embedding>,
    pub(super) layers: Vec<Layer>,
    pub(super) final_norm: Option<NormParams>,
    pub(super) relative_bias: Option<Weight>,
    /// Tables by the bits of their theta.
    pub(super) rope: BTreeMap<u32, Weight>,
}

#[derive(Debug)]
pub(super) struct Embedding {
    pub tables: Vec<(Weight, crate::op::TokenField)>,
    pub norm: NormParams,
}

impl Encoder {
    pub fn config(&self) -> &EncoderConfig {
        &self.config
    }

    /// The layers that are loaded.
    pub fn layers(&self) -> Range<usize> {
        self.range.clone()
    }
}
