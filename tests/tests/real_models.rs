//! The catalogue's models, really fetched (90 MB each) into the usual cache: run with `--ignored`.

use inferencelayer::{
    EmbedEngine, EmbedOptions,
    device::{Device, DeviceOptions, Dtype},
    hub::{self, Config},
};
use inferencelayer_tests::{compare::cosine_distance, fixture::Fixture};

/// Token ids equal Hugging Face's, and vectors are those of sentence-transformers within `bound` of the cosine.
fn matches(alias: &str, fixture: &str, device: Device, dtype: Option<Dtype>, bound: f64) {
    let folder = hub::locate(alias, &Config::from_env().unwrap(), &()).unwrap();
    let device = DeviceOptions { device, dtype, ..DeviceOptions::default() };
    let mut engine = EmbedEngine::open(&folder, 2048, &device, &EmbedOptions::default()).unwrap();
    let fixture = Fixture::new(fixture);
    let expected = fixture.expected();
    let texts = fixture.texts();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let ids: Vec<Vec<u32>> = engine.tokenize(&texts, "").unwrap().into_iter().map(|e| e.ids).collect();
    assert_eq!(ids, expected.ragged("token_ids", "token_offsets"), "{alias}");
    let vectors = engine.embed(&texts, None).unwrap();
    let wanted = expected.floats("embeddings");
    assert_eq!(vectors.len() * engine.dimension(), wanted.len());
    let mut worst = 0f64;
    for ((vector, wanted), text) in vectors.iter().zip(wanted.chunks(engine.dimension())).zip(texts) {
        let off = cosine_distance(vector, wanted);
        assert!(off <= bound, "{alias} on {}: 1 - cosine is {off:e}: {text:?}", engine.device_name());
        worst = worst.max(off);
    }
    println!("{alias} on {}: 1 - cosine {worst:e} of {bound:e}", engine.device_name());
}

#[test]
#[ignore = "fetches a model"]
fn minilm_on_the_gpu() {
    matches("minilm", "real_minilm_l6_v2", Device::Gpu, Some(Dtype::F32), 1e-6);
    matches("minilm", "real_minilm_l6_v2", Device::Gpu, Some(Dtype::F16), 1e-4);
}

#[test]
#[ignore = "fetches a model and converts it"]
fn e5_small_on_the_gpu() {
    matches("e5-small", "real_multilingual_e5_small", Device::Gpu, Some(Dtype::F32), 1e-6);
}
