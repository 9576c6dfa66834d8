//! One conversation: its tokens stay in the caches from answer to answer.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex},
};

use inferencelayer_engine::{
    Error as EngineError,
    backend::StepTime,
    generate::{Sampling, Slot},
    task::block_on,
};

use super::engine::{Shared, lock};
use crate::{Error, Result};

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// By a stop token or text.
    Stop,
    /// By the number of tokens asked for, or at the end of the context.
    Length,
}

/// One token of an answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Token {
    pub id: u32,
    /// Natural logarithm of its probability before temperature and filters.
    pub log_probability: f32,
    /// With the last token.
    pub finish: Option<Finish>,
}

/// A sequence of an engine; freed when dropped.
#[derive(Debug)]
pub struct Session {
    shared: Arc<Mutex<Shared>>,
    slot: Slot,
    /// Tokens that the sequence holds or will hold: prompts and answers.
    history: Vec<u32>,
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut shared = lock(&self.shared);
        shared.generator.finish(self.slot);
        shared.inbox[self.slot.0].clear();
    }
}

impl Session {
    pub(super) fn start(shared: &Arc<Mutex<Shared>>) -> Result<Session> {
        let slot = lock(shared).generator.start()?;
        Ok(Session { shared: shared.clone(), slot, history: Vec::new() })
    }

    /// Tokens so far: prompts, answers, and what ended them.
    pub fn tokens(&self) -> &[u32] {
        &self.history
    }

    /// Forgets everything.
    ///
    /// # Errors
    /// `Input` if another session took the place in the meantime.
    pub fn reset(&mut self) -> Result<()> {
        let mut shared = lock(&self.shared);
        shared.generator.finish(self.slot);
        shared.inbox[self.slot.0].clear();
        self.slot = shared.generator.start()?;
        self.history.clear();
        Ok(())
    }

    /// Makes `ids` the session's tokens and answers them: what they share with the tokens so far is not computed
    /// again. Iterate over what comes back; dropping it ends the answer.
    ///
    /// # Errors
    /// `Input` for no ids, unknown ids, more than the context holds, or impossible settings; the device's errors.
    pub fn generate(
        &mut self,
        ids: &[u32],
        max_tokens: usize,
        sampling: &Sampling,
    ) -> Result<Generation<'_>> {
        if ids.is_empty() {
            return Err(Error::Input("an empty prompt: give at least one token".into()));
        }
        let room = {
            let shared = lock(&self.shared);
            shared.generator.options().context
        };
        if ids.len() > room {
            return Err(Error::Input(format!(
                "a prompt of {} tokens is longer than the context of {room}; shorten it, or load the model with a \
                 larger context",
                ids.len()
            )));
        }
        let new = self.reuse(ids)?;
        let mut shared = lock(&self.shared);
        shared.inbox[self.slot.0].clear();
        shared.generator.prompt(self.slot, &ids[new..], max_tokens, sampling)?;
        drop(shared);
        self.history = ids.to_vec();
        let stop = sampling.stop.clone();
        Ok(Generation { session: self, stop, done: false })
    }

    /// Logits after each of `ids`, which become the session's tokens, `[ids, vocabulary]`.
    ///
    /// # Errors
    /// As [`Session::generate`].
    pub fn logits(&mut self, ids: &[u32]) -> Result<Vec<f32>> {
        self.reset()?;
        let mut shared = lock(&self.shared);
        let logits = block_on(shared.generator.logits(self.slot, ids))?;
        drop(shared);
        self.history = ids.to_vec();
        Ok(logits)
    }

    /// Runs a prompt of at most one chunk and measures its parts; the session is empty afterwards.
    ///
    /// # Errors
    /// `Unsupported` where steps cannot be measured (on a CPU, or a GPU without timestamps); those of
    /// [`Session::generate`].
    pub fn profile(&mut self, ids: &[u32]) -> Result<Vec<StepTime>> {
        self.reset()?;
        let steps = lock(&self.shared).generator.profile_prompt(self.slot, ids)?;
        self.reset()?;
        Ok(steps)
    }

    /// Leaves the longest usable start of `ids` in the caches; returns its length. At least one token is left to
    /// feed. A token that was chosen last and is not in the caches counts as one of them: the generator feeds it.
    fn reuse(&mut self, ids: &[u32]) -> Result<usize> {
        let mut shared = lock(&self.shared);
        let stored = shared.generator.tokens(self.slot).to_vec();
        let same = stored.iter().zip(ids).take_while(|(a, b)| a == b).count().min(ids.len() - 1);
        match shared.generator.rewind(self.slot, same) {
            Ok(()) => Ok(same),
            Err(EngineError::Unsupported(_)) => {
                drop(shared);
                self.reset()?;
                Ok(0)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn next(&mut self, stop: &[u32]) -> Result<Option<Token>> {
        let (shared, slot) = (self.shared.clone(), self.slot);
        // The generator is free for other sessions between polls.
        let choice = poll_fn(|cx| lock(&shared).poll_choice(slot, cx)).await?;
        let Some(choice) = choice else { return Ok(None) };
        if !choice.log_probability.is_finite() {
            return Err(EngineError::NotFinite("what the model says of the next token".into()).into());
        }
        self.history.push(choice.token);
        let finish = match (stop.contains(&choice.token), choice.last) {
            (true, _) => Some(Finish::Stop),
            (false, true) => Some(Finish::Length),
            (false, false) => None,
        };
        Ok(Some(Token { id: choice.token, log_probability: choice.log_probability, finish }))
    }
}

/// An answer under way.
#[derive(Debug)]
pub struct Generation<'a> {
    session: &'a mut Session,
    stop: Vec<u32>,
    done: bool,
}

impl Generation<'_> {
    /// The next token; `None` after the last. For where blocking is not possible; else iterate.
    ///
    /// # Errors
    /// The device's.
    pub async fn next_async(&mut self) -> Result<Option<Token>> {
        if self.done {
            return Ok(None);
        }
        let token = self.session.next(&self.stop).await;
        self.done = !matches!(&token, Ok(Some(token)) if token.finish.is_none());
        token
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Token>;

    fn next(&mut self) -> Option<Self::Item> {
        block_on(self.next_async()).transpose()
    }
}

impl Drop for Generation<'_> {
    fn drop(&mut self) {
        if !self.done {
            let mut shared = lock(&self.session.shared);
            // It fails only for a slot that holds nothing.
            let _ = shared.generator.pause(self.session.slot);
        }
    }
}
