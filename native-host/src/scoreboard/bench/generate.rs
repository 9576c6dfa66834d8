//! Generation: prompts and answers of models in files, one sequence and many, beside peers.

use std::{path::Path, time::Instant};

use inferencelayer_engine::generate::Sampling;

use super::{Options, Sink, remark};
use crate::{
    Error, Result,
    device::Device,
    lab::{report::duration, stats::Summary, variant},
    scoreboard::{
        contest::{Contender, Request, Standing, contest, cosine},
        generating::{Generating, open, prompt},
        ledger::{Better, Entry, PeerFigure},
        measured::{self, Measured},
        peer::{self, Running, Task},
    },
};

/// Tokens of an answer.
const ANSWER: usize = 128;
/// Tokens of the prompts that answers follow; a CPU takes the first alone.
const CONTEXTS: [usize; 2] = [512, 4096];
/// Tokens of the prompts that are timed; likewise.
const PROMPTS: [usize; 2] = [512, 2048];
/// Sequences that are decoded together.
const TOGETHER: usize = 32;
const ROUNDS: usize = 3;
/// Least cosine between a peer's logits and ours; both may round activations to 8 bits, in blocks of other sizes.
const LEAST_COSINE: f64 = 0.98;

pub fn run(options: &Options, sink: &mut Sink<'_>) -> Result<()> {
    if options.files.is_empty() {
        return Err(Error::Input("name the models with --model-file FILE (GGUF files or folders)".into()));
    }
    let measured = measured::read(&options.around.folder.join("measured.jsonl"))?;
    for file in &options.files {
        one(options, file, &measured, sink)?;
    }
    Ok(())
}

/// One model on one device.
struct Contest<'a> {
    options: &'a Options,
    name: String,
    mode: String,
    adapter: Option<(String, String)>,
    measured: &'a [Measured],
    peers: Vec<Running>,
}

fn one(options: &Options, file: &Path, measured: &[Measured], sink: &mut Sink<'_>) -> Result<()> {
    let name = file.file_stem().map_or_else(|| "model".into(), |n| n.to_string_lossy().into_owned());
    let longest = CONTEXTS[1].max(PROMPTS[1]) + ANSWER + 1;
    let device = options.device.unwrap_or(Device::Auto);
    let load = |sessions, context| open(file, device, &options.adapter, options.threads, sessions, context);
    let start = Instant::now();
    let engine = load(1, longest)?;
    let loaded = start.elapsed().as_secs_f64();
    let adapter = engine.adapter();
    let on_cpu = adapter.is_none();
    let peers = if on_cpu { peers(options, file) } else { Vec::new() };
    let mode = format!("{}, as-is", engine.device_name());
    let mut contest = Contest { options, name, mode, adapter, measured, peers };
    let words = "until the engine is ready";
    let entry = contest.entry("load", (loaded, "s", Better::Lower), words);
    sink(entry)?;
    let mut ours = Generating::new(engine)?;
    let few = |all: [usize; 2]| if on_cpu { all[..1].to_vec() } else { all.to_vec() };
    for tokens in few(PROMPTS) {
        let bench = format!("prompt of {tokens}");
        sink(contest.run(&mut ours, &bench, Request::generate(tokens, 1), tokens)?)?;
    }
    for tokens in few(CONTEXTS) {
        let bench = format!("{ANSWER} tokens after {tokens}");
        sink(contest.run(&mut ours, &bench, Request::generate(tokens, ANSWER + 1), ANSWER)?)?;
    }
    drop(ours);
    if on_cpu {
        return Ok(());
    }
    let engine = load(TOGETHER, CONTEXTS[0] + ANSWER)?;
    let each = together(&engine)?;
    let bench = format!("{ANSWER} tokens after {} x {TOGETHER}", CONTEXTS[0]);
    let figure = (1.0 / each.median, "tokens/s", Better::Higher);
    sink(contest.entry(&bench, figure, "all sequences in sum"))
}

/// Starts the peers that generate on the CPU, and says which are not there.
fn peers(options: &Options, file: &Path) -> Vec<Running> {
    let wanted =
        peer::ALL.into_iter().filter(|p| p.task == Task::Generate && p.device == variant::Device::Cpu);
    wanted
        .filter(|p| options.peers.as_ref().is_none_or(|named| named.contains(p)))
        .filter_map(|peer| match Running::start(peer, file, &options.around) {
            Ok(running) => Some(running),
            Err(why) => {
                eprintln!("peer {peer} is not measured: {why}");
                None
            }
        })
        .collect()
}

impl Contest<'_> {
    fn entry(&self, bench: &str, figure: (f64, &str, Better), words: &str) -> Entry {
        let bench = format!("{} {bench}", self.name);
        let machine = self.options.machine(self.adapter.clone());
        let mut entry = self.options.entry(bench, self.mode.clone(), figure, machine);
        remark(&mut entry, words);
        if let Some((adapter, _)) = &self.adapter {
            entry.peers = measured::beside(self.measured, adapter, &entry.bench, figure.0, figure.2);
        }
        entry
    }

    /// Tokens a second of work that takes `tokens`, by turns with the peers.
    fn run(&mut self, ours: &mut Generating, bench: &str, work: Request, tokens: usize) -> Result<Entry> {
        eprintln!("{} {bench}", self.name);
        let mut all: Vec<&mut dyn Contender> = vec![ours];
        all.extend(self.peers.iter_mut().map(|p| p as &mut dyn Contender));
        let mut standings = contest(&mut all, work, &self.options.limits).into_iter();
        let ours = standings.next().ok_or_else(|| Error::Input("nothing was measured".into()))??;
        let rate = |seconds: f64| tokens as f64 / seconds;
        let Summary { min, median, count, .. } = ours.seconds;
        let words = format!("{count} runs, median {}, best {}", duration(median), duration(min));
        let mut entry = self.entry(bench, (rate(median), "tokens/s", Better::Higher), &words);
        for (running, theirs) in self.peers.iter().zip(standings) {
            match theirs.map_err(|e| e.to_string()).and_then(|theirs| compare(running, &ours, &theirs, rate))
            {
                Ok(figure) => entry.peers.push(figure),
                Err(why) => {
                    let words = format!("{} is not compared: {why}", running.name());
                    eprintln!("peer {words}");
                    remark(&mut entry, &words);
                }
            }
        }
        Ok(entry)
    }
}

/// A peer's figure, if it computes the same as we do.
fn compare(
    peer: &Running,
    ours: &Standing,
    theirs: &Standing,
    rate: impl Fn(f64) -> f64,
) -> Result<PeerFigure, String> {
    let cosine = cosine(&ours.vector, &theirs.vector);
    if cosine.is_none_or(|c| c < LEAST_COSINE) {
        let found = cosine.map_or("are of another length".into(), |c| format!("are at cosine {c:.7}"));
        return Err(format!("its logits {found} from ours, at least {LEAST_COSINE} is needed"));
    }
    Ok(PeerFigure {
        name: peer.name.clone(),
        version: peer.version.clone(),
        mode: peer.mode.clone(),
        figure: rate(theirs.seconds.median),
        ratio: theirs.seconds.median / ours.seconds.median,
        best_ratio: theirs.seconds.min / ours.seconds.min,
    })
}

/// Seconds a token of many sequences at a time.
fn together(engine: &crate::GenerateEngine) -> Result<Summary> {
    let ids = prompt(CONTEXTS[0]);
    let mut all = Vec::new();
    // The first round makes plans and warms caches.
    for round in 0..=ROUNDS {
        let mut sessions = (0..TOGETHER).map(|_| engine.session()).collect::<Result<Vec<_>>>()?;
        let sampling = Sampling::default();
        let mut answers = sessions
            .iter_mut()
            .map(|s| {
                let mut answer = s.generate(&ids, ANSWER, &sampling)?;
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
        if round > 0 {
            all.push(start.elapsed().as_secs_f64() / tokens.max(1) as f64);
        }
    }
    Summary::of(&all).ok_or_else(|| Error::Input("nothing was measured".into()))
}
