//! Tables of where a run's time goes.

use std::{collections::BTreeMap, fmt::Write};

use inferencelayer_engine::backend::StepTime;

/// A line for each kernel and grid, the longest first: how often, how long each time, and the share of the whole.
pub fn table(steps: &[StepTime]) -> String {
    let mut kinds: BTreeMap<(&str, [u32; 3]), (usize, f64)> = BTreeMap::new();
    for step in steps {
        let (count, time) = kinds.entry((step.kernel, step.grid)).or_default();
        *count += 1;
        *time += step.nanoseconds;
    }
    let total: f64 = steps.iter().map(|s| s.nanoseconds).sum();
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by(|a, b| b.1.1.total_cmp(&a.1.1));
    let mut text = format!("{} steps, {:.1} us when each is measured by itself\n", steps.len(), total * 1e-3);
    for ((kernel, grid), (count, time)) in kinds {
        let _ = writeln!(
            text,
            "{:>6.1} % {count:>5} x {:>9.2} us  {kernel} {}x{}x{}",
            100.0 * time / total.max(1.0),
            time * 1e-3 / count as f64,
            grid[0],
            grid[1],
            grid[2]
        );
    }
    text
}
