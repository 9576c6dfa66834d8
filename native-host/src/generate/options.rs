//! What can be chosen when a model is loaded, and for each answer.

use inferencelayer_engine::generate::Sampling;

#[cfg(not(target_arch = "wasm32"))]
use crate::device::DeviceOptions;

/// How a generating model is loaded.
#[derive(Debug, Clone, Default)]
pub struct GenerateOptions {
    /// What to run on and in which formats.
    #[cfg(not(target_arch = "wasm32"))]
    pub device: DeviceOptions,
    /// Most tokens of one sequence, prompt and answer; `None`: what the model is made for, at most 4096.
    pub context: Option<usize>,
    /// Sessions at a time; 0 counts as 1.
    pub sessions: usize,
    /// Most tokens of a prompt that are processed at once; 0: what the device does best, at least 512.
    pub chunk: usize,
}

/// How one answer is generated.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateSettings {
    pub sampling: Sampling,
    /// Most tokens of the answer.
    pub max_tokens: usize,
    /// Texts that end the answer; they are not part of it.
    pub stop: Vec<String>,
    /// Go on after the model's end-of-sequence tokens.
    pub ignore_eos: bool,
}

impl Default for GenerateSettings {
    /// The most likely tokens, 512 at most.
    fn default() -> Self {
        GenerateSettings {
            sampling: Sampling::default(),
            max_tokens: 512,
            stop: Vec::new(),
            ignore_eos: false,
        }
    }
}
