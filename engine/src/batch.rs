//! A batch of token sequences, and packing it into the rows that programs work on.

use alloc::{format, vec::Vec};
use core::ops::Range;

use crate::{Error, Result, model::EncoderConfig, op::ATTENTION_TILE, program::Counts};

/// Token sequences to be encoded together. They are packed without padding: a sequence's result does not
/// depend on the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EncBatch {
    seqs: Vec<Vec<u32>>,
    /// Token types of each sequence; empty if all are 0.
    types: Vec<Vec<u32>>,
    /// First token of each sequence that is pooled; empty if all are pooled from the first.
    pool_starts: Vec<usize>,
}

impl EncBatch {
    /// Sequences of token ids, special tokens included.
    pub fn from_seqs(seqs: Vec<Vec<u32>>) -> Self {
        EncBatch { seqs, types: Vec::new(), pool_starts: Vec::new() }
    }

    /// Adds token types (segment ids), which are 0 otherwise.
    ///
    /// # Errors
    /// `Shape` if they are not one for each token.
    pub fn with_types(mut self, types: Vec<Vec<u32>>) -> Result<Self> {
        let lens = |seqs: &[Vec<u32>]| seqs.iter().map(Vec::len).collect::<Vec<_>>();
        if lens(&types) != lens(&self.seqs) {
            return Err(Error::Shape {
                what: "token types of a batch".into(),
                expected: format!("sequences of {:?}", lens(&self.seqs)),
                found: format!("{:?}", lens(&types)),
            });
        }
        self.types = types;
        Ok(self)
    }

    /// Leaves the first tokens of each sequence out when pooling: the prompt of models with
    /// `include_prompt: false`.
    ///
    /// # Errors
    /// `Shape` if there is not one count for each sequence.
    pub fn with_pool_starts(mut self, starts: Vec<usize>) -> Result<Self> {
        if starts.len() != self.seqs.len() {
            return Err(Error::Shape {
                what: "pool starts of a batch".into(),
                expected: format!("{} of them", self.seqs.len()),
                found: format!("{}", starts.len()),
            });
        }
        self.pool_starts = starts;
        Ok(self)
    }

    /// Number of sequences.
    pub fn len(&self) -> usize {
        self.seqs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.seqs.is_empty()
    }

    pub fn seqs(&self) -> &[Vec<u32>] {
        &self.seqs
    }

    /// Checks every sequence against a model and the most tokens that one run takes.
    ///
    /// # Errors
    /// `Input`, naming the sequence, for one that is empty or too long, and for an id or type that the model
    /// has not.
    pub fn check(&self, model: &EncoderConfig, max_tokens: usize) -> Result<()> {
        for (at, seq) in self.seqs.iter().enumerate() {
            let wrong = |why| Err(Error::Input(format!("sequence {at} {why}")));
            if seq.is_empty() {
                return wrong("is empty; a model's special tokens at least are needed".into());
            }
            if seq.len() > model.max_tokens() {
                let limit = model.max_tokens();
                return wrong(format!("has {} tokens, the model takes {limit}: truncate it", seq.len()));
            }
            if seq.len() > max_tokens {
                return wrong(format!(
                    "has {} tokens, a batch takes {max_tokens}: truncate it, or raise the batch size \
                     (--batch-tokens)",
                    seq.len()
                ));
            }
            if let Some((i, id)) = seq.iter().enumerate().find(|(_, id)| **id as usize >= model.vocab) {
                let vocab = model.vocab;
                return wrong(format!(
                    "has id {id} at token {i}, the model's vocabulary has {vocab} entries"
                ));
            }
            // Without a table all tokens are of type 0.
            let types = model.token_types.max(1);
            let given = self.types.get(at).map_or(&[][..], Vec::as_slice);
            if let Some((i, kind)) = given.iter().enumerate().find(|(_, kind)| **kind as usize >= types) {
                return wrong(format!("has type {kind} at token {i}, the model has {types} token types"));
            }
            if let Some(start) = self.pool_starts.get(at).filter(|s| **s >= seq.len()) {
                return wrong(format!("has {} tokens, pooling was to begin after {start}", seq.len()));
            }
        }
        Ok(())
    }

    /// Ranges of sequences that fit one run each, in order.
    pub(crate) fn chunks(&self, max_tokens: usize, max_sequences: usize) -> Vec<Range<usize>> {
        let (mut chunks, mut start, mut tokens) = (Vec::new(), 0, 0);
        for (at, seq) in self.seqs.iter().enumerate() {
            if at > start && (tokens + seq.len() > max_tokens || at - start == max_sequences) {
                chunks.push(start..at);
                (start, tokens) = (at, 0);
            }
            tokens += seq.len();
        }
        if start < self.seqs.len() {
            chunks.push(start..self.seqs.len());
        }
        chunks
    }
}

/// Some sequences as the inputs of one run. Keeps its memory from run to run.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    /// id, position, type, 0.
    pub tokens: Vec<u32>,
    /// First and past-the-end query row, first and past-the-end row of the sequence.
    pub tiles: Vec<u32>,
    /// First and past-the-end pooled row.
    pub ranges: Vec<u32>,
    pub counts: Counts,
}

impl Packed {
    /// Packs `batch`'s sequences `chunk`, which were checked.
    pub fn pack(&mut self, batch: &EncBatch, chunk: Range<usize>, model: &EncoderConfig) {
        self.tokens.clear();
        self.tiles.clear();
        self.ranges.clear();
        let mut start = 0;
        for at in chunk.clone() {
            let seq = &batch.seqs[at];
            let types = batch.types.get(at).map(Vec::as_slice);
            let mut position = model.positions.first;
            for (i, &id) in seq.iter().enumerate() {
                let counted = model.positions.uncounted != Some(id);
                let here = if counted { position } else { model.positions.first - 1 };
                position += u32::from(counted);
                self.tokens.extend([id, here, types.map_or(0, |t| t[i]), 0]);
            }
            let end = start + seq.len() as u32;
            for query in (start..end).step_by(ATTENTION_TILE) {
                self.tiles.extend([query, end.min(query + ATTENTION_TILE as u32), start, end]);
            }
            let skipped = batch.pool_starts.get(at).copied().unwrap_or(0);
            self.ranges.extend([start + skipped as u32, end]);
            start = end;
        }
        self.counts = [start, chunk.len() as u32, self.tiles.len() as u32 / 4, 0];
    }
}
