//! The catalogue's models, really fetched (90 MB each) into the usual cache: run with `--ignored`.

use inferencelayer::{
    EmbedEngine, EmbedOptions,
    device::{Device, DeviceOptions, Dtype},
    hub::{self, Config},
};
use inferencelayer_tests::{compare::cosine_distance, fixture::Fixture};

/// Token ids equal Hugging Face's, and vectors are those of sentence-transformers within `bound` of the cosine.
/// Returns 1 - cosine of each text.
fn matches(alias: &str, fixture: &str, device: Device, dtype: Option<Dtype>, bound: f64) -> Vec<f64> {
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
    let mut distances = Vec::new();
    for ((vector, wanted), text) in vectors.iter().zip(wanted.chunks(engine.dimension())).zip(texts) {
        let off = cosine_distance(vector, wanted);
        assert!(off <= bound, "{alias} on {}: 1 - cosine is {off:e}: {text:?}", engine.device_name());
        distances.push(off);
    }
    let worst = distances.iter().fold(0f64, |m, d| m.max(*d));
    println!("{alias} on {}: 1 - cosine {worst:e} of {bound:e}", engine.device_name());
    distances
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

#[test]
#[ignore = "fetches a model"]
fn minilm_on_the_cpu() {
    matches("minilm", "real_minilm_l6_v2", Device::Cpu, Some(Dtype::F32), 1e-6);
    let distances = matches("minilm", "real_minilm_l6_v2", Device::Cpu, Some(Dtype::Int8), 0.01);
    let mean = distances.iter().sum::<f64>() / distances.len() as f64;
    println!("int8: mean 1 - cosine {mean:e} of 3e-3");
    assert!(mean <= 0.003, "int8: the mean of 1 - cosine is {mean:e}");
}

#[test]
#[ignore = "fetches a model and converts it"]
fn e5_small_on_the_cpu() {
    matches("e5-small", "real_multilingual_e5_small", Device::Cpu, Some(Dtype::F32), 1e-6);
}
