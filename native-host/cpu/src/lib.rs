//! The CPU backend: pure Rust, no C in compute; weights in f32, in 8 bits and in GGUF's blocks.
//!
//! From the bottom up:
//! - [`simd`]: vectors of each instruction set behind one trait; [`isa`] chooses one at run time.
//! - [`math`], [`gemm`], [`blocks`], [`attention`], [`rows`], [`cached`], [`stored`], [`experts`], [`sample`]:
//!   kernels, each written once over that trait.
//! - [`weight`]: weights packed as they arrive; [`table`]: those whose rows are looked up.
//! - [`state`]: memory that outlives runs.
//! - [`step`] and [`lower`]: ops lowered to steps; [`check`]: what a run's integers must satisfy; [`run`]: the tasks
//!   of a step; [`plan`]: memory and results.
//! - [`parallel`]: workers that claim tasks; [`threads`] natively.
//!
//! Nothing here uses threads, files or clocks unless the caller hands in something that does, so it builds for
//! wasm32 as it is. A task computes whole outputs, each in a fixed order of summation, so results depend on
//! neither the number of threads nor the rows around them.

pub mod attention;
pub mod backend;
pub mod blocks;
pub mod cached;
pub mod check;
pub mod experts;
pub mod gemm;
pub mod isa;
pub mod lower;
pub mod math;
pub mod parallel;
pub mod plan;
pub mod rows;
pub mod run;
pub mod sample;
pub mod simd;
pub mod state;
pub mod step;
pub mod stored;
pub mod table;
#[cfg(not(target_arch = "wasm32"))]
pub mod threads;
pub mod weight;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use backend::{CpuBackend, CpuOptions};
pub use isa::Isa;
pub use parallel::{Parallel, Serial};
#[cfg(not(target_arch = "wasm32"))]
pub use threads::Threads;
