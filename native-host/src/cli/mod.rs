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

use std::{fmt::Display, io::Write as _, process::ExitCode};

use inferencelayer_engine::gpu::AdapterChoice;

/// Says on standard error why a program ends.
pub fn fail(error: &dyn Display) -> ExitCode {
    // If that is full or closed, the exit status has to do.
    let _ = writeln!(std::io::stderr(), "error: {error}");
    ExitCode::FAILURE
}

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
