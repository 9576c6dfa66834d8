//! Errors as JavaScript sees them: `Error` objects whose `name` says of which kind they are.

use inferencelayer::{Error, engine::Error as EngineError};
use js_sys::Reflect;
use wasm_bindgen::JsValue;

/// A result of what JavaScript calls.
pub type JsResult<T> = Result<T, JsValue>;

/// An error of this name.
pub fn named(name: &str, message: &str) -> JsValue {
    let error = js_sys::Error::new(message);
    error.set_name(name);
    error.into()
}

/// The caller's mistake.
pub fn invalid(message: impl AsRef<str>) -> JsValue {
    named("InvalidInput", message.as_ref())
}

/// The error object of one of ours. `name` is one of the package's error classes, or `Error`.
pub fn thrown(error: impl Into<Error>) -> JsValue {
    let error = error.into();
    let name = match &error {
        Error::Engine(engine) => match engine {
            EngineError::DeviceLost(_) => "DeviceLost",
            EngineError::OutOfMemory(_) | EngineError::TooLarge { .. } => "OutOfMemory",
            EngineError::NoAdapter(_) => "NoWebGpu",
            EngineError::Malformed { .. }
            | EngineError::MissingTensor { .. }
            | EngineError::Shape { .. }
            | EngineError::Config { .. }
            | EngineError::Unsupported(_)
            | EngineError::NotFinite(_) => "UnsupportedModel",
            EngineError::Read { .. } => "ReadFailed",
            EngineError::Input(_) => "InvalidInput",
            _ => "Error",
        },
        Error::Input(_) | Error::Tokenizer(_) | Error::Template { .. } => "InvalidInput",
        _ => "Error",
    };
    named(name, &error.to_string())
}

/// What a thrown value says.
pub fn message(value: &JsValue) -> String {
    let text = Reflect::get(value, &"message".into()).ok().and_then(|m| m.as_string());
    text.unwrap_or_else(|| format!("{value:?}"))
}
