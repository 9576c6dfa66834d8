//! Steps of a plan: each a set of tasks that may run in any order.

use std::sync::Arc;

use inferencelayer_engine::{
    op::{Activation, NormKind, PoolMode, Scoring},
    program::Count,
    tensor::{DType, Weight},
};

use super::check::Check;

/// Whose memory a buffer is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    Arena,
    /// What a step leaves to the next one: a region of the arena.
    Staged,
    /// The plan's state of this index.
    State(usize),
}

/// A buffer of the plan: where it is, in words, and its shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub home: Home,
    pub at: usize,
    /// The bucket, or a state's rows.
    pub rows: usize,
    pub cols: usize,
    pub count: Count,
    pub dtype: DType,
}

/// A norm's weights and kind.
#[derive(Debug)]
pub struct NormStep {
    pub kind: NormKind,
    /// `[1 or 2, cols]`
    pub weight: Weight,
    pub eps: f32,
}

/// A matrix product, the activations of an 8-bit weight having been made before it.
#[derive(Debug)]
pub struct LinearStep {
    pub x: Place,
    pub weight: Weight,
    pub bias: Option<Weight>,
    pub activation: Activation,
    pub residual: Option<Place>,
    pub gated: bool,
    pub out: Place,
}

#[derive(Debug)]
pub struct AttentionStep {
    pub qkv: Place,
    pub tiles: Place,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub scale: f32,
    /// How far keys before and after a query are seen.
    pub reach: [Option<usize>; 2],
    pub bias: Option<Weight>,
    pub out: Place,
}

/// Heads that are normalised and rotated in place.
#[derive(Debug)]
pub struct RopeStep {
    pub x: Place,
    pub tokens: Place,
    pub q_norm: Option<NormStep>,
    pub k_norm: Option<NormStep>,
    pub table: Weight,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
}

/// What stores keys and values.
#[derive(Debug)]
pub struct StoreStep {
    pub qkv: Place,
    pub tokens: Place,
    pub q_norm: Option<NormStep>,
    pub k_norm: Option<NormStep>,
    pub rope: Weight,
    pub cache: Place,
    pub pages: Place,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
}

/// Attention by a cache.
#[derive(Debug)]
pub struct CachedStep {
    pub q: Place,
    pub tokens: Place,
    pub tiles: Option<Place>,
    pub cache: Place,
    pub pages: Place,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub scale: f32,
    pub out: Place,
}

/// What the rows of a short convolution are.
#[derive(Debug, Clone, Copy)]
pub enum ConvPlaces {
    Slots { tokens: Place, spans: Option<Place>, state: Place },
    Sequences { tiles: Place, ahead: usize },
}

/// A short convolution.
#[derive(Debug)]
pub struct ConvStep {
    pub bcx: Place,
    pub rows: ConvPlaces,
    pub weight: Weight,
    pub bias: Option<Weight>,
    pub out: Place,
}

/// The choice of experts from logits.
#[derive(Debug)]
pub struct ChooseStep {
    pub logits: Place,
    pub bias: Option<Weight>,
    pub scoring: Scoring,
    pub used: usize,
    pub normalize: Option<f32>,
    pub scale: f32,
    pub out: Place,
}

/// What chosen experts do.
#[derive(Debug, Clone, Copy)]
pub enum ExpertKind {
    Gated(Activation),
    Sum(Option<Place>),
}

/// Products of chosen experts.
#[derive(Debug)]
pub struct ExpertStep {
    pub x: Place,
    pub routes: Place,
    pub used: usize,
    pub weight: Weight,
    pub kind: ExpertKind,
    /// Outputs of one expert.
    pub width: usize,
    pub out: Place,
}

/// Sampling; offsets are in words of the staged region.
#[derive(Debug)]
pub struct SampleStep {
    pub logits: Place,
    pub vocab: usize,
    pub tokens: Place,
    pub targets: Option<Place>,
    pub settings: Place,
    pub counts: Place,
    pub bias: Option<Place>,
    pub mask: Option<Place>,
    pub out: Place,
    /// Logits after bias and penalties, `[sequences, stride]`.
    pub values: usize,
    /// What parts came to.
    pub found: usize,
    /// Scratch memory for so many choices at a time, this many words each.
    pub scratch: usize,
    pub scratch_words: usize,
    pub choices: usize,
}

impl SampleStep {
    /// Parts that a sequence's logits are scanned in.
    pub fn parts(&self) -> usize {
        self.vocab.div_ceil(super::sample::PART)
    }
}

/// One step of a plan.
#[derive(Debug)]
pub enum Step {
    Embed {
        tokens: Place,
        tables: Vec<(Weight, usize)>,
        norm: Option<NormStep>,
        out: Place,
    },
    Norm {
        x: Place,
        norm: NormStep,
        out: Place,
    },
    /// Makes the activations of the step after it, which has an 8-bit weight.
    Quantize {
        x: Place,
    },
    /// Rounds to 8-bit blocks.
    ToQ8 {
        x: Place,
        out: Place,
    },
    Linear(LinearStep),
    Rope(RopeStep),
    Attention(AttentionStep),
    StoreKv(StoreStep),
    Cached(CachedStep),
    ShortConv(ConvStep),
    /// Products with a small matrix that is kept as a vector.
    Dots {
        x: Place,
        weight: Weight,
        out: Place,
    },
    Choose(ChooseStep),
    Experts(ExpertStep),
    /// A part of the logits of a sequence each.
    Scan(Arc<SampleStep>),
    /// The token of a sequence each.
    Pick(Arc<SampleStep>),
    /// What the tokens change.
    Commit(Arc<SampleStep>),
    Pool {
        x: Place,
        ranges: Place,
        modes: Vec<PoolMode>,
        out: Place,
    },
    Normalize {
        x: Place,
        unit: bool,
        out: Place,
    },
}

impl Step {
    /// For profiles.
    pub fn name(&self) -> &'static str {
        match self {
            Step::Embed { .. } => "embed",
            Step::Norm { .. } => "norm",
            Step::Quantize { .. } => "quantize",
            Step::ToQ8 { .. } => "to_q8",
            Step::Linear(step) if step.gated => "gated_linear",
            Step::Linear(_) => "linear",
            Step::Rope(_) => "rope",
            Step::Attention(_) => "attention",
            Step::StoreKv(_) => "store_kv",
            Step::Cached(_) => "cached_attention",
            Step::ShortConv(_) => "short_conv",
            Step::Dots { .. } => "dots",
            Step::Choose(_) => "choose",
            Step::Experts(_) => "experts",
            Step::Scan(_) => "sample_scan",
            Step::Pick(_) => "sample_pick",
            Step::Commit(_) => "sample_commit",
            Step::Pool { .. } => "pool",
            Step::Normalize { .. } => "normalize",
        }
    }
}

/// A lowered program.
#[derive(Debug, Default)]
pub struct Lowered {
    pub steps: Vec<Step>,
    pub checks: Vec<Check>,
    /// Words of quantized activations, at most.
    pub words: usize,
    /// Rows that are quantized, at most.
    pub quantized_rows: usize,
    /// Words of scratch memory that a worker needs.
    pub scratch: usize,
    /// Words that a step leaves to the next one, at most.
    pub staged: usize,
}
