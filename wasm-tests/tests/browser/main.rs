//! Tests that run in a dedicated worker of headless Chrome: `wasm-pack test --headless --chrome wasm-tests`.
//!
//! `tests/run browser` runs them on both adapters that a machine without a GPU has: Chromium's own SwiftShader
//! (no f16) and lavapipe (f16, subgroups). It serves a real model to them too; without it, those tests are ignored.
#![cfg(target_arch = "wasm32")]

mod embedder;
mod encoders;
mod fixtures;
mod minilm;
mod ops;
mod support;
mod webgpu;

wasm_bindgen_test::wasm_bindgen_test_configure!(run_in_dedicated_worker);
