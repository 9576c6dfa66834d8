//! Generation: prompts and answers of models in files, one sequence and many.

use std::{path::Path, time::Instant};

use inferencelayer_engine::generate::Sampling;

use super::{Options, Sink, remark};
use crate::{
    Error, GenerateEngine, GenerateOptions, Result,
    device::{Device, DeviceOptions},
    generate::{Session, Token},
    lab::stats::Summary,
    scoreboard::ledger::{Better, Entry},
};

/// Tokens of an answer.
const ANSWER: usize = 128;
/// Tokens of the prompts that answers follow.
const CONTEXTS: [usize; 2] = [512, 4096];
/// Tokens of the prompts that are timed.
const PROMPTS: [usize; 2] = [512, 2048];
/// Sequences that are decoded together.
const TOGETHER: usize = 32;
const ROUNDS: usize = 3;

pub fn run(options: &Options, sink: &mut Sink<'_>) -> Result<()> {
    if options.files.is_empty() {
        return Err(Error::Input("name the models with --model-file FILE (GGUF files or folders)".into()));
    }
    for file in &options.files {
        one(options, file, sink)?;
    }
    Ok(())
}

/// Some token ids, none of them special in any vocabulary we know.
fn ids(count: usize, vocab: usize) -> Vec<u32> {
    let spread = vocab.min(20_000) - vocab.min(20_000) / 4;
    (0..count).map(|i| (vocab.min(20_000) / 4 + (i * 7919) % spread.max(1)) as u32).collect()
}

fn open(options: &Options, file: &Path, sessions: usize, context: usize) -> Result<GenerateEngine> {
    let device = DeviceOptions {
        device: options.device.unwrap_or(Device::Auto),
        adapter: options.adapter.clone(),
        threads: Some(options.threads),
        ..DeviceOptions::default()
    };
    GenerateEngine::auto(file, GenerateOptions { device, context: Some(context), sessions, chunk: 0 })
}

/// Seconds until the first token of an answer, and for each of the others.
fn answer(session: &mut Session, prompt: &[u32], tokens: usize) -> Result<(f64, f64)> {
    session.reset()?;
    let start = Instant::now();
    let mut first = 0.0;
    let mut count = 0;
    for token in session.generate(prompt, tokens, &Sampling::default())? {
        let _: Token = token?;
        count += 1;
        if count == 1 {
            first = start.elapsed().as_secs_f64();
        }
    }
    Ok((first, (start.elapsed().as_secs_f64() - first) / (count - 1).max(1) as f64))
}

fn best(mut measure: impl FnMut() -> Result<f64>) -> Result<Summary> {
    let mut all = Vec::new();
    // The first round makes plans and warms caches.
    for round in 0..=ROUNDS {
        let seconds = measure()?;
        if round > 0 {
            all.push(seconds);
        }
    }
    Summary::of(&all).ok_or_else(|| Error::Input("nothing was measured".into()))
}

fn one(options: &Options, file: &Path, sink: &mut Sink<'_>) -> Result<()> {
    let name = file.file_stem().map_or_else(|| "model".into(), |n| n.to_string_lossy().into_owned());
    let longest = CONTEXTS[1].max(PROMPTS[1]) + ANSWER;
    let start = Instant::now();
    let engine = open(options, file, 1, longest)?;
    let load = start.elapsed().as_secs_f64();
    let (vocab, mode) = (engine.config().vocab, format!("{}, as-is", engine.device_name()));
    let mut record = |bench: String, figure: (f64, &str, Better), words: &str| {
        let mut entry: Entry = options.entry(bench, mode.clone(), figure, options.machine(None));
        remark(&mut entry, words);
        sink(entry)
    };
    record(format!("{name} load"), (load, "s", Better::Lower), "until the engine is ready")?;
    let mut session = engine.session()?;
    for tokens in PROMPTS {
        let prompt = ids(tokens, vocab);
        let first = best(|| Ok(answer(&mut session, &prompt, 1)?.0))?;
        let words = format!("first token after {:.2} ms", first.median * 1e3);
        let figure = (tokens as f64 / first.median, "tokens/s", Better::Higher);
        record(format!("{name} prompt of {tokens}"), figure, &words)?;
    }
    for tokens in CONTEXTS {
        let prompt = ids(tokens, vocab);
        let each = best(|| Ok(answer(&mut session, &prompt, ANSWER)?.1))?;
        let figure = (1.0 / each.median, "tokens/s", Better::Higher);
        let words = format!("best {:.1}", 1.0 / each.min);
        record(format!("{name} {ANSWER} tokens after {tokens}"), figure, &words)?;
    }
    drop(session);
    drop(engine);
    together(options, file, vocab, &mut |bench, figure, words| {
        record(format!("{name} {bench}"), figure, words)
    })
}

/// Takes a bench's name, its figure, and a remark.
type Record<'a> = dyn FnMut(String, (f64, &'static str, Better), &str) -> Result<()> + 'a;

/// Many sequences at a time.
fn together(options: &Options, file: &Path, vocab: usize, record: &mut Record<'_>) -> Result<()> {
    let prompt = ids(CONTEXTS[0], vocab);
    let engine = open(options, file, TOGETHER, CONTEXTS[0] + ANSWER)?;
    let each = best(|| {
        let mut sessions = (0..TOGETHER).map(|_| engine.session()).collect::<Result<Vec<_>>>()?;
        let sampling = Sampling::default();
        let mut answers = sessions
            .iter_mut()
            .map(|s| {
                let mut answer = s.generate(&prompt, ANSWER, &sampling)?;
                // The first token, so that all prompts are done before the clock starts.
                answer.next().transpose()?;
                Ok(answer)
            })
            .collect::<Result<Vec<_>>>()?;
        let start = Instant::now();
        let mut tokens = 0usize;
        for answer in &mut answers {
            for token in answer {
                token?;
                tokens += 1;
            }
        }
        Ok(start.elapsed().as_secs_f64() / tokens.max(1) as f64)
    })?;
    let figure = (1.0 / each.median, "tokens/s", Better::Higher);
    record(format!("{ANSWER} tokens after {} x {TOGETHER}", CONTEXTS[0]), figure, "all sequences in sum")
}
