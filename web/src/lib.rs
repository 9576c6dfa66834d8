//! The wasm module for JavaScript: text embeddings in a page or worker.
//!
//! ```js
//! import init, { Embedder } from "./dist/inferencelayer.js";
//! await init();
//! const files = { "config.json": blob, "model.safetensors": blob, "tokenizer.json": blob };
//! const embedder = await Embedder.load(files, { device: "auto" });
//! const [a, b] = await embedder.embed(["first text", "second text"]); // Float32Array each
//! ```
//!
//! It is the crate `inferencelayer` with files that JavaScript gives and results that JavaScript takes; there is no
//! model code here.
#![cfg(target_arch = "wasm32")]

mod device;
mod embedder;
mod files;

pub use embedder::Embedder;
