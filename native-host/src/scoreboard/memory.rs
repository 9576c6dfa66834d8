//! Memory of a process, where the system tells (Linux).

use std::fs;

/// Resident bytes now and at their peak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resident {
    pub now: u64,
    pub peak: u64,
}

/// Resident memory of a running process; `None` where the system does not say, or once it has ended.
pub fn resident(process: u32) -> Option<Resident> {
    parse(&fs::read_to_string(format!("/proc/{process}/status")).ok()?)
}

fn parse(status: &str) -> Option<Resident> {
    let bytes = |key: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(key))?;
        let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kilobytes * 1024)
    };
    Some(Resident { now: bytes("VmRSS:")?, peak: bytes("VmHWM:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_words_are_understood() {
        let status = "Name:\tx\nVmHWM:\t   2048 kB\nVmRSS:\t   1024 kB\n";
        assert_eq!(parse(status), Some(Resident { now: 1 << 20, peak: 2 << 20 }));
        assert_eq!(parse("Name:\tx\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_resident() {
        let before = resident(std::process::id()).unwrap();
        let block = std::hint::black_box(vec![1u8; 64 << 20]);
        let after = resident(std::process::id()).unwrap();
        assert!(after.peak >= before.now + (60 << 20), "{before:?} {after:?}");
        drop(block);
    }
}
