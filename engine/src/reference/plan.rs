//! A plan of the reference backend: values of every buffer, ops run one after the other at submit.

use alloc::{collections::VecDeque, format, vec, vec::Vec};
use core::task::{Context, Poll};

use super::{Values, ops, state::ReferenceState};
use crate::{
    Error, Result,
    backend::{Plan, Ticket, check_run},
    program::{BufferId, Counts, Program},
    tensor::DType,
};

const DEPTH: usize = 4;

pub struct ReferencePlan {
    program: Program,
    floats: Vec<Values>,
    integers: Vec<Vec<u32>>,
    results: VecDeque<(Ticket, Vec<f32>)>,
    next: u64,
    others: ops::Others,
}

impl ReferencePlan {
    /// # Errors
    /// `Unsupported` for more than memory.
    pub fn new(program: Program, others: ops::Others) -> Result<Self> {
        let cells = program.buffers.iter().map(|b| b.rows.saturating_mul(b.cols));
        let bytes = cells.fold(0usize, usize::saturating_add).saturating_mul(4);
        if Vec::<u8>::new().try_reserve_exact(bytes).is_err() {
            let why = format!("{bytes} bytes for one batch are more than memory; use smaller batches");
            return Err(Error::Unsupported(why));
        }
        let size = |b: &crate::program::BufferSpec, float: bool| {
            if (b.dtype != DType::U32) == float { b.rows * b.cols } else { 0 }
        };
        let floats = program.buffers.iter().map(|b| vec![0f32; size(b, true)]).collect();
        let integers = program.buffers.iter().map(|b| vec![0u32; size(b, false)]).collect();
        Ok(ReferencePlan { program, floats, integers, results: VecDeque::new(), next: 0, others })
    }
}

impl Plan for ReferencePlan {
    fn submit(
        &mut self,
        counts: Counts,
        inputs: &[(BufferId, &[u32])],
        reads: &[(BufferId, usize)],
    ) -> Result<Ticket> {
        check_run(&self.program, &counts, inputs, reads)?;
        if self.results.len() == DEPTH {
            return Err(Error::Unsupported(format!("more than {DEPTH} unread runs of one plan")));
        }
        for (id, data) in inputs {
            let spec = self.program.spec(*id);
            if spec.dtype == DType::U32 {
                self.integers[id.index()][..data.len()].copy_from_slice(data);
            } else {
                let floats = &mut self.floats[id.index()];
                floats.iter_mut().zip(*data).for_each(|(f, bits)| *f = f32::from_bits(*bits));
            }
        }
        for (id, state) in &self.program.states {
            let i = id.index();
            ReferenceState::of(state)?.load(state.spec().dtype, &mut self.floats[i], &mut self.integers[i]);
        }
        for op in &self.program.ops {
            ops::run(op, &self.program, &counts, &mut self.floats, &mut self.integers, self.others)?;
        }
        for (id, state) in &self.program.states {
            let i = id.index();
            ReferenceState::of(state)?.store(state.spec().dtype, &self.floats[i], &self.integers[i]);
        }
        let mut values = Vec::new();
        for (id, rows) in reads {
            values.extend_from_slice(&self.floats[id.index()][..rows * self.program.spec(*id).cols]);
        }
        let ticket = Ticket(self.next);
        self.next += 1;
        self.results.push_back((ticket, values));
        Ok(ticket)
    }

    fn poll_read(&mut self, ticket: Ticket, out: &mut [f32], _: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(at) = self.results.iter().position(|(t, _)| *t == ticket) else {
            return Poll::Ready(Err(Error::Input(format!(
                "run {} was read already or never made",
                ticket.0
            ))));
        };
        let Some((_, values)) = self.results.remove(at) else { return Poll::Pending };
        if values.len() != out.len() {
            return Poll::Ready(Err(Error::Shape {
                what: "read".into(),
                expected: format!("{} values", values.len()),
                found: format!("{}", out.len()),
            }));
        }
        out.copy_from_slice(&values);
        Poll::Ready(Ok(()))
    }

    fn wait(&mut self, _: Ticket) -> Result<()> {
        Ok(())
    }

    fn depth(&self) -> usize {
        DEPTH
    }
}
