//! The benches by name.

mod generate;
mod growth;
pub mod load;
mod size;
mod speed;
mod stream;

use std::path::{Path, PathBuf};

use inferencelayer_engine::gpu::AdapterChoice;

use super::{
    contest::{Batch, Limits},
    ledger::{Better, Entry, Machine},
    machine,
    model::Shape,
    peer::{Peer, Surroundings},
};
use crate::{Error, Result, device::Device, lab::variant::Variant};

/// What benches may be told; empty lists stand for a bench's own choice.
#[derive(Debug, Clone)]
pub struct Options {
    /// The repository.
    pub root: PathBuf,
    pub models: Vec<Shape>,
    pub batches: Vec<Batch>,
    pub variants: Vec<Variant>,
    /// `None`: all that rival the variants.
    pub peers: Option<Vec<Peer>>,
    pub around: Surroundings,
    pub threads: usize,
    pub adapter: AdapterChoice,
    pub limits: Limits,
    /// Models of the bench `generate`.
    pub files: Vec<PathBuf>,
    /// What they run on; `None`: the GPU if there is one.
    pub device: Option<Device>,
    /// Texts of the streaming bench.
    pub texts: usize,
    pub commit: String,
    pub note: Option<String>,
}

/// Takes entries as they are measured.
pub type Sink<'a> = dyn FnMut(Entry) -> Result<()> + 'a;

/// A named bench.
pub struct Bench {
    pub name: &'static str,
    pub about: &'static str,
    pub run: fn(&Options, &mut Sink<'_>) -> Result<()>,
}

pub const ALL: [Bench; 7] = [
    Bench {
        name: "cpu-speed",
        about: "MiniLM on the CPU in f32 and int8, beside onnxruntime, torch and candle",
        run: speed::cpu,
    },
    Bench {
        name: "gpu-speed",
        about: "MiniLM and BERT-base on the GPU in f32 and f16, with and without tensor cores, beside torch",
        run: speed::gpu,
    },
    Bench {
        name: "load",
        about: "time until a model is loaded and until its first vector, and peak memory against the weights",
        run: load::run,
    },
    Bench {
        name: "growth",
        about: "time for 512 to 8192 tokens in one batch, against proportion",
        run: growth::run,
    },
    Bench {
        name: "generate",
        about: "prompts and answers of the models named by --model-file, one sequence and 32",
        run: generate::run,
    },
    Bench { name: "stream", about: "memory of lfm2-embed over 100,000 short texts", run: stream::run },
    Bench { name: "wasm-size", about: "sizes of the wasm modules, against their limits", run: size::run },
];

/// The bench of this name.
///
/// # Errors
/// `Input`, with the names there are.
pub fn by_name(name: &str) -> Result<&'static Bench> {
    const BENCHES: &[Bench] = &ALL;
    let names = || ALL.iter().map(|b| b.name).collect::<Vec<_>>().join(", ");
    BENCHES
        .iter()
        .find(|b| b.name == name)
        .ok_or_else(|| Error::Input(format!("there is no bench `{name}`; there are {}", names())))
}

impl Options {
    fn models(&self, usual: &[Shape]) -> Vec<Shape> {
        if self.models.is_empty() { usual.to_vec() } else { self.models.clone() }
    }

    fn batches(&self, usual: &[Batch]) -> Vec<Batch> {
        if self.batches.is_empty() { usual.to_vec() } else { self.batches.clone() }
    }

    /// The variants asked for, or the usual ones.
    ///
    /// # Errors
    /// `Input` for a usual name that is none: a mistake in this crate.
    fn variants(&self, usual: &[&str]) -> Result<Vec<Variant>> {
        if !self.variants.is_empty() {
            return Ok(self.variants.clone());
        }
        usual.iter().map(|name| name.parse().map_err(Error::Input)).collect()
    }

    fn machine(&self, gpu: Option<(String, String)>) -> Machine {
        machine::this(self.threads, gpu)
    }

    /// An entry without peers.
    fn entry(
        &self,
        bench: String,
        mode: String,
        (figure, unit, better): (f64, &str, Better),
        machine: Machine,
    ) -> Entry {
        Entry {
            date: machine::date(),
            commit: self.commit.clone(),
            bench,
            mode,
            figure,
            unit: unit.into(),
            better,
            machine,
            versions: machine::versions(),
            peers: Vec::new(),
            note: self.note.clone(),
        }
    }
}

/// A folder with a model of random weights, removed when dropped.
///
/// # Errors
/// `Io`.
fn random_model(shape: &Shape) -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir().map_err(Error::io(std::env::temp_dir()))?;
    shape.write(folder.path())?;
    Ok(folder)
}

/// A program built beside this one.
///
/// # Errors
/// `Input`, saying how to build it.
fn sibling(name: &str) -> Result<PathBuf> {
    let this = std::env::current_exe().map_err(Error::io("this program"))?;
    let path = this.with_file_name(name).with_extension(std::env::consts::EXE_EXTENSION);
    if !Path::exists(&path) {
        let how = "cargo build --release --bins";
        return Err(Error::Input(format!("{} is not there: {how}", path.display())));
    }
    Ok(path)
}

/// Adds a remark to an entry's note.
fn remark(entry: &mut Entry, words: &str) {
    let note = entry.note.take().map_or_else(String::new, |n| n + "; ");
    entry.note = Some(note + words);
}
