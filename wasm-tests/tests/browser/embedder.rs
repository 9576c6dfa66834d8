//! The class that JavaScript sees: a sentence-transformers folder and texts in, vectors out.

use inferencelayer_web::Embedder;
use js_sys::{Array, Object, Reflect, Uint8Array};
use safetensors::SafeTensors;
use wasm_bindgen::{JsCast, JsError, JsValue};
use wasm_bindgen_test::wasm_bindgen_test;
use web_sys::Blob;

macro_rules! bert {
    ($($path:literal),+) => {
        [$(($path, include_bytes!(concat!("../../../tests/fixtures/bert/", $path)) as &[u8])),+]
    };
}

const FILES: [(&str, &[u8]); 8] = bert![
    "config.json",
    "model.safetensors",
    "modules.json",
    "1_Pooling/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "tokenizer.json",
    "tokenizer_config.json"
];
const EXPECTED: &[u8] = include_bytes!("../../../tests/fixtures/bert/expected.safetensors");
const TEXTS: &str = include_str!("../../../tests/fixtures/bert/texts.json");

/// As Blobs where `blobs`, else as bytes; without the file `but`.
fn files(blobs: bool, but: &str) -> Object {
    let object = Object::new();
    for (path, bytes) in FILES.iter().filter(|(path, _)| *path != but) {
        let bytes = Uint8Array::from(*bytes);
        let content: JsValue = if blobs {
            Blob::new_with_u8_array_sequence(&Array::of1(&bytes)).expect("a blob").into()
        } else {
            bytes.into()
        };
        Reflect::set(&object, &(*path).into(), &content).expect("a plain object");
    }
    object
}

fn options(entries: &[(&str, JsValue)]) -> JsValue {
    let object = Object::new();
    for (key, value) in entries {
        Reflect::set(&object, &(*key).into(), value).expect("a plain object");
    }
    object.into()
}

async fn load(files: Object, options: JsValue) -> Result<Embedder, JsError> {
    Embedder::load(files.unchecked_into(), options.unchecked_into()).await
}

fn message(error: JsError) -> String {
    let error: js_sys::Error = JsValue::from(error).unchecked_into();
    error.message().into()
}

fn texts() -> Vec<String> {
    let texts: serde_json::Value = serde_json::from_str(TEXTS).expect("texts.json");
    let list = texts["texts"].as_array().expect("a list of texts");
    list.iter().map(|t| t.as_str().expect("a text").to_owned()).collect()
}

async fn check(embedder: &Embedder, limit: f64) {
    let texts = texts();
    let vectors = embedder.embed(texts.clone(), None).await.map_err(message).expect("vectors");
    assert_eq!(vectors.len(), texts.len());
    let file = SafeTensors::deserialize(EXPECTED).expect("a safetensors file");
    let expected = file.tensor("encode.embeddings").expect("embeddings");
    let expected: Vec<f32> = expected.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    for ((vector, expected), text) in vectors.iter().zip(expected.chunks(embedder.dimensions())).zip(&texts) {
        let vector = vector.to_vec();
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
        let off = 1.0 - dot(&vector, expected) / (dot(&vector, &vector) * dot(expected, expected)).sqrt();
        assert!(off <= limit, "{text:?} on {}: 1 - cosine is {off:e}", embedder.device());
    }
}

#[wasm_bindgen_test]
async fn texts_on_the_gpu_agree_with_sentence_transformers() {
    for blobs in [false, true] {
        let options =
            options(&[("device", "gpu".into()), ("dtype", "f32".into()), ("maxBatchTokens", 256.into())]);
        let embedder = load(files(blobs, ""), options).await.map_err(message).expect("a model");
        assert!(embedder.max_tokens() > 0 && embedder.device().contains("F32"), "{}", embedder.device());
        check(&embedder, 1e-6).await;
    }
}

#[wasm_bindgen_test]
async fn texts_on_the_cpu_agree_with_sentence_transformers() {
    for (dtype, limit) in [("f32", 1e-6), ("int8", 3e-3)] {
        let options = options(&[("device", "cpu".into()), ("dtype", dtype.into())]);
        let embedder = load(files(true, ""), options).await.map_err(message).expect("a model");
        assert!(embedder.device().contains("cpu"), "{}", embedder.device());
        check(&embedder, limit).await;
    }
}

/// Errors name what is wrong.
#[wasm_bindgen_test]
async fn mistakes_are_named() {
    let cases = [
        (files(false, "config.json"), JsValue::UNDEFINED, "config.json"),
        (files(true, "model.safetensors"), JsValue::UNDEFINED, "model.safetensors"),
        (files(false, ""), options(&[("divice", "cpu".into())]), "divice"),
        (files(false, ""), options(&[("device", "tpu".into())]), "tpu"),
        (files(false, ""), options(&[("device", "cpu".into()), ("dtype", "f16".into())]), "f16"),
        (files(false, ""), options(&[("pooling", Array::of1(&"middle".into()).into())]), "middle"),
        (options(&[("config.json", 7.into())]).unchecked_into(), JsValue::UNDEFINED, "config.json"),
    ];
    for (files, options, culprit) in cases {
        let text = message(load(files, options).await.expect_err(culprit));
        assert!(text.contains(culprit), "{text}");
    }
    // Without a tokenizer a model loads, but takes no texts.
    let options = options(&[("device", "cpu".into())]);
    let embedder = load(files(false, "tokenizer.json"), options).await.map_err(message).expect("a model");
    let text = message(embedder.embed(vec!["a".into()], None).await.expect_err("no tokenizer"));
    assert!(text.contains("tokenizer.json"), "{text}");
}
