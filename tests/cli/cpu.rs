//! `lfm2-embed` on the CPU: chosen by name or for want of a GPU, in f32 and 8 bits, on one thread and on several.

use crate::{
    jsonl, matches_sentence_transformers,
    support::{Fixture, cosine, embeddings, run, run_with, run_without_gpu},
};

const MODELS: [&str; 5] = ["bert", "xlmr", "mpnet", "distilbert", "modernbert"];

#[test]
fn texts_give_the_vectors_of_sentence_transformers() {
    for name in MODELS {
        matches_sentence_transformers(name, "cpu", &[]);
        // Batches as small as the longest text.
        let limit = Fixture::new(name).max_seq_length().to_string();
        matches_sentence_transformers(name, "cpu", &["--threads", "1", "--batch-tokens", &limit]);
    }
    // This folder has no Normalize module.
    matches_sentence_transformers("roberta", "cpu", &["--no-normalize"]);
}

#[test]
fn threads_change_nothing() {
    let fixture = Fixture::new("mpnet");
    let (model, input) = (fixture.path(), jsonl(&fixture.texts()));
    for dtype in ["f32", "int8"] {
        let with = |threads: &[&str]| {
            let args = ["--model", &model, "--device", "cpu", "--dtype", dtype, "--input", "-"];
            run_with(&[&args, threads].concat(), input.as_bytes()).succeeds().stdout
        };
        let one = with(&["--threads", "1"]);
        assert!(one.starts_with(b"{\"index\":0,"));
        for more in [&["--threads", "2"][..], &["--threads", "5"], &[]] {
            assert!(one == with(more), "{dtype}: {more:?} give other bits than one thread");
        }
    }
}

#[test]
fn eight_bits_are_close() {
    for name in MODELS {
        let fixture = Fixture::new(name);
        let (model, input) = (fixture.path(), jsonl(&fixture.texts()));
        let args = ["--model", &model, "--device", "cpu", "--dtype", "int8", "--input", "-"];
        let found = embeddings(&run_with(&args, input.as_bytes()).succeeds());
        let (expected, width) = fixture.floats("encode.embeddings");
        assert_eq!(found.len() * width, expected.len());
        let cosines: Vec<f64> = found.iter().zip(expected.chunks(width)).map(|(f, e)| cosine(f, e)).collect();
        assert!(cosines.iter().all(|c| *c > 0.997), "{name}: {cosines:?}");
        assert!(cosines.iter().any(|c| *c < 1.0 - 1e-7), "{name}: 8 bits leave a trace");
    }
}

#[test]
fn auto_takes_the_cpu_where_there_is_no_gpu() {
    let fixture = Fixture::new("bert");
    let (model, input) = (fixture.path(), jsonl(&fixture.texts()));
    for dtype in [&[][..], &["--dtype", "f32"], &["--dtype", "int8"]] {
        let with = |device: &str| {
            let args = ["--model", &model, "--device", device, "--log-level", "info", "--input", "-"];
            run_without_gpu(&[&args, dtype].concat(), input.as_bytes()).succeeds()
        };
        let (auto, cpu) = (with("auto"), with("cpu"));
        assert!(auto.stdout == cpu.stdout && !cpu.stdout.is_empty(), "{dtype:?}");
        for run in [&auto, &cpu] {
            assert!(run.stderr.contains(" on cpu ("), "{}", run.stderr);
        }
        let reason = if dtype.contains(&"int8") { "int8 runs on the CPU" } else { "no GPU (" };
        assert!(auto.stderr.contains(reason) && !cpu.stderr.contains(reason), "{}", auto.stderr);
    }
    // What the device is, not whether there is another, decides about a number format.
    let args = ["--model", &model, "--device", "auto", "--dtype", "f16", "x"];
    let said = run_without_gpu(&args, b"").fails(1);
    assert!(said.contains("f16 runs on GPUs") && said.contains("--dtype f32 or int8"), "{said}");
}

#[test]
fn eight_bits_take_the_cpu_even_beside_a_gpu() {
    let model = Fixture::new("bert").path();
    let with =
        |device: &str| run(&["--model", &model, "--device", device, "--dtype", "int8", "a text"]).succeeds();
    let (auto, cpu) = (with("auto"), with("cpu"));
    assert_eq!(auto.stdout, cpu.stdout);
    assert!(auto.stderr.contains("int8 runs on the CPU"), "{}", auto.stderr);
    assert_eq!(cpu.stderr, "");
}

#[test]
fn impossible_options_are_named() {
    let model = Fixture::new("bert").path();
    for threads in ["0", "1025", "two", ""] {
        let said = run(&["--model", &model, "--device", "cpu", "--threads", threads, "x"]).fails(2);
        assert!(said.contains("--threads"), "{said}");
    }
    let said = run(&["--model", &model, "--device", "cpu", "--dtype", "f16", "x"]).fails(1);
    assert!(said.contains("f16 runs on GPUs"), "{said}");
}
