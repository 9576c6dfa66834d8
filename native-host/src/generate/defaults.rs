//! What a checkpoint says about generating: `generation_config.json`, and end-of-sequence tokens wherever they are.

use inferencelayer_engine::{
    checkpoint::{Folder, gguf::Metadata},
    generate::Sampling,
};
use serde::Deserialize;

use crate::{
    Result,
    folder::{self},
};

/// A checkpoint's own settings.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GenerationDefaults {
    /// Tokens that end an answer.
    pub eos: Vec<u32>,
    /// `None` if the checkpoint asks for the most likely tokens, or says nothing.
    pub sampling: Option<Sampling>,
}

/// Texts of tokens that end an answer in the models that have them, as in llama.cpp (`src/llama-vocab.cpp`).
const ENDS: [&str; 4] = ["<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>"];

/// One token, or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Ids {
    One(u32),
    Several(Vec<u32>),
}

/// `generation_config.json`, and what `config.json` has of it. Other keys are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Config {
    eos_token_id: Option<Ids>,
    do_sample: Option<bool>,
    temperature: Option<f32>,
    top_k: Option<u32>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
}

impl Config {
    fn eos(&self) -> Vec<u32> {
        match &self.eos_token_id {
            Some(Ids::One(id)) => vec![*id],
            Some(Ids::Several(ids)) => ids.clone(),
            None => Vec::new(),
        }
    }

    /// As Hugging Face's `generate` reads it: `do_sample` decides, and top-k is 50 unless it is given.
    fn sampling(&self) -> Option<Sampling> {
        let penalty = self.repetition_penalty.unwrap_or(1.0);
        if self.do_sample != Some(true) {
            return (penalty != 1.0).then(|| Sampling { repetition_penalty: penalty, ..Sampling::default() });
        }
        Some(Sampling {
            temperature: self.temperature.unwrap_or(1.0),
            top_k: self.top_k.unwrap_or(50),
            top_p: self.top_p.unwrap_or(1.0),
            min_p: self.min_p.unwrap_or(0.0),
            repetition_penalty: penalty,
            ..Sampling::default()
        })
    }
}

impl GenerationDefaults {
    /// Reads a folder's `generation_config.json` and `config.json`. Token ids beyond the vocabulary are left out.
    /// `end` is the tokenizer's end-of-sequence token.
    ///
    /// # Errors
    /// `Malformed`, naming the file.
    pub async fn from_folder(files: &dyn Folder, vocab: usize, end: Option<u32>) -> Result<Self> {
        let generation: Config = folder::json(files, "generation_config.json").await?.unwrap_or_default();
        let model: Config = folder::json(files, "config.json").await?.unwrap_or_default();
        let mut eos = generation.eos();
        eos.extend(model.eos());
        eos.extend(end);
        Ok(GenerationDefaults { eos: usable(eos, vocab), sampling: generation.sampling() })
    }

    /// Reads a GGUF file's end-of-sequence and end-of-turn tokens: those it names, and those known by their texts, since
    /// files name one where the original has several.
    ///
    /// # Errors
    /// `Config` naming the key.
    pub fn from_gguf(metadata: &Metadata, vocab: usize) -> Result<Self> {
        let mut eos = Vec::new();
        for key in ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"] {
            eos.extend(metadata.opt_id(key)?);
        }
        let tokens = metadata.opt_strings("tokenizer.ggml.tokens")?.into_iter().flat_map(|t| t.iter());
        let ends = tokens.enumerate().filter(|(_, text)| ENDS.contains(text));
        eos.extend(ends.map(|(id, _)| id as u32));
        Ok(GenerationDefaults { eos: usable(eos, vocab), sampling: None })
    }
}

fn usable(ids: Vec<u32>, vocab: usize) -> Vec<u32> {
    let mut out = Vec::new();
    for id in ids {
        if (id as usize) < vocab && !out.contains(&id) {
            out.push(id);
        }
    }
    out
}
