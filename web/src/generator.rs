//! Models that generate text.

use async_lock::Mutex;
use inferencelayer::{
    GenerateEngine, GenerateOptions,
    chat::Chat,
    engine::{checkpoint::open_gguf, generate::Sampling},
    generate::{Finish, GenerateSettings, Session},
};
use js_sys::{Array, Function, JSON, Promise, Uint32Array};
use serde::{Deserialize, Serialize};
use wasm_bindgen::{JsCast, JsValue, prelude::wasm_bindgen};
use wasm_bindgen_futures::JsFuture;

use crate::{
    device::{Device, Dtype},
    error::{JsResult, invalid, thrown},
    files::{JsFolder, ModelFiles, report},
    options,
};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct LoadOptions {
    /// How numbers are kept. Default: weights as they come, f16 elsewhere where the device has it.
    dtype: Option<Dtype>,
    /// Most tokens of prompt and answer together.
    context: Option<usize>,
    /// Most tokens of a prompt that are processed at once; 0 for the default.
    chunk: usize,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct CallOptions {
    max_tokens: Option<usize>,
    temperature: Option<f32>,
    top_k: Option<u32>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    seed: Option<u64>,
    stop: Vec<String>,
    ignore_eos: bool,
}

impl CallOptions {
    fn settings(self, seed: u64) -> GenerateSettings {
        let none = Sampling::default();
        let sampling = Sampling {
            temperature: self.temperature.unwrap_or(none.temperature),
            top_k: self.top_k.unwrap_or(none.top_k),
            top_p: self.top_p.unwrap_or(none.top_p),
            min_p: self.min_p.unwrap_or(none.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(none.repetition_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(none.frequency_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(none.presence_penalty),
            seed: self.seed.unwrap_or(seed),
            ..none
        };
        let max_tokens = self.max_tokens.unwrap_or(GenerateSettings::default().max_tokens);
        GenerateSettings { sampling, max_tokens, stop: self.stop, ignore_eos: self.ignore_eos }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Info {
    architecture: String,
    context: usize,
    vocabulary: usize,
    dtype: String,
    chat: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    finish_reason: &'static str,
}

/// A loaded generating model.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Generator {
    engine: GenerateEngine,
    /// Answers one at a time; what a prompt shares with the answer before is not computed again.
    session: Mutex<Session>,
    dtype: String,
}

#[wasm_bindgen]
impl Generator {
    /// Loads a model: a GGUF file of this name, or, without one, the folder of a Hugging Face checkpoint. Options:
    /// `{dtype, context, chunk}`. `progress` is called with the bytes of weights that were read and all of them.
    ///
    /// # Errors
    /// Names the file, tensor or option at fault.
    pub async fn load(
        device: &Device,
        files: ModelFiles,
        gguf: Option<String>,
        options: JsValue,
        progress: Option<Function>,
    ) -> JsResult<Generator> {
        let files = JsFolder::new(&files)?;
        let options: LoadOptions = options::read("options", &options)?;
        let backend = device.decoder_backend(options.dtype)?;
        let dtype = backend.capabilities().matrices.name().to_lowercase();
        let load = GenerateOptions { context: options.context, sessions: 1, chunk: options.chunk };
        let tell = |done, all| report(progress.as_ref(), done, all);
        let engine = match gguf {
            Some(name) => {
                let file = open_gguf(&files, &name).await.map_err(thrown)?;
                GenerateEngine::load_gguf(&file, backend, &load, false, Some(&tell)).await
            }
            None => GenerateEngine::load_folder(&files, backend, &load, false, Some(&tell)).await,
        };
        let engine = engine.map_err(thrown)?;
        let session = Mutex::new(engine.session().map_err(thrown)?);
        Ok(Generator { engine, session, dtype })
    }

    /// Generates text after a prompt (a string, or a Uint32Array of token ids) and calls `part` with each token's
    /// id, text (which may be empty) and logarithm of its probability. `part` returns false to end it, or a promise,
    /// which is awaited. Returns `{promptTokens, completionTokens, finishReason}`; calls that overlap take turns.
    ///
    /// # Errors
    /// For options or prompts that cannot be; the device's errors; what `part` throws.
    pub async fn generate(&self, prompt: JsValue, options: JsValue, part: Function) -> JsResult<JsValue> {
        let ids = self.prompt_ids(&prompt)?;
        let options: CallOptions = options::read("options", &options)?;
        let settings = options.settings((js_sys::Math::random() * 2f64.powi(53)) as u64);
        let mut session = self.session.lock().await;
        let mut answer = self.engine.answer(&mut session, &ids, &settings).map_err(thrown)?;
        let (mut count, mut finish) = (0, "abort");
        while let Some(piece) = answer.next_async().await.map_err(thrown)? {
            count += 1;
            let done = match piece.finish {
                Some(Finish::Stop) => Some("stop"),
                Some(Finish::Length) => Some("length"),
                None => None,
            };
            let values = Array::of3(&piece.id.into(), &piece.text.into(), &piece.log_probability.into());
            let mut wish = part.apply(&JsValue::NULL, &values)?;
            if let Some(promise) = wish.dyn_ref::<Promise>() {
                wish = JsFuture::from(promise.clone()).await?;
            }
            if let Some(done) = done {
                finish = done;
            }
            if done.is_some() || wish == JsValue::FALSE {
                break;
            }
        }
        options::write(&Usage { prompt_tokens: ids.len(), completion_tokens: count, finish_reason: finish })
    }

    /// Token ids of a chat by the model's own template: `{messages, tools, ...}`, further keys being variables of the
    /// template.
    ///
    /// # Errors
    /// For a model without a chat template, or messages that it does not take.
    #[wasm_bindgen(js_name = chatIds)]
    pub fn chat_ids(&self, chat: &JsValue) -> JsResult<Vec<u32>> {
        let text = JSON::stringify(chat).ok().and_then(|text| text.as_string());
        let text = text.ok_or_else(|| invalid("messages: expected a list of plain objects"))?;
        let chat = Chat::parse("messages", &text).map_err(|e| invalid(e.to_string()))?;
        self.engine.chat_ids(&chat).map_err(thrown)
    }

    /// Token ids of a text.
    ///
    /// # Errors
    /// For a model without a tokenizer.
    pub fn tokenize(&self, text: &str) -> JsResult<Vec<u32>> {
        Ok(self.engine.tokenizer().map_err(thrown)?.encode(text).map_err(thrown)?.ids)
    }

    /// Text of token ids, special tokens left out.
    ///
    /// # Errors
    /// As [`Generator::tokenize`].
    pub fn detokenize(&self, ids: &[u32]) -> JsResult<String> {
        self.engine.tokenizer().map_err(thrown)?.decode(ids).map_err(thrown)
    }

    /// For people and programs: what the model is.
    pub fn info(&self) -> JsResult<JsValue> {
        let config = self.engine.config();
        options::write(&Info {
            architecture: config.model_type.clone(),
            context: self.engine.context(),
            vocabulary: config.vocab,
            dtype: self.dtype.clone(),
            chat: self.engine.chat_templates().is_ok(),
        })
    }

    /// Bytes that the device holds for this model.
    pub fn memory(&self) -> f64 {
        self.engine.memory() as f64
    }
}

impl Generator {
    fn prompt_ids(&self, prompt: &JsValue) -> JsResult<Vec<u32>> {
        if let Some(ids) = prompt.dyn_ref::<Uint32Array>() {
            return Ok(ids.to_vec());
        }
        let text = prompt.as_string();
        self.tokenize(
            &text.ok_or_else(|| invalid("prompt: expected a string, or a Uint32Array of token ids"))?,
        )
    }
}
