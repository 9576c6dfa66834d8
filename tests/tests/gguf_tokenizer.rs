//! Tokenizers built from GGUF metadata: ids as Hugging Face's, and text back in pieces.

use inferencelayer::{generate::Detokenizer, tokenizer};
use inferencelayer_engine::{
    checkpoint::{Folder, Gguf},
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
