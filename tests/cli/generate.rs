//! `lfm2-generate`: what it prints for the decoder fixtures, and what it refuses.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use safetensors::SafeTensors;
use serde_json::Value;

use crate::support::{Run, without_gpu};

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name)
}

/// The program on the slow backend that is always there.
pub fn command(model: &Path, args: &[&str]) -> Command {
    command_on("reference", model, args)
}

/// Where there is no GPU.
fn command_on(device: &str, model: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lfm2-generate"));
    command.args(["--device", device, "--model"]).arg(model).args(args);
    without_gpu(&mut command);
    command.env("HF_HUB_OFFLINE", "1").env("HF_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/hf"));
    command
}

pub fn run(model: &Path, args: &[&str]) -> Run {
    run_on("reference", model, args)
}

fn run_on(device: &str, model: &Path, args: &[&str]) -> Run {
    let output = command_on(device, model, args).stdin(Stdio::null()).output().expect("the program starts");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Run { status: output.status.code(), stdout: output.stdout, stderr }
}

fn ids(values: &[i64]) -> Vec<u32> {
    values.iter().map(|v| *v as u32).collect()
}

/// Integers of a fixture's expected values.
fn expected(name: &str, tensor: &str) -> Vec<u32> {
    let bytes = fs::read(fixture(name).join("expected.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let data = tensors.tensor(tensor).unwrap().data().to_vec();
    let values: Vec<i64> = data.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect();
    ids(&values)
}

fn joined(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

pub fn json(run: Run) -> Value {
    let run = run.succeeds();
    serde_json::from_slice(&run.stdout).unwrap_or_else(|e| panic!("{e}: {:?}", run.stdout))
}

pub fn list(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect()
}

#[test]
fn greedy_continuations_of_a_folder_and_of_a_gguf_file() {
    for (name, file) in [("qwen3_untied_sharded", ""), ("gguf_llama", "model.gguf")] {
        let model = if file.is_empty() { fixture(name) } else { fixture(name).join(file) };
        let prompt = expected(name, "greedy1.input_ids");
        let wanted = expected(name, "greedy1.tokens");
        let ids = joined(&prompt);
        let said = json(run(&model, &["--prompt-ids", &ids, "-n", "24", "--ignore-eos", "--json"]));
        assert_eq!(list(&said["prompt_ids"]), prompt, "{name}");
        assert_eq!(list(&said["ids"]), wanted, "{name}");
        assert_eq!(said["finish_reason"], "length");
        assert!(said["timings"]["load"].as_f64().unwrap() > 0.0);
        assert_eq!(said["text"].is_null(), file.is_empty(), "only the GGUF file has a tokenizer");
        for device in ["cpu", "auto"] {
            let args = ["--prompt-ids", &ids, "-n", "24", "--ignore-eos", "--json", "--dtype", "f32"];
            let said = json(run_on(device, &model, &args));
            assert_eq!(list(&said["ids"]), wanted, "{name} on {device}");
        }
    }
}

#[test]
fn the_cpu_generates_as_weights_come_and_says_what_it_cannot() {
    let model = fixture("gguf_llama").join("model.gguf");
    let args = ["--prompt-ids", "5,6,7", "-n", "8", "--ignore-eos", "--json", "--log-level", "info"];
    let run = run_on("auto", &model, &args).succeeds();
    assert!(run.stderr.contains("no GPU (") && run.stderr.contains("cpu ("), "{}", run.stderr);
    let of = |threads: &str| run_on("cpu", &model, &[&args[..], &["--threads", threads]].concat()).succeeds();
    let ids = |run: Run| list(&serde_json::from_slice::<Value>(&run.stdout).unwrap()["ids"]);
    let one = ids(of("1"));
    assert_eq!(one.len(), 8);
    assert_eq!((ids(of("3")), ids(run)), (one.clone(), one), "threads change nothing");
    let said = run_on("cpu", &model, &["--prompt-ids", "5", "--dtype", "f16"]).fails(1);
    assert!(said.contains("f16 runs on GPUs"), "{said}");
}

#[test]
fn text_goes_in_and_out() {
    let model = fixture("gguf_lfm2").join("model.gguf");
    let said = json(run(&model, &["A short sentence.", "-n", "6", "--ignore-eos", "--json"]));
    // The beginning-of-sequence token comes first.
    assert_eq!(list(&said["prompt_ids"])[0], 1);
    assert_eq!(list(&said["ids"]).len(), 6);
    let text = said["text"].as_str().unwrap().to_owned();
    let plain = run(&model, &["A short sentence.", "-n", "6", "--ignore-eos"]).succeeds();
    assert_eq!(String::from_utf8(plain.stdout).unwrap(), format!("{text}\n"));
    // A stop text that lies somewhere in the answer cuts it there.
    let at = text.char_indices().nth(text.chars().count() / 2).unwrap().0;
    let (before, after) = text.split_at(at);
    let stop: String = after.chars().take(2).collect();
    let cut = json(run(&model, &["A short sentence.", "-n", "6", "--ignore-eos", "--json", "--stop", &stop]));
    assert!(before.starts_with(cut["text"].as_str().unwrap()), "{cut} of {text:?}");
    assert_eq!(cut["finish_reason"], "stop");
    // From a file, and from one that is no text.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prompt.txt");
    fs::write(&file, "A short sentence.").unwrap();
    let name = file.to_str().unwrap();
    let from_file = json(run(&model, &["--prompt-file", name, "-n", "6", "--ignore-eos", "--json"]));
    assert_eq!(from_file["ids"], said["ids"]);
    fs::write(&file, [b'a', 0xff]).unwrap();
    let said = run(&model, &["--prompt-file", name]).fails(1);
    assert!(said.contains("prompt.txt is not UTF-8 at byte 1"), "{said}");
}

#[test]
fn logits_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("logits.safetensors");
    let prompt = expected("llama", "prompt7.input_ids");
    let said = json(run(
        &fixture("llama"),
        &["--prompt-ids", &joined(&prompt), "-n", "0", "--json", "--logits", path.to_str().unwrap()],
    ));
    assert_eq!(list(&said["ids"]), [] as [u32; 0]);
    let (found, wanted) =
        (fs::read(path).unwrap(), fs::read(fixture("llama").join("expected.safetensors")).unwrap());
    let (found, wanted) =
        (SafeTensors::deserialize(&found).unwrap(), SafeTensors::deserialize(&wanted).unwrap());
    let (found, wanted) = (found.tensor("logits").unwrap(), wanted.tensor("prompt7.logits").unwrap());
    assert_eq!(found.shape(), wanted.shape());
    let floats =
        |bytes: &[u8]| -> Vec<f32> { bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect() };
    let (found, wanted) = (floats(found.data()), floats(wanted.data()));
    let off = found.iter().zip(&wanted).fold(0f32, |m, (f, w)| m.max((f - w).abs()));
    assert!(off <= 1e-3, "{off}");
}

#[test]
fn refusals_name_the_culprit() {
    let model = fixture("gguf_llama").join("model.gguf");
    let none = fixture("no-such-model.gguf");
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("cut.gguf");
    let bytes = fs::read(&model).unwrap();
    fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let long = joined(&vec![20; 65]);
    let cases: [(&Path, &[&str], i32, &str); 13] = [
        (&none, &["x"], 1, "no model"),
        (&cut, &["x"], 1, "cut.gguf"),
        (folder.path(), &["x"], 1, "cut.gguf"),
        (&fixture("qwen2"), &["x"], 1, "no tokenizer"),
        (&fixture("bert"), &["x"], 1, "does not generate text"),
        (&fixture("lfm2_bidirectional"), &["x"], 1, "does not generate text"),
        (&model, &["--prompt-ids", "420"], 1, "token 420 of a vocabulary of 420"),
        (
            &model,
            &["--prompt-ids", &long, "--context", "64"],
            1,
            "65 tokens is longer than the context of 64",
        ),
        (&model, &["x", "--context", "513"], 1, "made for 512"),
        (&model, &["x", "--temperature", "NaN"], 1, "temperature is NaN"),
        (&model, &["x", "--temperature=-1"], 1, "temperature is -1"),
        (&model, &["x", "--stop", ""], 1, "stop text is empty"),
        (&model, &[], 2, "no prompt"),
    ];
    for (model, args, status, wanted) in cases {
        let said = run(model, args).fails(status);
        assert!(said.contains(wanted), "{args:?}: `{wanted}` is missing from: {said}");
    }
    let said =
        json(run(&model, &["--prompt-ids", &long, "--context", "64", "--truncate", "-n", "3", "--json"]));
    assert_eq!((list(&said["prompt_ids"]).len(), list(&said["ids"]).len()), (64, 1));
}
