//! The kernel lab: any op in any shape on any backend, checked against the scalar reference and then timed.
//!
//! [`problem`] says what is computed, [`data`] on which values, [`record`] writes programs for it; [`check`] and
//! [`timing`] run them on the backends that [`variant`] opens; [`probe`] measures what the machine can do at
//! best, and [`report`] prints how far from that each variant is. [`suite`] runs the engine's op suite.

pub mod args;
pub mod check;
pub mod costs;
pub mod data;
pub mod probe;
pub mod problem;
pub mod record;
pub mod report;
pub mod run;
pub mod stats;
pub mod suite;
#[cfg(test)]
mod tests;
pub mod timing;
pub mod variant;
pub mod words;
