//! What the tests share: JavaScript values as a page would make them, and the measure of difference.

use inferencelayer_web::{Device, Embedder};
use js_sys::{Array, Object, Reflect, Uint8Array};
use wasm_bindgen::{JsCast, JsValue};
use web_sys::Blob;

/// `1 − cosine`, in f64.
pub fn distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    1.0 - dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// A plain object.
pub fn object(entries: &[(&str, JsValue)]) -> Object {
    let object = Object::new();
    for (key, value) in entries {
        Reflect::set(&object, &(*key).into(), value).expect("a plain object");
    }
    object
}

pub fn bytes(bytes: &[u8]) -> JsValue {
    Uint8Array::from(bytes).into()
}

pub fn blob(content: &[u8]) -> JsValue {
    Blob::new_with_u8_array_sequence(&Array::of1(&bytes(content))).expect("a blob").into()
}

/// A device of this kind: `auto`, `webgpu` or `cpu`.
pub async fn device(kind: &str) -> Device {
    Device::open(object(&[("kind", kind.into())]).into()).await.unwrap_or_else(|e| panic!("{}", message(&e)))
}

pub async fn load(device: &Device, files: impl JsCast, options: impl JsCast) -> Result<Embedder, String> {
    let loading = Embedder::load(device, files.unchecked_into(), options.unchecked_into(), None);
    loading.await.map_err(|e| message(&e))
}

/// The vectors of `texts`, without a prompt.
pub async fn embed(embedder: &Embedder, texts: &[String]) -> Result<Vec<Vec<f32>>, String> {
    let texts: Array = texts.iter().map(JsValue::from).collect();
    let vectors = embedder.embed(texts.into(), JsValue::UNDEFINED).await.map_err(|e| message(&e))?;
    Ok(vectors.iter().map(js_sys::Float32Array::to_vec).collect())
}

/// What a thrown error says, after its name.
pub fn message(error: &JsValue) -> String {
    let error: &js_sys::Error = error.unchecked_ref();
    format!("{}: {}", String::from(error.name()), String::from(error.message()))
}

/// A figure or word of what `info` gives.
pub fn field(info: &JsValue, name: &str) -> JsValue {
    Reflect::get(info, &name.into()).expect("an object")
}
