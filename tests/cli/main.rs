//! `lfm2-embed` as its users run it, on the fixtures. A test target of the package that has the program.

mod bad_input;
mod cpu;
mod generate;
mod generate_chat;
mod support;

use support::{Fixture, Run, cosine, embeddings, records, run, run_with};

fn jsonl(texts: &[String]) -> String {
    texts.iter().map(|text| format!("{}\n", serde_json::json!({ "text": text }))).collect()
}

fn plus<'a>(base: &[&'a str], extra: &[&'a str]) -> Vec<&'a str> {
    [base, extra].concat()
}

/// Every text of a fixture gives the vector that sentence-transformers gives.
fn matches_sentence_transformers(name: &str, device: &str, extra: &[&str]) {
    let fixture = Fixture::new(name);
    let model = fixture.path();
    let texts = fixture.texts();
    let mut args = vec!["--model", &model, "--device", device, "--dtype", "f32", "--input", "-"];
    args.extend(extra);
    let run = run_with(&args, jsonl(&texts).as_bytes()).succeeds();
    let records = records(&run.stdout);
    let (expected, width) = fixture.floats("encode.embeddings");
    let offsets = fixture.ints("encode.token_offsets");
    assert_eq!(records.len(), texts.len());
    let limit = fixture.max_seq_length();
    for (i, record) in records.iter().enumerate() {
        assert_eq!(record.index, i as u64);
        assert_eq!(record.tokens, (offsets[i + 1] - offsets[i]) as usize, "{name}: {:?}", texts[i]);
        assert_eq!(record.truncated, record.tokens == limit, "{name}: {:?}", texts[i]);
        let expected = &expected[i * width..][..width];
        assert!(cosine(&record.embedding, expected) > 1.0 - 1e-6, "{name}: {:?}", texts[i]);
        let norm = |v: &[f32]| v.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>().sqrt();
        let wanted = if extra.contains(&"--no-normalize") { norm(expected) } else { 1.0 };
        assert!((norm(&record.embedding) / wanted - 1.0).abs() < 1e-4, "{name}: {:?}", texts[i]);
    }
    assert!(run.stderr.contains("longer than"), "the cut text is mentioned: {}", run.stderr);
}

#[test]
fn texts_give_the_vectors_of_sentence_transformers() {
    for name in ["bert", "xlmr", "mpnet", "distilbert", "modernbert"] {
        matches_sentence_transformers(name, "reference", &[]);
        matches_sentence_transformers(name, "gpu", &[]);
    }
    // This folder has no Normalize module.
    matches_sentence_transformers("roberta", "reference", &[]);
    matches_sentence_transformers("roberta", "gpu", &["--no-normalize"]);
}

#[test]
fn small_batches_change_nothing() {
    matches_sentence_transformers("bert", "reference", &["--batch-tokens", "48"]);
    matches_sentence_transformers("bert", "reference", &["--batch-tokens", "48", "--deterministic"]);
}

#[test]
fn prompts() {
    let fixture = Fixture::new("xlmr");
    let queries = fixture.queries();
    assert!(!queries.is_empty());
    let model = fixture.path();
    let args = ["--model", &model, "--device", "reference", "--input", "-", "--prompt", "query"];
    let found = embeddings(&run_with(&args, jsonl(&queries).as_bytes()).succeeds());
    let (expected, width) = fixture.floats("encode.query_embeddings");
    assert_eq!(found.len() * width, expected.len());
    for (found, expected) in found.iter().zip(expected.chunks(width)) {
        assert!(cosine(found, expected) > 1.0 - 1e-6);
    }
    let args = ["--model", &model, "--device", "reference", "--prompt", "poem", "x"];
    let error = run(&args).fails(1);
    assert!(error.contains("no prompt `poem` (it has: document, query)"), "{error}");
}

#[test]
fn the_three_ways_to_give_texts_agree() {
    let model = Fixture::new("bert").path();
    let base = ["--model", &model, "--device", "reference"];
    let as_arguments = run(&plus(&base, &["one text", "another"])).succeeds().stdout;
    let from_stdin = run_with(&plus(&base, &["--input", "-"]), b"one text\nanother").succeeds().stdout;
    assert_eq!(as_arguments, from_stdin);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "one text\r\nanother\r\n").unwrap();
    let name = file.path().to_str().unwrap();
    assert_eq!(run(&plus(&base, &["--input", name])).succeeds().stdout, from_stdin);
    let json = jsonl(&["one text".into(), "another".into()]);
    assert_eq!(run_with(&plus(&base, &["--input", "-"]), json.as_bytes()).succeeds().stdout, from_stdin);
    // Read as plain text, the same lines are other texts.
    let plain = run_with(&plus(&base, &["--input", "-", "--input-format", "text"]), json.as_bytes())
        .succeeds()
        .stdout;
    assert_ne!(plain, from_stdin);
}

#[test]
fn token_ids_and_their_limit() {
    let fixture = Fixture::new("bert");
    let model = fixture.path();
    let args = ["--model", &model, "--device", "reference", "--input", "-"];
    let (ids, offsets) = (fixture.ints("encode.token_ids"), fixture.ints("encode.token_offsets"));
    let lines: String = offsets
        .windows(2)
        .map(|w| format!("{}\n", serde_json::json!({ "ids": ids[w[0] as usize..w[1] as usize] })))
        .collect();
    let from_ids = embeddings(&run_with(&args, lines.as_bytes()).succeeds());
    let from_texts = embeddings(&run_with(&args, jsonl(&fixture.texts()).as_bytes()).succeeds());
    assert_eq!(from_ids, from_texts);
    // More than the model takes: cut, and said so.
    let line = serde_json::json!({ "ids": vec![7; 100] }).to_string();
    let records = records(&run_with(&args, line.as_bytes()).succeeds().stdout);
    assert_eq!((records[0].tokens, records[0].truncated), (48, true));
}

#[test]
fn forms_of_output_agree() {
    let model = Fixture::new("bert").path();
    let base = ["--model", &model, "--device", "reference", "one", "two", "three"];
    let expected: Vec<f32> = embeddings(&run(&plus(&base, &[])).succeeds()).concat();
    let floats =
        |bytes: &[u8]| -> Vec<f32> { bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect() };
    let folder = tempfile::tempdir().unwrap();
    for form in ["npy", "safetensors", "jsonl"] {
        let piped = run(&plus(&base, &["--output", form])).succeeds().stdout;
        let path = folder.path().join(form);
        let name = path.to_str().unwrap();
        assert_eq!(run(&plus(&base, &["--output", form, "--output-file", name])).succeeds().stdout, b"");
        assert_eq!(std::fs::read(&path).unwrap(), piped, "{form}: into a file as into a pipe");
        match form {
            "npy" => {
                assert!(String::from_utf8_lossy(&piped[..128]).contains("'shape': (3, 64)"));
                assert_eq!(floats(&piped[128..]), expected);
            }
            "safetensors" => {
                let file = safetensors::SafeTensors::deserialize(&piped).unwrap();
                let tensor = file.tensor("embeddings").unwrap();
                assert_eq!(tensor.shape(), [3, 64]);
                assert_eq!(floats(tensor.data()), expected);
            }
            _ => {}
        }
    }
}

#[test]
fn empty_input() {
    let model = Fixture::new("bert").path();
    let args = ["--model", &model, "--device", "reference", "--input", "-"];
    assert_eq!(run_with(&args, b"").succeeds().stdout, b"");
    let npy = run_with(&plus(&args, &["--output", "npy"]), b"").succeeds().stdout;
    assert!(String::from_utf8_lossy(&npy).contains("'shape': (0, 64)"));
    // An empty text is a text: its special tokens.
    let records = records(&run_with(&args, b"\n").succeeds().stdout);
    assert_eq!((records.len(), records[0].tokens), (1, 2));
}

#[test]
fn dimensions_pooling_and_similarity() {
    let fixture = Fixture::new("bert");
    let model = fixture.path();
    let base = ["--model", &model, "--device", "reference"];
    let full = embeddings(&run(&plus(&base, &["a text"])).succeeds()).remove(0);
    for dim in ["16", "17"] {
        let n: usize = dim.parse().unwrap();
        let cut = embeddings(&run(&plus(&base, &["--dim", dim, "a text"])).succeeds()).remove(0);
        assert_eq!(cut.len(), n);
        assert!(cosine(&cut, &full[..n]) > 1.0 - 1e-6);
        assert!((cut.iter().map(|v| v * v).sum::<f32>() - 1.0).abs() < 1e-5, "unit length again");
    }
    let error = run(&plus(&base, &["--dim", "65", "a text"])).fails(1);
    assert!(error.contains("65 dimensions asked for") && error.contains("64"), "{error}");

    let pooled = |mode: &str| {
        embeddings(&run(&plus(&base, &["--no-normalize", "--pooling", mode, "a text"])).succeeds()).remove(0)
    };
    let both = pooled("cls,mean");
    assert_eq!(both, [pooled("cls"), pooled("mean")].concat());

    let texts = fixture.texts();
    let run = run(&plus(&base, &["--similarity", &texts[0], &texts[1], &texts[3]])).succeeds();
    let (expected, width) = fixture.floats("encode.cosine");
    let lines: Vec<f32> =
        String::from_utf8(run.stdout).unwrap().lines().map(|l| l.parse().unwrap()).collect();
    assert_eq!(lines.len(), 2);
    for (found, at) in lines.iter().zip([1, 3]) {
        assert!((found - expected[at]).abs() < 1e-5, "{found} {}", expected[at]);
    }
    assert_eq!(width, texts.len());
}

#[test]
fn a_plain_checkpoint_gets_mean_pooling() {
    let fixture = Fixture::new("bert");
    let plain = fixture.copy();
    for name in ["modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"] {
        std::fs::remove_file(plain.path().join(name)).unwrap();
    }
    let texts = fixture.texts();
    let args = ["--model", plain.path().to_str().unwrap(), "--device", "reference", "--input", "-"];
    let found = embeddings(&run_with(&args, jsonl(&texts).as_bytes()).succeeds());
    let (expected, width) = fixture.floats("encode.embeddings");
    for (found, expected) in found.iter().zip(expected.chunks(width)) {
        assert!(cosine(found, expected) > 1.0 - 1e-6);
    }
}

#[test]
fn many_texts_keep_their_order() {
    let model = Fixture::new("bert").path();
    // Several windows of batches; each text's length tells which it is (the word is two tokens).
    let text = |i: usize| "lake ".repeat(1 + i % 20);
    let input: String = (0..3000).map(|i| text(i) + "\n").collect();
    let args = ["--model", &model, "--device", "reference", "--input", "-", "--batch-tokens", "512"];
    let records = records(&run_with(&args, input.as_bytes()).succeeds().stdout);
    assert_eq!(records.len(), 3000);
    for (i, record) in records.iter().enumerate() {
        assert_eq!((record.index, record.tokens), (i as u64, 4 + 2 * (i % 20)));
    }
    assert_ne!(records[0].embedding, records[1].embedding);
    assert!(cosine(&records[0].embedding, &records[20].embedding) > 1.0 - 1e-6);
}

#[test]
fn a_reader_that_has_enough() {
    let model = Fixture::new("bert").path();
    let args = ["--model", &model, "--device", "reference", "--input", "-", "--batch-tokens", "64"];
    let input = "some text\n".repeat(20_000);
    let Run { status, stderr, stdout } = support::read_one_line(&args, input.into_bytes());
    assert!(stdout.starts_with(b"{\"index\":0,"));
    assert_eq!(status, Some(0), "{stderr}");
    assert_eq!(stderr, "");
}

#[test]
fn compiled_pipelines_are_kept_and_may_be_damaged() {
    let model = Fixture::new("bert").path();
    let args = ["--model", &model, "--device", "gpu", "a text"];
    let cache = tempfile::tempdir().unwrap();
    let first = support::run_with_cache(&args, cache.path()).succeeds().stdout;
    let files: Vec<_> =
        std::fs::read_dir(cache.path().join("pipelines")).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(support::run_with_cache(&args, cache.path()).succeeds().stdout, first);
    for damaged in [&b""[..], b"not a pipeline cache"] {
        std::fs::write(&files[0], damaged).unwrap();
        assert_eq!(support::run_with_cache(&args, cache.path()).succeeds().stdout, first);
    }
}

#[test]
fn usage() {
    let model = Fixture::new("bert").path();
    for args in [
        &["a text"][..],
        &["--model", &model],
        &["--model", &model, "--dim", "0", "x"],
        &["--model", &model, "--pooling", "median", "x"],
        &["--model", &model, "--similarity", "x"],
        &["--no-such-option"],
    ] {
        run(args).fails(2);
    }
    let help = String::from_utf8(run(&["--help"]).succeeds().stdout).unwrap();
    for option in [
        "--model",
        "--device",
        "--input",
        "--prompt",
        "--pooling",
        "--dim",
        "--no-normalize",
        "--dtype",
        "--batch-tokens",
        "--threads",
        "--adapter",
        "--output",
        "--similarity",
        "--list-devices",
        "--log-level",
    ] {
        assert!(help.contains(option), "{option} is missing from the help");
    }
    let devices = String::from_utf8(run(&["--list-devices"]).succeeds().stdout).unwrap();
    assert!(devices.lines().last().unwrap().starts_with("cpu: "), "{devices}");
    let models = String::from_utf8(run(&["--list-models"]).succeeds().stdout).unwrap();
    assert!(models.contains("minilm: ") && models.contains("Apache-2.0"), "{models}");
}
