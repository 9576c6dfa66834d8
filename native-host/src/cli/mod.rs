//! What the command-line programs are made of: reading inputs, batching, writing results. The programs
//! themselves only parse options and put these together.

pub mod input;
pub mod logging;
pub mod output;
pub mod progress;
pub mod stream;
