//! The ledger as one Markdown table.

use std::{collections::BTreeMap, fmt::Write};

use super::ledger::{Better, Entry};

/// Earlier figures shown for each row, at most.
const HISTORY: usize = 4;

/// What makes two entries figures of the same thing.
type Key = (String, String, String, usize);

fn key(e: &Entry) -> Key {
    let machine = e.machine.adapter.clone().unwrap_or_else(|| e.machine.cpu.clone());
    (e.bench.clone(), machine, e.mode.clone(), e.machine.threads)
}

/// Renders entries, which stand in the order they were made: the newest figure of each bench, mode and machine,
/// then earlier ones.
pub fn markdown(entries: &[Entry]) -> String {
    let mut series: BTreeMap<Key, Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        series.entry(key(entry)).or_default().push(entry);
    }
    let mut text = String::from(
        "# Scoreboard\n\nMade by `scoreboard render` from [scoreboard.jsonl](scoreboard.jsonl); do not edit. \
         `scoreboard list` says\nwhat each bench does. Ratios say how many times as good our figure is as a \
         peer's from the same run: by medians,\nand by each side's best run in parentheses.\n\n",
    );
    text.push_str(
        "| bench | mode | figure | peers | machine | commit | date | note |\n\
         |---|---|---:|---|---|---|---|---|\n",
    );
    for all in series.values() {
        if let Some(e) = all.last() {
            row(&mut text, e);
        }
    }
    let earlier = series.values().filter(|all| all.len() > 1);
    let mut history = String::new();
    for all in earlier {
        let (last, before) = (all[all.len() - 1], &all[..all.len() - 1]);
        let shown = before.iter().rev().take(HISTORY);
        let words: Vec<String> =
            shown.map(|e| format!("{} ({}, {})", figure(e.figure), day(e), cell(&e.commit))).collect();
        let _ = writeln!(history, "| {} | {} | {} |", cell(&last.bench), cell(&last.mode), words.join(", "));
    }
    if !history.is_empty() {
        text.push_str("\n## Earlier\n\n| bench | mode | newest first |\n|---|---|---|\n");
        text.push_str(&history);
    }
    text
}

fn row(text: &mut String, e: &Entry) {
    let peers: Vec<String> = e
        .peers
        .iter()
        .map(|p| {
            let (name, value) = (format!("{} {} {}", p.name, p.version, p.mode), figure(p.figure));
            format!("{}: {value}, **{:.2}×** ({:.2}×)", cell(&name), p.ratio, p.best_ratio)
        })
        .collect();
    let machine = match (&e.machine.adapter, &e.machine.driver) {
        (Some(adapter), Some(driver)) => format!("{adapter}, {driver}"),
        (Some(adapter), None) => adapter.clone(),
        _ => format!("{}, {} threads", e.machine.cpu, e.machine.threads),
    };
    let arrow = if e.better == Better::Higher { "↑" } else { "↓" };
    let _ = writeln!(
        text,
        "| {} | {} | {} {} {arrow} | {} | {} | {} | {} | {} |",
        cell(&e.bench),
        cell(&e.mode),
        figure(e.figure),
        cell(&e.unit),
        peers.join("<br>"),
        cell(&machine),
        cell(&e.commit),
        day(e),
        cell(e.note.as_deref().unwrap_or_default()),
    );
}

fn day(e: &Entry) -> String {
    cell(e.date.split('T').next().unwrap_or_default())
}

/// Four significant digits, or whole where larger.
fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{:.3}M", value / 1e6),
        v if v >= 1e4 => format!("{:.1}k", value / 1e3),
        v if v >= 1e3 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// Text that cannot break the table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scoreboard::ledger::{PeerFigure, sample};

    #[test]
    fn the_newest_figure_of_each_series_stands_in_the_table() {
        let mut newest = sample("minilm 32x128", "cpu-f32", "2026-12-03T00:00:00Z", 9300.0);
        newest.peers.push(PeerFigure {
            name: "onnxruntime".into(),
            version: "1.32.0".into(),
            mode: "f32".into(),
            figure: 8700.0,
            ratio: 1.069,
            best_ratio: 1.1,
        });
        newest.note = Some("a|b\nc".into());
        let mut gpu = sample("minilm 32x128", "gpu-f16", "2026-12-01T00:00:00Z", 4_100_000.0);
        gpu.machine.adapter = Some("NVIDIA H200".into());
        let entries = [sample("minilm 32x128", "cpu-f32", "2026-12-01T00:00:00Z", 9000.0), gpu, newest];
        let text = markdown(&entries);
        assert!(
            text.contains(
                "| minilm 32x128 | cpu-f32 | 9300 tokens/s ↑ | onnxruntime 1.32.0 f32: 8700, **1.07×** (1.10×) \
                 | Some CPU, 2 threads | 0123456789ab | 2026-12-03 | a\\|b c |"
            ),
            "{text}"
        );
        assert!(text.contains("| gpu-f16 | 4.100M tokens/s ↑ |  | NVIDIA H200 |"), "{text}");
        assert!(text.contains("| minilm 32x128 | cpu-f32 | 9000 (2026-12-01, 0123456789ab) |"), "{text}");
        assert_eq!(text.matches("Earlier").count(), 1);
        assert!(!markdown(&entries[..2]).contains("Earlier"));
    }

    #[test]
    fn figures_keep_their_digits() {
        for (value, text) in
            [(0.37891, "0.3789"), (3.25678, "3.26"), (271.83, "271.8"), (8712.4, "8712"), (98765.0, "98.8k")]
        {
            assert_eq!(figure(value), text);
        }
    }
}
