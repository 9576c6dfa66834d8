//! The program `scoreboard`: its command line and what it does.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand};
use inferencelayer_engine::gpu::AdapterChoice;

use super::{
    bench::{self, Options, load},
    contest::{Batch, Limits},
    ledger::{self, Entry},
    machine,
    model::{self, Shape},
    peer::{Peer, Surroundings},
    render,
};
use crate::{
    Error, Result,
    device::Device,
    lab::{variant::Variant, words::size},
};

/// Runs benches beside the engines that users could pick instead, and keeps the ledger of their figures.
#[derive(Debug, Parser)]
#[command(name = "scoreboard", version, about)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// What benches there are
    List,
    /// Runs benches, adds their figures to the ledger and renders it
    Run(Box<RunArgs>),
    /// Writes docs/SCOREBOARD.md from the ledger
    Render(Files),
    /// Loads a model and says how that went; run by the bench `load` in a process of its own
    #[command(hide = true)]
    MeasureLoad(LoadArgs),
}

#[derive(Debug, Clone, Args)]
pub struct Files {
    /// The repository [default: the one this folder is in]
    #[arg(long)]
    pub root: Option<PathBuf>,
    /// The ledger [default: docs/scoreboard.jsonl in the repository]; the table goes to SCOREBOARD.md beside it
    #[arg(long)]
    pub ledger: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Benches, by their names in `scoreboard list`
    #[arg(required = true)]
    pub benches: Vec<String>,
    #[command(flatten)]
    pub files: Files,
    /// Models, of minilm, bert-base and tiny [default: the bench's own]
    #[arg(long, value_delimiter = ',', value_parser = shape)]
    pub model: Vec<Shape>,
    /// Batches, as in 1x16,32x128 [default: the bench's own]
    #[arg(long, value_delimiter = ',')]
    pub batch: Vec<Batch>,
    /// Variants of ours, as in cpu-int8,gpu-f16-nocoop [default: the bench's own]
    #[arg(long, value_delimiter = ',')]
    pub variants: Vec<Variant>,
    /// Peers [default: all that are comparable]
    #[arg(long, value_delimiter = ',', conflicts_with = "no_peers")]
    pub peer: Vec<Peer>,
    /// Measure ours alone
    #[arg(long)]
    pub no_peers: bool,
    /// Python that has the peers' packages
    #[arg(long, default_value = "python3")]
    pub python: PathBuf,
    /// Threads for ours and for peers
    #[arg(long, default_value_t = 2, value_parser = size)]
    pub threads: usize,
    /// GPU by number or by part of its name [default: the fastest]
    #[arg(long)]
    pub adapter: Option<String>,
    /// Rounds of turns, at most
    #[arg(long, default_value_t = 7, value_parser = size)]
    pub rounds: usize,
    /// Seconds for one batch, at most, once three rounds are done
    #[arg(long, default_value_t = 30.0)]
    pub seconds: f64,
    /// Models of the bench `generate`: GGUF files or folders
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    pub model_file: Vec<PathBuf>,
    /// What the bench `generate` runs on [default: the GPU if there is one]
    #[arg(long, value_enum)]
    pub device: Option<Device>,
    /// Texts of the bench `stream`
    #[arg(long, default_value_t = 100_000, value_parser = size)]
    pub texts: usize,
    /// A remark for the ledger
    #[arg(long)]
    pub note: Option<String>,
    /// The commit, where git cannot tell
    #[arg(long)]
    pub commit: Option<String>,
    /// Print the figures and leave the ledger as it is
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
pub struct LoadArgs {
    #[arg(long)]
    pub model: PathBuf,
    #[arg(long)]
    pub variant: Variant,
    #[arg(long, value_parser = size)]
    pub threads: usize,
    #[arg(long)]
    pub adapter: Option<String>,
}

fn shape(name: &str) -> Result<Shape, String> {
    let names = || model::ALL.map(|s| s.name).join(", ");
    model::ALL.into_iter().find(|s| s.name == name).ok_or_else(|| format!("`{name}` is none of {}", names()))
}

fn adapter(text: Option<&str>) -> AdapterChoice {
    match text {
        None => AdapterChoice::Best,
        Some(text) => text.parse().map_or_else(|_| AdapterChoice::Name(text.into()), AdapterChoice::Index),
    }
}

impl Files {
    fn root(&self) -> Result<PathBuf> {
        if let Some(root) = &self.root {
            return Ok(root.clone());
        }
        let here = std::env::current_dir().map_err(Error::io("the working directory"))?;
        let is_root = |folder: &&Path| folder.join("docs").is_dir() && folder.join("tests/peers").is_dir();
        here.ancestors()
            .find(is_root)
            .map(Path::to_path_buf)
            .ok_or_else(|| Error::Input("this is not inside the repository; name it with --root".into()))
    }

    fn ledger(&self) -> Result<PathBuf> {
        match &self.ledger {
            Some(path) => Ok(path.clone()),
            None => Ok(self.root()?.join("docs/scoreboard.jsonl")),
        }
    }

    fn render(&self) -> Result<()> {
        let ledger = self.ledger()?;
        let entries = ledger::read(&ledger)?;
        let table = ledger.with_file_name("SCOREBOARD.md");
        std::fs::write(&table, render::markdown(&entries)).map_err(Error::io(table))
    }
}

/// Runs the program.
///
/// # Errors
/// Those of devices, files and unknown names.
pub fn main(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::List => {
            let width = bench::ALL.iter().map(|b| b.name.len()).max().unwrap_or(0);
            let lines = bench::ALL.map(|b| format!("{:width$}  {}\n", b.name, b.about));
            print(&lines.concat())?;
        }
        Command::Run(args) => run(&args)?,
        Command::Render(files) => files.render()?,
        Command::MeasureLoad(args) => {
            let adapter = adapter(args.adapter.as_deref());
            let loaded = load::measure(&args.model, &args.variant, &adapter, args.threads)?;
            let text = serde_json::to_string(&loaded).map_err(|e| Error::Input(e.to_string()))?;
            print(&(text + "\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::io("stdout"))
}

fn run(args: &RunArgs) -> Result<()> {
    // Names first: a typing error should not show after minutes.
    let benches: Vec<_> = args.benches.iter().map(|n| bench::by_name(n)).collect::<Result<_>>()?;
    let root = args.files.root()?;
    let ledger = args.files.ledger()?;
    let around =
        Surroundings { folder: root.join("tests/peers"), python: args.python.clone(), threads: args.threads };
    let peers = match (args.no_peers, args.peer.is_empty()) {
        (true, _) => Some(Vec::new()),
        (false, true) => None,
        (false, false) => Some(args.peer.clone()),
    };
    let limits = Limits { rounds: args.rounds, seconds: args.seconds, ..Limits::default() };
    let options = Options {
        models: args.model.clone(),
        batches: args.batch.clone(),
        variants: args.variants.clone(),
        peers,
        around,
        threads: args.threads,
        adapter: adapter(args.adapter.as_deref()),
        limits,
        files: args.model_file.clone(),
        device: args.device,
        texts: args.texts,
        commit: args.commit.clone().unwrap_or_else(|| machine::commit(&root)),
        note: args.note.clone(),
        root,
    };
    let mut sink = |entry: Entry| {
        print(&line(&entry))?;
        if args.dry_run { Ok(()) } else { ledger::append(&ledger, &[entry]) }
    };
    for bench in benches {
        eprintln!("== {}", bench.name);
        (bench.run)(&options, &mut sink)?;
    }
    if args.dry_run { Ok(()) } else { args.files.render() }
}

/// An entry for people.
fn line(e: &Entry) -> String {
    let mut text = format!("{} {}: {:.4} {}\n", e.bench, e.mode, e.figure, e.unit);
    for p in &e.peers {
        text += &format!(
            "    {} {} {}: {:.4}; ours is {:.2} times as good ({:.2} by best runs)\n",
            p.name, p.version, p.mode, p.figure, p.ratio, p.best_ratio
        );
    }
    if let Some(note) = &e.note {
        text += &format!("    {note}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(["scoreboard"].into_iter().chain(words.split_whitespace()))
    }

    #[test]
    fn runs_are_described_by_flags() {
        let cli = parse(
            "run cpu-speed load --model minilm,bert-base --batch 1x16,32x128 --variants cpu-int8 \
             --peer onnxruntime,candle --threads 4 --note quiet",
        )
        .unwrap();
        let Command::Run(args) = cli.command else { panic!("not a run") };
        assert_eq!(args.benches, ["cpu-speed", "load"]);
        assert_eq!(args.model.iter().map(|s| s.name).collect::<Vec<_>>(), ["minilm", "bert-base"]);
        assert_eq!(args.batch, [Batch::new(1, 16), Batch::new(32, 128)]);
        assert_eq!(args.peer.len(), 2);
        assert_eq!((args.threads, args.note.as_deref()), (4, Some("quiet")));
    }

    #[test]
    fn mistakes_are_named() {
        for (words, culprit) in [
            ("run", "<BENCHES>"),
            ("run cpu-speed --model maxilm", "maxilm"),
            ("run cpu-speed --batch 3", "`3`"),
            ("run cpu-speed --peer onyx", "onyx"),
            ("run cpu-speed --variants gpu-int8", "gpu-int8"),
            ("run cpu-speed --threads 0", "0"),
            ("run cpu-speed --no-peers --peer candle", "--no-peers"),
        ] {
            let error = parse(words).unwrap_err().to_string();
            assert!(error.contains(culprit), "{words}: {error}");
        }
        let error = bench::by_name("speeed").err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("speeed") && error.contains("cpu-speed"), "{error}");
    }
}
