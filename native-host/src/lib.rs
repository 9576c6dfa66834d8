//! inferencelayer: text embeddings on any GPU, on the CPU and in the browser.
//!
//! This is the crate native users depend on. It re-exports the compute core and adds what a host has: files,
//! tokenizers, models by name, the CPU backend and the command-line programs.

pub mod error;
#[cfg(all(feature = "cli", not(target_arch = "wasm32")))]
pub mod lab;

pub use error::{Error, Result};
