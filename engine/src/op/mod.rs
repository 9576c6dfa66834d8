//! The closed list of operations, each at the grain of one fused kernel.
//!
//! Operands are buffers of a [`Program`](crate::program::Program) (`[rows, cols]`, row-major) and weights.
//! [`Op::check`] holds every shape rule; backends may rely on it.

mod check;
mod check_decoder;
mod decoder;

use alloc::vec::Vec;

pub use decoder::{
    CachedAttention, ConvRows, ExpertGatedLinear, ExpertLinear, MOST_STOPS, PAGE, Route, SETTING_WORDS,
    Sample, Scoring, Setting, ShortConv, StoreKv,
};

use crate::{program::BufferId, tensor::Weight};

/// Query rows in one attention tile, at most.
pub const ATTENTION_TILE: usize = 64;

/// Elementwise function of a linear op's epilogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Activation {
    #[default]
    None,
    /// `x/2 · (1 + erf(x/√2))`
    Gelu,
    /// `x/2 · (1 + tanh(√(2/π)(x + 0.044715x³)))`
    GeluTanh,
    Relu,
    /// `x · σ(x)`
    Silu,
    Tanh,
    Sigmoid,
}

impl Activation {
    pub const ALL: [Activation; 7] = [
        Activation::None,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Relu,
        Activation::Silu,
        Activation::Tanh,
        Activation::Sigmoid,
    ];
}

/// How the vectors of a sequence become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PoolMode {
    /// First row.
    Cls,
    /// Elementwise maximum.
    Max,
    /// Arithmetic mean.
    Mean,
    /// Sum over the square root of the length.
    MeanSqrtLen,
    /// Mean weighted by the 1-based position in the pooled range.
    WeightedMean,
    /// Last row.
    LastToken,
}

impl PoolMode {
    pub const ALL: [PoolMode; 6] = [
        PoolMode::Cls,
        PoolMode::Max,
        PoolMode::Mean,
        PoolMode::MeanSqrtLen,
        PoolMode::WeightedMean,
        PoolMode::LastToken,
    ];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NormKind {
    /// `(x − mean)/√(var + eps) · w + b`
    Layer,
    /// `x/√(mean(x²) + eps) · w`
    Rms,
}

/// Parameters of a norm: `[2, cols]` weight and bias, or `[1, cols]` weight alone.
#[derive(Debug, Clone)]
pub struct NormParams {
    pub kind: NormKind,
    pub weight: Weight,
    pub eps: f32,
}

/// Which column of the `tokens` buffer indexes a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum TokenField {
    Id = 0,
    Position = 1,
    Type = 2,
}

/// Sum of table rows, then an optional norm: `out[t] = norm(Σ table[tokens[t][field]])`.
#[derive(Debug, Clone)]
pub struct Embed {
    /// u32 `[T, 4]`: id, position, type, 0.
    pub tokens: BufferId,
    /// One to three tables `[entries, cols]`.
    pub tables: Vec<(Weight, TokenField)>,
    pub norm: Option<NormParams>,
    pub out: BufferId,
}

/// `out = norm(x)`, row by row.
#[derive(Debug, Clone)]
pub struct Norm {
    pub x: BufferId,
    pub params: NormParams,
    pub out: BufferId,
}

/// `out = act(x Wᵀ + bias) + residual`, with `W` `[out, in]`.
///
/// The order of summation over `in` never depends on the number of rows.
#[derive(Debug, Clone)]
pub struct Linear {
    pub x: BufferId,
    pub weight: Weight,
    /// `[1, out]`
    pub bias: Option<Weight>,
    pub activation: Activation,
    pub residual: Option<BufferId>,
    pub out: BufferId,
}

/// `out = act(x Wgᵀ + bg) ⊙ (x Wuᵀ + bu)`; `weight` holds the rows of `Wg`, then those of `Wu`.
#[derive(Debug, Clone)]
pub struct GatedLinear {
    pub x: BufferId,
    /// `[2·F, in]`
    pub weight: Weight,
    /// `[1, 2·F]`
    pub bias: Option<Weight>,
    pub activation: Activation,
    /// `[rows, F]`
    pub out: BufferId,
}

/// Normalises and rotates query and key heads in place: the first `(heads + kv_heads) · head_dim` columns; NeoX pairs
/// `(i, i + d/2)`.
#[derive(Debug, Clone)]
pub struct Rope {
    /// `[T, ≥ (heads + kv_heads)·head_dim]`, changed in place.
    pub x: BufferId,
    /// Positions are its field 1.
    pub tokens: BufferId,
    /// RMS norm over each head's `head_dim` values, weight `[1, head_dim]`, before rotation.
    pub q_norm: Option<NormParams>,
    pub k_norm: Option<NormParams>,
    /// f32 `[positions, head_dim]`: cosines of the d/2 angles, then sines.
    pub table: Weight,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
}

/// Attention over packed sequences.
#[derive(Debug, Clone)]
pub struct Attention {
    /// `[T, (heads + 2·kv_heads)·head_dim]`: query heads, key heads, value heads.
    pub qkv: BufferId,
    /// u32 `[N, 4]`: first and past-the-end query row (at most [`ATTENTION_TILE`] rows), then the first and
    /// past-the-end row of the sequence they belong to.
    pub tiles: BufferId,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Multiplies `q·k`.
    pub scale: f32,
    /// Attend to keys with `|i − j| ≤ window` only.
    pub window: Option<usize>,
    /// Attend to keys with `j ≤ i` only.
    pub causal: bool,
    /// f32 `[heads, 2R+1]`, added to the scaled score at `clamp(j − i, −R, R) + R`.
    pub bias: Option<Weight>,
    /// `[T, heads·head_dim]`
    pub out: BufferId,
}

/// Pools row ranges: `out[s]` is the concatenation of `modes` over rows `ranges[s]`. Empty ranges give 0.
#[derive(Debug, Clone)]
pub struct Pool {
    pub x: BufferId,
    /// u32 `[S, 2]`: first and past-the-end row.
    pub ranges: BufferId,
    pub modes: Vec<PoolMode>,
    /// `[S, modes·cols]`
    pub out: BufferId,
}

/// `out = x/max(‖x‖₂, 1e-12)` over the first `out.cols` columns of each row (Matryoshka truncation).
#[derive(Debug, Clone)]
pub struct Normalize {
    pub x: BufferId,
    /// False truncates only.
    pub unit: bool,
    pub out: BufferId,
}

/// One operation of a program.
#[derive(Debug, Clone)]
pub enum Op {
    Embed(Embed),
    Norm(Norm),
    Linear(Linear),
    GatedLinear(GatedLinear),
    Rope(Rope),
    Attention(Attention),
    Pool(Pool),
    Normalize(Normalize),
    StoreKv(StoreKv),
    CachedAttention(CachedAttention),
    ShortConv(ShortConv),
    Route(Route),
    ExpertGatedLinear(ExpertGatedLinear),
    ExpertLinear(ExpertLinear),
    Sample(Sample),
}

impl Attention {
    /// How far keys before and after a query's row are seen; `None`: to the end of the sequence.
    pub fn reach(&self) -> [Option<usize>; 2] {
        [self.window, if self.causal { Some(0) } else { self.window }]
    }
}

impl Op {
    pub const fn name(&self) -> &'static str {
        match self {
            Op::Embed(_) => "embed",
            Op::Norm(_) => "norm",
            Op::Linear(_) => "linear",
            Op::GatedLinear(_) => "gated_linear",
            Op::Rope(_) => "rope",
            Op::Attention(_) => "attention",
            Op::Pool(_) => "pool",
            Op::Normalize(_) => "normalize",
            Op::StoreKv(_) => "store_kv",
            Op::CachedAttention(_) => "cached_attention",
            Op::ShortConv(_) => "short_conv",
            Op::Route(_) => "route",
            Op::ExpertGatedLinear(_) => "expert_gated_linear",
            Op::ExpertLinear(_) => "expert_linear",
            Op::Sample(_) => "sample",
        }
    }

    /// Buffers read and buffers written (a buffer changed in place is in both).
    pub fn operands(&self) -> (Vec<BufferId>, Vec<BufferId>) {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        let out = match self {
            Op::Embed(o) => {
                reads.push(o.tokens);
                o.out
            }
            Op::Norm(o) => {
                reads.push(o.x);
                o.out
            }
            Op::Linear(o) => {
                reads.push(o.x);
                reads.extend(o.residual);
                o.out
            }
            Op::GatedLinear(o) => {
                reads.push(o.x);
                o.out
            }
            Op::Rope(o) => {
                reads.extend([o.x, o.tokens]);
                o.x
            }
            Op::Attention(o) => {
                reads.extend([o.qkv, o.tiles]);
                o.out
            }
            Op::Pool(o) => {
                reads.extend([o.x, o.ranges]);
                o.out
            }
            Op::Normalize(o) => {
                reads.push(o.x);
                o.out
            }
            Op::StoreKv(o) => {
                reads.extend([o.qkv, o.tokens, o.pages]);
                writes.push(o.cache);
                o.qkv
            }
            Op::CachedAttention(o) => {
                reads.extend([o.q, o.tokens, o.pages, o.cache]);
                reads.extend(o.tiles);
                o.out
            }
            Op::ShortConv(o) => {
                reads.push(o.bcx);
                match o.rows {
                    ConvRows::Slots { tokens, spans, state } => {
                        reads.extend([tokens, state]);
                        reads.extend(spans);
                        writes.push(state);
                    }
                    ConvRows::Sequences { tiles, .. } => reads.push(tiles),
                }
                o.out
            }
            Op::Route(o) => {
                reads.push(o.x);
                o.out
            }
            Op::ExpertGatedLinear(o) => {
                reads.extend([o.x, o.routes]);
                o.out
            }
            Op::ExpertLinear(o) => {
                reads.extend([o.x, o.routes]);
                reads.extend(o.residual);
                o.out
            }
            Op::Sample(o) => {
                reads.extend([o.logits, o.tokens, o.settings, o.counts]);
                reads.extend(o.targets);
                reads.extend(o.bias);
                reads.extend(o.mask);
                writes.extend([o.tokens, o.counts]);
                o.out
            }
        };
        writes.push(out);
        (reads, writes)
    }
}
