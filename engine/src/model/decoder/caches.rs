//! What a decoder keeps between runs.

use alloc::vec::Vec;

use super::{Decoder, Mixer};
use crate::{
    Result,
    backend::Backend,
    op::{PAGE, SETTING_WORDS, Setting},
    tensor::{DType, State, StateSpec},
};

/// Sizes of [`Caches`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheOptions {
    /// Sequences at a time. There is one more slot, where rows go whose sequence has ended.
    pub slots: usize,
    /// Pages of [`PAGE`] positions that the slots share. There is one more, page 0, the last slot's.
    pub pages: usize,
    /// Most pages of one slot.
    pub pages_per_slot: usize,
    /// f32 or f16.
    pub dtype: DType,
}

/// The states of one decoder: caches of its layers, and what sampling keeps.
#[derive(Debug)]
pub struct Caches {
    pub options: CacheOptions,
    /// One for each loaded layer: `[pages·PAGE, 2·kv_heads·head_dim]` or `[slots·(taps−1), hidden]`.
    pub(crate) layers: Vec<State>,
    /// u32 `[slots, pages_per_slot]`
    pub(crate) pages: State,
    /// u32 `[slots, 4]`: each row's next token.
    pub(crate) tokens: State,
    pub(crate) settings: State,
    pub(crate) counts: State,
    pub(crate) bias: State,
    pub(crate) mask: State,
}

impl Caches {
    /// # Errors
    /// `TooLarge`, `OutOfMemory`.
    pub fn new(decoder: &Decoder, backend: &dyn Backend, options: CacheOptions) -> Result<Caches> {
        let config = decoder.config();
        let state = |name, dtype, rows, cols| backend.state(StateSpec { name, dtype, rows, cols });
        let (slots, pages) = (options.slots + 1, options.pages + 1);
        let mut layers = Vec::new();
        for at in decoder.layers() {
            layers.push(match config.layers[at].mixer {
                Mixer::Attention { kv_heads, .. } => {
                    let cols = 2 * kv_heads * config.head_dim;
                    state("key-value cache", options.dtype, pages * PAGE, cols)?
                }
                Mixer::ShortConv { taps, .. } => {
                    state("convolution state", DType::F32, slots * (taps - 1), config.hidden)?
                }
            });
        }
        let vocab = config.vocab.next_multiple_of(4);
        let words = config.vocab.div_ceil(32).next_multiple_of(4);
        let settings = state("sampling settings", DType::U32, slots, SETTING_WORDS)?;
        // Nothing is chosen for the last slot.
        let mut nothing = [0; SETTING_WORDS];
        nothing[Setting::Flags as usize] = 8;
        backend.write_state(&settings, options.slots, &nothing)?;
        Ok(Caches {
            options,
            layers,
            pages: state("pages", DType::U32, slots, options.pages_per_slot.next_multiple_of(4))?,
            tokens: state("next tokens", DType::U32, slots, 4)?,
            settings,
            counts: state("token counts", DType::U32, slots, vocab)?,
            bias: state("logit bias", DType::F32, slots, vocab)?,
            mask: state("token mask", DType::U32, slots, words)?,
        })
    }
}
