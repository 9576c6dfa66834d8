//! A sequence taken out of its caches, to go on later, twice, or elsewhere.

use alloc::{format, vec::Vec};

use super::{Generator, Slot};
use crate::{Error, Result, model::decoder::Mixer, op::PAGE, tensor::State};

/// A sequence's tokens and caches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Tokens in the caches.
    pub ids: Vec<u32>,
    /// Which of them came from prompts.
    pub prompted: Vec<bool>,
    /// The token chosen after them, which is not in the caches.
    pub pending: Option<u32>,
    /// Words of each layer's caches: whole pages of keys and values in order of positions, or the convolution's
    /// state.
    pub layers: Vec<Vec<u32>>,
}

impl Generator {
    /// Copies a sequence out. It goes on undisturbed.
    ///
    /// # Errors
    /// `Input` if there is no such sequence or steps were submitted beyond what was read; `DeviceLost`.
    pub async fn save(&mut self, slot: Slot) -> Result<Snapshot> {
        let sequence = self.sequence(slot)?;
        if sequence.submitted != sequence.ids.len() {
            let why = "steps were submitted that were not read; pause the sequence and read them first";
            return Err(Error::Input(why.into()));
        }
        let (ids, prompted) = (sequence.ids.clone(), sequence.prompted.clone());
        let (pending, pages) = (sequence.pending, sequence.pages.clone());
        let used = &pages[..ids.len().div_ceil(PAGE)];
        let mut layers = Vec::new();
        for (at, state) in self.caches.layers.iter().enumerate() {
            let mut words = Vec::new();
            for rows in self.rows_of(at, slot, used) {
                words.extend(self.backend.read_state(state, rows).await?);
            }
            layers.push(words);
        }
        Ok(Snapshot { ids, prompted, pending, layers })
    }

    /// Begins a sequence from a snapshot of the same model.
    ///
    /// # Errors
    /// `Input` if all slots are taken, the caches are full, or the snapshot is of another model.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<Slot> {
        let vocab = self.decoder.config().vocab;
        let known = |id: &u32| (*id as usize) < vocab;
        if !snapshot.ids.iter().chain(&snapshot.pending).all(known)
            || snapshot.prompted.len() != snapshot.ids.len()
            || snapshot.layers.len() != self.caches.layers.len()
            || snapshot.ids.len() > self.options.context
        {
            return Err(Error::Input("the snapshot is of another model, or of a longer context".into()));
        }
        let slot = self.start()?;
        match self.fill(slot, snapshot) {
            Ok(()) => Ok(slot),
            Err(error) => {
                self.finish(slot);
                Err(error)
            }
        }
    }

    /// Begins a second sequence with the same past.
    ///
    /// # Errors
    /// As [`Generator::save`] and [`Generator::restore`].
    pub async fn fork(&mut self, slot: Slot) -> Result<Slot> {
        let snapshot = self.save(slot).await?;
        self.restore(&snapshot)
    }

    fn fill(&mut self, slot: Slot, snapshot: &Snapshot) -> Result<()> {
        self.reserve(slot, snapshot.ids.len())?;
        let pages = self.sequence(slot)?.pages.clone();
        for (at, words) in snapshot.layers.iter().enumerate() {
            let state: State = self.caches.layers[at].clone();
            let mut rest = &words[..];
            for rows in self.rows_of(at, slot, &pages) {
                let count = rows.len() * state.spec().row_words();
                let Some((mine, others)) = rest.split_at_checked(count) else {
                    return Err(Error::Input(format!("the snapshot's layer {at} is too short")));
                };
                self.backend.write_state(&state, rows.start, mine)?;
                rest = others;
            }
            if !rest.is_empty() {
                return Err(Error::Input(format!("the snapshot's layer {at} is too long")));
            }
        }
        let sequence = self.sequence(slot)?;
        sequence.ids.clone_from(&snapshot.ids);
        sequence.prompted.clone_from(&snapshot.prompted);
        (sequence.pending, sequence.submitted) = (snapshot.pending, snapshot.ids.len());
        Ok(())
    }

    /// Rows of a layer's state that hold a slot's values.
    fn rows_of(&self, layer: usize, slot: Slot, pages: &[u32]) -> Vec<core::ops::Range<usize>> {
        let first = self.decoder.layers().start;
        match self.decoder.config().layers[first + layer].mixer {
            Mixer::Attention { .. } => {
                pages.iter().map(|p| *p as usize * PAGE..(*p as usize + 1) * PAGE).collect()
            }
            Mixer::ShortConv { taps, .. } => {
                let kept = taps - 1;
                alloc::vec![slot.0 * kept..(slot.0 + 1) * kept]
            }
        }
    }
}
