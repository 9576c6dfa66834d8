//! The suite itself is tested: it passes on the reference and fails on backends that do one thing wrong.

mod decoders;

use alloc::{boxed::Box, format, string::String, vec::Vec};

use super::{
    Size, cases, check_cases, check_ops, decoder_cases, quick_cases, quick_check, require_cases, require_ops,
};
use crate::{
    Result,
    backend::{Backend, Capabilities, Plan, Ticket, WeightSink},
    op::{Activation, Op, PoolMode},
    program::{BufferId, Counts, Program},
    reference::Reference,
    tensor::{DType, Format, WeightSpec},
};
use core::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(out) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return out;
        }
    }
}

#[test]
fn reference_passes() {
    for (activations, matrices, q8_rows) in
        [(DType::F32, Format::F32, 0), (DType::F16, Format::F16, 8), (DType::F32, Format::Int8, 0)]
    {
        let backend = Reference::with_formats(activations, matrices).with_q8(q8_rows);
        let count = block_on(require_ops(&backend, Size::Small)).unwrap();
        assert_eq!(count, cases(backend.capabilities(), Size::Small).len() + 1);
        let decoders = decoder_cases(backend.capabilities(), Size::Small);
        block_on(require_cases(&backend, decoders)).unwrap();
    }
}

#[test]
fn the_quick_check_tells_blocks_of_activations_from_the_rest() {
    let good = Reference::with_formats(DType::F16, Format::F16).with_q8(8);
    let names: Vec<String> = quick_cases(good.capabilities()).iter().map(|c| c.name().into()).collect();
    for start in ["norm ", "linear 1+3x64->48", "linear 17+15x36->12", "attention ", "cached_attention "] {
        assert!(names.iter().any(|n| n.starts_with(start)), "{start}: {names:?}");
    }
    assert!(
        names.len() < 12 && names.iter().all(|n| names.iter().filter(|m| *m == n).count() == 1),
        "{names:?}"
    );
    let wrong = block_on(quick_check(&good));
    assert!(wrong.is_empty(), "{wrong:?}");
    let bad = Faulty { inner: good, offset: 1.0, ..Faulty::new(|_| {}) };
    let wrong = block_on(quick_check(&bad));
    assert_eq!(wrong.q8.len() + wrong.other.len(), names.len());
    assert!(!wrong.q8.is_empty() && wrong.q8.iter().all(|n| n.contains("Q8")), "{wrong:?}");
}

#[test]
fn names_are_unique() {
    let backend = Reference::with_formats(DType::F16, Format::F16).with_q8(8);
    let mut all = cases(backend.capabilities(), Size::Full);
    all.extend(decoder_cases(backend.capabilities(), Size::Full));
    let mut names: Vec<String> = all.iter().map(|c| c.name().into()).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}

type Fault = fn(&mut Op);

/// The reference with one fault.
struct Faulty {
    inner: Reference,
    /// Changes each op before it is prepared.
    op: Fault,
    /// Added to values read.
    offset: f32,
    /// Lets the rows of this input reach one row beyond their end.
    widen: &'static str,
    /// Loses the last row of float inputs.
    drop_rows: bool,
}

impl Faulty {
    fn new(op: Fault) -> Self {
        Faulty { inner: Reference::new(), op, offset: 0.0, widen: "", drop_rows: false }
    }
}

impl Backend for Faulty {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn weight(&self, spec: WeightSpec) -> Result<Box<dyn WeightSink>> {
        self.inner.weight(spec)
    }

    fn prepare(&self, program: &Program) -> Result<Box<dyn Plan>> {
        let mut program = program.clone();
        program.ops.iter_mut().for_each(self.op);
        let plan = self.inner.prepare(&program)?;
        let Faulty { offset, widen, drop_rows, .. } = *self;
        Ok(Box::new(FaultyPlan { plan, program, offset, widen, drop_rows }))
    }

    fn state(&self, spec: crate::tensor::StateSpec) -> Result<crate::tensor::State> {
        self.inner.state(spec)
    }

    fn write_state(&self, state: &crate::tensor::State, first_row: usize, words: &[u32]) -> Result<()> {
        self.inner.write_state(state, first_row, words)
    }

    fn copy_state(
        &self,
        state: &crate::tensor::State,
        from: core::ops::Range<usize>,
        to: usize,
    ) -> Result<()> {
        self.inner.copy_state(state, from, to)
    }

    fn read_state<'a>(
        &'a self,
        state: &'a crate::tensor::State,
        rows: core::ops::Range<usize>,
    ) -> crate::backend::StateReading<'a> {
        self.inner.read_state(state, rows)
    }

    fn memory(&self) -> u64 {
        self.inner.memory()
    }
}

struct FaultyPlan {
    plan: Box<dyn Plan>,
    program: Program,
    offset: f32,
    widen: &'static str,
    drop_rows: bool,
}

impl Plan for FaultyPlan {
    fn submit(
        &mut self,
        counts: Counts,
        inputs: &[(BufferId, &[u32])],
        reads: &[(BufferId, usize)],
    ) -> Result<Ticket> {
        let mut changed: Vec<(BufferId, Vec<u32>)> = inputs.iter().map(|(id, v)| (*id, v.to_vec())).collect();
        for (id, values) in &mut changed {
            let spec = self.program.spec(*id);
            if self.widen == spec.name {
                let rows = self.program.buffers.iter().find(|b| b.name == "staged").map_or(0, |b| b.rows);
                values
                    .chunks_mut(spec.cols)
                    .for_each(|r| r[spec.cols - 1] = (r[spec.cols - 1] + 1).min(rows as u32));
            }
            if self.drop_rows && spec.name == "values" && values.len() > spec.cols {
                let at = values.len() - spec.cols;
                values[at..].fill(0);
            }
        }
        let inputs: Vec<(BufferId, &[u32])> = changed.iter().map(|(id, v)| (*id, v.as_slice())).collect();
        self.plan.submit(counts, &inputs, reads)
    }

    fn poll_read(&mut self, ticket: Ticket, out: &mut [f32], cx: &mut Context<'_>) -> Poll<Result<()>> {
        let done = self.plan.poll_read(ticket, out, cx);
        out.iter_mut().for_each(|v| *v += self.offset);
        done
    }

    fn wait(&mut self, ticket: Ticket) -> Result<()> {
        self.plan.wait(ticket)
    }

    fn depth(&self) -> usize {
        self.plan.depth()
    }
}

/// The names of failed cases of encoders' and decoders' ops.
fn failures(backend: &Faulty) -> Vec<String> {
    let mut reports = block_on(check_ops(backend, Size::Small));
    reports.extend(block_on(check_cases(backend, decoder_cases(backend.capabilities(), Size::Small))));
    reports.into_iter().filter(|r| !r.passed()).map(|r| r.name).collect()
}

/// A case of this op fails.
#[track_caller]
fn caught(backend: &Faulty, op: &str) {
    let mut all = cases(backend.capabilities(), Size::Small);
    all.extend(decoder_cases(backend.capabilities(), Size::Small));
    all.retain(|case| case.name().starts_with(&format!("{op} ")));
    assert!(!all.is_empty(), "no case of {op}");
    let passed = block_on(check_cases(backend, all)).iter().all(super::CaseReport::passed);
    assert!(!passed, "no case of {op} failed");
}

#[test]
fn an_honest_wrapper_passes() {
    assert_eq!(failures(&Faulty::new(|_| {})), Vec::<String>::new());
}

#[test]
fn every_option_matters() {
    let faults: [(&str, Fault); 25] = [
        ("embed", |op| {
            if let Op::Embed(o) = op
                && o.tables.len() > 1
            {
                o.tables.pop();
            }
        }),
        ("embed", |op| {
            if let Op::Embed(o) = op {
                o.norm = None;
            }
        }),
        ("norm", |op| {
            if let Op::Norm(o) = op {
                o.params.eps = 1e-3;
            }
        }),
        ("norm", |op| {
            if let Op::Norm(o) = op {
                o.params.kind = crate::op::NormKind::Layer;
            }
        }),
        ("norm", |op| {
            if let Op::Norm(o) = op {
                o.params.kind = crate::op::NormKind::Rms;
            }
        }),
        ("normalize", |op| {
            if let Op::Normalize(o) = op {
                o.unit = false;
            }
        }),
        ("linear", |op| {
            if let Op::Linear(o) = op {
                o.bias = None;
            }
        }),
        ("linear", |op| {
            if let Op::Linear(o) = op {
                o.residual = None;
            }
        }),
        ("linear", |op| {
            if let Op::Linear(o) = op
                && o.activation == Activation::Gelu
            {
                o.activation = Activation::GeluTanh;
            }
        }),
        ("linear", |op| {
            if let Op::Linear(o) = op
                && o.activation == Activation::Relu
            {
                o.activation = Activation::Silu;
            }
        }),
        ("linear", |op| {
            if let Op::Linear(o) = op
                && o.activation == Activation::Tanh
            {
                o.activation = Activation::Sigmoid;
            }
        }),
        ("gated_linear", |op| {
            if let Op::GatedLinear(o) = op {
                o.bias = None;
            }
        }),
        ("gated_linear", |op| {
            if let Op::GatedLinear(o) = op {
                o.activation = Activation::None;
            }
        }),
        ("rope", |op| {
            if let Op::Rope(o) = op {
                o.heads -= 1;
            }
        }),
        ("rope", |op| {
            if let Op::Rope(o) = op {
                o.q_norm = None;
            }
        }),
        ("rope", |op| {
            if let Op::Rope(o) = op {
                core::mem::swap(&mut o.q_norm, &mut o.k_norm);
            }
        }),
        ("attention", |op| {
            if let Op::Attention(o) = op {
                o.causal = false;
            }
        }),
        ("attention", |op| {
            if let Op::Attention(o) = op {
                o.window = o.window.map(|w| w + 1);
            }
        }),
        ("attention", |op| {
            if let Op::Attention(o) = op {
                o.bias = None;
            }
        }),
        ("attention", |op| {
            if let Op::Attention(o) = op {
                o.scale *= 1.001;
            }
        }),
        ("pool", |op| {
            if let Op::Pool(o) = op {
                o.modes.reverse();
            }
        }),
        ("pool", |op| replace_mode(op, PoolMode::Cls, PoolMode::LastToken)),
        ("pool", |op| replace_mode(op, PoolMode::Mean, PoolMode::WeightedMean)),
        ("pool", |op| replace_mode(op, PoolMode::MeanSqrtLen, PoolMode::Mean)),
        ("pool", |op| replace_mode(op, PoolMode::Max, PoolMode::Mean)),
    ];
    for (op, fault) in faults {
        caught(&Faulty::new(fault), op);
    }
}

fn replace_mode(op: &mut Op, from: PoolMode, to: PoolMode) {
    if let Op::Pool(o) = op {
        o.modes.iter_mut().filter(|m| **m == from).for_each(|m| *m = to);
    }
}

#[test]
fn small_errors_and_leaks_are_caught() {
    let mut backend = Faulty::new(|_| {});
    backend.offset = 1e-3;
    let all = cases(backend.capabilities(), Size::Small).len();
    let failed = check_ops(&backend, Size::Small);
    assert!(
        block_on(failed).iter().filter(|r| !r.passed()).count() > all * 9 / 10,
        "an offset of 1e-3 passes too often"
    );

    // The row beyond the last one holds garbage of an earlier run.
    for (input, op) in [("tiles", "attention"), ("ranges", "pool")] {
        let mut backend = Faulty::new(|_| {});
        backend.widen = input;
        caught(&backend, op);
    }

    let mut backend = Faulty::new(|_| {});
    backend.drop_rows = true;
    let failed = failures(&backend);
    for name in ["norm", "runs in flight"] {
        assert!(failed.iter().any(|f| f.starts_with(name)), "no case of {name} failed, only {failed:?}");
    }
}

#[test]
fn a_failure_names_case_and_value() {
    let mut backend = Faulty::new(|_| {});
    backend.offset = f32::NAN;
    let error = format!("{}", block_on(require_ops(&backend, Size::Small)).unwrap_err());
    assert!(error.contains("norm Layer") && error.contains("NaN at row 0, column 0"), "{error}");
}

/// Every case that software adapters skip, on the reference: slow there.
#[test]
#[ignore = "takes half a minute"]
fn reference_passes_in_full() {
    let backend = Reference::with_formats(DType::F16, Format::F16);
    block_on(require_ops(&backend, Size::Full)).unwrap();
    block_on(require_cases(&backend, decoder_cases(backend.capabilities(), Size::Full))).unwrap();
}
