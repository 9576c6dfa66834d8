//! Models that turn texts into vectors.

use async_lock::Mutex;
use inferencelayer::{EmbedEngine, EmbedOptions, sentence_transformers::parse_pool_mode};
use js_sys::{Float32Array, Function};
use serde::{Deserialize, Serialize};
use wasm_bindgen::{JsValue, prelude::wasm_bindgen};

use crate::{
    device::{Device, Dtype},
    error::{JsResult, invalid, thrown},
    files::{JsFolder, ModelFiles, report},
    options,
};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct LoadOptions {
    /// How numbers are kept. Default: f16 on a GPU that has it, else f32. int8 is for the CPU.
    dtype: Option<Dtype>,
    /// Most tokens of one run; larger batches are split.
    max_batch_tokens: usize,
    /// Instead of the model's pooling; several are concatenated.
    pooling: Option<Vec<String>>,
    /// Make a text's vector the same to the last bit whatever else is in the batch.
    deterministic: bool,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions { dtype: None, max_batch_tokens: 8192, pooling: None, deterministic: false }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CallOptions {
    /// The name of one of the model's prompts.
    prompt: Option<String>,
    /// Keep this many leading values of each vector.
    dim: Option<usize>,
    /// Whether vectors have unit length.
    normalize: bool,
}

impl Default for CallOptions {
    fn default() -> Self {
        CallOptions { prompt: None, dim: None, normalize: true }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Info {
    architecture: String,
    dimensions: usize,
    max_tokens: usize,
    dtype: String,
    prompts: Vec<String>,
    default_prompt: Option<String>,
}

/// A loaded embedding model.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Embedder {
    /// Calls may overlap in JavaScript; the engine takes them one by one.
    engine: Mutex<EmbedEngine>,
    dimensions: usize,
}

#[wasm_bindgen]
impl Embedder {
    /// Loads a model from the files of its checkpoint: `config.json`, `*.safetensors`, `tokenizer.json`, and
    /// `modules.json` with what it names where there is one. Options: `{dtype, maxBatchTokens, pooling,
    /// deterministic}`. `progress` is called with the bytes of weights that were read and all of them.
    ///
    /// # Errors
    /// Names the file, tensor or option at fault.
    pub async fn load(
        device: &Device,
        files: ModelFiles,
        options: JsValue,
        progress: Option<Function>,
    ) -> JsResult<Embedder> {
        let files = JsFolder::new(&files)?;
        let options: LoadOptions = options::read("options", &options)?;
        let backend = device.encoder_backend(options.dtype)?;
        let modes = options.pooling.map(|modes| modes.iter().map(|m| parse_pool_mode(m)).collect());
        let pooling = modes.transpose().map_err(thrown)?;
        // Length and dimensions are chosen for each call.
        let embed =
            EmbedOptions { pooling, dim: None, normalize: false, deterministic: options.deterministic };
        let tell = |done, all| report(progress.as_ref(), done, all);
        let engine = EmbedEngine::load(&files, backend, options.max_batch_tokens, &embed, Some(&tell)).await;
        let engine = engine.map_err(thrown)?;
        Ok(Embedder { dimensions: engine.dimension(), engine: Mutex::new(engine) })
    }

    /// One vector for each text, in order. Texts longer than the model's limit are cut. Options: `{prompt, dim,
    /// normalize}`; without `prompt`, the model's default prompt counts.
    ///
    /// # Errors
    /// For texts that are no strings, an unknown prompt, or a model without `tokenizer.json`; the device's errors.
    pub async fn embed(&self, texts: JsValue, options: JsValue) -> JsResult<Vec<Float32Array>> {
        let texts = options::texts(&texts)?;
        let options: CallOptions = options::read("options", &options)?;
        let dim = options.dim.unwrap_or(self.dimensions);
        if dim == 0 || dim > self.dimensions {
            let full = self.dimensions;
            return Err(invalid(format!("{dim} dimensions asked for, the model's vectors have {full}")));
        }
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let vectors = self.engine.lock().await.embed_async(&texts, options.prompt.as_deref()).await;
        let cut = |mut vector: Vec<f32>| {
            vector.truncate(dim);
            if options.normalize {
                to_unit_length(&mut vector);
            }
            Float32Array::from(&vector[..])
        };
        Ok(vectors.map_err(thrown)?.into_iter().map(cut).collect())
    }

    /// Token ids of a text, special tokens included.
    ///
    /// # Errors
    /// For a model without `tokenizer.json`.
    pub async fn tokenize(&self, text: String) -> JsResult<Vec<u32>> {
        let engine = self.engine.lock().await;
        Ok(engine.tokenizer().map_err(thrown)?.encode(&text).map_err(thrown)?.ids)
    }

    /// Text of token ids, special tokens left out.
    ///
    /// # Errors
    /// As [`Embedder::tokenize`].
    pub async fn detokenize(&self, ids: Vec<u32>) -> JsResult<String> {
        let engine = self.engine.lock().await;
        engine.tokenizer().map_err(thrown)?.decode(&ids).map_err(thrown)
    }

    /// For people and programs: what the model is.
    pub async fn info(&self) -> JsResult<JsValue> {
        let engine = self.engine.lock().await;
        let settings = engine.settings();
        options::write(&Info {
            architecture: engine.embedder().model().model_type.clone(),
            dimensions: engine.dimension(),
            max_tokens: engine.max_sequence(),
            dtype: engine.embedder().backend().capabilities().matrices.name().to_lowercase(),
            prompts: settings.prompts.by_name.keys().cloned().collect(),
            default_prompt: settings.prompts.default.clone(),
        })
    }

    /// Bytes that the device holds for this model.
    pub async fn memory(&self) -> f64 {
        self.engine.lock().await.embedder().backend().memory() as f64
    }
}

fn to_unit_length(vector: &mut [f32]) {
    let squares: f64 = vector.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
    let length = squares.sqrt().max(1e-12);
    vector.iter_mut().for_each(|v| *v = (f64::from(*v) / length) as f32);
}
