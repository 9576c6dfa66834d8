//! Tasks of sampling.

use super::{Run, cut};
use crate::{
    sample::{Candidate, Choice, Commit, FOUND_WORDS, Found, PART, Scan, Settings, Slot},
    step::SampleStep,
};

/// Where a sequence goes on.
struct Target {
    /// Of the next tokens.
    row: usize,
    slot: usize,
    /// Of the token before.
    position: u32,
}

impl Run<'_> {
    /// A row of the logits, as far as tokens can be chosen.
    fn logits(&self, step: &SampleStep, sequence: usize) -> &[f32] {
        // SAFETY: the place has the row, and no step of the sampling writes it.
        unsafe {
            let row = self.floats(step.logits).add(sequence * step.logits.cols);
            core::slice::from_raw_parts(row, step.vocab)
        }
    }

    /// A part of the staged region, from a word on.
    fn staged_words(&self, at: usize) -> *mut u32 {
        // SAFETY: lowering has made room for it.
        unsafe { self.base.add(self.layout.staged + at) }
    }

    fn target_of(&self, step: &SampleStep, sequence: usize) -> Target {
        let token = &self.integers(step.targets.unwrap_or(step.tokens))[sequence * 4..][..4];
        let row = if step.targets.is_some() { token[0] as usize } else { sequence };
        Target { row, slot: token[3] as usize, position: token[1] }
    }

    fn settings(&self, step: &SampleStep, slot: usize) -> Settings<'_> {
        Settings::of(self.integers(step.settings), slot)
    }

    pub(super) fn scan(&self, step: &SampleStep, task: usize) {
        let (parts, vocab) = (step.parts(), step.vocab);
        let (sequence, part) = (task / parts, task % parts);
        let tokens = part * PART..vocab.min((part + 1) * PART);
        let slot = self.target_of(step, sequence).slot;
        let row = |place: crate::step::Place| &self.integers(place)[slot * place.cols..][..place.cols];
        let bias = step.bias.map(|bias| {
            let words = row(bias);
            // SAFETY: f32 states are words of the same size, of which every pattern is a value.
            unsafe { core::slice::from_raw_parts(words.as_ptr().cast::<f32>(), words.len()) }
        });
        // SAFETY: the staged region has a place for each part of each sequence, which is this task's.
        let (values, found) = unsafe {
            let values = self.staged_words(step.values + sequence * vocab + tokens.start).cast::<f32>();
            let found = self.staged_words(step.found).cast::<Found>().add(task);
            (core::slice::from_raw_parts_mut(values, tokens.len()), found)
        };
        self.kernel(Scan {
            logits: self.logits(step, sequence),
            slot: Slot {
                settings: self.settings(step, slot),
                counts: row(step.counts),
                bias,
                mask: step.mask.map(row),
            },
            tokens,
            values,
            found,
        });
    }

    /// The choices of some sequences, one after the other.
    pub(super) fn pick(&self, step: &SampleStep, tasks: usize, task: usize) {
        let (parts, vocab) = (step.parts(), step.vocab);
        for sequence in cut(self.count(step.logits), tasks, task) {
            let target = self.target_of(step, sequence);
            let position = target.position.wrapping_add(1);
            // SAFETY: the scan before has written values and findings; each task has its own scratch memory, which
            // begins on a cache line; the output's row is this task's.
            let (chosen, log_probability) = unsafe {
                let scratch = self.staged_words(step.scratch + task * step.scratch_words);
                let values = self.staged_words(step.values + sequence * vocab).cast::<f32>();
                let found = self.staged_words(step.found + sequence * parts * FOUND_WORDS).cast::<Found>();
                let choice = Choice {
                    settings: self.settings(step, target.slot),
                    logits: self.logits(step, sequence),
                    values: core::slice::from_raw_parts(values, vocab),
                    found: core::slice::from_raw_parts(found, parts),
                    position,
                    weights: core::slice::from_raw_parts_mut(scratch.cast::<f64>(), vocab),
                    candidates: core::slice::from_raw_parts_mut(
                        scratch.add(2 * vocab).cast::<Candidate>(),
                        vocab,
                    ),
                };
                choice.make()
            };
            let row = [chosen as f32, log_probability, position as f32, 0.0];
            // SAFETY: as above.
            unsafe { self.floats(step.out).add(sequence * step.out.cols).cast::<[f32; 4]>().write(row) };
        }
    }

    /// Every sequence in turn: some may share a slot or a row.
    pub(super) fn commit(&self, step: &SampleStep) {
        for sequence in 0..self.count(step.logits) {
            let Target { row, slot, position } = self.target_of(step, sequence);
            // SAFETY: rows and slots were checked. The borrows end before the next sequence; `target_of` and
            // `settings` read other words, or before these are written.
            let (token, next, counts) = unsafe {
                let token = *self.floats(step.out).add(sequence * step.out.cols);
                let next = self.words(step.tokens).add(row * 4);
                let counts = self.words(step.counts).add(slot * step.counts.cols);
                let counts = core::slice::from_raw_parts_mut(counts, step.counts.cols);
                (token as u32, core::slice::from_raw_parts_mut(next, 4), counts)
            };
            let settings = self.settings(step, slot);
            let (position, slots) = (position.wrapping_add(1), step.settings.rows);
            Commit { settings, token, position, slot, slots, next, counts }.make();
        }
    }
}
