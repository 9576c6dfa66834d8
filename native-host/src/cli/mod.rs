//! What the command-line programs are made of: reading inputs, batching, writing results. The programs
//! themselves only parse options and put these together.

pub mod input;
pub mod list;
pub mod logging;
pub mod model;
pub mod output;
pub mod progress;
pub mod steps;
pub mod stream;

use inferencelayer_engine::gpu::AdapterChoice;

/// Parses `--adapter`: a number, or a part of a name.
///
/// # Errors
/// For an empty word.
pub fn adapter(choice: &str) -> Result<AdapterChoice, String> {
    match choice.parse() {
        _ if choice.is_empty() => Err("it must not be empty".into()),
        Ok(index) => Ok(AdapterChoice::Index(index)),
        Err(_) => Ok(AdapterChoice::Name(choice.to_owned())),
    }
}
