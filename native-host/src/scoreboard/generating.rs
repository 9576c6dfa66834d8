//! Ours as a contender that generates: the engine that users hold, on one model file.

use std::{path::Path, time::Instant};

use inferencelayer_engine::{generate::Sampling, gpu::AdapterChoice};

use super::contest::{Batch, COMPARED, Contender, Reply, Request};
use crate::{
    Error, GenerateEngine, GenerateOptions, Result,
    device::{Device, DeviceOptions},
    generate::{Session, Token},
};

/// Our engine with one session.
pub struct Generating {
    pub engine: GenerateEngine,
    session: Session,
}

/// Loads a model.
///
/// # Errors
/// Those of [`GenerateEngine::auto`].
pub fn open(
    file: &Path,
    device: Device,
    adapter: &AdapterChoice,
    threads: usize,
    sessions: usize,
    context: usize,
) -> Result<GenerateEngine> {
    let device = DeviceOptions {
        device,
        adapter: adapter.clone(),
        threads: Some(threads),
        ..DeviceOptions::default()
    };
    GenerateEngine::auto(file, GenerateOptions { device, context: Some(context), sessions, chunk: 0 })
}

/// The prompt of so many tokens, the same for all contenders.
pub fn prompt(tokens: usize) -> Vec<u32> {
    Batch::new(1, tokens).ids().into_iter().next().unwrap_or_default()
}

impl Generating {
    /// # Errors
    /// `Input` if all sessions are taken.
    pub fn new(engine: GenerateEngine) -> Result<Generating> {
        let session = engine.session()?;
        Ok(Generating { engine, session })
    }

    /// Seconds until the first token, or those of the tokens after it if there are more.
    fn answer(&mut self, ids: &[u32], answer: usize) -> Result<f64> {
        self.session.reset()?;
        let start = Instant::now();
        let mut first = None;
        for token in self.session.generate(ids, answer, &Sampling::default())? {
            let _: Token = token?;
            first.get_or_insert_with(|| start.elapsed());
        }
        let first = first.ok_or_else(|| Error::Input("no token was generated".into()))?;
        Ok(if answer == 1 { first } else { start.elapsed() - first }.as_secs_f64())
    }
}

impl Contender for Generating {
    fn name(&self) -> String {
        self.engine.device_name().into()
    }

    fn run(&mut self, request: Request) -> Result<Reply> {
        let ids = prompt(request.tokens);
        let compared = &ids[..ids.len().min(COMPARED)];
        let logits = self.session.logits(compared)?;
        let vector = logits[logits.len() - logits.len() / compared.len().max(1)..].to_vec();
        let seconds = (0..request.runs).map(|_| self.answer(&ids, request.answer)).collect::<Result<_>>()?;
        Ok(Reply { seconds, vector })
    }
}
