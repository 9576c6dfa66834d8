//! The class that JavaScript sees.

use async_lock::Mutex;
use inferencelayer::{EmbedEngine, EmbedOptions, sentence_transformers::parse_pool_mode};
use js_sys::{Array, Float32Array, JSON};
use serde::Deserialize;
use wasm_bindgen::{JsCast, JsError, JsValue, prelude::wasm_bindgen};

use crate::{
    device::{self, Device, Dtype},
    files::JsFolder,
};

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = r#"
export interface EmbedderOptions {
    /** What to run on; "gpu" takes a software adapter too. Default: the GPU if there is one, else the CPU. */
    device?: "auto" | "gpu" | "cpu";
    /** How numbers are kept. Default: f16 on a GPU that has it, else f32. int8 is for the CPU. */
    dtype?: "f32" | "f16" | "int8";
    /** Most tokens of one run; larger batches are split. Default: 8192. */
    maxBatchTokens?: number;
    /** Instead of the model's pooling; several are concatenated. */
    pooling?: ("cls" | "mean" | "max" | "mean_sqrt_len_tokens" | "weightedmean" | "lasttoken")[];
    /** Keep this many leading dimensions of each vector. */
    dim?: number;
    /** Whether vectors have unit length. Default: true. */
    normalize?: boolean;
    /** Make a text's vector the same to the last bit whatever else is in the batch. Default: false. */
    deterministic?: boolean;
}
"#;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(typescript_type = "ModelFiles")]
    pub type ModelFiles;
    #[wasm_bindgen(typescript_type = "EmbedderOptions | null")]
    pub type EmbedderOptions;
    #[wasm_bindgen(typescript_type = "string[]")]
    pub type Texts;
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Options {
    device: Device,
    dtype: Option<Dtype>,
    max_batch_tokens: usize,
    pooling: Option<Vec<String>>,
    dim: Option<usize>,
    normalize: bool,
    deterministic: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            device: Device::default(),
            dtype: None,
            max_batch_tokens: 8192,
            pooling: None,
            dim: None,
            normalize: true,
            deterministic: false,
        }
    }
}

/// Turns texts into vectors.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Embedder {
    /// Calls may overlap in JavaScript; the engine takes them one by one.
    engine: Mutex<EmbedEngine>,
    dimensions: usize,
    max_tokens: usize,
    device: String,
}

#[wasm_bindgen]
impl Embedder {
    /// Loads a model from the files of its checkpoint: `config.json`, `*.safetensors`, `tokenizer.json`, and
    /// `modules.json` with what it names where there is one.
    ///
    /// # Errors
    /// Names the file, tensor or option at fault.
    pub async fn load(files: ModelFiles, options: Option<EmbedderOptions>) -> Result<Embedder, JsError> {
        let files = JsFolder::new(&files)?;
        let options = options.map_or_else(|| Ok(Options::default()), |options| read_options(&options))?;
        let backend = device::open(options.device, options.dtype).await?;
        let modes = options.pooling.map(|modes| modes.iter().map(|m| parse_pool_mode(m)).collect());
        let embed = EmbedOptions {
            pooling: modes.transpose()?,
            dim: options.dim,
            normalize: options.normalize,
            deterministic: options.deterministic,
        };
        let engine = EmbedEngine::load(&files, backend, options.max_batch_tokens, &embed, None).await?;
        Ok(Embedder {
            dimensions: engine.dimension(),
            max_tokens: engine.max_sequence(),
            device: engine.device_name(),
            engine: Mutex::new(engine),
        })
    }

    /// One vector for each text, in order. Texts longer than the model's limit are cut; `prompt` is the name of one
    /// of the model's prompts, without it the model's default counts.
    ///
    /// # Errors
    /// For texts that are no strings, an unknown prompt, or a model without `tokenizer.json`; the device's errors.
    pub async fn embed(&self, texts: Texts, prompt: Option<String>) -> Result<Vec<Float32Array>, JsError> {
        let texts = read_texts(&texts)?;
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let vectors = self.engine.lock().await.embed_async(&texts, prompt.as_deref()).await?;
        Ok(vectors.iter().map(|v| Float32Array::from(&v[..])).collect())
    }

    /// Values of one vector.
    #[wasm_bindgen(getter)]
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Most tokens of one text.
    #[wasm_bindgen(getter, js_name = maxTokens)]
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// For people: the device and how numbers are kept on it.
    #[wasm_bindgen(getter)]
    pub fn device(&self) -> String {
        self.device.clone()
    }
}

/// JSON, since it shows the keys that are none of ours.
fn read_options(options: &JsValue) -> Result<Options, JsError> {
    if options.is_undefined() || options.is_null() {
        return Ok(Options::default());
    }
    let bad = |why: &dyn std::fmt::Display| JsError::new(&format!("options: {why}"));
    let text = JSON::stringify(options).ok().and_then(|text| text.as_string());
    let text = text.ok_or_else(|| bad(&"expected a plain object"))?;
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|e| bad(&e))?;
    Options::deserialize(value).map_err(|e| bad(&e))
}

fn read_texts(texts: &JsValue) -> Result<Vec<String>, JsError> {
    let Some(texts) = texts.dyn_ref::<Array>() else {
        return Err(JsError::new("texts: expected an array of strings"));
    };
    let read = |(at, text): (usize, JsValue)| {
        text.as_string().ok_or_else(|| JsError::new(&format!("texts: item {at} is no string")))
    };
    texts.iter().enumerate().map(read).collect()
}
