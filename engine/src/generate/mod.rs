//! Text generation on one backend: prompts in chunks, decoding steps submitted ahead, many sequences at a time.
//!
//! 1. [`Generator::start`] gives a slot.
//! 2. [`Generator::prompt`] appends tokens to a slot's sequence and chooses the token after them.
//! 3. [`Generator::decode`] submits one step of all sequences that have a next token on the device. It does not
//!    wait: the token that a step starts from is where the step before left it.
//! 4. [`Generator::next`] reads the oldest step's tokens, in the order of submission.
//!
//! A sequence that chooses one of its stop tokens takes no further part on the device, however many steps were
//! submitted ahead.

mod generator;
mod pages;
mod plans;
mod sampling;
mod snapshot;
#[cfg(test)]
mod tests;

pub use generator::{Choice, Generator, GeneratorOptions, Slot};
pub use sampling::{Order, Sampling};
pub use snapshot::Snapshot;
