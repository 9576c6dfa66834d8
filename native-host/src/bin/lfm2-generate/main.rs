//! `lfm2-generate`: a prompt in, text out.

mod args;
mod interactive;
mod interrupt;
mod prompt;
mod report;
mod terminal;

use std::{io, num::NonZeroUsize, path::Path, process::ExitCode, time::Instant};

use args::{Args, SamplerOrder};
use clap::Parser;
use inferencelayer::{
    Error, GenerateEngine, GenerateOptions, Result,
    cli::{list, logging, model, progress::Loading, steps},
    device::DeviceOptions,
    engine::generate::{Order, Sampling},
    generate::{Finish, GenerateSettings, Session, StopTexts},
};
use prompt::Prompt;
use report::Answer;

fn main() -> ExitCode {
    let args = Args::parse();
    logging::init(args.log_level);
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the text has enough of it (`| head`).
        Err(Error::Io { path, source })
            if source.kind() == io::ErrorKind::BrokenPipe && path == Path::new(report::STDOUT) =>
        {
            ExitCode::SUCCESS
        }
        Err(error) => inferencelayer::cli::fail(&error),
    }
}

fn run(args: &Args) -> Result<()> {
    if args.list_models {
        return report::print(&list::models());
    }
    // What makes no sense with any model shows before one is fetched and loaded.
    sampling(args, Sampling::default()).check(usize::MAX)?;
    StopTexts::new(&args.stop)?;
    let path = model::find(args.model.as_deref().unwrap_or_default())?;
    // Read before the model is loaded, so that a wrong name shows at once.
    let prompt = Prompt::read(args)?;
    let start = Instant::now();
    let engine = open(args, &path)?;
    let load = start.elapsed();
    log::info!("{} on {}", path.display(), engine.device_name());
    let mut session = engine.session()?;
    if let Prompt::Interactive(chat) = prompt {
        let ended = interactive::run(args, &engine, &mut session, chat);
        engine.save_pipelines();
        return ended;
    }
    let ids = prompt.ids(&engine, args)?;
    let mut answer = generate(args, &engine, &mut session, ids, &|| false)?;
    answer.timings.load = load;
    answer.memory = engine.memory();
    engine.save_pipelines();
    if args.json {
        report::json(&answer)?;
    }
    if args.stats {
        eprint!("{}", report::stats(&answer));
    }
    if args.profile {
        eprint!("{}", profile(&answer.prompt_ids, &engine, &mut session)?);
    }
    Ok(())
}

/// Where the time of the prompt, or of as much of it as is processed at once, and of the step after it goes.
fn profile(ids: &[u32], engine: &GenerateEngine, session: &mut Session) -> Result<String> {
    let part = &ids[..ids.len().min(engine.chunk())];
    // The first time, caches are cold.
    session.profile(part)?;
    let mut lines = format!("prompt of {}: {}", part.len(), steps::table(&session.profile(part)?));
    let start = Instant::now();
    let mut answer = session.generate(ids, 64, &Sampling::default())?;
    if let Some(token) = answer.next() {
        token?;
        lines += &format!("first token when all is warm: {:.2} ms\n", start.elapsed().as_secs_f64() * 1e3);
        engine.profile()?;
        lines += &steps::table(&engine.profile()?);
    }
    Ok(lines)
}

fn open(args: &Args, path: &Path) -> Result<GenerateEngine> {
    let device = DeviceOptions {
        device: args.device,
        dtype: args.dtype,
        adapter: args.adapter.clone().unwrap_or_default(),
        threads: args.threads.map(Into::into),
    };
    let chunk = args.chunk.map_or(0, NonZeroUsize::get);
    let options = GenerateOptions { device, context: args.context, sessions: 1, chunk };
    let bar = Loading::default();
    let progress = |done, total| bar.tell(done, total);
    GenerateEngine::open_with_progress(path, &options, Some(&progress))
}

/// The usual way of sampling, changed by the command line.
fn sampling(args: &Args, usual: Sampling) -> Sampling {
    Sampling {
        temperature: args.temperature.unwrap_or(usual.temperature),
        top_k: args.top_k.unwrap_or(usual.top_k),
        top_p: args.top_p.unwrap_or(usual.top_p),
        min_p: args.min_p.unwrap_or(usual.min_p),
        repetition_penalty: args.repeat_penalty.unwrap_or(usual.repetition_penalty),
        order: match args.sampler_order {
            SamplerOrder::Hf => Order::HuggingFace,
            SamplerOrder::Llama => Order::Llama,
        },
        seed: args.seed,
        ..usual
    }
}

/// The checkpoint's settings with those of the command line.
fn settings(args: &Args, engine: &GenerateEngine) -> GenerateSettings {
    let sampling = sampling(args, engine.defaults().sampling.clone().unwrap_or_default());
    let (stop, ignore_eos) = (args.stop.clone(), args.ignore_eos);
    GenerateSettings { sampling, max_tokens: args.max_tokens, stop, ignore_eos }
}

/// Generates and prints an answer, which ends where `stop` says so.
fn generate(
    args: &Args,
    engine: &GenerateEngine,
    session: &mut Session,
    ids: Vec<u32>,
    stop: &dyn Fn() -> bool,
) -> Result<Answer> {
    let mut answer = Answer { prompt_ids: ids, ..Answer::default() };
    let ids = answer.prompt_ids.clone();
    let start = Instant::now();
    if let Some(path) = &args.logits {
        let logits = session.logits(&ids)?;
        report::logits(path, &logits, ids.len())?;
        session.reset()?;
    }
    if args.max_tokens == 0 {
        if args.logits.is_none() {
            session.logits(&ids)?;
        }
        answer.timings.prefill = start.elapsed();
        return Ok(answer);
    }
    let settings = settings(args, engine);
    let start = Instant::now();
    let mut take = |id: u32, finish: Option<Finish>| {
        if answer.ids.is_empty() {
            answer.timings.prefill = start.elapsed();
        }
        answer.ids.push(id);
        answer.finish = finish;
    };
    // Without a tokenizer, ids are all there is.
    let tokenizer = engine.tokenizer().is_ok();
    let mut text = String::new();
    let mut stopped = false;
    for piece in engine.answer(session, &ids, &settings)? {
        let piece = piece?;
        take(piece.id, piece.finish);
        if !args.json {
            report::print(&if tokenizer { piece.text.clone() } else { format!("{}\n", piece.id) })?;
        }
        text += &piece.text;
        if stop() {
            stopped = true;
            break;
        }
    }
    if !args.json && tokenizer {
        report::print("\n")?;
    }
    answer.text = tokenizer.then_some(text);
    answer.stopped = stopped;
    answer.timings.decode = start.elapsed().saturating_sub(answer.timings.prefill);
    Ok(answer)
}
