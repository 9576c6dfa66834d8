//! States of the reference backend: words that plans load before a run and store after it.

use alloc::{format, sync::Arc, vec::Vec};
use core::{
    any::Any,
    ops::Range,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use super::Values;
use crate::{
    Error, Result,
    tensor::{DType, State, StateSpec, WeightStorage},
};

/// Words of a state; atomic, so that handles can be shared, though one run at a time changes them.
#[derive(Debug)]
pub struct ReferenceState {
    words: Vec<AtomicU32>,
    memory: Arc<AtomicU64>,
}

impl WeightStorage for ReferenceState {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for ReferenceState {
    fn drop(&mut self) {
        self.memory.fetch_sub(self.words.len() as u64 * 4, Ordering::Relaxed);
    }
}

impl ReferenceState {
    pub fn create(spec: StateSpec, memory: Arc<AtomicU64>) -> State {
        let words: Vec<AtomicU32> = (0..spec.rows * spec.row_words()).map(|_| AtomicU32::new(0)).collect();
        memory.fetch_add(words.len() as u64 * 4, Ordering::Relaxed);
        State::new(spec, Arc::new(ReferenceState { words, memory }))
    }

    /// # Errors
    /// `Unsupported` for a state of another backend.
    pub fn of(state: &State) -> Result<&ReferenceState> {
        state.storage::<ReferenceState>().ok_or_else(|| {
            Error::Unsupported(format!("state `{}` belongs to another backend", state.spec().name))
        })
    }

    pub fn read(&self, words: Range<usize>) -> Vec<u32> {
        self.words[words].iter().map(|w| w.load(Ordering::Relaxed)).collect()
    }

    pub fn write(&self, first: usize, words: &[u32]) {
        for (to, from) in self.words[first..].iter().zip(words) {
            to.store(*from, Ordering::Relaxed);
        }
    }

    pub fn load(&self, dtype: DType, floats: &mut Values, integers: &mut [u32]) {
        let words = self.words.iter().map(|w| w.load(Ordering::Relaxed));
        match dtype {
            DType::U32 => integers.iter_mut().zip(words).for_each(|(i, w)| *i = w),
            DType::F32 => floats.iter_mut().zip(words).for_each(|(f, w)| *f = f32::from_bits(w)),
            DType::F16 => {
                let halves = words.flat_map(|w| [w as u16, (w >> 16) as u16]);
                floats.iter_mut().zip(halves).for_each(|(f, h)| *f = half::f16::from_bits(h).to_f32());
            }
            // Never made.
            DType::Q8 => {}
        }
    }

    pub fn store(&self, dtype: DType, floats: &[f32], integers: &[u32]) {
        let half = |v: f32| u32::from(half::f16::from_f32(v).to_bits());
        for (i, to) in self.words.iter().enumerate() {
            let word = match dtype {
                DType::U32 => integers[i],
                DType::F32 => floats[i].to_bits(),
                DType::F16 => half(floats[2 * i]) | half(floats[2 * i + 1]) << 16,
                DType::Q8 => continue,
            };
            to.store(word, Ordering::Relaxed);
        }
    }
}
