//! `lfm2-generate`: a prompt in, text out.

mod args;
mod report;

use std::{process::ExitCode, time::Instant};

use args::Args;
use clap::Parser;
use inferencelayer::{
    Error, GenerateEngine, GenerateOptions, Result,
    cli::{logging, progress::Bar, steps},
    device::DeviceOptions,
    engine::generate::Sampling,
    generate::{Finish, Session},
};
use report::{Answer, Timings};

fn main() -> ExitCode {
    let args = Args::parse();
    logging::init(args.log_level);
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let start = Instant::now();
    let engine = open(args)?;
    let load = start.elapsed();
    log::info!("{} on {}", args.model.display(), engine.device_name());
    let mut session = engine.session()?;
    let mut answer = generate(args, &mut session)?;
    answer.timings.load = load;
    answer.memory = engine.memory();
    engine.save_pipelines();
    if args.json {
        report::json(&answer)?;
    } else {
        report::ids(&answer.ids)?;
    }
    if args.stats {
        eprint!("{}", report::stats(&answer));
    }
    if args.profile {
        eprint!("{}", profile(args, &engine, &mut session)?);
    }
    Ok(())
}

/// Where the time of the step after the prompt goes.
fn profile(args: &Args, engine: &GenerateEngine, session: &mut Session) -> Result<String> {
    session.reset()?;
    let mut answer = session.generate(&args.prompt_ids, 2, &Sampling::default())?;
    let mut lines = String::new();
    if let Some(token) = answer.next() {
        token?;
        // The first time, caches are cold.
        engine.profile()?;
        lines = steps::table(&engine.profile()?);
    }
    Ok(lines)
}

fn open(args: &Args) -> Result<GenerateEngine> {
    let device = DeviceOptions {
        device: args.device,
        dtype: args.dtype,
        adapter: args.adapter.clone().unwrap_or_default(),
        threads: args.threads.map(Into::into),
    };
    let options = GenerateOptions { device, context: args.context, sessions: 1, chunk: args.chunk.get() };
    let bar = std::cell::RefCell::new(None::<Bar>);
    let progress = |done: u64, total: u64| {
        let mut bar = bar.borrow_mut();
        bar.get_or_insert_with(|| Bar::new(Some(total), "loading")).update(done, "loading".into());
    };
    GenerateEngine::open_with_progress(&args.model, &options, Some(&progress))
}

fn generate(args: &Args, session: &mut Session) -> Result<Answer> {
    let ids = &args.prompt_ids;
    let mut answer = Answer { prompt_ids: ids.clone(), ..Answer::default() };
    let start = Instant::now();
    if let Some(path) = &args.logits {
        let logits = session.logits(ids)?;
        report::logits(path, &logits, ids.len())?;
        session.reset()?;
    }
    if args.max_tokens == 0 {
        if args.logits.is_none() {
            session.logits(ids)?;
        }
        answer.timings = Timings { prefill: start.elapsed(), ..Timings::default() };
        return Ok(answer);
    }
    let sampling = Sampling {
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        repetition_penalty: args.repeat_penalty,
        seed: args.seed,
        ..Sampling::default()
    };
    let start = Instant::now();
    for token in session.generate(ids, args.max_tokens, &sampling)? {
        let token = token?;
        if answer.ids.is_empty() {
            answer.timings.prefill = start.elapsed();
        }
        answer.ids.push(token.id);
        answer.finish = token.finish;
    }
    answer.timings.decode = start.elapsed().saturating_sub(answer.timings.prefill);
    match answer.finish {
        Some(Finish::Stop | Finish::Length) => Ok(answer),
        None => Err(Error::Input("the answer broke off".into())),
    }
}
