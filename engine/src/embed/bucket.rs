//! The sizes that plans are prepared for.

use alloc::vec::Vec;

use crate::{model::Bucket, op::ATTENTION_TILE};

/// Most sequences of one run. More in one run would gain nothing: with so many, even short ones fill it.
const MAX_SEQUENCES: usize = 1024;

/// Tokens are rounded up to one of these, so that at most a third of a large run's rows is spare.
const TOKENS: [usize; 7] = [16, 32, 64, 96, 128, 192, 256];

/// Chooses buckets up to a largest one.
#[derive(Debug, Clone)]
pub struct Buckets {
    max_tokens: usize,
    /// Use the largest only, so that kernels never depend on a batch's size.
    only_largest: bool,
}

impl Buckets {
    pub fn new(max_tokens: usize, only_largest: bool) -> Self {
        Buckets { max_tokens, only_largest }
    }

    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    pub fn max_sequences(&self) -> usize {
        MAX_SEQUENCES.min(self.max_tokens)
    }

    pub fn largest(&self) -> Bucket {
        self.bucket(self.max_tokens, self.max_sequences())
    }

    /// The smallest bucket for so many tokens and sequences, neither above its largest.
    pub fn fitting(&self, tokens: usize, sequences: usize) -> Bucket {
        if self.only_largest {
            return self.largest();
        }
        let tokens = self.token_steps().into_iter().find(|step| *step >= tokens).unwrap_or(self.max_tokens);
        let mut step = 1;
        while step < sequences {
            step *= 4;
        }
        self.bucket(tokens, step.min(self.max_sequences()).min(tokens))
    }

    fn bucket(&self, tokens: usize, sequences: usize) -> Bucket {
        // Each sequence ends in at most one tile that is not full.
        Bucket { tokens, sequences, tiles: tokens / ATTENTION_TILE + sequences }
    }

    /// 16, 32, 64, 96, 128, 192, 256, 384, 512, 768 … up to the largest.
    fn token_steps(&self) -> Vec<usize> {
        let mut steps = TOKENS.to_vec();
        while let [.., a, b] = steps[..]
            && b < self.max_tokens
        {
            steps.push(2 * a);
        }
        steps.retain(|step| *step < self.max_tokens);
        steps.push(self.max_tokens);
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps() {
        let buckets = Buckets::new(8192, false);
        let expected =
            [16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192];
        assert_eq!(buckets.token_steps(), expected);
        assert_eq!(Buckets::new(100, false).token_steps(), [16, 32, 64, 96, 100]);
        assert_eq!(Buckets::new(7, false).token_steps(), [7]);
    }

    #[test]
    fn fitting_holds_what_it_is_for() {
        for max in [1, 7, 100, 8192] {
            let buckets = Buckets::new(max, false);
            for tokens in [1, 2, 16, 17, 64, 65, 100, 5000, 8192] {
                for sequences in [1, 2, 5, 64, 1000] {
                    if tokens > max || sequences > tokens.min(buckets.max_sequences()) {
                        continue;
                    }
                    let bucket = buckets.fitting(tokens, sequences);
                    let largest = buckets.largest();
                    assert!(bucket.tokens >= tokens && bucket.sequences >= sequences, "{bucket:?}");
                    assert!(bucket.tokens <= largest.tokens && bucket.tiles <= largest.tiles, "{bucket:?}");
                    assert!(bucket.sequences <= largest.sequences, "{bucket:?}");
                    // The most tiles so many sequences can have: all but one of a single row.
                    let tiles = (tokens - (sequences - 1)).div_ceil(ATTENTION_TILE) + sequences - 1;
                    assert!(bucket.tiles >= tiles, "{bucket:?} for {tiles} tiles");
                }
            }
        }
    }

    #[test]
    fn deterministic_uses_one() {
        let buckets = Buckets::new(512, true);
        assert_eq!(buckets.fitting(1, 1), buckets.fitting(512, 512));
    }
}
