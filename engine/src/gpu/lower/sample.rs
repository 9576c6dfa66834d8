//! Sampling: one dispatch over chunks of the vocabulary, one that chooses.

use alloc::{format, vec, vec::Vec};

use super::{Binding, Dispatch, Lowering, MAX_GRID, define, dispatch, flag};
use crate::{Error, Result, gpu::kernel, op::Sample};

/// Invocations of a workgroup, and chunks at most.
const THREADS: u32 = 256;

pub fn sample(l: &Lowering<'_>, o: &Sample) -> Result<Vec<Dispatch>> {
    let (sequences, vocab) = (l.rows(o.logits), o.vocab as u32);
    let groups = vocab.div_ceil(4);
    let rounds = [1, 2, 4].into_iter().find(|rounds| groups <= THREADS * THREADS * rounds);
    let (Some(rounds), ..=MAX_GRID) = (rounds, sequences) else {
        let why = format!("op sample: {sequences} sequences of {vocab} tokens to choose from");
        return Err(Error::Unsupported(why));
    };
    let chunks = groups.div_ceil(THREADS * rounds);
    let known = sequences * chunks * rounds * THREADS;
    let params = [
        vocab,
        l.cols4(o.logits),
        l.cols4(o.counts),
        o.mask.map_or(0, |mask| l.program.spec(mask).cols as u32),
        chunks,
        known,
        l.count(o.logits),
        l.rows(o.settings),
    ];
    let rounds = format!("{rounds}");
    let scratch = Binding::Scratch(u64::from(known + sequences * chunks * 2) * 16);
    let buffers = [o.logits, o.targets.unwrap_or(o.tokens), o.settings, o.counts];
    let mut bindings: Vec<Binding> =
        buffers.into_iter().chain(o.bias).chain(o.mask).map(Binding::Buffer).collect();
    bindings.push(scratch.clone());
    let definitions =
        define(&[("BIAS", &flag(o.bias.is_some())), ("MASK", &flag(o.mask.is_some())), ("ROUNDS", &rounds)]);
    let grid = [chunks, sequences.max(1), 1];
    let first = dispatch(&kernel::SAMPLE_LOGITS, definitions, &params, bindings, grid);

    let buffers = [o.logits, o.settings, o.tokens].into_iter().chain(o.targets).chain([o.counts, o.out]);
    let bindings = core::iter::once(scratch).chain(buffers.map(Binding::Buffer)).collect();
    let definitions = define(&[("TARGETS", &flag(o.targets.is_some())), ("ROUNDS", &rounds)]);
    let second = dispatch(&kernel::SAMPLE_CHOOSE, definitions, &params, bindings, [sequences.max(1), 1, 1]);
    Ok(vec![first, second])
}
