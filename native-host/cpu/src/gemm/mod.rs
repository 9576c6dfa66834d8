//! Matrix products with packed weights: `y = x Wᵀ`, f32 and 8-bit, with fused epilogues.
//!
//! - [`pack`]: weights `[out, in]` become panels, each as wide as a register tile.
//! - [`tile`]: the register tiles.
//! - [`quantize`]: activations to 8 bits, row by row.
//! - [`linear`]: the loops over rows and panels, and the epilogues.

pub mod linear;
pub mod pack;
pub mod quantize;
pub mod tile;

#[cfg(test)]
mod tests;
