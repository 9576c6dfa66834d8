//! inferencelayer: text embeddings on any GPU, on the CPU and in the browser.
//!
//! This is the crate native users depend on. It re-exports the compute core and adds what a host has: files,
//! tokenizers, models by name, the CPU backend and the command-line programs. Start at [`EmbedEngine`].

// One pointer type for both: GPU objects can move between threads natively, but not in a browser.
#![cfg_attr(target_arch = "wasm32", allow(clippy::arc_with_non_send_sync))]

#[cfg(feature = "tokenizer")]
pub mod chat;
#[cfg(all(feature = "cli", not(target_arch = "wasm32")))]
pub mod cli;
#[cfg(not(target_arch = "wasm32"))]
pub mod device;
mod embed_engine;
pub mod error;
pub mod folder;
pub mod generate;
#[cfg(all(feature = "net", not(target_arch = "wasm32")))]
pub mod hub;
#[cfg(all(feature = "cli", not(target_arch = "wasm32")))]
pub mod lab;
#[cfg(not(target_arch = "wasm32"))]
pub mod pipelines;
#[cfg(all(feature = "cli", not(target_arch = "wasm32")))]
pub mod scoreboard;
pub mod sentence_transformers;
#[cfg(feature = "tokenizer")]
pub mod tokenizer;

pub use embed_engine::{EmbedEngine, EmbedOptions, pooled};
pub use error::{Error, Result};
pub use generate::{GenerateEngine, GenerateOptions};
/// The CPU backend.
#[cfg(feature = "encoder-cpu")]
pub use inferencelayer_cpu as cpu;
/// The compute core.
pub use inferencelayer_engine as engine;
/// What encoding gives.
pub use inferencelayer_engine::pooling;

/// Batches of token sequences.
pub mod encoder_weights {
    pub use inferencelayer_engine::batch::EncBatch;
}

// The README's Rust code is a test.
#[cfg(all(doctest, feature = "encoder-cpu"))]
#[doc = include_str!("../../README.md")]
struct Readme;
