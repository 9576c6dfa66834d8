//! Checks and times kernels; see `inferencelayer::lab`.

use std::process::ExitCode;

use clap::Parser;
use inferencelayer::lab::run::{Cli, main as run};

fn main() -> ExitCode {
    run(Cli::parse()).unwrap_or_else(|error| {
        eprintln!("kernel-lab: {error}");
        ExitCode::from(2)
    })
}
