//! Plain JavaScript objects as options, and figures as plain objects.

use js_sys::{Array, JSON};
use serde::{Serialize, de::DeserializeOwned};
use wasm_bindgen::{JsCast, JsValue};

use crate::error::{JsResult, invalid, named};

/// Reads an object by way of JSON, which shows the keys that are none of ours. `undefined` and `null` are the default.
pub fn read<T: DeserializeOwned + Default>(what: &str, value: &JsValue) -> JsResult<T> {
    if value.is_undefined() || value.is_null() {
        return Ok(T::default());
    }
    let bad = |why: &dyn std::fmt::Display| invalid(format!("{what}: {why}"));
    let text = JSON::stringify(value).ok().and_then(|text| text.as_string());
    let text = text.filter(|_| value.is_object()).ok_or_else(|| bad(&"expected a plain object"))?;
    serde_json::from_slice(text.as_bytes()).map_err(|e| bad(&e))
}

/// A plain object.
pub fn write<T: Serialize>(value: &T) -> JsResult<JsValue> {
    let text = serde_json::to_string(value).map_err(|e| named("Error", &e.to_string()))?;
    JSON::parse(&text)
}

/// An array of strings.
pub fn texts(value: &JsValue) -> JsResult<Vec<String>> {
    let Some(texts) = value.dyn_ref::<Array>() else {
        return Err(invalid("texts: expected an array of strings"));
    };
    let read = |(at, text): (usize, JsValue)| {
        text.as_string().ok_or_else(|| invalid(format!("texts: item {at} is no string")))
    };
    texts.iter().enumerate().map(read).collect()
}
