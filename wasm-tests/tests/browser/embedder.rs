//! The classes that the package's worker uses: a sentence-transformers folder and texts in, vectors out.

use inferencelayer_web::Embedder;
use js_sys::{Array, JsString, Object, Promise};
use wasm_bindgen::{JsCast, JsValue, prelude::wasm_bindgen};
use wasm_bindgen_futures::JsFuture;
use wasm_bindgen_test::wasm_bindgen_test;

use crate::{
    fixtures,
    support::{blob, bytes, device, distance, embed, field, load, message, object},
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
    let width = expected.len() / texts.len();
    assert_eq!(vectors.len(), texts.len());
    for ((vector, expected), text) in vectors.iter().zip(expected.chunks(width)).zip(&texts) {
        let off = distance(vector, expected);
        assert!(off <= limit, "{text:?}: 1 - cosine is {off:e}");
    }
}

#[wasm_bindgen_test]
async fn texts_on_the_gpu_agree_with_sentence_transformers() {
    let device = device("webgpu").await;
    assert_eq!(field(&device.info().expect("info"), "kind"), "webgpu");
    for content in [bytes, blob, source] {
        let options = object(&[("dtype", "f32".into()), ("maxBatchTokens", 256.into())]);
        let embedder = load(&device, files(content, ""), options).await.expect("a model");
        let info = embedder.info().await.expect("info");
        assert_eq!(field(&info, "maxTokens"), 48);
        check(&embedder, 1e-6).await;
    }
}

#[wasm_bindgen_test]
async fn texts_on_the_cpu_agree_with_sentence_transformers() {
    let device = device("cpu").await;
    for (dtype, limit) in [("f32", 1e-6), ("int8", 3e-3)] {
        let embedder =
            load(&device, files(blob, ""), object(&[("dtype", dtype.into())])).await.expect("a model");
        check(&embedder, limit).await;
    }
}

#[wasm_bindgen(module = "/tests/browser/user.js")]
extern "C" {
    #[wasm_bindgen(js_name = useEmbedder)]
    fn use_embedder(class: &JsValue, device: &JsValue, files: &Object, texts: &Array) -> Promise;
    fn source(bytes: &[u8]) -> JsValue;
}

/// What only the generated JavaScript shows: defaults, types, calls that overlap, errors that are thrown.
#[wasm_bindgen_test]
async fn javascript_can_use_it() {
    let cpu = device("cpu").await;
    let any = load(&cpu, files(bytes, ""), Object::new()).await.expect("a model");
    let class = js_sys::Reflect::get(&any.into(), &"constructor".into()).expect("a class");
    let texts: Array = fixtures::texts(TEXTS).iter().map(JsValue::from).collect();
    let complaint = JsFuture::from(use_embedder(&class, &cpu.into(), &files(blob, ""), &texts)).await;
    let complaint = complaint.map(|c| String::from(c.unchecked_into::<JsString>()));
    assert_eq!(complaint.as_deref(), Ok(""));
}

/// As natively, software adapters do not count.
#[wasm_bindgen_test]
async fn a_real_gpu_or_the_cpu_is_the_default() {
    let gpu = device("webgpu").await.info().expect("info");
    let auto = device("auto").await.info().expect("info");
    let expected = if field(&gpu, "software") == true { "cpu" } else { "webgpu" };
    assert_eq!(field(&auto, "kind"), expected);
}

/// Errors name what is wrong.
#[wasm_bindgen_test]
async fn mistakes_are_named() {
    let (cpu, gpu) = (device("cpu").await, device("webgpu").await);
    let one = |key, value| object(&[(key, value)]);
    let all = || files(bytes, "");
    let cases = [
        (&cpu, files(bytes, "config.json"), Object::new(), "UnsupportedModel", "config.json"),
        (&cpu, files(blob, "model.safetensors"), Object::new(), "ReadFailed", "model.safetensors"),
        (&cpu, object(&[("config.json", 7.into())]), Object::new(), "InvalidInput", "config.json"),
        (&cpu, JsValue::from("folder").unchecked_into(), Object::new(), "InvalidInput", "files: expected"),
        (&cpu, all(), one("divice", "cpu".into()), "InvalidInput", "divice"),
        (&cpu, all(), JsValue::from(7).unchecked_into(), "InvalidInput", "options: "),
        (
            &cpu,
            all(),
            js_sys::Function::new_no_args("").unchecked_into(),
            "InvalidInput",
            "options: expected",
        ),
        (&cpu, all(), one("dtype", "f16".into()), "InvalidInput", "f16"),
        (&gpu, all(), one("dtype", "int8".into()), "InvalidInput", "int8"),
        (&cpu, all(), one("pooling", Array::of1(&"middle".into()).into()), "InvalidInput", "middle"),
        (&cpu, all(), one("pooling", Array::new().into()), "InvalidInput", "pooling"),
        (&cpu, all(), one("maxBatchTokens", 0.into()), "InvalidInput", "batch"),
    ];
    for (device, files, options, name, culprit) in cases {
        let text =
            load(device, files, options).await.err().unwrap_or_else(|| panic!("no error about {culprit}"));
        assert!(text.starts_with(name) && text.contains(culprit), "{name}, {culprit}: {text}");
    }
    let embedder = load(&cpu, all(), Object::new()).await.expect("a model");
    let some: JsValue = Array::of1(&"a".into()).into();
    for (texts, options, culprit) in [
        (JsValue::from("one text"), JsValue::UNDEFINED, "array"),
        (Array::of2(&"a".into(), &1.into()).into(), JsValue::UNDEFINED, "item 1"),
        (some.clone(), one("prompt", "no-such".into()).into(), "no-such"),
        (some.clone(), one("dim", 65.into()).into(), "65"),
        (some.clone(), one("dim", 0.into()).into(), "0 dimensions"),
        (some.clone(), one("dim", (-1).into()).into(), "-1"),
    ] {
        let text = message(&embedder.embed(texts, options).await.expect_err(culprit));
        assert!(text.starts_with("InvalidInput") && text.contains(culprit), "{culprit}: {text}");
    }
    // Without a tokenizer a model loads, but takes no texts.
    let embedder = load(&cpu, files(bytes, "tokenizer.json"), Object::new()).await.expect("a model");
    let text = embed(&embedder, &["a".into()]).await.expect_err("no tokenizer");
    assert!(text.contains("tokenizer.json"), "{text}");
}
