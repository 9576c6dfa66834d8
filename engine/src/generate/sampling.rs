//! How the next token is chosen.

use alloc::{format, vec::Vec};

use crate::{
    Error, Result,
    op::{MOST_STOPS, SETTING_WORDS, Setting},
};

/// Temperatures below this mean the most likely token.
const LEAST_TEMPERATURE: f32 = 1e-6;
/// Repetition penalties below this, and above its inverse, make no sense.
const LEAST_PENALTY: f32 = 1e-3;

/// When temperature comes into play.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Before top-k, top-p and min-p, as in Hugging Face's `generate`.
    #[default]
    HuggingFace,
    /// After them, as in llama.cpp.
    Llama,
}

/// Sampling of one sequence. The default is the most likely token.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// 0: the most likely token.
    pub temperature: f32,
    /// Keep the `top_k` most likely tokens; 0: all.
    pub top_k: u32,
    /// Keep the smallest set of most likely tokens with at least this probability; 1: all.
    pub top_p: f32,
    /// Keep tokens at least this times as likely as the most likely one; 0: all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens seen in prompt or answer; 1: off.
    pub repetition_penalty: f32,
    /// Subtracted from the logits of tokens in the answer, for each time.
    pub frequency_penalty: f32,
    /// Subtracted from the logits of tokens in the answer.
    pub presence_penalty: f32,
    pub order: Order,
    /// The same seed chooses the same tokens from the same logits.
    pub seed: u64,
    /// Index of this sequence among those of its request.
    pub choice: u32,
    /// Added to the logits of these tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// Tokens that end the sequence.
    pub stop: Vec<u32>,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            order: Order::HuggingFace,
            seed: 0,
            choice: 0,
            logit_bias: Vec::new(),
            stop: Vec::new(),
        }
    }
}

impl Sampling {
    /// Does the choice depend on which tokens came before?
    pub fn penalises(&self) -> bool {
        self.repetition_penalty != 1.0 || self.frequency_penalty != 0.0 || self.presence_penalty != 0.0
    }

    /// # Errors
    /// `Input`, naming the setting.
    pub fn check(&self, vocab: usize) -> Result<()> {
        let wrong = |name: &str, value: f32, expected: &str| {
            Err(Error::Input(format!("{name} is {value}; expected {expected}")))
        };
        if !self.temperature.is_finite() || self.temperature < 0.0 {
            return wrong("temperature", self.temperature, "0 (the most likely token) or more");
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return wrong("top_p", self.top_p, "more than 0, at most 1");
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return wrong("min_p", self.min_p, "0 to 1");
        }
        if !(LEAST_PENALTY..=1.0 / LEAST_PENALTY).contains(&self.repetition_penalty) {
            return wrong("repetition_penalty", self.repetition_penalty, "0.001 to 1000 (1 does nothing)");
        }
        for (name, value) in
            [("frequency_penalty", self.frequency_penalty), ("presence_penalty", self.presence_penalty)]
        {
            if !value.is_finite() {
                return wrong(name, value, "a number");
            }
        }
        let ids = self.logit_bias.iter().map(|(id, _)| id).chain(&self.stop);
        if let Some(id) = ids.into_iter().find(|id| **id as usize >= vocab) {
            return Err(Error::Input(format!("token {id} of a vocabulary of {vocab}")));
        }
        if let Some((id, bias)) = self.logit_bias.iter().find(|(_, bias)| !bias.is_finite()) {
            return Err(Error::Input(format!("the bias of token {id} is {bias}; expected a number")));
        }
        if self.stop.len() > MOST_STOPS {
            let count = self.stop.len();
            return Err(Error::Input(format!("{count} stop tokens; {MOST_STOPS} are possible")));
        }
        Ok(())
    }

    /// A slot's row of [`Sample::settings`](crate::op::Sample::settings).
    pub(super) fn words(&self) -> [u32; SETTING_WORDS] {
        let mut words = [0; SETTING_WORDS];
        let late = u32::from(self.order == Order::Llama);
        let mut set = |setting: Setting, word: u32| words[setting as usize] = word;
        set(Setting::Flags, late | if self.logit_bias.is_empty() { 0 } else { 4 });
        set(Setting::SeedLow, self.seed as u32);
        set(Setting::SeedHigh, (self.seed >> 32) as u32);
        set(Setting::Choice, self.choice);
        // Dividing logits by less could overflow; the most likely token is all that is left long before.
        let temperature = if self.temperature < LEAST_TEMPERATURE { 0.0 } else { self.temperature };
        set(Setting::Temperature, temperature.to_bits());
        set(Setting::TopK, self.top_k);
        set(Setting::TopP, self.top_p.to_bits());
        set(Setting::MinP, self.min_p.to_bits());
        set(Setting::Repetition, self.repetition_penalty.to_bits());
        set(Setting::Frequency, self.frequency_penalty.to_bits());
        set(Setting::Presence, self.presence_penalty.to_bits());
        set(Setting::StopCount, self.stop.len() as u32);
        let first = Setting::Stops as usize;
        for (word, id) in words[first..first + MOST_STOPS].iter_mut().zip(&self.stop) {
            *word = *id;
        }
        words
    }
}
