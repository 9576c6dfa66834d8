//! A bounded cache of prepared plans, one for each bucket and kind of result.

use alloc::{boxed::Box, vec::Vec};

use super::head::Head;
use crate::{
    Result,
    backend::{Backend, Plan},
    model::{Bucket, TextModel},
    op::{Normalize, Op},
    program::{BufferId, BufferSpec, Count, Recorder, Role},
    tensor::DType,
};

/// Plans kept besides the largest.
const KEPT: usize = 16;

/// What a run gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A vector for each sequence.
    Pooled,
    /// The last hidden state of each token.
    Tokens,
}

/// Names a plan in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    pub bucket: Bucket,
    pub kind: Kind,
}

/// A plan with the buffers it reads and writes.
pub struct Prepared {
    pub key: Key,
    pub plan: Box<dyn Plan>,
    pub tokens: BufferId,
    pub tiles: BufferId,
    /// Pooled runs only.
    pub ranges: Option<BufferId>,
    pub out: BufferId,
    /// Values in a row of `out`.
    pub cols: usize,
    used: u64,
}

/// The cache.
#[derive(Default)]
pub struct Plans {
    plans: Vec<Prepared>,
    clock: u64,
}

impl Plans {
    pub fn len(&self) -> usize {
        self.plans.len()
    }

    /// The plan of a key, prepared if it is not there. Makes room by dropping the plan that was used longest
    /// ago and is not among `busy`.
    pub fn get(
        &mut self,
        key: Key,
        busy: impl Fn(Key) -> bool,
        backend: &dyn Backend,
        model: &TextModel,
        head: &Head,
    ) -> Result<&mut Prepared> {
        self.clock += 1;
        let at = match self.plans.iter().position(|p| p.key == key) {
            Some(at) => at,
            None => {
                if self.plans.len() > KEPT {
                    // The first is the largest, which stays.
                    let idle = self.plans.iter().enumerate().skip(1).filter(|(_, p)| !busy(p.key));
                    if let Some(at) = idle.min_by_key(|(_, p)| p.used).map(|(at, _)| at) {
                        self.plans.swap_remove(at);
                    }
                }
                self.plans.push(prepare(key, backend, model, head)?);
                self.plans.len() - 1
            }
        };
        let prepared = &mut self.plans[at];
        prepared.used = self.clock;
        Ok(prepared)
    }

    /// The plan of a key that is there.
    pub fn existing(&mut self, key: Key) -> Option<&mut Prepared> {
        self.plans.iter_mut().find(|p| p.key == key)
    }
}

fn prepare(key: Key, backend: &dyn Backend, model: &TextModel, head: &Head) -> Result<Prepared> {
    let Key { bucket, kind } = key;
    let hidden = model.shape().hidden;
    let mut recorder = Recorder::new();
    let mut input = |name, rows, cols, count| {
        recorder.buffer(BufferSpec { name, dtype: DType::U32, rows, cols, count, role: Role::Input })
    };
    let tokens = input("tokens", bucket.tokens, 4, Count::Tokens);
    let tiles = input("tiles", bucket.tiles, 4, Count::Tiles);
    let ranges = (kind == Kind::Pooled).then(|| input("ranges", bucket.sequences, 2, Count::Sequences));
    let x = model.record(&mut recorder, bucket, tokens, tiles)?;
    let (out, cols) = match ranges {
        Some(ranges) => (head.record(&mut recorder, bucket, x, hidden, ranges)?, head.device_width(hidden)?),
        None => {
            let spec = BufferSpec {
                name: "hidden states",
                dtype: DType::F32,
                rows: bucket.tokens,
                cols: hidden,
                count: Count::Tokens,
                role: Role::Output,
            };
            let out = recorder.buffer(spec);
            recorder.push(Op::Normalize(Normalize { x, unit: false, out }))?;
            (out, hidden)
        }
    };
    let plan = backend.prepare(&recorder.finish()?)?;
    Ok(Prepared { key, plan, tokens, tiles, ranges, out, cols, used: 0 })
}
