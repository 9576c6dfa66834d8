//! The catalogue's models, really fetched (90 MB each) into the usual cache: run with `--ignored`.

use inferencelayer::{
    folder::DiskFolder,
    hub::{self, Config},
    sentence_transformers::SentenceTransformer,
    tokenizer::Tokenizer,
};
use inferencelayer_engine::task::block_on;
use inferencelayer_tests::fixture::Fixture;

fn ids_match(alias: &str, case: &str) {
    let folder = hub::locate(alias, &Config::from_env().unwrap(), &()).unwrap();
    let files = DiskFolder::open(&folder).unwrap();
    let model = block_on(SentenceTransformer::read(&files)).unwrap();
    let mut tokenizer = block_on(Tokenizer::from_folder(&files, &model.transformer)).unwrap();
    tokenizer.set_max_length(model.max_seq_length).unwrap();
    let case = Fixture::new(case);
    let expected = case.expected().ragged("token_ids", "token_offsets");
    for (text, expected) in case.texts().iter().zip(&expected) {
        assert_eq!(&tokenizer.encode(text).unwrap().ids, expected, "{alias}: {text:?}");
    }
}

#[test]
#[ignore = "fetches a model"]
fn minilm_token_ids() {
    ids_match("minilm", "real_minilm_l6_v2");
}

#[test]
#[ignore = "fetches a model and converts it"]
fn e5_small_token_ids() {
    ids_match("e5-small", "real_multilingual_e5_small");
}
