//! Ops of decoders: caches that outlive a run, experts, sampling.
//!
//! Rows are tokens; field 1 of `tokens` is a row's position in its sequence and field 3 its slot, the index of
//! everything that is kept for one sequence.

use super::{Activation, NormParams};
use crate::{program::BufferId, tensor::Weight};

/// Positions of one page of a key-value cache.
pub const PAGE: usize = 64;

/// Normalises and rotates queries and keys, and stores keys and values in a paged cache.
///
/// Position `p` of slot `s` lies in row `pages[s][p / PAGE] · PAGE + p % PAGE` of the cache.
#[derive(Debug, Clone)]
pub struct StoreKv {
    /// `[T, (heads + 2·kv_heads)·head_dim]`: query, key and value heads; the queries are changed in place, what
    /// becomes of the keys and values there is not defined.
    pub qkv: BufferId,
    /// u32 `[T, 4]`: id, position, type, slot.
    pub tokens: BufferId,
    /// RMS norm over each head's `head_dim` values, weight `[1, head_dim]`, before rotation.
    pub q_norm: Option<NormParams>,
    pub k_norm: Option<NormParams>,
    /// As [`Rope::table`](super::Rope::table).
    pub rope: Weight,
    /// State `[pages·PAGE, 2·kv_heads·head_dim]`: key heads, then value heads.
    pub cache: BufferId,
    /// State u32 `[slots, pages a slot]`.
    pub pages: BufferId,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
}

/// Causal attention of each row to positions `0..=` its own of its slot, by a paged cache that holds them already.
///
/// Keys are walked in blocks at absolute positions, so that a row's result does not depend on what else is in
/// the batch nor on how a prompt was cut.
#[derive(Debug, Clone)]
pub struct CachedAttention {
    /// Its first `heads·head_dim` columns are the queries.
    pub q: BufferId,
    /// u32 `[T, 4]`: id, position, type, slot.
    pub tokens: BufferId,
    /// u32 `[N, 4]`: first and past-the-end row (at most [`ATTENTION_TILE`](super::ATTENTION_TILE) rows) of one
    /// slot at consecutive positions. `None`: every row is a tile of its own.
    pub tiles: Option<BufferId>,
    /// As [`StoreKv`].
    pub cache: BufferId,
    pub pages: BufferId,
    /// No row's position reaches this; kernels split the keys by it.
    pub context: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Multiplies `q·k`.
    pub scale: f32,
    /// `[T, heads·head_dim]`
    pub out: BufferId,
}

/// What the rows of a [`ShortConv`] are.
#[derive(Debug, Clone, Copy)]
pub enum ConvRows {
    /// Rows of slots that go on from what a state keeps of their last `u`, and leave theirs there. The last tap is the
    /// current token's.
    Slots {
        /// u32 `[T, 4]`: id, position, type, slot.
        tokens: BufferId,
        /// u32 `[S, 2]`: first and past-the-end row of each slot's rows, at consecutive positions. `None`: every
        /// row is of another slot.
        spans: Option<BufferId>,
        /// State f32 `[slots·(L−1), H]`: the oldest column of a slot first.
        state: BufferId,
    },
    /// Whole packed sequences, of which nothing is kept.
    Sequences {
        /// As [`Attention::tiles`](super::Attention::tiles).
        tiles: BufferId,
        /// Taps that lie after the current token: 0 for a causal convolution, `(L−1)/2` for a centred one.
        ahead: usize,
    },
}

/// Gated short convolution (LFM2): with `[B; C; x]` the thirds of a row, `u = B ⊙ x`,
/// `y_t = Σ_j w_j ⊙ u_{t−(L−1)+ahead+j} + b`, `out = C ⊙ y`; `u` is 0 outside a token's sequence.
#[derive(Debug, Clone)]
pub struct ShortConv {
    /// `[T, 3·H]`
    pub bcx: BufferId,
    pub rows: ConvRows,
    /// `[L, H]`, the earliest tap first; a vector.
    pub weight: Weight,
    /// `[1, H]`
    pub bias: Option<Weight>,
    /// `[T, H]`
    pub out: BufferId,
}

impl ShortConv {
    /// Tokens and state, where every row is of another slot.
    pub(crate) fn singles(&self) -> Option<[BufferId; 2]> {
        match self.rows {
            ConvRows::Slots { tokens, spans: None, state } => Some([tokens, state]),
            _ => None,
        }
    }
}

/// How a router's scores become weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scoring {
    /// Over all experts.
    Softmax,
    Sigmoid,
}

/// Chooses experts: `p = score(x Wᵀ)`, the `used` largest of `p + bias` (ties: the lower index), their weights
/// `p`, divided by their sum plus `normalize` if that is given, times `scale`.
#[derive(Debug, Clone)]
pub struct Route {
    pub x: BufferId,
    /// `[experts, in]`
    pub weight: Weight,
    /// `[1, experts]`, for the choice alone.
    pub bias: Option<Weight>,
    pub scoring: Scoring,
    pub used: usize,
    pub normalize: Option<f32>,
    pub scale: f32,
    /// f32 `[T, 2·used up to a multiple of 4]`: indices (whole numbers), then weights.
    pub out: BufferId,
}

/// [`GatedLinear`](super::GatedLinear) of each chosen expert.
#[derive(Debug, Clone)]
pub struct ExpertGatedLinear {
    /// `[T, in]`
    pub x: BufferId,
    /// As [`Route::out`].
    pub routes: BufferId,
    pub used: usize,
    /// `[experts·2·F, in]`: of each expert the gate's rows, then the up rows.
    pub weight: Weight,
    pub activation: Activation,
    /// `[T, used·F]`
    pub out: BufferId,
}

/// `out = Σ weight_e · (x_e W_eᵀ) + residual` over the chosen experts, in the order of the routes.
#[derive(Debug, Clone)]
pub struct ExpertLinear {
    /// `[T, used·F]`
    pub x: BufferId,
    /// As [`Route::out`].
    pub routes: BufferId,
    pub used: usize,
    /// `[experts·out, F]`
    pub weight: Weight,
    pub residual: Option<BufferId>,
    /// `[T, out]`
    pub out: BufferId,
}

/// Words of one slot's row in [`Sample::settings`], by name; numbers are f32 bits but where said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Setting {
    /// u32 bits: 1 temperature last (llama.cpp's order), 2 `mask` is used, 4 `bias` is used, 8 no token is chosen
    /// and nothing is written but `out`.
    Flags = 0,
    /// u32, the halves of the seed and the index of the choice within its request.
    SeedLow = 1,
    SeedHigh = 2,
    Choice = 3,
    /// 0: the most likely token.
    Temperature = 4,
    /// u32, 0: off.
    TopK = 5,
    /// 1: off.
    TopP = 6,
    /// 0: off.
    MinP = 7,
    /// 1: off.
    Repetition = 8,
    /// 0: off.
    Frequency = 9,
    Presence = 10,
    /// u32: how many of the words from [`Setting::Stops`] on are tokens that end the sequence.
    StopCount = 12,
    /// u32 each, [`MOST_STOPS`] at most.
    Stops = 13,
}

/// Tokens that can end a sequence on the device.
pub const MOST_STOPS: usize = 8;

/// Words of one slot's settings.
pub const SETTING_WORDS: usize = 24;

/// Chooses each sequence's next token and makes it the row of `tokens` that the next run starts from.
///
/// Logits get their bias and penalties; tokens outside the mask drop out; then temperature, top-k, top-p and min-p
/// (Hugging Face's order; with the flag, temperature comes last). Tokens of equal logits are kept or dropped
/// together. The uniform number is a hash of (seed, choice, position): pcg4d of Jarzynski and Olano, "Hash Functions
/// for GPU Rendering", JCGT 2020, its first word's upper 24 bits; the token is found by the inverse of the cumulative
/// distribution in order of ids.
///
/// A token that ends the sequence sends the row to the last slot, position 0, which is nobody's: what was submitted
/// ahead then changes nothing that is kept.
#[derive(Debug, Clone)]
pub struct Sample {
    /// f32 `[S, ≥ vocab]`
    pub logits: BufferId,
    /// Tokens that can be chosen: the first so many columns.
    pub vocab: usize,
    /// State u32 `[slots, 4]`: id, position, type, slot. The chosen token is written there with the position after
    /// its predecessor's.
    pub tokens: BufferId,
    /// u32 `[S, 4]`: row of `tokens` to write, position of the row the logits came from, 0, slot. `None`: sequence
    /// `s` continues row `s` of `tokens`.
    pub targets: Option<BufferId>,
    /// State u32 `[slots, SETTING_WORDS]`, by [`Setting`].
    pub settings: BufferId,
    /// State u32 `[slots, vocab up to a multiple of 4]`: how often each token was generated, times two, plus one if
    /// it is in the prompt. The chosen token is counted.
    pub counts: BufferId,
    /// State f32 `[slots, vocab up to a multiple of 4]`, added to the logits.
    pub bias: Option<BufferId>,
    /// State u32 `[slots, ⌈vocab/32⌉ up to a multiple of 4]`: bit `t % 32` of word `t / 32` allows token `t`.
    pub mask: Option<BufferId>,
    /// f32 `[S, 4]`: the token (a whole number), the logarithm of its probability before temperature and filters,
    /// the position it stands at, 0.
    pub out: BufferId,
}
