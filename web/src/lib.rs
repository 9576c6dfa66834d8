//! The wasm module under the npm package `inferencelayer`: models over files that JavaScript gives, results that
//! JavaScript takes.
//!
//! The package's worker (`web/js/worker/`) is its one user; pages see the JavaScript around it. There is no model
//! code here: it is the crate `inferencelayer` with another front.
#![cfg(target_arch = "wasm32")]

mod device;
mod embedder;
mod error;
mod files;
mod generator;
mod kind;
mod options;
mod sha256;

pub use device::Device;
pub use embedder::Embedder;
pub use generator::Generator;
pub use kind::model_kind;
pub use sha256::Sha256;

/// Panics are bugs: the console says which.
#[wasm_bindgen::prelude::wasm_bindgen(start)]
pub fn start() {
    std::panic::set_hook(Box::new(|panic| web_sys::console::error_1(&panic.to_string().into())));
}
