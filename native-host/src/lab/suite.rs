//! The engine's op suite on the chosen backends: what proves kernels on a real GPU.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use inferencelayer_engine::{
    backend::Backend,
    task::block_on,
    testing::{CaseReport, Size, cases, in_flight},
};
use serde::Serialize;

use super::report::Table;

#[derive(Debug, Clone, Args)]
pub struct SuiteArgs {
    /// small: every option in small shapes; full: every edge of a tile too
    #[arg(long, default_value = "full")]
    pub size: SizeWord,
    /// Only cases whose name contains this
    #[arg(long)]
    pub filter: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SizeWord {
    Small,
    Full,
}

/// Cases of one op.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Group {
    pub cases: usize,
    pub passed: usize,
    /// Largest difference among the passed, over what is allowed.
    pub worst: f32,
}

/// The suite's outcome on one backend.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    pub variant: String,
    pub backend: String,
    pub ops: BTreeMap<String, Group>,
    /// Name and reason of each failure.
    pub failures: Vec<(String, String)>,
}

/// Runs the cases; `progress` is told the name of each.
pub fn run(
    variant: String,
    backend: &dyn Backend,
    args: &SuiteArgs,
    progress: &mut dyn FnMut(&str),
) -> Outcome {
    let size = match args.size {
        SizeWord::Small => Size::Small,
        SizeWord::Full => Size::Full,
    };
    let wanted = |name: &str| args.filter.as_ref().is_none_or(|f| name.contains(f.as_str()));
    let mut outcome = Outcome {
        variant,
        backend: backend.capabilities().name.clone(),
        ops: BTreeMap::new(),
        failures: Vec::new(),
    };
    for case in cases(backend.capabilities(), size).into_iter().filter(|c| wanted(c.name())) {
        progress(case.name());
        let result = block_on(case.run(backend));
        outcome.add(CaseReport { name: case.name().into(), outcome: result });
    }
    let name = "runs in flight";
    if wanted(name) {
        progress(name);
        outcome.add(CaseReport { name: name.into(), outcome: block_on(in_flight(backend)) });
    }
    outcome
}

impl Outcome {
    fn add(&mut self, report: CaseReport) {
        let op = report.name.split(' ').next().unwrap_or_default().to_string();
        let group = self.ops.entry(op).or_default();
        group.cases += 1;
        match report.outcome {
            Ok(deviation) if deviation.within() => {
                group.passed += 1;
                group.worst = group.worst.max(deviation.ratio());
            }
            Ok(deviation) => self.failures.push((report.name, deviation.to_string())),
            Err(error) => self.failures.push((report.name, error.to_string())),
        }
    }

    /// Whether there were cases and all passed.
    pub fn passed(&self) -> bool {
        self.failures.is_empty() && self.ops.values().any(|g| g.cases > 0)
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("{}: {}\n", self.variant, self.backend);
        let mut table = Table::new(&["op", "cases", "passed", "worst of allowed"]);
        for (op, g) in &self.ops {
            let worst = format!("{:.3}", g.worst);
            table.push(vec![op.clone(), g.cases.to_string(), g.passed.to_string(), worst]);
        }
        text.push_str(&table.text());
        for (name, why) in &self.failures {
            text.push_str(&format!("FAILED {name}: {why}\n"));
        }
        if self.ops.is_empty() {
            text.push_str("no case matches the filter\n");
        }
        text
    }
}
