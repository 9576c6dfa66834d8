//! The prompt of a conversation, by the model's own template.

use inferencelayer::engine::checkpoint::{Folder, Gguf};
use wasm_bindgen::JsValue;

use crate::error::{JsResult, named, thrown};

/// A model's chat template.
#[derive(Debug)]
pub struct Chat {
    template: Option<String>,
}

impl Chat {
    pub fn from_gguf(file: &Gguf) -> JsResult<Self> {
        let template = file.metadata().opt_string("tokenizer.chat_template").map_err(thrown)?;
        Ok(Chat { template: template.map(str::to_owned) })
    }

    pub async fn from_folder(_: &dyn Folder) -> JsResult<Self> {
        Ok(Chat { template: None })
    }

    pub fn is_there(&self) -> bool {
        self.template.is_some()
    }

    /// # Errors
    /// `UnsupportedModel` for a model without a template.
    pub fn render(&self, _messages: &JsValue, _settings: &JsValue) -> JsResult<String> {
        Err(named(
            "UnsupportedModel",
            "this build has no chat templates; use generate() with a prompt of your own",
        ))
    }
}
