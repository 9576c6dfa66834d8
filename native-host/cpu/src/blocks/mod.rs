//! Weights in GGUF's block formats, kept in a repacking of their bits, and the products with them.
//!
//! - [`pack`]: rows of blocks become panels of integers and scales, without loss.
//! - [`tile`]: tiles of integer dot products with 8-bit activations, and panels as f32 for exact products.
//! - [`q8`]: activations in 8-bit blocks.

pub mod pack;
pub mod q8;
pub mod tile;

#[cfg(test)]
mod tests;
