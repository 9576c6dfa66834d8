//! Reading configuration files: every value is checked, and errors name the key and the file.

use alloc::{format, string::String, vec::Vec};

use serde_json::{Map, Value};

use crate::{Error, Result, op::Activation};

/// A JSON object of settings, and the file it came from.
#[derive(Debug, Clone)]
pub struct Config {
    file: String,
    values: Map<String, Value>,
}

impl Config {
    /// # Errors
    /// `Malformed` if `text` is no JSON object.
    pub fn parse(file: &str, text: &str) -> Result<Self> {
        match serde_json::from_slice(text.as_bytes()) {
            Ok(Value::Object(values)) => Ok(Config { file: file.into(), values }),
            Ok(_) => Err(Error::Malformed { file: file.into(), why: "holds no JSON object".into() }),
            Err(e) => Err(Error::Malformed { file: file.into(), why: format!("is not valid JSON: {e}") }),
        }
    }

    /// The value of a key, if it is there and not null.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|v| !v.is_null())
    }

    /// The error for a key.
    pub fn wrong(&self, key: &str, why: &str) -> Error {
        Error::Config { key: key.into(), why: format!("{why} ({})", self.file) }
    }

    fn required<T>(&self, key: &str, value: Result<Option<T>>) -> Result<T> {
        value?.ok_or_else(|| self.wrong(key, "is missing"))
    }

    fn typed<T>(&self, key: &str, kind: &str, as_type: impl Fn(&Value) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match as_type(value) {
            Some(found) => Ok(Some(found)),
            None => Err(self.wrong(key, &format!("is {}, expected {kind}", shorten(value)))),
        }
    }

    /// A whole number between 1 and `limit`.
    ///
    /// # Errors
    /// `Config` if it is missing or not that.
    pub fn count(&self, key: &str, limit: usize) -> Result<usize> {
        self.required(key, self.opt_count(key, limit))
    }

    /// [`Config::count`], or `None` if the key is missing or null.
    ///
    /// # Errors
    /// `Config` if it is another value.
    pub fn opt_count(&self, key: &str, limit: usize) -> Result<Option<usize>> {
        self.typed(key, &format!("a whole number from 1 to {limit}"), |v| {
            let n = usize::try_from(v.as_u64()?).ok()?;
            (1..=limit).contains(&n).then_some(n)
        })
    }

    /// A whole number from 0 to `limit`, or `None` if the key is missing or null.
    ///
    /// # Errors
    /// `Config` if it is another value.
    pub fn opt_whole(&self, key: &str, limit: usize) -> Result<Option<usize>> {
        self.typed(key, &format!("a whole number from 0 to {limit}"), |v| whole(v, limit))
    }

    /// A list of whole numbers from 0 to `limit`.
    ///
    /// # Errors
    /// `Config` if it is another value.
    pub fn opt_wholes(&self, key: &str, limit: usize) -> Result<Option<Vec<usize>>> {
        self.typed(key, &format!("a list of whole numbers from 0 to {limit}"), |v| {
            v.as_array()?.iter().map(|v| whole(v, limit)).collect()
        })
    }

    /// A token id.
    ///
    /// # Errors
    /// `Config` if it is another value.
    pub fn opt_id(&self, key: &str) -> Result<Option<u32>> {
        self.typed(key, "a token id", |v| u32::try_from(v.as_u64()?).ok())
    }

    /// A finite number above 0.
    ///
    /// # Errors
    /// `Config` if it is missing or not that.
    pub fn positive(&self, key: &str) -> Result<f32> {
        self.required(key, self.opt_positive(key))
    }

    /// [`Config::positive`], or `None` if the key is missing or null.
    ///
    /// # Errors
    /// `Config` if it is another value.
    pub fn opt_positive(&self, key: &str) -> Result<Option<f32>> {
        self.typed(key, "a number above 0", |v| {
            v.as_f64().map(|v| v as f32).filter(|v| v.is_finite() && *v > 0.0)
        })
    }

    /// # Errors
    /// `Config` if it is another value.
    pub fn opt_bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// # Errors
    /// `Config` if it is missing or no string.
    pub fn string(&self, key: &str) -> Result<String> {
        self.required(key, self.opt_string(key))
    }

    /// # Errors
    /// `Config` if it is no string.
    pub fn opt_string(&self, key: &str) -> Result<Option<String>> {
        self.typed(key, "a string", |v| v.as_str().map(String::from))
    }

    /// # Errors
    /// `Config` if it is no list of strings.
    pub fn opt_strings(&self, key: &str) -> Result<Option<Vec<String>>> {
        self.typed(key, "a list of strings", |v| {
            v.as_array()?.iter().map(|v| v.as_str().map(String::from)).collect()
        })
    }

    /// An object within this one.
    ///
    /// # Errors
    /// `Config` if it is another value.
    pub fn opt_object(&self, key: &str) -> Result<Option<Config>> {
        self.typed(key, "an object", |v| {
            let file = format!("{}, in `{key}`", self.file);
            Some(Config { file, values: v.as_object()?.clone() })
        })
    }

    /// An activation by the name that transformers gives it.
    ///
    /// # Errors
    /// `Config` if it is missing or none that the engine computes.
    pub fn activation(&self, key: &str) -> Result<Activation> {
        let name = self.string(key)?;
        Ok(match name.as_str() {
            "gelu" | "gelu_python" => Activation::Gelu,
            "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" | "gelu_python_tanh" | "gelu_accurate" => {
                Activation::GeluTanh
            }
            "relu" => Activation::Relu,
            "silu" | "swish" => Activation::Silu,
            "tanh" => Activation::Tanh,
            "sigmoid" => Activation::Sigmoid,
            _ => {
                return Err(self.wrong(
                    key,
                    &format!("is `{name}`, which is not supported; gelu, gelu_new, relu, silu, tanh and sigmoid are"),
                ));
            }
        })
    }
}

fn whole(value: &Value, limit: usize) -> Option<usize> {
    usize::try_from(value.as_u64()?).ok().filter(|n| *n <= limit)
}

/// A value for an error message.
fn shorten(value: &Value) -> String {
    let text = format!("{value}");
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
