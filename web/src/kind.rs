//! What a checkpoint folder is for.

use inferencelayer::engine::model::{
    arch::{only_embeds, reads_decoders},
    config::Config,
};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::error::{JsResult, thrown};

/// Whether a folder with this `config.json` embeds (`"embedding"`) or generates text (`"generation"`).
///
/// # Errors
/// `UnsupportedModel` naming an architecture that does neither here.
#[wasm_bindgen(js_name = modelKind)]
pub fn model_kind(config: &str) -> JsResult<String> {
    let config = Config::parse("config.json", config).map_err(thrown)?;
    let model_type = config.string("model_type").map_err(thrown)?;
    if only_embeds(&config).map_err(thrown)? {
        return Ok("embedding".into());
    }
    if reads_decoders(&model_type) {
        return Ok("generation".into());
    }
    Err(thrown(
        config.wrong("model_type", &format!("is `{model_type}`, an architecture that is not supported")),
    ))
}
