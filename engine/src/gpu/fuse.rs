//! Fusion: which ops of a program share a dispatch. At batch 1 a decoder is bound by the number of its dispatches, so
//! what is cheap to compute again is computed where it is needed.

use alloc::vec::Vec;

use super::lower::Lowering;
use crate::{
    op::{Norm, Op, Route, ShortConv, StoreKv},
    program::{BufferId, Program, Role},
};

/// An op that gets dispatches, with what its dispatches do besides.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    pub op: &'a Op,
    /// Makes the op's input.
    pub norm: Option<&'a Norm>,
    /// Comes before attention.
    pub store: Option<&'a StoreKv>,
    /// Takes the op's outputs.
    pub conv: Option<&'a ShortConv>,
    /// Chooses the op's experts, by the logits that its own call leaves in scratch memory.
    pub route: Option<&'a Route>,
    /// The op is such a `route`.
    pub logits_only: bool,
}

impl<'a> Call<'a> {
    fn alone(op: &'a Op) -> Self {
        Call { op, norm: None, store: None, conv: None, route: None, logits_only: false }
    }

    /// Buffers that are read and written: not those that only live inside.
    pub fn operands(&self) -> (Vec<BufferId>, Vec<BufferId>) {
        let (mut reads, mut writes) = self.op.operands();
        if let Some(norm) = self.norm {
            reads.retain(|id| *id != norm.out);
            reads.push(norm.x);
        }
        if let Some(store) = self.store {
            writes.push(store.cache);
        }
        if let Some(conv) = self.conv {
            let (conv_reads, conv_writes) = Op::ShortConv(conv.clone()).operands();
            reads.extend(conv_reads.into_iter().filter(|id| *id != conv.bcx));
            writes = conv_writes;
        }
        if let Some(route) = self.route {
            reads.retain(|id| *id != route.out);
            writes.push(route.out);
        }
        if self.logits_only {
            writes.clear();
        }
        (reads, writes)
    }
}

/// A call for each op.
pub fn apart(program: &Program) -> Vec<Call<'_>> {
    program.ops.iter().map(Call::alone).collect()
}

/// The fewest calls that compute the same.
pub fn fused<'a>(lowering: &Lowering<'a>) -> Vec<Call<'a>> {
    let program = lowering.program;
    let mut calls: Vec<Option<Call<'a>>> = apart(program).into_iter().map(Some).collect();
    for (at, op) in program.ops.iter().enumerate() {
        match op {
            Op::StoreKv(store) => fuse_store(lowering, &mut calls, at, store),
            Op::ShortConv(conv) => fuse_conv(lowering, &mut calls, at, conv),
            Op::Route(route) => fuse_route(lowering, &mut calls, at, route),
            _ => {}
        }
    }
    // What a call can do before depends on what it does after.
    for (at, op) in program.ops.iter().enumerate() {
        if let Op::Norm(norm) = op {
            fuse_norm(lowering, &mut calls, at, norm);
        }
    }
    calls.into_iter().flatten().collect()
}

/// Gives a norm to the ops that read its result, if all of them take it.
fn fuse_norm<'a>(lowering: &Lowering<'a>, calls: &mut [Option<Call<'a>>], at: usize, norm: &'a Norm) {
    let program = lowering.program;
    let Some(users) = users(program, at, norm.out) else { return };
    let takes = |user: &usize| {
        calls[*user].is_some_and(|call| lowering.takes_norm(&call, norm))
            && unchanged(program, norm.x, at + 1..=*user)
    };
    if users.is_empty() || norm.x == norm.out || !users.iter().all(takes) {
        return;
    }
    for user in users {
        if let Some(call) = &mut calls[user] {
            call.norm = Some(norm);
        }
    }
    calls[at] = None;
}

/// Gives a convolution to the product before it, if nobody else reads that.
fn fuse_conv<'a>(lowering: &Lowering<'a>, calls: &mut [Option<Call<'a>>], at: usize, conv: &'a ShortConv) {
    let program = lowering.program;
    let Some(before) = at.checked_sub(1) else { return };
    let alone = users(program, before, conv.bcx).is_some_and(|users| users == [at]);
    if let (true, Some(call)) = (alone, &mut calls[before])
        && lowering.takes_conv(call, conv)
    {
        call.conv = Some(conv);
        calls[at] = None;
    }
}

/// Gives the choice of experts to the first op that uses them. Nothing between uses scratch memory.
fn fuse_route<'a>(lowering: &Lowering<'a>, calls: &mut [Option<Call<'a>>], at: usize, route: &'a Route) {
    let program = lowering.program;
    let Some(first) = users(program, at, route.out).and_then(|users| users.first().copied()) else { return };
    let only_norms = program.ops[at + 1..first].iter().all(|op| matches!(op, Op::Norm(_)));
    let (before, after) = calls.split_at_mut(first);
    if let (true, Some(router), Some(experts)) = (only_norms, &mut before[at], &mut after[0])
        && lowering.takes_route(experts, (router, route))
    {
        experts.route = Some(route);
        router.logits_only = true;
    }
}

/// Gives what stores keys and values to the attention behind it, if nobody else sees the rotated rows.
fn fuse_store<'a>(lowering: &Lowering<'a>, calls: &mut [Option<Call<'a>>], at: usize, store: &'a StoreKv) {
    let program = lowering.program;
    let next = program.ops.get(at + 1).filter(|next| lowering.takes_store(next, store));
    let seen = program.spec(store.qkv).role != Role::Internal
        || program.ops.iter().skip(at + 2).any(|op| op.operands().0.contains(&store.qkv));
    if let (Some(_), false, Some(Some(call))) = (next, seen, calls.get_mut(at + 1)) {
        call.store = Some(store);
        calls[at] = None;
    }
}

/// The ops that read what op `at` leaves in `buffer`; `None` if others write there too, or it outlives the run.
fn users(program: &Program, at: usize, buffer: BufferId) -> Option<Vec<usize>> {
    let mut users = Vec::new();
    for (i, op) in program.ops.iter().enumerate() {
        let (reads, writes) = op.operands();
        if i != at && writes.contains(&buffer) {
            return None;
        }
        if reads.contains(&buffer) {
            users.push(i);
        }
    }
    (program.spec(buffer).role == Role::Internal && users.iter().all(|user| *user > at)).then_some(users)
}

/// Whether none of these ops writes `buffer`.
fn unchanged(program: &Program, buffer: BufferId, mut ops: core::ops::RangeInclusive<usize>) -> bool {
    ops.all(|i| !program.ops[i].operands().1.contains(&buffer))
}
