//! A batch of token sequences, and packing it into the rows that programs work on.

use alloc::{format, vec::Vec};
use core::ops::Range;

use crate::{Error, Result, model::TextShape, op::ATTENTION_TILE, program::Counts};

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
    pub fn check(&self, model: &TextShape, max_tokens: usize) -> Result<()> {
        for (at, seq) in self.seqs.iter().enumerate() {
            let wrong = |why| Err(Error::Input(format!("sequence {at} {why}")));
            if seq.is_empty() {
                return wrong("is empty; a model's special tokens at least are needed".into());
            }
            if seq.len() > model.max_tokens {
                let limit = model.max_tokens;
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
    pub fn pack(&mut self, batch: &EncBatch, chunk: Range<usize>, model: &TextShape) {
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

#[cfg(test)]
mod tests {
    use alloc::{string::ToString, vec};

    use super::*;
    use crate::model::{arch::read_encoder, config::Config};

    fn model(model_type: &str) -> TextShape {
        let text = format!(
            r#"{{"model_type": "{model_type}", "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 1,
                "num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 202,
                "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-5, "pad_token_id": 1}}"#
        );
        read_encoder(&Config::parse("config.json", &text).unwrap()).unwrap().shape()
    }

    #[test]
    fn packs_rows_tiles_and_ranges() {
        let batch = EncBatch::from_seqs(vec![vec![7], vec![3; 150], vec![5, 6, 9]])
            .with_types(vec![vec![1], vec![0; 150], vec![0, 0, 1]])
            .unwrap()
            .with_pool_starts(vec![0, 20, 2])
            .unwrap();
        let mut packed = Packed::default();
        packed.pack(&batch, 0..3, &model("bert"));
        assert_eq!(packed.counts, [154, 3, 5, 0]);
        assert_eq!(packed.tokens[..8], [7, 0, 1, 0, 3, 0, 0, 0]);
        assert_eq!(packed.tokens[151 * 4..], [5, 0, 0, 0, 6, 1, 0, 0, 9, 2, 1, 0]);
        let tiles =
            [[0, 1, 0, 1], [1, 65, 1, 151], [65, 129, 1, 151], [129, 151, 1, 151], [151, 154, 151, 154]];
        assert_eq!(packed.tiles, tiles.concat());
        assert_eq!(packed.ranges, [0, 1, 21, 151, 153, 154]);
        // Nothing of an earlier run remains.
        packed.pack(&batch, 2..3, &model("bert"));
        assert_eq!((packed.counts, packed.tokens.len()), ([3, 1, 1, 0], 12));
        assert_eq!(packed.ranges, [2, 3]);
    }

    #[test]
    fn padding_inside_a_text_is_not_counted() {
        let batch = EncBatch::from_seqs(vec![vec![1, 0, 9, 1, 9, 2]]);
        let mut packed = Packed::default();
        packed.pack(&batch, 0..1, &model("roberta"));
        let positions: Vec<u32> = packed.tokens.chunks(4).map(|row| row[1]).collect();
        assert_eq!(positions, [1, 2, 3, 1, 4, 5]);
    }

    #[test]
    fn chunks_hold_what_fits() {
        let batch = EncBatch::from_seqs([3, 4, 1, 8, 8, 1].map(|n| vec![0; n]).to_vec());
        assert_eq!(batch.chunks(8, 9), [0..3, 3..4, 4..5, 5..6]);
        assert_eq!(batch.chunks(100, 2), [0..2, 2..4, 4..6]);
        assert_eq!(batch.chunks(100, 100), core::slice::from_ref(&(0..6)));
        assert!(EncBatch::default().chunks(8, 9).is_empty());
    }

    #[test]
    fn unusable_sequences_are_named() {
        let check = |seq: Vec<u32>, max| {
            EncBatch::from_seqs(vec![vec![2], seq]).check(&model("roberta"), max).map_err(|e| e.to_string())
        };
        assert_eq!(check(vec![49; 200], 200), Ok(()));
        let refused = |seq, max, part: &str| {
            let text = check(seq, max).unwrap_err();
            assert!(text.starts_with("sequence 1 ") && text.contains(part), "{text}");
        };
        refused(vec![], 100, "is empty");
        refused(vec![3, 50], 100, "id 50 at token 1, the model's vocabulary has 50");
        refused(vec![u32::MAX], 100, "id 4294967295");
        refused(vec![3; 201], 1000, "has 201 tokens, the model takes 200: truncate");
        refused(vec![3; 200], 199, "has 200 tokens, a batch takes 199");
    }

    #[test]
    fn types_and_pool_starts_are_checked() {
        let batch = EncBatch::from_seqs(vec![vec![2, 3], vec![4]]);
        let error = |b: Result<EncBatch>| b.unwrap_err().to_string();
        assert!(error(batch.clone().with_types(vec![vec![0], vec![0]])).contains("[2, 1]"));
        assert!(error(batch.clone().with_pool_starts(vec![0])).contains("2 of them"));
        let batch = batch.with_types(vec![vec![0, 2], vec![0]]).unwrap();
        let text = batch.check(&model("bert"), 9).unwrap_err().to_string();
        assert_eq!(text, "sequence 0 has type 2 at token 1, the model has 2 token types");
        let batch = EncBatch::from_seqs(vec![vec![2, 3]]).with_pool_starts(vec![2]).unwrap();
        assert!(batch.check(&model("bert"), 9).unwrap_err().to_string().contains("begin after 2"));
    }
}
