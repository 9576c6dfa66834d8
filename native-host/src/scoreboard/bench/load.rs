//! Loading a model: how long it takes, and whether the weights are ever in host memory twice. Each variant loads
//! in a process of its own, whose peak is its alone.

use std::{path::Path, process::Command, time::Instant};

use inferencelayer_engine::{batch::EncBatch, gpu::AdapterChoice};
use serde::{Deserialize, Serialize};

use super::{Options, Sink, random_model, remark};
use crate::{
    Error, Result,
    lab::{stats::Summary, variant::Variant},
    scoreboard::{contest::Batch, engine::Ours, ledger::Better, memory, model::BERT_BASE},
};

/// Times each variant is loaded.
const ROUNDS: usize = 5;
/// Most tokens of one run: little activation memory beside the weights.
const MAX_TOKENS: usize = 512;

/// What the measured process says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// From opening the device until the engine is ready.
    pub load_seconds: f64,
    /// The first encoding of 16 tokens.
    pub first_seconds: f64,
    /// Resident bytes before loading, and at the peak; absent where the system does not say.
    pub resident: Option<(u64, u64)>,
    /// Bytes that the backend holds: weights, activations, read-back buffers.
    pub held: u64,
    pub gpu: Option<(String, String)>,
}

/// Loads a model in this process and tells how it went.
///
/// # Errors
/// Those of the engine.
pub fn measure(model: &Path, variant: &Variant, adapter: &AdapterChoice, threads: usize) -> Result<Loaded> {
    let before = memory::resident(std::process::id());
    let start = Instant::now();
    let mut ours = Ours::load(model, variant, adapter, threads, MAX_TOKENS)?;
    let load_seconds = start.elapsed().as_secs_f64();
    let start = Instant::now();
    ours.encode(&EncBatch::from_seqs(Batch::new(1, 16).ids()))?;
    let first_seconds = start.elapsed().as_secs_f64();
    let after = memory::resident(std::process::id());
    Ok(Loaded {
        load_seconds,
        first_seconds,
        resident: before.zip(after).map(|(b, a)| (b.now, a.peak)),
        held: ours.opened.backend().memory(),
        gpu: ours.gpu(),
    })
}

pub fn run(options: &Options, sink: &mut Sink<'_>) -> Result<()> {
    let variants = options.variants(&["cpu-f32", "cpu-int8"])?;
    for shape in options.models(&[BERT_BASE]) {
        let folder = random_model(&shape)?;
        let file = shape.parameters() as f64 * 4.0;
        for variant in &variants {
            let all: Vec<Loaded> =
                (0..ROUNDS).map(|_| child(options, folder.path(), variant)).collect::<Result<_>>()?;
            let Some(last) = all.last() else { continue };
            let machine = options.machine(last.gpu.clone());
            let median = |f: fn(&Loaded) -> f64| {
                Summary::of(&all.iter().map(f).collect::<Vec<_>>()).map_or(0.0, |s| s.median)
            };
            let (load, first) = (median(|l| l.load_seconds) * 1e3, median(|l| l.first_seconds) * 1e3);
            let name = |what: &str| format!("{} {what}", shape.name);
            let figure = (load, "ms", Better::Lower);
            let mut entry = options.entry(name("load"), variant.to_string(), figure, machine.clone());
            remark(
                &mut entry,
                &format!("then {first:.1} ms until the first vector; file of {:.0} MB", file / 1e6),
            );
            sink(entry)?;
            let Some((before, peak)) = last.resident else {
                eprintln!("{variant}: the system does not tell a process's memory");
                continue;
            };
            let grown = peak.saturating_sub(before) as f64;
            let figure = (grown / last.held as f64, "x held", Better::Lower);
            let mut entry = options.entry(name("peak memory"), variant.to_string(), figure, machine);
            let held = last.held as f64 / 1e6;
            let words = format!("peak grew by {:.0} MB, the backend holds {held:.0} MB", grown / 1e6);
            remark(&mut entry, &words);
            sink(entry)?;
        }
    }
    Ok(())
}

/// Runs [`measure`] in a process of its own.
fn child(options: &Options, model: &Path, variant: &Variant) -> Result<Loaded> {
    let this = std::env::current_exe().map_err(Error::io("this program"))?;
    let mut command = Command::new(&this);
    command.arg("measure-load").arg("--model").arg(model).arg("--variant").arg(variant.to_string());
    command.arg("--threads").arg(options.threads.to_string());
    match &options.adapter {
        AdapterChoice::Best => {}
        AdapterChoice::Index(i) => drop(command.arg("--adapter").arg(i.to_string())),
        AdapterChoice::Name(name) => drop(command.arg("--adapter").arg(name)),
    }
    let output = command.stderr(std::process::Stdio::inherit()).output().map_err(Error::io(&this))?;
    if !output.status.success() {
        return Err(Error::Input(format!("loading on {variant} failed ({})", output.status)));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|e| Error::malformed("the measured process", e.to_string()))
}
