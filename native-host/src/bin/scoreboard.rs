//! The performance ledger; see `inferencelayer::scoreboard`.

use std::process::ExitCode;

use clap::Parser;
use inferencelayer::scoreboard::run::{Cli, main as run};

fn main() -> ExitCode {
    run(Cli::parse()).unwrap_or_else(|error| {
        eprintln!("scoreboard: {error}");
        ExitCode::from(2)
    })
}
