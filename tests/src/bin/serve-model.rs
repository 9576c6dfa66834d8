//! serve-model MODEL...: finds models as `lfm2-embed` does, fetching them if need be, and serves their folders to pages
//! of any origin, for the browser tests. Prints an address for each; ends when its standard input does.

use std::{
    fs, io,
    path::{Component, Path},
    process::ExitCode,
};

use inferencelayer::hub::{self, Config};
use inferencelayer_tests::server::{Reply, Request, Server};

fn main() -> ExitCode {
    let models: Vec<String> = std::env::args().skip(1).collect();
    if models.is_empty() {
        eprintln!("usage: serve-model MODEL...");
        return ExitCode::from(2);
    }
    let mut servers = Vec::new();
    for model in models {
        let folder = match Config::from_env().and_then(|config| hub::locate(&model, &config, &())) {
            Ok(folder) => folder,
            Err(error) => {
                eprintln!("serve-model: {error}");
                return ExitCode::FAILURE;
            }
        };
        servers.push(Server::start(move |request| answer(&folder, request)));
    }
    servers.iter().for_each(|server| println!("{}", server.address));
    // Whoever started this holds the other end, so that it cannot be left behind.
    match io::copy(&mut io::stdin(), &mut io::sink()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("serve-model: standard input: {error}");
            ExitCode::FAILURE
        }
    }
}

fn answer(folder: &Path, request: &Request) -> Reply {
    let path = Path::new(request.path.trim_start_matches('/'));
    let inside = path.components().all(|c| matches!(c, Component::Normal(_)));
    let file = (inside && request.method == "GET").then(|| fs::read(folder.join(path)).ok()).flatten();
    let reply = file.map_or_else(|| Reply::status(404), |bytes| Reply::status(200).body(bytes));
    reply.header("access-control-allow-origin", "*").header("content-type", "application/octet-stream")
}
