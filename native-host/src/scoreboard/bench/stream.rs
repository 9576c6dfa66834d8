//! `lfm2-embed` over many short texts: its memory may not grow with them.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, BufWriter, Write as _},
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{Options, Sink, random_model, remark, sibling};
use crate::{
    Error, Result,
    scoreboard::{ledger::Better, memory, model::TINY},
};

/// Part of the texts after which memory may no longer grow.
const WARM_UP: f64 = 0.1;
const EVERY: Duration = Duration::from_millis(20);

pub fn run(options: &Options, sink: &mut Sink<'_>) -> Result<()> {
    let program = sibling("lfm2-embed")?;
    for shape in options.models(&[TINY]) {
        let folder = random_model(&shape)?;
        let input = folder.path().join("texts.txt");
        write_texts(&input, options.texts)?;
        let start = Instant::now();
        let Streamed { lines, samples } = stream(options, &program, folder.path(), &input)?;
        let seconds = start.elapsed().as_secs_f64();
        if lines != options.texts {
            return Err(Error::Input(format!("lfm2-embed gave {lines} lines for {} texts", options.texts)));
        }
        let Some((grown, peak)) = growth(&samples, options.texts) else {
            eprintln!("stream: the system does not tell a process's memory, or the run was too short");
            continue;
        };
        let figure = (grown as f64 / 1e6, "MB grown", Better::Lower);
        let bench = format!("{} stream of {} texts", shape.name, options.texts);
        let mut entry = options.entry(bench, "cpu-f32".into(), figure, options.machine(None));
        let words = format!(
            "after a tenth of the texts; peak {:.0} MB, {:.0} texts/s",
            peak as f64 / 1e6,
            options.texts as f64 / seconds
        );
        remark(&mut entry, &words);
        sink(entry)?;
    }
    Ok(())
}

/// Lines of 4 to 12 words.
fn write_texts(path: &Path, count: usize) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let mut out = BufWriter::new(File::create(path)?);
        for text in 0..count {
            let words: Vec<String> =
                (0..4 + text % 9).map(|w| format!("w{}", (text * 31 + w * 7919) % 30_000)).collect();
            writeln!(out, "{}", words.join(" "))?;
        }
        out.flush()
    };
    write().map_err(Error::io(path))
}

struct Streamed {
    lines: usize,
    /// Lines that were out, and resident bytes then.
    samples: Vec<(usize, u64)>,
}

fn stream(options: &Options, program: &Path, model: &Path, input: &Path) -> Result<Streamed> {
    let mut command = Command::new(program);
    command.arg("--model").arg(model).arg("--input").arg(input).args(["--device", "cpu"]);
    command.arg("--threads").arg(options.threads.to_string());
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.map_err(Error::io(program))?;
    let lines = Arc::new(AtomicUsize::new(0));
    let reader = child.stdout.take().map(|out| {
        let lines = lines.clone();
        thread::spawn(move || {
            let mut reader = BufReader::with_capacity(1 << 16, out);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                lines.fetch_add(1, Ordering::Relaxed);
                line.clear();
            }
        })
    });
    let mut samples = Vec::new();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(Error::io(program))? {
            break status;
        }
        if let Some(resident) = memory::resident(child.id()) {
            samples.push((lines.load(Ordering::Relaxed), resident.now));
        }
        thread::sleep(EVERY);
    };
    if let Some(reader) = reader {
        let _ = reader.join();
    }
    if !status.success() {
        return Err(Error::Input(format!("lfm2-embed failed ({status})")));
    }
    Ok(Streamed { lines: lines.load(Ordering::Relaxed), samples })
}

/// Bytes by which the peak after the warm-up passes the peak in it, and the whole peak; `None` without samples
/// on both sides.
fn growth(samples: &[(usize, u64)], texts: usize) -> Option<(u64, u64)> {
    let early = |(lines, _): &&(usize, u64)| (*lines as f64) < WARM_UP * texts as f64;
    let before = samples.iter().filter(early).map(|s| s.1).max()?;
    let after = samples.iter().filter(|s| !early(s)).map(|s| s.1).max()?;
    Some((after.saturating_sub(before), after.max(before)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_first_tenth_is_the_measure() {
        let samples = [(0, 10), (50, 40), (99, 30), (100, 45), (900, 42)];
        assert_eq!(growth(&samples, 1000), Some((5, 45)));
        assert_eq!(growth(&samples[..4], 1000), Some((5, 45)));
        assert_eq!(growth(&samples[..3], 1000), None);
        assert_eq!(growth(&samples[3..], 1000), None);
        assert_eq!(growth(&[(0, 50), (500, 20)], 1000), Some((0, 50)));
    }

    #[test]
    fn texts_are_short_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("texts");
        write_texts(&path, 20).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text.lines().count(), 20);
        assert!(text.lines().all(|l| (4..=12).contains(&l.split(' ').count())), "{text}");
    }
}
