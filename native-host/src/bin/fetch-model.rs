//! `fetch-model NAME...`: finds models as `--model` does, fetching them if need be, and prints the folder or file of
//! each on a line of its own.

use std::process::ExitCode;

use inferencelayer::cli::{logging, model};

fn main() -> ExitCode {
    logging::init(logging::Level::Warn);
    let names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() || names.iter().any(|name| name.starts_with('-')) {
        eprintln!("usage: fetch-model NAME...: an alias, owner/name of a hub repository, or a path");
        return ExitCode::from(2);
    }
    for name in names {
        match model::find(&name) {
            Ok(path) => println!("{}", path.display()),
            Err(error) => {
                eprintln!("fetch-model: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
