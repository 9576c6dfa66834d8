//! The CPU backend: pure Rust, no C in compute, f32 and 8-bit weights.
//!
//! From the bottom up:
//! - [`simd`]: vectors of each instruction set behind one trait; [`isa`] chooses one at run time.
//! - [`math`], [`gemm`], [`attention`], [`rows`]: kernels, each written once over that trait.
//! - [`weight`]: weights packed as they arrive; [`table`]: those whose rows are looked up.
//! - [`step`]: ops lowered to steps; [`run`]: the tasks of a step; [`plan`]: memory, checks and results.
//! - [`parallel`]: workers that claim tasks; [`threads`] natively.
//!
//! Nothing here uses threads, files or clocks unless the caller hands in something that does, so it builds for
//! wasm32 as it is. A task computes whole outputs, each in a fixed order of summation, so results depend on
//! neither the number of threads nor the rows around them.

pub mod attention;
pub mod backend;
pub mod gemm;
pub mod isa;
pub mod math;
pub mod parallel;
pub mod plan;
pub mod rows;
pub mod run;
pub mod simd;
pub mod step;
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
