//! A choice of the suite's cases that takes little time, for programs that check an adapter before they use it.

use alloc::{format, string::String, vec::Vec};

use super::{Case, CaseReport, Size, cases, check_cases, decoder_cases};
use crate::backend::{Backend, Capabilities};

/// What the names of cases begin with, and how many of those are taken.
const CHOICE: [(&str, usize); 5] = [
    ("norm ", 1),
    ("linear 1+3x64->48", 1),
    ("linear 17+15x36->12", 1),
    ("attention ", 1),
    ("cached_attention ", 1),
];

/// A few cases of [`cases`] and [`decoder_cases`]: one of each kind of kernel that drivers get wrong
/// (subgroups, workgroup memory, half precision), and products with 4-bit blocks by every element type.
pub fn quick_cases(capabilities: &Capabilities) -> Vec<Case> {
    let mut left = CHOICE.map(|(_, count)| count);
    let mut all = cases(capabilities, Size::Small);
    all.extend(decoder_cases(capabilities, Size::Small));
    all.retain(|case| {
        if case.name.starts_with("linear ") && case.name.contains(" Q4_0 ") {
            return true;
        }
        let Some(at) = CHOICE.iter().position(|(start, _)| case.name.starts_with(start)) else {
            return false;
        };
        let wanted = left[at] > 0;
        left[at] = left[at].saturating_sub(1);
        wanted
    });
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
    let reports = check_cases(backend, quick_cases(backend.capabilities())).await;
    let mut wrong = Wrong::default();
    reports.iter().filter(|r| !r.passed()).for_each(|r| wrong.add(r));
    wrong
}
