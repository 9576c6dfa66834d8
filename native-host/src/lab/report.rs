//! What the lab prints: a table for people, JSON for programs.

use std::fmt::Write;

use inferencelayer_engine::testing::Deviation;
use serde::Serialize;

use super::{
    costs::Costs,
    probe::{Best, Bound},
    timing::Times,
};

/// The outcome for one variant.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    pub variant: String,
    /// Backend, adapter, driver.
    pub backend: String,
    /// Kernels and their grids, where the backend has such.
    pub kernels: Vec<String>,
    pub check: Checked,
    pub costs: Costs,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<Best>,
    /// Absent if it was wrong, or too slow to be timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<Times>,
    /// Why it was not timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub untimed: Option<String>,
}

/// The worst value that the check found.
#[derive(Debug, Clone, Serialize)]
pub struct Checked {
    pub right: bool,
    /// Worst difference over what is allowed; absent if values were not finite or the backend failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<f32>,
    /// The worst value, or the error.
    pub detail: String,
}

impl Checked {
    pub fn new(outcome: Result<Deviation, String>) -> Checked {
        match outcome {
            Ok(d) => Checked { right: d.within(), worst: Some(d.ratio()), detail: d.to_string() },
            Err(error) => Checked { right: false, worst: None, detail: error },
        }
    }
}

/// Everything about one problem.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub problem: String,
    /// Rows compared, of how many.
    pub checked_rows: [usize; 2],
    /// Copies of the weights that repetitions took turns with.
    pub copies: usize,
    pub lines: Vec<Line>,
}

impl Report {
    /// Whether every variant was right.
    pub fn all_right(&self) -> bool {
        self.lines.iter().all(|l| l.check.right)
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.problem);
        let [compared, rows] = self.checked_rows;
        let sample = if compared < rows { " (a sample: the reference is slow)" } else { "" };
        let _ = writeln!(text, "checked {compared} of {rows} rows against the reference{sample}");
        if self.copies > 1 {
            let _ = writeln!(text, "{} copies of the weights take turns", self.copies);
        }
        let mut table = Table::new(&[
            "variant", "check", "median", "best", "q1..q3", "clock", "GB/s", "GFLOP/s", "floor", "x floor",
        ]);
        for line in &self.lines {
            table.push(cells(line));
        }
        text.push_str(&table.text());
        for line in &self.lines {
            let _ = writeln!(text, "{}: {}", line.variant, line.backend);
            if !line.kernels.is_empty() {
                let _ = writeln!(text, "  kernels: {}", line.kernels.join(", "));
            }
            let _ = writeln!(text, "  worst value: {}", line.check.detail);
            let _ = writeln!(text, "  moves {}, {}", bytes(line.costs.bytes), flops(line.costs.flops));
            if let Some(best) = line.best {
                let rate = best.flops_per_second.map_or("unknown".into(), |r| format!("{:.1}", r / 1e9));
                let _ = writeln!(
                    text,
                    "  the machine at best: {:.1} GB/s, {rate} GFLOP/s",
                    best.bytes_per_second / 1e9
                );
            }
            if let Some(why) = &line.untimed {
                let _ = writeln!(text, "  not timed: {why}");
            }
        }
        text
    }
}

fn cells(line: &Line) -> Vec<String> {
    let verdict = match (line.check.right, line.check.worst) {
        (true, Some(worst)) => format!("ok {worst:.2}"),
        (_, Some(worst)) => format!("WRONG {worst:.1}"),
        (_, None) => "FAILED".into(),
    };
    let mut cells = vec![line.variant.clone(), verdict];
    let Some(times) = line.times else {
        cells.resize(10, "-".into());
        return cells;
    };
    let clock = match times.clock {
        super::timing::Clock::Gpu => "gpu",
        super::timing::Clock::Wall => "wall",
    };
    let (e, c) = (times.each, line.costs);
    cells.extend([
        duration(e.median),
        duration(times.best),
        format!("{}..{}", duration(e.q1), duration(e.q3)),
        clock.into(),
        format!("{:.1}", c.bytes as f64 / e.median / 1e9),
        if c.flops == 0 { "-".into() } else { format!("{:.1}", c.flops as f64 / e.median / 1e9) },
    ]);
    match line.best.map(|b| b.floor(c)) {
        Some((floor, bound)) => {
            let bound = if bound == Bound::Memory { "mem" } else { "flop" };
            cells.push(format!("{} {bound}", duration(floor)));
            cells.push(format!("{:.2}", e.median / floor));
        }
        None => cells.extend(["-".into(), "-".into()]),
    }
    cells
}

/// Seconds with a unit.
pub fn duration(seconds: f64) -> String {
    match seconds.abs() {
        s if s < 1e-6 => format!("{:.1} ns", seconds * 1e9),
        s if s < 1e-3 => format!("{:.2} us", seconds * 1e6),
        s if s < 1.0 => format!("{:.3} ms", seconds * 1e3),
        _ => format!("{seconds:.3} s"),
    }
}

fn bytes(n: u64) -> String {
    format!("{:.3} MB", n as f64 / 1e6)
}

fn flops(n: u64) -> String {
    if n == 0 { "no products".into() } else { format!("{:.3} GFLOP", n as f64 / 1e9) }
}

/// Columns as wide as their widest cell; the first is aligned left, the others right.
pub struct Table(Vec<Vec<String>>);

impl Table {
    pub fn new(head: &[&str]) -> Table {
        Table(vec![head.iter().map(|s| s.to_string()).collect()])
    }

    pub fn push(&mut self, row: Vec<String>) {
        self.0.push(row);
    }

    pub fn text(&self) -> String {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let width = |c: usize| self.0.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|c| width(c).unwrap_or(0)).collect();
        let mut text = String::new();
        for row in &self.0 {
            let cells = row.iter().zip(&widths).enumerate().map(|(i, (cell, &w))| match i {
                0 => format!("{cell:<w$}"),
                _ => format!("{cell:>w$}"),
            });
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["a", "long"]);
        table.push(vec!["word".into(), "1".into()]);
        assert_eq!(table.text(), "a     long\nword     1\n");
    }

    #[test]
    fn durations_choose_their_unit() {
        assert_eq!(duration(2.5e-9), "2.5 ns");
        assert_eq!(duration(1.234e-5), "12.34 us");
        assert_eq!(duration(0.0421), "42.100 ms");
        assert_eq!(duration(3.0), "3.000 s");
    }
}
