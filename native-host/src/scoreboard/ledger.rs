//! What was measured, one JSON object a line.

use std::{collections::BTreeMap, fs, io::Write as _, path::Path};

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The machine a figure was taken on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    pub cpu: String,
    /// Threads that were used, not those there are.
    pub threads: usize,
    pub os: String,
    /// The GPU, if it was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
}

/// Whether a larger or a smaller figure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    Higher,
    Lower,
}

/// Another engine's figure from the same run, in the unit of ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerFigure {
    pub name: String,
    pub version: String,
    pub mode: String,
    pub figure: f64,
    /// How many times as good ours is, by medians.
    pub ratio: f64,
    /// The same by each side's best run, which a busy machine disturbs least.
    pub best_ratio: f64,
}

/// One figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// UTC, as in 2026-12-01T12:00:00Z.
    pub date: String,
    /// Abbreviated; `+` follows where files were changed since.
    pub commit: String,
    /// What was done, as in `minilm 32x128`.
    pub bench: String,
    /// How, as in `cpu-int8`.
    pub mode: String,
    pub figure: f64,
    pub unit: String,
    pub better: Better,
    pub machine: Machine,
    pub versions: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerFigure>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Reads entries; blank lines are skipped.
///
/// # Errors
/// `Malformed`, naming the line.
pub fn parse(name: &str, text: &str) -> Result<Vec<Entry>> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| {
            let bad = |why: String| Error::malformed(name, format!("line {}: {why}", at + 1));
            let entry: Entry = serde_json::from_str(line).map_err(|e| bad(e.to_string()))?;
            let figures = entry.peers.iter().flat_map(|p| [p.figure, p.ratio, p.best_ratio]);
            if figures.chain([entry.figure]).any(|f| !f.is_finite()) {
                return Err(bad("a figure is not a number".into()));
            }
            Ok(entry)
        })
        .collect()
}

/// Reads a ledger; one that does not exist yet is empty.
///
/// # Errors
/// `Io`, and those of [`parse`].
pub fn read(path: &Path) -> Result<Vec<Entry>> {
    match fs::read_to_string(path) {
        Ok(text) => parse(&path.display().to_string(), &text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(Error::io(path)(e)),
    }
}

/// Adds entries at the end.
///
/// # Errors
/// `Io`.
pub fn append(path: &Path, entries: &[Entry]) -> Result<()> {
    let mut text = String::new();
    for entry in entries {
        text += &serde_json::to_string(entry).map_err(|e| Error::Input(e.to_string()))?;
        text.push('\n');
    }
    let file = fs::OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut f| f.write_all(text.as_bytes())).map_err(Error::io(path))
}

#[cfg(test)]
pub(crate) fn sample(bench: &str, mode: &str, date: &str, figure: f64) -> Entry {
    Entry {
        date: date.into(),
        commit: "0123456789ab".into(),
        bench: bench.into(),
        mode: mode.into(),
        figure,
        unit: "tokens/s".into(),
        better: Better::Higher,
        machine: Machine {
            cpu: "Some CPU".into(),
            threads: 2,
            os: "linux x86_64".into(),
            adapter: None,
            driver: None,
        },
        versions: BTreeMap::from([("inferencelayer".into(), "0.1.0".into())]),
        peers: Vec::new(),
        note: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_survive_the_ledger() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.jsonl");
        assert_eq!(read(&path).unwrap(), []);
        let mut one = sample("minilm 32x128", "cpu-f32", "2026-12-01T00:00:00Z", 9000.5);
        one.peers.push(PeerFigure {
            name: "onnxruntime".into(),
            version: "1.32.0".into(),
            mode: "f32".into(),
            figure: 8700.0,
            ratio: 1.034,
            best_ratio: 1.05,
        });
        one.machine.adapter = Some("H200".into());
        one.note = Some("quiet".into());
        let two = sample("growth", "cpu-f32", "2026-12-02T00:00:00Z", 1.0);
        append(&path, std::slice::from_ref(&one)).unwrap();
        append(&path, std::slice::from_ref(&two)).unwrap();
        assert_eq!(read(&path).unwrap(), [one, two]);
    }

    #[test]
    fn bad_lines_are_named() {
        let good = serde_json::to_string(&sample("a", "b", "c", 1.0)).unwrap();
        assert_eq!(parse("x", &format!("\n{good}\n\n")).unwrap().len(), 1);
        for bad in ["{", "{}", "[1]", &good.replace("\"unit\"", "\"units\""), &good.replace("1.0", "1e999")] {
            let error = parse("x.jsonl", &format!("{good}\n{bad}\n")).unwrap_err().to_string();
            assert!(error.contains("x.jsonl") && error.contains("line 2"), "{error}");
        }
    }
}
