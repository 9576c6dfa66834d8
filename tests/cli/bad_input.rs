//! Wrong files, wrong inputs, wrong options: each error names the culprit, and nothing panics.

use std::fs;

use crate::support::{Fixture, run, run_with, run_without_gpu};

/// Changes a copy of a model and returns what embedding with it says.
fn with_model(change: impl Fn(&std::path::Path)) -> String {
    let copy = Fixture::new("bert").copy();
    change(copy.path());
    run(&["--model", copy.path().to_str().unwrap(), "--device", "reference", "x"]).fails(1)
}

fn edit(folder: &std::path::Path, name: &str, change: impl Fn(&mut serde_json::Value)) {
    let path = folder.join(name);
    let mut value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

fn assert_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "`{part}` is missing from: {said}");
    }
}

#[test]
fn models_that_are_not_there() {
    let said = run(&["--model", "no-such-model", "x"]).fails(1);
    assert_says(&said, &["no model `no-such-model`", "minilm"]);
    let said = run(&["--model", "owner/name", "x"]).fails(1);
    assert_says(&said, &["owner/name: ", "not in the cache", "offline"]);
    let empty = tempfile::tempdir().unwrap();
    let said = run(&["--model", empty.path().to_str().unwrap(), "--device", "reference", "x"]).fails(1);
    assert_says(&said, &["config.json: the file is missing"]);
}

#[test]
fn weights() {
    let said = with_model(|folder| fs::remove_file(folder.join("model.safetensors")).unwrap());
    assert_says(&said, &["model.safetensors"]);
    let said = with_model(|folder| {
        fs::rename(folder.join("model.safetensors"), folder.join("pytorch_model.bin")).unwrap();
    });
    assert_says(&said, &["pytorch_model.bin", "save_pretrained"]);
    let said = with_model(|folder| {
        let path = folder.join("model.safetensors");
        let bytes = fs::read(&path).unwrap();
        fs::write(path, &bytes[..bytes.len() - 100]).unwrap();
    });
    assert_says(&said, &["model.safetensors", "truncated"]);
    let said = with_model(|folder| fs::write(folder.join("model.safetensors"), [0xff; 64]).unwrap());
    assert_says(&said, &["model.safetensors", "header"]);
    let said = with_model(|folder| fs::write(folder.join("model.safetensors"), b"").unwrap());
    assert_says(&said, &["model.safetensors", "too short"]);
    let said = with_model(|folder| edit(folder, "config.json", |c| c["hidden_size"] = 32.into()));
    assert_says(&said, &["embeddings.word_embeddings.weight", "[512, 32]", "[512, 64]"]);
    let said = with_model(|folder| edit(folder, "config.json", |c| c["num_hidden_layers"] = 3.into()));
    assert_says(&said, &["encoder.layer.2.", "missing"]);
}

#[test]
fn configurations() {
    let said = with_model(|folder| edit(folder, "config.json", |c| c["model_type"] = "mamba".into()));
    assert_says(&said, &["config.json", "model_type", "`mamba`", "bert"]);
    let said = with_model(|folder| {
        edit(folder, "config.json", |c| {
            c.as_object_mut().unwrap().remove("hidden_size");
        });
    });
    assert_says(&said, &["config.json", "hidden_size", "missing"]);
    let said = with_model(|folder| fs::write(folder.join("config.json"), "{").unwrap());
    assert_says(&said, &["config.json", "JSON"]);
    let said = with_model(|folder| {
        edit(folder, "modules.json", |m| m[1]["type"] = "sentence_transformers.models.LSTM".into());
    });
    assert_says(&said, &["modules.json", "`sentence_transformers.models.LSTM`"]);
    let said = with_model(|folder| {
        edit(folder, "1_Pooling/config.json", |c| c["word_embedding_dimension"] = 99.into());
    });
    assert_says(&said, &["[64]", "[99]"]);
    let said = with_model(|folder| fs::write(folder.join("tokenizer.json"), "[]").unwrap());
    assert_says(&said, &["tokenizer.json: "]);
    let said = with_model(|folder| fs::remove_file(folder.join("tokenizer.json")).unwrap());
    assert_says(&said, &["no tokenizer.json"]);
}

#[test]
fn lines() {
    let model = Fixture::new("bert").path();
    let args = ["--model", &model, "--device", "reference", "--input", "-"];
    let long = [b"fine\n".to_vec(), vec![b'x'; (16 << 20) + 1]].concat();
    for (input, expected) in [
        (&b"bad \xff\n"[..], "standard input, line 1: not valid UTF-8 at byte 5"),
        (b"{oops\n", "standard input, line 1: not a record"),
        (b"{\"ids\":[]}\n", "standard input, line 1: `ids` must not be empty"),
        (
            b"{\"ids\":[1,512]}\n",
            "standard input, line 1: token id 512 is outside the vocabulary of 512 tokens",
        ),
        (b"{\"ids\":[4294967296]}\n", "standard input, line 1: not a record"),
    ] {
        let said = run_with(&args, input).fails(1);
        assert_says(&said, &[expected]);
    }
    // What came before is printed.
    let run = run_with(&args, &long);
    assert_eq!(run.status, Some(1));
    assert!(run.stdout.starts_with(b"{\"index\":0,") && run.stdout.ends_with(b"}\n"));
    assert_says(&run.stderr, &["standard input, line 2: longer than 16 MiB"]);
}

#[test]
fn files() {
    let model = Fixture::new("bert").path();
    let said = run(&["--model", &model, "--input", "/nonexistent/file"]).fails(1);
    assert_says(&said, &["/nonexistent/file: "]);
    let said = run(&["--model", &model, "--input", "/"]).fails(1);
    assert_says(&said, &["/ is a folder"]);
    let args = ["--model", &model, "--device", "reference", "--output-file", "/nonexistent/file", "x"];
    assert_says(&run(&args).fails(1), &["/nonexistent/file: "]);
}

#[test]
fn a_batch_that_is_too_small_for_a_text() {
    let model = Fixture::new("bert").path();
    let args = ["--model", &model, "--device", "reference", "--batch-tokens", "4", "--input", "-"];
    let said = run_with(&args, b"a\na text of some more tokens\n").fails(1);
    assert_says(&said, &["standard input, line 2: ", "do not fit in a batch of --batch-tokens 4"]);
}

#[test]
fn no_gpu() {
    let model = Fixture::new("bert").path();
    let said = run_without_gpu(&["--model", &model, "--device", "gpu", "x"], b"").fails(1);
    assert_says(&said, &["no usable GPU", "driver"]);
    let said = run(&["--model", &model, "--device", "gpu", "--adapter", "no such card", "x"]).fails(1);
    assert_says(&said, &["no usable GPU"]);
    let said = run(&["--model", &model, "--device", "gpu", "--dtype", "int8", "x"]).fails(1);
    assert_says(&said, &["int8 runs on the CPU only"]);
    let listed = run_without_gpu(&["--list-devices"], b"").succeeds().stdout;
    assert_says(&String::from_utf8(listed).unwrap(), &["no GPU", "cpu: "]);
}
