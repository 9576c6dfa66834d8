//! Sizes of the wasm modules as they are shipped, by `tests/browser/wasm-size`, which also holds their limits.

use std::process::{Command, Stdio};

use serde::Deserialize;

use super::{Options, Sink, remark};
use crate::{Error, Result, scoreboard::ledger::Better};

/// One line of the script's output; sizes in bytes.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Module {
    module: String,
    wasm_bytes: u64,
    gzip_bytes: u64,
    limit_bytes: u64,
}

pub fn run(options: &Options, sink: &mut Sink<'_>) -> Result<()> {
    let script = options.root.join("tests/browser/wasm-size");
    let mut command = Command::new(&script);
    let output =
        command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().map_err(Error::io(&script))?;
    for module in parse(&String::from_utf8_lossy(&output.stdout))? {
        let figure = (module.gzip_bytes as f64 / 1e3, "kB gzipped", Better::Lower);
        let mut entry = options.entry(
            format!("wasm size, {}", module.module),
            "web".into(),
            figure,
            options.machine(None),
        );
        let kb = |bytes: u64| bytes as f64 / 1e3;
        let words =
            format!("{:.0} kB unpacked; limit {:.0} kB", kb(module.wasm_bytes), kb(module.limit_bytes));
        remark(&mut entry, &words);
        sink(entry)?;
    }
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Input(format!("{} failed ({}); it says why above", script.display(), output.status)))
}

/// # Errors
/// `Malformed`, naming the line.
fn parse(text: &str) -> Result<Vec<Module>> {
    let line = |(at, line): (usize, &str)| {
        serde_json::from_str(line)
            .map_err(|e| Error::malformed("output of wasm-size", format!("line {}: {e}", at + 1)))
    };
    text.lines().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_modules() {
        let line = r#"{"module":"engine","wasm_bytes":9,"gzip_bytes":3,"limit_bytes":4}"#;
        let engine = Module { module: "engine".into(), wasm_bytes: 9, gzip_bytes: 3, limit_bytes: 4 };
        assert_eq!(parse(&format!("{line}\n")).unwrap(), [engine]);
        assert_eq!(parse("").unwrap(), []);
        let error = parse(&format!("{line}\nwarning: odd\n")).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
