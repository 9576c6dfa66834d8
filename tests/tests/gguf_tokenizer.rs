//! Tokenizers built from GGUF metadata: ids as Hugging Face's, and text back in pieces.

use inferencelayer::{generate::Detokenizer, tokenizer};
use inferencelayer_engine::{
    checkpoint::{
        Folder, Gguf,
        gguf::{Array, Metadata, Strings, Value as Key},
    },
    task::block_on,
    testing::Random,
};
use inferencelayer_tests::fixture::{Fixture, GGUF_DECODERS};
use serde_json::Value;

fn open(fixture: &Fixture) -> tokenizer::Tokenizer {
    let file = block_on(fixture.open("model.gguf")).expect("a readable file").expect("model.gguf");
    let file = block_on(Gguf::open(file)).expect("a GGUF file");
    tokenizer::from_gguf(file.metadata()).expect("a tokenizer").expect("a vocabulary")
}

fn strings(fixture: &Fixture) -> Vec<String> {
    let bytes = std::fs::read(fixture.path().join("texts.json")).expect("texts.json");
    let texts: Value = serde_json::from_slice(&bytes).expect("JSON");
    let list = texts["strings"].as_array().expect("strings");
    list.iter().map(|t| t.as_str().expect("a string").to_owned()).collect()
}

#[test]
fn ids_are_hugging_faces() {
    for name in GGUF_DECODERS {
        let fixture = Fixture::new(name);
        let tokenizer = open(&fixture);
        let wanted = fixture.expected().ragged("tok.ids", "tok.offsets");
        let texts = strings(&fixture);
        assert_eq!(texts.len(), wanted.len());
        for (text, wanted) in texts.iter().zip(wanted) {
            let ids = tokenizer.encode_rendered(text).expect("ids");
            assert_eq!(ids, wanted, "{name}: {text:?}");
        }
    }
}

#[test]
fn pieces_make_the_whole_text() {
    for name in GGUF_DECODERS {
        let fixture = Fixture::new(name);
        let tokenizer = open(&fixture);
        let pieces = |ids: &[u32]| {
            let mut detokenizer = Detokenizer::default();
            let mut text = String::new();
            for id in ids {
                let piece = detokenizer.push(&tokenizer, *id).expect("text");
                assert!(
                    !piece.ends_with('\u{fffd}') || ids.len() > 8,
                    "{name}: half a character in {piece:?}"
                );
                text += &piece;
            }
            text + &detokenizer.finish(&tokenizer).expect("text")
        };
        for text in strings(&fixture) {
            let ids = tokenizer.encode_rendered(&text).expect("ids");
            assert_eq!(pieces(&ids), tokenizer.decode(&ids).expect("text"), "{name}");
        }
        // Mixtures of texts' tokens, so that most bytes make characters.
        let mut random = Random::named(name);
        let all: Vec<Vec<u32>> =
            strings(&fixture).iter().map(|t| tokenizer.encode_rendered(t).expect("ids")).collect();
        for _ in 0..50 {
            let ids: Vec<u32> =
                (0..6).flat_map(|_| all[random.below(all.len()) as usize].iter().copied()).collect();
            assert_eq!(pieces(&ids), tokenizer.decode(&ids).expect("text"), "{name}");
        }
    }
}

/// Metadata of a GGUF file with the vocabulary of `gguf_tokenizers.json`.
fn small(pre: &str, more: &[(&str, Key)]) -> (Metadata, Value) {
    let path = Fixture::new("gguf_tokenizers.json").path().to_owned();
    let all: Value = serde_json::from_slice(&std::fs::read(path).expect("a fixture")).expect("JSON");
    let strings = |key: &str| {
        let list = all[key].as_array().expect("strings").iter().map(|v| v.as_str().expect("a string"));
        Key::Array(Array::Strings(Strings::from_iter(list)))
    };
    let types =
        all["types"].as_array().expect("numbers").iter().map(|v| v.as_i64().expect("a number") as i32);
    let mut values = vec![
        ("tokenizer.ggml.model".to_owned(), Key::String("gpt2".into())),
        ("tokenizer.ggml.pre".to_owned(), Key::String(pre.into())),
        ("tokenizer.ggml.tokens".to_owned(), strings("tokens")),
        ("tokenizer.ggml.merges".to_owned(), strings("merges")),
        ("tokenizer.ggml.token_type".to_owned(), Key::Array(Array::I32(types.collect()))),
    ];
    values.extend(more.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    (Metadata::new("small.gguf", values), all)
}

#[test]
fn every_pre_tokenizer_cuts_as_hugging_faces() {
    let mut checked = 0;
    for name in ["llama-bpe", "lfm2", "qwen2", "smollm", "gpt-2"] {
        let (metadata, all) = small(name, &[]);
        let tokenizer = tokenizer::from_gguf(&metadata).expect("a tokenizer").expect("a vocabulary");
        let texts = all["texts"].as_array().expect("texts");
        for (text, wanted) in texts.iter().zip(all["ids"][name].as_array().expect("ids")) {
            let text = text.as_str().expect("a text");
            let wanted: Vec<u32> = serde_json::from_value(wanted.clone()).expect("ids");
            assert_eq!(tokenizer.encode_rendered(text).expect("ids"), wanted, "{name}: {text:?}");
            checked += 1;
        }
    }
    assert!(checked > 100);
}

#[test]
fn what_files_leave_out() {
    let id = |text: &str, all: &Value| {
        let tokens = all["tokens"].as_array().expect("tokens");
        tokens.iter().position(|t| t == text).expect("a token") as u32
    };
    let (_, all) = small("qwen2", &[]);
    let begin = id("<|im_start|>", &all);
    let bos = ("tokenizer.ggml.bos_token_id", Key::U32(begin));
    let no = ("tokenizer.ggml.add_bos_token", Key::Bool(false));
    type Case<'a> = (&'a str, Vec<(&'a str, Key)>, bool);
    let cases: [Case; 4] = [
        ("llama-bpe", vec![bos.clone()], true),
        ("llama-bpe", vec![bos.clone(), no], false),
        ("qwen2", vec![bos.clone()], false),
        ("qwen2", vec![bos, ("tokenizer.ggml.add_bos_token", Key::Bool(true))], true),
    ];
    for (pre, more, begins) in cases {
        let tokenizer =
            tokenizer::from_gguf(&small(pre, &more).0).expect("a tokenizer").expect("a vocabulary");
        assert_eq!(tokenizer.encode("a").expect("ids").ids.starts_with(&[begin]), begins, "{pre}");
        assert!(!tokenizer.encode_rendered("a").expect("ids").starts_with(&[begin]), "{pre}");
    }
    let error = tokenizer::from_gguf(&small("tekken", &[]).0).expect_err("another pre-tokenizer").to_string();
    assert!(error.contains("tokenizer.ggml.pre") && error.contains("`tekken`"), "{error}");
    assert!(error.contains("small.gguf") && error.contains("llama-bpe"), "{error}");
}
