//! The class that JavaScript sees: a sentence-transformers folder and texts in, vectors out.

use inferencelayer_engine::gpu::{GpuContext, GpuOptions};
use inferencelayer_web::Embedder;
use js_sys::{Array, JsString, Object, Promise};
use wasm_bindgen::{JsCast, JsValue, prelude::wasm_bindgen};
use wasm_bindgen_futures::JsFuture;
use wasm_bindgen_test::wasm_bindgen_test;

use crate::{
    fixtures,
    support::{blob, bytes, distance, embed, load, message, object},
};

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
const TEXTS: &str = include_str!("../../../tests/fixtures/bert/texts.json");

/// The model's files, without `but`.
fn files(content: fn(&[u8]) -> JsValue, but: &str) -> Object {
    let kept = FILES.iter().filter(|(path, _)| *path != but);
    object(&kept.map(|(path, data)| (*path, content(data))).collect::<Vec<_>>())
}

async fn check(embedder: &Embedder, limit: f64) {
    let texts = fixtures::texts(TEXTS);
    let vectors = embed(embedder, &texts).await.expect("vectors");
    let expected = fixtures::ALL[0].embeddings();
    assert_eq!(vectors.len() * embedder.dimensions(), expected.len());
    for ((vector, expected), text) in vectors.iter().zip(expected.chunks(embedder.dimensions())).zip(&texts) {
        let off = distance(vector, expected);
        assert!(off <= limit, "{text:?} on {}: 1 - cosine is {off:e}", embedder.device());
    }
}

#[wasm_bindgen_test]
async fn texts_on_the_gpu_agree_with_sentence_transformers() {
    for content in [bytes, blob] {
        let options =
            object(&[("device", "gpu".into()), ("dtype", "f32".into()), ("maxBatchTokens", 256.into())]);
        let embedder = load(files(content, ""), options).await.expect("a model");
        assert_eq!(embedder.max_tokens(), 48);
        assert!(embedder.device().contains("BrowserWebGpu"), "{}", embedder.device());
        check(&embedder, 1e-6).await;
    }
}

#[wasm_bindgen_test]
async fn texts_on_the_cpu_agree_with_sentence_transformers() {
    for (dtype, limit) in [("f32", 1e-6), ("int8", 3e-3)] {
        let options = object(&[("device", "cpu".into()), ("dtype", dtype.into())]);
        let embedder = load(files(blob, ""), options).await.expect("a model");
        assert!(embedder.device().contains("cpu (wasm128"), "{}", embedder.device());
        check(&embedder, limit).await;
    }
}

#[wasm_bindgen(module = "/tests/browser/user.js")]
extern "C" {
    #[wasm_bindgen(js_name = useEmbedder)]
    fn use_embedder(class: &JsValue, files: &Object, texts: &Array) -> Promise;
}

/// What only the generated JavaScript shows: defaults, types, calls that overlap, errors that are thrown.
#[wasm_bindgen_test]
async fn javascript_can_use_it() {
    let any = load(files(bytes, ""), object(&[("device", "cpu".into())])).await.expect("a model");
    let class = js_sys::Reflect::get(&any.into(), &"constructor".into()).expect("a class");
    let texts: Array = fixtures::texts(TEXTS).iter().map(JsValue::from).collect();
    let complaint = JsFuture::from(use_embedder(&class, &files(blob, ""), &texts)).await;
    let complaint = complaint.map(|c| String::from(c.unchecked_into::<JsString>()));
    assert_eq!(complaint.as_deref(), Ok(""));
}

/// As natively, software adapters do not count.
#[wasm_bindgen_test]
async fn a_real_gpu_or_the_cpu_is_the_default() {
    let context = GpuContext::new(&GpuOptions::default()).await.unwrap_or_else(|e| panic!("{e}"));
    let name = if context.adapter().kind == "Cpu" { "cpu (" } else { "(BrowserWebGpu)" };
    let embedder = load(files(bytes, ""), Object::new()).await.expect("a model");
    assert!(embedder.device().contains(name), "{} on {:?}", embedder.device(), context.adapter());
}

/// Errors name what is wrong.
#[wasm_bindgen_test]
async fn mistakes_are_named() {
    let cpu = |key, value| object(&[("device", "cpu".into()), (key, value)]);
    let all = || files(bytes, "");
    let cases = [
        (files(bytes, "config.json"), Object::new(), "config.json"),
        (files(blob, "model.safetensors"), Object::new(), "model.safetensors"),
        (object(&[("config.json", 7.into())]), Object::new(), "config.json"),
        (JsValue::from("folder").unchecked_into(), Object::new(), "files: expected"),
        (all(), object(&[("divice", "cpu".into())]), "divice"),
        (all(), object(&[("device", "tpu".into())]), "tpu"),
        (all(), JsValue::from(7).unchecked_into(), "options: "),
        (all(), js_sys::Function::new_no_args("").unchecked_into(), "options: expected"),
        (all(), cpu("dtype", "f16".into()), "f16"),
        (all(), object(&[("device", "gpu".into()), ("dtype", "int8".into())]), "int8"),
        (all(), cpu("pooling", Array::of1(&"middle".into()).into()), "middle"),
        (all(), cpu("pooling", Array::new().into()), "pooling"),
        (all(), cpu("maxBatchTokens", 0.into()), "batch"),
        (all(), cpu("dim", 65.into()), "65"),
        (all(), cpu("dim", (-1).into()), "-1"),
    ];
    for (files, options, culprit) in cases {
        let text = load(files, options).await.err().unwrap_or_else(|| panic!("no error about {culprit}"));
        assert!(text.contains(culprit), "{culprit}: {text}");
    }
    let embedder = load(all(), object(&[("device", "cpu".into())])).await.expect("a model");
    for (texts, culprit) in
        [(JsValue::from("one text"), "array"), (Array::of2(&"a".into(), &1.into()).into(), "item 1")]
    {
        let text = message(embedder.embed(texts.unchecked_into(), None).await.expect_err(culprit));
        assert!(text.contains(culprit), "{text}");
    }
    let texts = Array::of1(&"a".into()).unchecked_into();
    let text = message(embedder.embed(texts, Some("no-such".into())).await.expect_err("no such prompt"));
    assert!(text.contains("no-such"), "{text}");
    // Without a tokenizer a model loads, but takes no texts.
    let embedder =
        load(files(bytes, "tokenizer.json"), object(&[("device", "cpu".into())])).await.expect("a model");
    let text = embed(&embedder, &["a".into()]).await.expect_err("no tokenizer");
    assert!(text.contains("tokenizer.json"), "{text}");
}
