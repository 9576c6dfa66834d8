//! `lfm2-embed`: texts in, vectors out.

mod args;

use std::{
    fs::File,
    io::{self, BufReader, IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use args::Args;
use clap::{CommandFactory, Parser, error::ErrorKind};
use inferencelayer::{
    EmbedEngine, EmbedOptions, Error, Result,
    cli::{
        input::{Content, Lines, Record},
        list, logging, model,
        output::{Form, Row, Target, Writer},
        progress::{Bar, Loading},
        stream::{self, Limits, Sequence, Tokenize},
    },
    device::DeviceOptions,
    encoder_weights::EncBatch,
    pooled,
    tokenizer::Tokenizer,
};

const STDOUT: &str = "standard output";

fn main() -> ExitCode {
    let args = Args::parse();
    logging::init(args.log_level);
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the results has enough of them (`| head`).
        Err(Error::Io { path, source })
            if source.kind() == io::ErrorKind::BrokenPipe && path == Path::new(STDOUT) =>
        {
            ExitCode::SUCCESS
        }
        Err(error) => inferencelayer::cli::fail(&error),
    }
}

fn run(args: &Args) -> Result<()> {
    if args.list_devices {
        return print(&list::devices());
    }
    if args.list_models {
        return print(&list::models());
    }
    if args.texts.is_empty() && args.input.is_none() && args.similarity.is_empty() {
        let why = "nothing to embed: give texts, --input FILE (- for standard input), or --similarity A B";
        Args::command().error(ErrorKind::MissingRequiredArgument, why).exit();
    }
    // Opened before the model is loaded, so that a wrong name shows at once.
    let records = open_records(args)?;
    let mut engine = open_engine(args)?;
    match args.similarity.is_empty() {
        true => embed(args, &mut engine, records),
        false => similarity(args, &mut engine),
    }
}

fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::io(STDOUT))
}

/// Inputs, and how many bytes they are if that is known.
struct Records {
    iter: Box<dyn Iterator<Item = Result<Record>> + Send>,
    total: Option<u64>,
}

fn open_records(args: &Args) -> Result<Records> {
    match args.input.as_deref() {
        None => {
            let texts: Vec<_> = args.texts.iter().map(|text| Ok(Record::argument(text))).collect();
            Ok(Records { iter: Box::new(texts.into_iter()), total: None })
        }
        Some("-") => {
            let lines = Lines::new(BufReader::new(io::stdin()), "standard input", args.input_format);
            Ok(Records { iter: Box::new(lines), total: None })
        }
        Some(name) => {
            let file = File::open(name).map_err(Error::io(name))?;
            let meta = file.metadata().map_err(Error::io(name))?;
            if meta.is_dir() {
                return Err(Error::Input(format!("{name} is a folder; --input reads a file")));
            }
            let total = meta.is_file().then_some(meta.len());
            let lines = Lines::new(BufReader::with_capacity(1 << 18, file), name, args.input_format);
            Ok(Records { iter: Box::new(lines), total })
        }
    }
}

fn open_engine(args: &Args) -> Result<EmbedEngine> {
    if let Some(threads) = args.threads {
        // Tokenising runs on rayon's own threads.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
        pool.map_err(|e| Error::Input(format!("--threads {threads}: {e}")))?;
    }
    let folder = model::find(args.model.as_deref().unwrap_or_default())?;
    let device = DeviceOptions {
        device: args.device,
        dtype: args.dtype,
        adapter: args.adapter.clone().unwrap_or_default(),
        threads: args.threads,
    };
    let options = EmbedOptions {
        pooling: (!args.pooling.is_empty()).then(|| args.pooling.clone()),
        dim: args.dim.map(Into::into),
        normalize: !args.no_normalize,
        deterministic: args.deterministic,
    };
    let bar = Loading::default();
    let (tokens, tell) = (args.batch_tokens.get(), |done, total| bar.tell(done, total));
    let engine = EmbedEngine::open_with_progress(&folder, tokens, &device, &options, Some(&tell))?;
    drop(bar);
    log::info!("{} on {}", folder.display(), engine.device_name());
    Ok(engine)
}

fn embed(args: &Args, engine: &mut EmbedEngine, records: Records) -> Result<()> {
    let (target, destination) = open_target(args)?;
    let failed = |e: io::Error| Error::Io { path: destination.clone(), source: e };
    let mut writer = Writer::new(args.output, target, engine.dimension()).map_err(failed)?;
    let tokenize = Prepare::new(args, engine)?.tokenize();
    let limits = Limits::new(args.batch_tokens.get(), engine.adapter().is_some());
    let mut bar = Bar::new(records.total, "embedding");
    let out = std::cell::RefCell::new(&mut writer);
    let totals = stream::run(
        records.iter,
        limits,
        tokenize,
        |window| encode(engine, window),
        |index, sequence, embedding| {
            let (tokens, truncated) = (sequence.ids.len(), sequence.truncated);
            out.borrow_mut().write(&Row { index, tokens, truncated, embedding }).map_err(failed)
        },
        |totals| {
            bar.update(totals.bytes, format!("{} texts, {} tokens", totals.records, totals.tokens));
            out.borrow_mut().flush().map_err(failed)
        },
    )?;
    bar.finish();
    writer.finish().map_err(failed)?;
    engine.save_pipelines();
    if totals.truncated > 0 {
        let limit = engine.max_sequence();
        log::warn!(
            "{} of {} texts were longer than {limit} tokens and were cut",
            totals.truncated,
            totals.records
        );
    }
    Ok(())
}

/// Where results go, and its name for error messages.
fn open_target(args: &Args) -> Result<(Target, PathBuf)> {
    let Some(path) = &args.output_file else {
        if args.output != Form::Jsonl && io::stdout().is_terminal() {
            let why = "binary output would fill the terminal: redirect it, or name a file with --output-file";
            return Err(Error::Input(why.into()));
        }
        return Ok((Target::Stream(Box::new(io::stdout())), STDOUT.into()));
    };
    let file = File::create(path).map_err(Error::io(path))?;
    // A pipe or a device cannot be written over.
    let is_file = file.metadata().map_err(Error::io(path))?.is_file();
    let target = if is_file { Target::File(file) } else { Target::Stream(Box::new(file)) };
    Ok((target, path.clone()))
}

fn encode(engine: &mut EmbedEngine, window: &[&Sequence]) -> Result<Vec<Vec<f32>>> {
    let mut batch = EncBatch::from_seqs(window.iter().map(|s| s.ids.clone()).collect());
    if window.iter().any(|s| s.unpooled > 0) {
        batch = batch.with_pool_starts(window.iter().map(|s| s.unpooled).collect())?;
    }
    pooled(engine.encode(&batch)?)
}

/// What turns records into sequences; it works on a thread of its own.
struct Prepare {
    /// `None` if the model has none: then only token ids can be given.
    tokenizer: Option<Arc<Tokenizer>>,
    prompt: String,
    unpooled: usize,
    vocabulary: usize,
    limit: usize,
    batch_tokens: usize,
    source: String,
}

impl Prepare {
    fn new(args: &Args, engine: &EmbedEngine) -> Result<Self> {
        let prompt = engine.prompt(args.prompt.as_deref())?.to_owned();
        Ok(Prepare {
            tokenizer: engine.tokenizer().ok().cloned(),
            unpooled: engine.unpooled_tokens(&prompt)?,
            prompt,
            vocabulary: engine.embedder().model().vocab,
            limit: engine.max_sequence(),
            batch_tokens: args.batch_tokens.get(),
            source: args.input.clone().unwrap_or_default(),
        })
    }

    fn tokenize(self) -> Box<Tokenize> {
        Box::new(move |records| self.sequences(records))
    }

    fn sequences(&self, records: Vec<Record>) -> Result<Vec<Sequence>> {
        let prompted: Vec<String> = records
            .iter()
            .filter_map(|record| match &record.content {
                Content::Text(text) => Some(format!("{}{text}", self.prompt)),
                Content::Ids(_) => None,
            })
            .collect();
        let texts: Vec<&str> = prompted.iter().map(String::as_str).collect();
        let mut encoded = match &self.tokenizer {
            Some(tokenizer) => tokenizer.encode_batch(&texts)?.into_iter(),
            None if texts.is_empty() => Vec::new().into_iter(),
            None => {
                return Err(Error::Input(
                    "the model's folder has no tokenizer.json: give token ids, or add the file".into(),
                ));
            }
        };
        let mut sequences = Vec::with_capacity(records.len());
        for record in records {
            let Record { content, line, bytes } = record;
            let (ids, truncated, unpooled) = match content {
                Content::Ids(mut ids) => {
                    let truncated = ids.len() > self.limit;
                    ids.truncate(self.limit);
                    (ids, truncated, 0)
                }
                Content::Text(_) => {
                    let encoded = encoded.next().unwrap_or_default();
                    (encoded.ids, encoded.truncated, self.unpooled)
                }
            };
            let sequence = Sequence { ids, truncated, unpooled, line, bytes };
            self.check(&sequence)?;
            sequences.push(sequence);
        }
        Ok(sequences)
    }

    fn check(&self, sequence: &Sequence) -> Result<()> {
        let at = match sequence.line {
            Some(line) if self.source == "-" => format!("standard input, line {line}"),
            Some(line) => format!("{}, line {line}", self.source),
            None => "a text".into(),
        };
        if let Some(id) = sequence.ids.iter().find(|id| **id as usize >= self.vocabulary) {
            let size = self.vocabulary;
            return Err(Error::Input(format!(
                "{at}: token id {id} is outside the vocabulary of {size} tokens"
            )));
        }
        let (tokens, most) = (sequence.ids.len(), self.batch_tokens);
        if tokens > most {
            return Err(Error::Input(format!(
                "{at}: {tokens} tokens do not fit in a batch of --batch-tokens {most}"
            )));
        }
        Ok(())
    }
}

fn similarity(args: &Args, engine: &mut EmbedEngine) -> Result<()> {
    let texts: Vec<&str> = args.similarity.iter().map(String::as_str).collect();
    let vectors = engine.embed(&texts, args.prompt.as_deref())?;
    engine.save_pipelines();
    let Some((first, others)) = vectors.split_first() else { return Ok(()) };
    let lines: String = others.iter().map(|other| format!("{:.6}\n", cosine(first, other))).collect();
    print(&lines)
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>();
    let norms = (dot(a, a) * dot(b, b)).sqrt();
    if norms > 0.0 { dot(a, b) / norms } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosines() {
        assert_eq!(cosine(&[1.0, 0.0], &[2.0, 0.0]), 1.0);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 3.0]), 0.0);
        assert!((cosine(&[1.0, 1.0], &[-1.0, -1.0]) + 1.0).abs() < 1e-12);
        assert_eq!(cosine(&[0.0], &[1.0]), 0.0);
    }
}
