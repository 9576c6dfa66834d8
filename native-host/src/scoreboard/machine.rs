//! Where and when: the machine, the commit, the date.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use super::ledger::Machine;

/// This machine, as far as a run on it with so many threads is concerned.
pub fn this(threads: usize, gpu: Option<(String, String)>) -> Machine {
    let (adapter, driver) = gpu.unzip();
    let os = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
    Machine { cpu: cpu(), threads, os, adapter, driver }
}

/// The processor's name, with its model number where the name says little.
fn cpu() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    cpu_of(&info).or_else(sysctl).unwrap_or_else(|| std::env::consts::ARCH.into())
}

fn cpu_of(info: &str) -> Option<String> {
    let value = |key: &str| {
        let line = info.lines().find(|l| l.split(':').next().is_some_and(|k| k.trim() == key))?;
        Some(line.split_once(':')?.1.trim().to_string())
    };
    let name = value("model name")?;
    Some(match (value("cpu family"), value("model")) {
        (Some(family), Some(model)) => format!("{name} (family {family}, model {model})"),
        _ => name,
    })
}

fn sysctl() -> Option<String> {
    let output = Command::new("sysctl").args(["-n", "machdep.cpu.brand_string"]).output().ok()?;
    let name = String::from_utf8(output.stdout).ok()?.trim().to_string();
    (!name.is_empty()).then_some(name)
}

/// The commit that `folder` is at, with `+` if files other than the ledger's differ; `unknown` outside a
/// repository.
pub fn commit(folder: &Path) -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").arg("-C").arg(folder).args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
    };
    let Some(hash) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".into() };
    let args = ["status", "--porcelain", "--", ".", ":!docs/scoreboard.jsonl", ":!docs/SCOREBOARD.md"];
    match git(&args) {
        Some(changes) if changes.is_empty() => hash,
        _ => hash + "+",
    }
}

/// Versions of what we are made of.
pub fn versions() -> BTreeMap<String, String> {
    let ours = [("inferencelayer", env!("CARGO_PKG_VERSION")), ("rust", env!("CARGO_PKG_RUST_VERSION"))];
    ours.map(|(name, version)| (name.to_string(), version.to_string())).into()
}

/// Now, UTC.
pub fn date() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let time =
        time::OffsetDateTime::from_unix_timestamp(now as i64).unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    let (d, t) = (time.date(), time.time());
    let (year, month, day) = (d.year(), u8::from(d.month()), d.day());
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", t.hour(), t.minute(), t.second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_named() {
        let info =
            "processor\t: 0\ncpu family\t: 6\nmodel\t\t: 207\nmodel name\t: Some CPU\n\nprocessor\t: 1\n";
        assert_eq!(cpu_of(info).unwrap(), "Some CPU (family 6, model 207)");
        assert_eq!(cpu_of("model name : ARM\n").unwrap(), "ARM");
        assert_eq!(cpu_of("processor : 0\n"), None);
        assert!(!cpu().is_empty());
    }

    #[test]
    fn dates_are_sortable() {
        let date = date();
        assert_eq!(date.len(), 20);
        assert!(date.as_str() > "2026-01-01T00:00:00Z" && date.ends_with('Z'), "{date}");
    }
}
