//! A choice of the suite's cases that takes little time, for programs that check an adapter before they use it.

use alloc::{format, string::String, vec::Vec};

use super::{Case, CaseReport, Suite, attention, blocks, cached, linear, rows, run};
use crate::{
    backend::{Backend, Capabilities},
    reference::Reference,
};

/// A few cases of [`cases`](super::cases) and [`decoder_cases`](super::decoder_cases): one of each kind of kernel that
/// drivers get wrong (subgroups, workgroup memory, half precision), and products with 4-bit blocks by every element type.
/// Made by themselves, so that a program that only checks its adapter does not hold the whole suite.
pub fn quick_cases(capabilities: &Capabilities) -> Vec<Case> {
    let mut all = Vec::new();
    let suite = &Suite { capabilities, full: false };
    rows::quick_norm(suite, &mut all);
    linear::quick(suite, &mut all);
    blocks::quick(suite, &mut all);
    attention::quick(suite, &mut all);
    cached::quick(suite, &mut all);
    all
}

/// What a backend computed wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wrong {
    /// Cases with activations in 8-bit blocks.
    pub q8: Vec<String>,
    /// All others.
    pub other: Vec<String>,
}

impl Wrong {
    fn add(&mut self, report: &CaseReport) {
        let text = match &report.outcome {
            Ok(deviation) => format!("{}: {deviation}", report.name),
            Err(error) => format!("{}: {error}", report.name),
        };
        let blocks = report.name.contains("Q8->") || report.name.contains("->Q8");
        let list = if blocks { &mut self.q8 } else { &mut self.other };
        list.push(text);
    }

    pub fn is_empty(&self) -> bool {
        self.q8.is_empty() && self.other.is_empty()
    }
}

/// Runs [`quick_cases`].
pub async fn quick_check(backend: &dyn Backend) -> Wrong {
    let reference = Reference::for_quick_check();
    let mut wrong = Wrong::default();
    for case in quick_cases(backend.capabilities()) {
        let outcome = run::run(&case, backend, &reference).await;
        let report = CaseReport { name: case.name, outcome };
        if !report.passed() {
            wrong.add(&report);
        }
    }
    wrong
}
