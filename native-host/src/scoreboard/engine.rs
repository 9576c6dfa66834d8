//! Ours as a contender: the engine that users hold, on one variant's backend.

use std::{path::Path, time::Instant};

use inferencelayer_engine::{batch::EncBatch, gpu::AdapterChoice, task::block_on};

use super::contest::{Contender, Reply, Request};
use crate::{
    EmbedEngine, EmbedOptions, Result,
    folder::DiskFolder,
    lab::variant::{Opened, Variant},
    pooled,
};

/// Our engine on one variant.
pub struct Ours {
    pub variant: Variant,
    pub opened: Opened,
    engine: EmbedEngine,
}

impl Ours {
    /// Loads a folder for batches of up to `max_tokens` tokens in one run.
    ///
    /// # Errors
    /// Those of the backend and of the folder.
    pub fn load(
        model: &Path,
        variant: &Variant,
        adapter: &AdapterChoice,
        threads: usize,
        max_tokens: usize,
    ) -> Result<Ours> {
        let opened = variant.open(adapter, threads)?;
        let folder = DiskFolder::open(model)?;
        let options = EmbedOptions::default();
        let engine = block_on(EmbedEngine::load(&folder, opened.shared(), max_tokens, &options, None))?;
        Ok(Ours { variant: variant.clone(), opened, engine })
    }

    /// Adapter and driver, if it runs on a GPU.
    pub fn gpu(&self) -> Option<(String, String)> {
        match &self.opened {
            Opened::Gpu(gpu) => {
                let adapter = gpu.context().adapter();
                Some((adapter.name.clone(), adapter.driver.trim().to_string()))
            }
            Opened::Other(_) => None,
        }
    }

    /// One vector for each sequence of ids.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn encode(&mut self, batch: &EncBatch) -> Result<Vec<Vec<f32>>> {
        pooled(self.engine.encode(batch)?)
    }
}

impl Contender for Ours {
    fn name(&self) -> String {
        self.variant.to_string()
    }

    fn run(&mut self, request: Request) -> Result<Reply> {
        let ids = request.batch().ids();
        let (mut seconds, mut vectors) = (Vec::new(), Vec::new());
        for _ in 0..request.runs {
            let ids = ids.clone();
            let start = Instant::now();
            vectors = self.encode(&EncBatch::from_seqs(ids))?;
            seconds.push(start.elapsed().as_secs_f64());
        }
        Ok(Reply { seconds, vector: vectors.into_iter().next().unwrap_or_default() })
    }
}
