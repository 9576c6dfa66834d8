//! Figures of peers that were measured apart: they cannot run beside ours everywhere.

use std::{fs, path::Path};

use serde::Deserialize;

use super::ledger::{Better, PeerFigure};
use crate::{Error, Result};

/// A line of tests/peers/measured.jsonl.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Adapters of this name are comparable.
    pub adapter: String,
    /// As the ledger's.
    pub bench: String,
    pub name: String,
    pub version: String,
    pub mode: String,
    pub figure: f64,
    /// Day of the measurement.
    pub date: String,
}

/// Reads figures.
///
/// # Errors
/// `Io`; `Malformed`, naming the line.
pub fn read(path: &Path) -> Result<Vec<Measured>> {
    let text = fs::read_to_string(path).map_err(Error::io(path))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| {
            let bad =
                |why: String| Error::malformed(path.display().to_string(), format!("line {}: {why}", at + 1));
            let one: Measured = serde_json::from_str(line).map_err(|e| bad(e.to_string()))?;
            if one.figure.is_finite() && one.figure > 0.0 {
                Ok(one)
            } else {
                Err(bad("the figure is not positive".into()))
            }
        })
        .collect()
}

/// The figures comparable with ours of a bench on an adapter.
pub fn beside(all: &[Measured], adapter: &str, bench: &str, ours: f64, better: Better) -> Vec<PeerFigure> {
    all.iter()
        .filter(|m| m.bench == bench && adapter.starts_with(&m.adapter))
        .map(|m| {
            let ratio = match better {
                Better::Higher => ours / m.figure,
                Better::Lower => m.figure / ours,
            };
            PeerFigure {
                name: m.name.clone(),
                version: m.version.clone(),
                mode: format!("{}, measured apart on {}", m.mode, m.date),
                figure: m.figure,
                ratio,
                best_ratio: ratio,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_project_s_figures_are_read() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/peers/measured.jsonl");
        let all = read(&path).unwrap();
        let found =
            beside(&all, "NVIDIA H200", "lfm2-1.2b-q4_0 128 tokens after 512", 2134.0, Better::Higher);
        assert!(found.iter().any(|p| p.name == "llama.cpp" && (p.ratio - 2.0).abs() < 1e-9), "{found:?}");
        assert_eq!(beside(&all, "Another", &all[0].bench, 1.0, Better::Higher), []);
    }

    #[test]
    fn bad_lines_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("measured.jsonl");
        fs::write(&path, "\n{\"adapter\":1}\n").unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
