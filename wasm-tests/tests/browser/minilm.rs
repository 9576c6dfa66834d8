//! all-MiniLM-L6-v2 as it was published: 40 texts in, the vectors that transformers computes in float32 out.
//!
//! The model is too large to be compiled in: `tests/run browser` serves its files to these tests.

use js_sys::Object;
use safetensors::SafeTensors;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use wasm_bindgen_test::{console_log, wasm_bindgen_test};
use web_sys::{Response, WorkerGlobalScope};

use crate::{
    fixtures,
    support::{device, distance, embed, load, object},
};

/// The model is all of these; a missing one is a failure.
const FILES: [&str; 7] = [
    "config.json",
    "model.safetensors",
    "modules.json",
    "1_Pooling/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "tokenizer.json",
];
const TEXTS: &str = include_str!("../../../tests/fixtures/real_minilm_l6_v2/texts.json");
const EXPECTED: &[u8] = include_bytes!("../../../tests/fixtures/real_minilm_l6_v2/expected.safetensors");

fn scope() -> WorkerGlobalScope {
    js_sys::global().unchecked_into()
}

/// The model's files as Blobs.
async fn files() -> Object {
    let Some(url) = option_env!("INFERENCELAYER_MODEL_URL") else {
        panic!("INFERENCELAYER_MODEL_URL was not set at build time; `tests/run browser` does it");
    };
    let mut files = Vec::new();
    for path in FILES {
        let response = JsFuture::from(scope().fetch_with_str(&format!("{url}/{path}"))).await;
        let response: Response = response.unwrap_or_else(|e| panic!("{url}/{path}: {e:?}")).unchecked_into();
        assert!(response.ok(), "{url}/{path}: {}", response.status());
        let blob = JsFuture::from(response.blob().expect("a body")).await.expect("a whole body");
        files.push((path, blob));
    }
    object(&files)
}

/// `limit` bounds `1 − cosine` of every text, `mean` that of all.
async fn check(kind: &str, dtype: &str, limit: f64, mean: f64) {
    let device = device(kind).await;
    let clock = scope().performance().expect("a clock");
    let files = files().await;
    let start = clock.now();
    // Few tokens at a time, so that there are several batches.
    let options: [(&str, JsValue); 2] = [("dtype", dtype.into()), ("maxBatchTokens", 512.into())];
    let embedder = load(&device, files, object(&options)).await.expect("the model");
    let loaded = clock.now();
    let texts = fixtures::texts(TEXTS);
    let vectors = embed(&embedder, &texts).await.expect("vectors");
    let (load_ms, embed_ms) = (loaded - start, clock.now() - loaded);

    let expected = SafeTensors::deserialize(EXPECTED).expect("a safetensors file");
    let expected = fixtures::floats(&expected, "embeddings");
    assert_eq!((texts.len(), vectors.len(), vectors.len() * 384), (40, 40, expected.len()));
    let (mut worst, mut sum) = (0f64, 0.0);
    for ((vector, expected), text) in vectors.iter().zip(expected.chunks(384)).zip(&texts) {
        let off = distance(vector, expected);
        // Also false for NaN.
        assert!(off <= limit, "{text:?} on {kind} in {dtype}: 1 - cosine is {off:e}");
        (worst, sum) = (worst.max(off), sum + off);
    }
    console_log!("{kind} {dtype}: 1 - cosine {worst:e}, load {load_ms:.0} ms, embed {embed_ms:.0} ms");
    assert!(sum / 40.0 <= mean, "the mean of 1 - cosine is {:e}", sum / 40.0);
}

#[wasm_bindgen_test]
#[ignore = "needs the model served"]
async fn minilm_on_the_gpu_in_f32() {
    check("webgpu", "f32", 1e-6, 1e-6).await;
}

#[wasm_bindgen_test]
#[ignore = "needs the model served"]
async fn minilm_on_the_gpu_in_f16() {
    check("webgpu", "f16", 1e-4, 1e-4).await;
}

#[wasm_bindgen_test]
#[ignore = "needs the model served"]
async fn minilm_on_the_cpu_in_f32() {
    check("cpu", "f32", 1e-6, 1e-6).await;
}

#[wasm_bindgen_test]
#[ignore = "needs the model served"]
async fn minilm_on_the_cpu_in_int8() {
    check("cpu", "int8", 1e-2, 3e-3).await;
}
