//! Token ids equal those of Hugging Face's tokenizers, single texts and pairs, truncated ones included.

use inferencelayer::{
    sentence_transformers::SentenceTransformer,
    tokenizer::{SpecialTokens, Tokenizer},
};
use inferencelayer_engine::{checkpoint::MemoryFolder, task::block_on};
use inferencelayer_tests::fixture::{EMBEDDERS, Fixture};

fn embedder(fixture: &Fixture) -> Tokenizer {
    let model = block_on(SentenceTransformer::read(fixture)).unwrap();
    let mut tokenizer = block_on(Tokenizer::from_folder(fixture, &model.transformer)).unwrap();
    tokenizer.set_max_length(model.max_seq_length).unwrap();
    tokenizer
}

#[test]
fn single_texts() {
    for name in EMBEDDERS.map(|e| e.name) {
        let case = Fixture::new(name);
        let tokenizer = embedder(&case);
        let expected = case.expected().ragged("encode.token_ids", "encode.token_offsets");
        let texts = case.texts();
        assert_eq!(texts.len(), expected.len());
        let limit = tokenizer.max_length().unwrap();
        let mut truncated = 0;
        for (text, expected) in texts.iter().zip(&expected) {
            let encoded = tokenizer.encode(text).unwrap();
            assert_eq!(&encoded.ids, expected, "{name}: {text:?}");
            assert_eq!(encoded.type_ids, vec![0; expected.len()], "{name}: {text:?}");
            assert_eq!(encoded.truncated, expected.len() == limit, "{name}: {text:?}");
            truncated += usize::from(encoded.truncated);
        }
        assert!(truncated > 0, "{name}: no text was long enough to be cut");
        let borrowed: Vec<&str> = texts.iter().map(String::as_str).collect();
        let batch: Vec<Vec<u32>> =
            tokenizer.encode_batch(&borrowed).unwrap().into_iter().map(|e| e.ids).collect();
        assert_eq!(batch, expected, "{name}: as a batch");
    }
}

#[test]
fn pairs() {
    for name in ["ce_bert1", "ce_xlmr", "ce_modernbert"] {
        let case = Fixture::new(name);
        let mut tokenizer = block_on(Tokenizer::from_folder(&case, "")).unwrap();
        let (pairs, max_length) = case.pairs();
        assert_eq!(tokenizer.model_max_length(), Some(max_length));
        tokenizer.set_max_length(Some(max_length)).unwrap();
        let expected = case.expected().ragged("token_ids", "token_offsets");
        let has_types = case.expected().has("token_type_ids");
        let types = has_types.then(|| case.expected().ragged("token_type_ids", "token_offsets"));
        let mut truncated = 0;
        for (i, (first, second)) in pairs.iter().enumerate() {
            let encoded = tokenizer.encode_pair(first, second).unwrap();
            assert_eq!(encoded.ids, expected[i], "{name}: {first:?} {second:?}");
            if let Some(types) = &types {
                assert_eq!(encoded.type_ids, types[i], "{name}: {first:?} {second:?}");
            }
            truncated += usize::from(encoded.truncated);
            assert!(encoded.ids.len() <= max_length);
        }
        assert_eq!(truncated, 1, "{name}");
    }
}

#[test]
fn special_tokens_and_prompts() {
    let tokenizer = embedder(&Fixture::new("xlmr"));
    let special = tokenizer.special_tokens();
    let expected = SpecialTokens {
        cls: Some(0),
        sep: Some(2),
        pad: Some(1),
        mask: Some(559),
        unk: Some(3),
        bos: Some(0),
        eos: Some(2),
    };
    assert_eq!(special, expected);
    assert!(tokenizer.is_special(2) && !tokenizer.is_special(10));
    // The prompt's own tokens are a prefix of any text's that starts with it.
    let n = tokenizer.prompt_length("query: ").unwrap();
    let prompt = tokenizer.encode("query: ").unwrap().ids;
    assert_eq!(n, prompt.len() - 1);
    assert_eq!(tokenizer.prompt_length("").unwrap(), 0);
}

#[test]
fn lower_casing_comes_first() {
    let case = Fixture::new("roberta");
    let mut tokenizer = embedder(&case);
    let (lower, upper) = (tokenizer.encode("the police").unwrap(), tokenizer.encode("THE Police").unwrap());
    assert_ne!(lower, upper);
    tokenizer.lowercase().unwrap();
    assert_eq!(tokenizer.encode("THE Police").unwrap(), lower);
}

#[test]
fn limits_that_leave_no_room() {
    let mut tokenizer = embedder(&Fixture::new("xlmr"));
    let error = tokenizer.set_max_length(Some(2)).unwrap_err().to_string();
    assert!(error.contains("maximum length of 2") && error.contains("alone are 2"), "{error}");
    tokenizer.set_max_length(Some(3)).unwrap();
    let encoded = tokenizer.encode("a longer text").unwrap();
    assert_eq!((encoded.ids.len(), encoded.truncated), (3, true));
    assert_eq!((encoded.ids[0], encoded.ids[2]), (0, 2), "special tokens are kept");
    // A pair has two more.
    let error = tokenizer.encode_pair("a", "b").unwrap_err().to_string();
    assert!(error.contains("alone are 4"), "{error}");
    tokenizer.set_max_length(None).unwrap();
    assert!(!tokenizer.encode(&"long ".repeat(1000)).unwrap().truncated);
}

#[test]
fn broken_files_are_named() {
    let case = Fixture::new("bert");
    let bytes = std::fs::read(case.path().join("tokenizer.json")).unwrap();
    for cut in [0, 1, bytes.len() / 2, bytes.len() - 1] {
        let error = Tokenizer::from_bytes(&bytes[..cut], None).unwrap_err().to_string();
        assert!(error.starts_with("tokenizer.json: "), "{error}");
    }
    let error = Tokenizer::from_bytes(&bytes, Some(b"[1")).unwrap_err().to_string();
    assert!(error.starts_with("tokenizer_config.json: "), "{error}");
    let error = Tokenizer::from_bytes(&bytes, Some(br#"{"truncation_side":"up"}"#)).unwrap_err().to_string();
    assert!(error.contains("`up`"), "{error}");
    let empty = MemoryFolder::new("model");
    let error = block_on(Tokenizer::from_folder(&empty, "0_T")).unwrap_err().to_string();
    assert!(error.starts_with("model/0_T/tokenizer.json: the file is missing; make one"), "{error}");
}
