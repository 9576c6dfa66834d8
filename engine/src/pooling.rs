//! What encoding a batch gives.

use alloc::vec::Vec;

/// What encoding a batch gives.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum EmbedOut {
    /// One vector for each sequence, in order.
    Pooled(Vec<Vec<f32>>),
}
