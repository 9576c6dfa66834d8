//! Runs the program and reads what it says.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::PathBuf,
    process::{Command, Stdio},
    thread,
};

use safetensors::SafeTensors;
use serde::Deserialize;

/// What a run left.
pub struct Run {
    pub status: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Run {
    pub fn succeeds(self) -> Run {
        assert_eq!(self.status, Some(0), "{}", self.stderr);
        self
    }

    /// Checks the exit status, that nothing reached standard output and that nothing panicked; returns what was
    /// said.
    pub fn fails(self, status: i32) -> String {
        assert_eq!(self.status, Some(status), "{}", self.stderr);
        assert!(self.stdout.is_empty(), "{}", String::from_utf8_lossy(&self.stdout));
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self.stderr
    }
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lfm2-embed"));
    command.args(args);
    // Nothing is fetched, and nothing is written outside the target folder.
    command.env("HF_HUB_OFFLINE", "1").env("HF_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/hf"));
    command.env("INFERENCELAYER_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"));
    command
}

pub fn run(args: &[&str]) -> Run {
    run_with(args, b"")
}

pub fn run_with(args: &[&str], input: &[u8]) -> Run {
    run_command(command(args), input)
}

/// With the GPU's compiled pipelines in a folder of their own.
pub fn run_with_cache(args: &[&str], cache: &std::path::Path) -> Run {
    let mut command = command(args);
    command.env("INFERENCELAYER_CACHE", cache);
    run_command(command, b"")
}

/// With an environment in which no GPU driver is found.
pub fn run_without_gpu(args: &[&str], input: &[u8]) -> Run {
    let mut command = command(args);
    without_gpu(&mut command);
    run_command(command, input)
}

/// Gives a program an environment in which no GPU driver is found.
pub fn without_gpu(command: &mut Command) {
    for name in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES", "__EGL_VENDOR_LIBRARY_FILENAMES"] {
        command.env(name, "/nonexistent");
    }
    command.env("__EGL_VENDOR_LIBRARY_DIRS", "/nonexistent");
}

pub fn run_command(mut command: Command, input: &[u8]) -> Run {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let (mut stdin, input) = (child.stdin.take().expect("piped"), input.to_vec());
    // A program that stops early closes its input.
    let feeder = thread::spawn(move || stdin.write_all(&input).ok());
    let output = child.wait_with_output().expect("the program ends");
    feeder.join().expect("the input is written");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Run { status: output.status.code(), stdout: output.stdout, stderr }
}

/// Reads one line of results and closes the pipe.
pub fn read_one_line(args: &[&str], input: Vec<u8>) -> Run {
    let mut child = command(args).spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("piped");
    let feeder = thread::spawn(move || stdin.write_all(&input).ok());
    let mut reader = BufReader::new(child.stdout.take().expect("piped"));
    let mut stdout = Vec::new();
    reader.read_until(b'\n', &mut stdout).expect("a line");
    drop(reader);
    let mut stderr = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("text");
    let status = child.wait().expect("the program ends").code();
    feeder.join().expect("the input is written");
    Run { status, stdout, stderr }
}

/// A line of results.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub index: u64,
    pub tokens: usize,
    pub truncated: bool,
    pub embedding: Vec<f32>,
}

pub fn records(stdout: &[u8]) -> Vec<Record> {
    let lines = std::str::from_utf8(stdout).expect("text").lines();
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
}

pub fn embeddings(run: &Run) -> Vec<Vec<f32>> {
    records(&run.stdout).into_iter().map(|record| record.embedding).collect()
}

pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// A folder of `tests/fixtures`.
pub struct Fixture(PathBuf);

impl Fixture {
    pub fn new(name: &str) -> Self {
        Fixture(PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures")).join(name))
    }

    pub fn path(&self) -> String {
        self.0.to_str().expect("UTF-8").to_owned()
    }

    /// A copy that may be changed.
    pub fn copy(&self) -> tempfile::TempDir {
        let copy = tempfile::tempdir().expect("a folder");
        fs::create_dir(copy.path().join("1_Pooling")).expect("a folder");
        let names =
            ["config.json", "model.safetensors", "modules.json", "1_Pooling/config.json", "tokenizer.json"];
        let more =
            ["sentence_bert_config.json", "config_sentence_transformers.json", "tokenizer_config.json"];
        for name in names.iter().chain(&more) {
            fs::write(copy.path().join(name), fs::read(self.0.join(name)).expect("a fixture"))
                .expect("a copy");
        }
        copy
    }

    fn json(&self, name: &str) -> serde_json::Value {
        serde_json::from_slice(&fs::read(self.0.join(name)).expect("a fixture")).expect("json")
    }

    fn strings(&self, key: &str) -> Vec<String> {
        serde_json::from_value(self.json("texts.json")[key].clone()).expect("texts")
    }

    pub fn texts(&self) -> Vec<String> {
        self.strings("texts")
    }

    pub fn queries(&self) -> Vec<String> {
        self.strings("queries")
    }

    pub fn max_seq_length(&self) -> usize {
        self.json("sentence_bert_config.json")["max_seq_length"].as_u64().expect("a number") as usize
    }

    fn expected<T>(&self, name: &str, read: impl Fn(&safetensors::tensor::TensorView<'_>) -> T) -> T {
        let bytes = fs::read(self.0.join("expected.safetensors")).expect("a fixture");
        let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
        read(&file.tensor(name).unwrap_or_else(|e| panic!("{name}: {e}")))
    }

    /// A matrix and its number of columns.
    pub fn floats(&self, name: &str) -> (Vec<f32>, usize) {
        self.expected(name, |tensor| {
            let values = tensor.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
            (values, tensor.shape()[1])
        })
    }

    pub fn ints(&self, name: &str) -> Vec<u32> {
        self.expected(name, |tensor| {
            tensor.data().as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect()
        })
    }
}
