//! The inferencelayer compute core: ops are recorded into programs, backends prepare programs into plans,
//! plans are replayed. `no_std` + alloc; the wgpu backend is behind feature `gpu`.
#![no_std]
// One pointer type for both: GPU objects can move between threads natively, but not in a browser.
#![cfg_attr(target_arch = "wasm32", allow(clippy::arc_with_non_send_sync))]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod backend;
pub mod batch;
pub mod checkpoint;
pub mod embed;
pub mod error;
pub mod format;
pub mod generate;
#[cfg(feature = "gpu")]
pub mod gpu;
pub mod model;
pub mod op;
mod order;
pub mod pooling;
pub mod program;
pub mod quant;
pub mod reference;
pub mod task;
pub mod tensor;
pub mod testing;

pub use error::{Error, Result};
