//! The wgpu backend: the same code and WGSL natively and in a browser.
//!
//! [`GpuContext`] owns a device and its pipelines and is shared by all engines; [`GpuBackend`] holds one
//! engine's weights, activations and plans. `lower/` turns each op into dispatches of kernels in `shaders/`.

mod adapter;
mod arena;
mod backend;
mod blocks;
mod context;
#[cfg(not(target_arch = "wasm32"))]
mod emulate;
mod faults;
mod fuse;
mod kernel;
mod lower;
mod pipelines;
mod plan;
mod profile;
mod readback;
mod state;
pub mod template;
#[cfg(target_arch = "wasm32")]
mod web_shim;
mod weight;

pub use adapter::{AdapterChoice, AdapterDescription, list_adapters};
pub use backend::{GpuBackend, GpuFormats};
pub use context::{Features, GpuContext, GpuOptions, PipelineStore};
pub use plan::GpuPlan;
