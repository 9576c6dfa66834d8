//! A decoder's tensors by name.

use alloc::{string::String, vec::Vec};

/// Modules that hold experts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpertNames {
    /// `<prefix>.<expert>.<gate|up|down>.weight`
    Separate { prefix: String, gate: String, up: String, down: String },
    /// One tensor of all experts for each, `[experts, rows, cols]`, by name without `.weight`.
    Stacked { gate: String, up: String, down: String },
}

/// Modules of a feed-forward, by name without `.weight`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeedForwardNames {
    Dense {
        gate: String,
        up: String,
        down: String,
    },
    Experts {
        router: String,
        /// The whole name of the bias that steers the choice.
        bias: Option<String>,
        experts: ExpertNames,
    },
}

/// Modules of a mixer, by name without `.weight` and `.bias`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MixerNames {
    Attention { q: String, k: String, v: String, out: String, q_norm: String, k_norm: String },
    ShortConv { input: String, conv: String, out: String },
}

/// Modules of one layer, by name without `.weight`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SublayerNames {
    pub mixer_norm: String,
    pub mixer: MixerNames,
    pub feed_forward_norm: String,
    pub feed_forward: FeedForwardNames,
}

/// A decoder's modules, by name without `.weight`, and without the prefix that a checkpoint may put before all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecoderNames {
    pub embedding: String,
    pub final_norm: String,
    /// Where the head is not tied. Never prefixed.
    pub head: String,
    pub layers: Vec<SublayerNames>,
}
