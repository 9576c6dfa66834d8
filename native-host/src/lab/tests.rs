//! A wrong backend is found out and not timed.

use std::ops::Range;

use clap::Parser as _;
use inferencelayer_engine::{
    backend::{Backend, Capabilities, Plan, StateReading, WeightSink},
    op::Op,
    program::Program,
    reference::Reference,
    tensor::{State, StateSpec, WeightSpec},
};

use super::{
    run::{Cli, Command, report},
    variant::Opened,
};

/// The reference, which forgets biases.
struct Forgetful(Reference);

impl Backend for Forgetful {
    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    fn weight(&self, spec: WeightSpec) -> inferencelayer_engine::Result<Box<dyn WeightSink>> {
        self.0.weight(spec)
    }

    fn prepare(&self, program: &Program) -> inferencelayer_engine::Result<Box<dyn Plan>> {
        let mut program = program.clone();
        for op in &mut program.ops {
            if let Op::Linear(linear) = op {
                linear.bias = None;
            }
        }
        self.0.prepare(&program)
    }

    fn state(&self, spec: StateSpec) -> inferencelayer_engine::Result<State> {
        self.0.state(spec)
    }

    fn write_state(&self, state: &State, first: usize, words: &[u32]) -> inferencelayer_engine::Result<()> {
        self.0.write_state(state, first, words)
    }

    fn copy_state(&self, state: &State, from: Range<usize>, to: usize) -> inferencelayer_engine::Result<()> {
        self.0.copy_state(state, from, to)
    }

    fn read_state<'a>(&'a self, state: &'a State, rows: Range<usize>) -> StateReading<'a> {
        self.0.read_state(state, rows)
    }

    fn memory(&self) -> u64 {
        self.0.memory()
    }
}

fn run(args: &str, backend: impl Backend + 'static) -> super::report::Report {
    let fixed = "--rounds 3 --seconds 0.01 --bandwidth 10 --flops 1";
    let words = format!("kernel-lab {args} {fixed}");
    let cli = Cli::try_parse_from(words.split_whitespace()).unwrap();
    let Command::Op(problem) = cli.command else { panic!("{args} is no op") };
    let variant = "reference".parse().unwrap();
    report(&problem, &cli.options, &[(variant, Opened::Other(std::sync::Arc::new(backend)))]).unwrap()
}

#[test]
fn a_wrong_result_is_not_timed() {
    let args = "linear --rows 5 --in 8 --out 8 --bias";
    let wrong = run(args, Forgetful(Reference::new()));
    assert!(!wrong.all_right());
    assert!(wrong.lines[0].times.is_none() && wrong.text().contains("WRONG"), "{}", wrong.text());
    // The same backend is right where there is nothing to forget, and the reference always.
    assert!(run("linear --rows 5 --in 8 --out 8", Forgetful(Reference::new())).all_right());
    let right = run(args, Reference::new());
    assert!(right.all_right() && right.lines[0].times.is_some(), "{}", right.text());
}

#[test]
fn cold_copies_take_turns() {
    // 4 MB of weights: 64 copies are the most.
    let report = run("norm --rows 3 --cols 8 --cold", Reference::new());
    assert_eq!(report.copies, 64);
    assert!(report.lines[0].times.is_some_and(|t| t.repeats.is_multiple_of(64)));
}
