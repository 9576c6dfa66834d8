//! Prepared plans of a decoder, by kind and bucket.

use alloc::{boxed::Box, vec::Vec};

use crate::{
    Result,
    backend::{Backend, Plan},
    model::decoder::{Caches, Decoder, DecoderStage, Kept, Rows, Wanted},
    op::{ATTENTION_TILE, Op, Sample},
    program::{BufferId, BufferSpec, Count, Recorder, Role},
    tensor::DType,
};

/// What a plan does with its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Stores a part of a prompt.
    Store,
    /// The last part of prompts: each sequence's next token is chosen.
    Choose,
    /// Logits of all rows.
    Logits,
    /// One row of each sequence.
    Decode,
}

/// Names a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    pub kind: Kind,
    pub rows: usize,
    /// No position reaches this.
    pub context: usize,
}

/// A plan with the buffers it reads and writes.
pub struct Prepared {
    pub key: Key,
    pub plan: Box<dyn Plan>,
    /// Inputs of prompts: `tokens`, `tiles`, `spans`, `targets`.
    pub tokens: Option<BufferId>,
    pub tiles: Option<BufferId>,
    pub spans: Option<BufferId>,
    pub targets: Option<BufferId>,
    /// `[S, 4]` of [`Sample::out`], or logits.
    pub out: Option<BufferId>,
    used: u64,
}

/// Plans kept.
const KEPT: usize = 24;

/// The cache of plans.
#[derive(Default)]
pub struct Plans {
    plans: Vec<Prepared>,
    clock: u64,
}

impl Plans {
    /// The plan of a key, prepared if it is not there; makes room by dropping one that is not `busy`.
    pub fn get(
        &mut self,
        key: Key,
        busy: impl Fn(Key) -> bool,
        backend: &dyn Backend,
        decoder: &Decoder,
        caches: &Caches,
    ) -> Result<&mut Prepared> {
        self.clock += 1;
        let at = match self.plans.iter().position(|p| p.key == key) {
            Some(at) => at,
            None => {
                if self.plans.len() >= KEPT {
                    let idle = self.plans.iter().enumerate().filter(|(_, p)| !busy(p.key));
                    if let Some(at) = idle.min_by_key(|(_, p)| p.used).map(|(at, _)| at) {
                        self.plans.swap_remove(at);
                    }
                }
                self.plans.push(prepare(key, backend, decoder, caches)?);
                self.plans.len() - 1
            }
        };
        self.plans[at].used = self.clock;
        Ok(&mut self.plans[at])
    }

    /// The plan of a key that is there.
    pub fn existing(&mut self, key: Key) -> Option<&mut Prepared> {
        self.plans.iter_mut().find(|p| p.key == key)
    }
}

fn prepare(key: Key, backend: &dyn Backend, decoder: &Decoder, caches: &Caches) -> Result<Prepared> {
    let Key { kind, rows, context } = key;
    // One prompt at a time.
    let (sequences, tiles) = (1, rows.div_ceil(ATTENTION_TILE));
    let mut r = Recorder::new();
    let input = |r: &mut Recorder, name, rows, cols, count| {
        r.buffer(BufferSpec { name, dtype: DType::U32, rows, cols, count, role: Role::Input })
    };
    let state = r.state(&caches.tokens);
    let kept = Kept { caches, context };
    let (tokens, layout, inputs) = if kind == Kind::Decode {
        (state, Rows::Decode(kept), None)
    } else {
        let tokens = input(&mut r, "tokens", rows, 4, Count::Tokens);
        let tiles = input(&mut r, "tiles", tiles, 4, Count::Tiles);
        let spans = input(&mut r, "spans", sequences, 2, Count::Sequences);
        (tokens, Rows::Prefill { kept, tiles, spans }, Some((tokens, tiles, spans)))
    };
    let wanted = match (kind, inputs) {
        (Kind::Store, _) => Wanted::Nothing,
        (Kind::Choose, Some((_, _, spans))) => Wanted::LastRows(spans, sequences),
        _ => Wanted::All,
    };
    let stage = DecoderStage { rows, tokens, layout, hidden: None, wanted };
    let x = decoder.record(&mut r, decoder.layers(), stage)?;
    let columns = decoder.logit_columns();
    let (mut out, mut targets) = (None, None);
    match (kind, x) {
        (Kind::Store, _) | (_, None) => {}
        (Kind::Logits, Some(x)) => {
            let (name, dtype) = ("logits", DType::F32);
            let spec =
                BufferSpec { name, dtype, rows, cols: columns, count: Count::Tokens, role: Role::Output };
            let logits = r.buffer(spec);
            decoder.record_logits(&mut r, x, logits)?;
            out = Some(logits);
        }
        (Kind::Choose, Some(x)) => {
            let logits = r.internal("logits", DType::F32, sequences, columns, Count::Sequences);
            decoder.record_logits(&mut r, x, logits)?;
            targets = Some(input(&mut r, "targets", sequences, 4, Count::Sequences));
            out = Some(sample(&mut r, decoder, caches, logits, targets)?);
        }
        (Kind::Decode, Some(x)) => {
            let logits = r.internal("logits", DType::F32, rows, columns, Count::Tokens);
            decoder.record_logits(&mut r, x, logits)?;
            out = Some(sample(&mut r, decoder, caches, logits, None)?);
        }
    }
    let plan = backend.prepare(&r.finish()?)?;
    let (tokens, tiles, spans) = inputs.map_or((None, None, None), |(a, b, c)| (Some(a), Some(b), Some(c)));
    Ok(Prepared { key, plan, tokens, tiles, spans, targets, out, used: 0 })
}

fn sample(
    r: &mut Recorder,
    decoder: &Decoder,
    caches: &Caches,
    logits: BufferId,
    targets: Option<BufferId>,
) -> Result<BufferId> {
    let spec = r.spec(logits).clone();
    let out = r.buffer(BufferSpec { name: "chosen", cols: 4, role: Role::Output, ..spec });
    let op = Sample {
        logits,
        vocab: decoder.config().vocab,
        tokens: r.state(&caches.tokens),
        targets,
        settings: r.state(&caches.settings),
        counts: r.state(&caches.counts),
        bias: Some(r.state(&caches.bias)),
        mask: Some(r.state(&caches.mask)),
        out,
    };
    r.push(Op::Sample(op))?;
    Ok(out)
}
