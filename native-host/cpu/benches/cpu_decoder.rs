//! A decoder in the shape of SmolLM2-135M, with random weights in blocks, on the CPU backend.
//!
//! `cargo bench -p inferencelayer-cpu --bench cpu_decoder -- [--threads N] [--isa NAME] [--format Q4_0] [--exact]
//! [--seconds S] [--rows 1,512] [--position P] [--ops]`
//!
//! Prints, for each number of rows (1: a decoding step at that position; more: a prompt), the least and the median
//! time of a run beside the time in which as many threads read as many bytes from memory; with `--ops`, each
//! step's least time in profiled runs as well.

use std::{
    hint::black_box,
    process::ExitCode,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use inferencelayer_cpu::{CpuBackend, CpuOptions, Isa, Parallel, Threads};
use inferencelayer_engine::{
    Error, Result,
    backend::{self, Backend, Plan},
    op::{
        ATTENTION_TILE, Activation, CachedAttention, Embed, GatedLinear, Linear, Norm, NormKind, NormParams,
        Op, PAGE, Pool, PoolMode, SETTING_WORDS, Sample, Setting, StoreKv, TokenField,
    },
    program::{BufferId, BufferSpec, Count, Recorder, Role},
    task::block_on,
    tensor::{DType, Format, State, StateSpec, Weight, WeightSpec, WeightUse},
    testing::{Random, random_blocks},
};

const LAYERS: usize = 30;
const HIDDEN: usize = 576;
const HEADS: usize = 9;
const KV_HEADS: usize = 3;
const HEAD_DIM: usize = 64;
const FEED_FORWARD: usize = 1536;
const VOCABULARY: usize = 49152;
const CONTEXT: usize = 1024;

struct Arguments {
    threads: usize,
    isa: Isa,
    format: Format,
    exact: bool,
    seconds: f64,
    rows: Vec<usize>,
    position: usize,
    ops: bool,
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments {
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        isa: Isa::detect(),
        format: Format::Q4_0,
        exact: false,
        seconds: 2.0,
        rows: vec![1, 512],
        position: 100,
        ops: false,
    };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let mut value = || given.next().ok_or_else(|| format!("{name} needs a value"));
        match name.as_str() {
            "--threads" => parsed.threads = value()?.parse().map_err(|e| format!("--threads: {e}"))?,
            "--isa" => {
                let isa = value()?;
                parsed.isa = Isa::from_name(&isa).ok_or_else(|| format!("no instruction set {isa}"))?;
            }
            "--format" => {
                let wanted = value()?;
                let known = Format::ALL.into_iter().find(|f| f.name().eq_ignore_ascii_case(&wanted));
                parsed.format = known.ok_or_else(|| format!("no format {wanted}"))?;
            }
            "--exact" => parsed.exact = true,
            "--seconds" => parsed.seconds = value()?.parse().map_err(|e| format!("--seconds: {e}"))?,
            "--rows" => {
                let rows = value()?;
                let parse = |n: &str| n.parse().ok().filter(|n| (1..=CONTEXT).contains(n));
                let all: Option<Vec<usize>> = rows.split(',').map(parse).collect();
                parsed.rows = all.ok_or_else(|| format!("--rows {rows}: 1 to {CONTEXT}"))?;
            }
            "--position" => {
                parsed.position = value()?.parse().map_err(|e| format!("--position: {e}"))?;
                if parsed.position >= CONTEXT {
                    return Err(format!("--position: less than {CONTEXT}"));
                }
            }
            "--ops" => parsed.ops = true,
            // What cargo passes to every benchmark.
            "--bench" => {}
            other => return Err(format!("no option {other}")),
        }
    }
    Ok(parsed)
}

fn main() -> ExitCode {
    match arguments().and_then(|a| run(&a).map_err(|e| e.to_string())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let threads = Threads::new(arguments.threads).map_err(|e| Error::Unsupported(format!("threads: {e}")))?;
    let parallel: Arc<dyn Parallel> = Arc::new(threads);
    let backend = CpuBackend::new(CpuOptions {
        parallel: parallel.clone(),
        isa: Some(arguments.isa),
        q8_activations: !arguments.exact,
        clock: Some(clock),
        ..CpuOptions::default()
    })?;
    println!("{}, weights {}", backend.capabilities().name, arguments.format);
    let model = Model::new(&backend, arguments.format)?;
    let rate = read_rate(&*parallel, arguments.seconds / 2.0);
    println!("weights: {:.1} MB, read at {:.1} GB/s", model.bytes as f64 / 1e6, rate / 1e9);
    for &rows in &arguments.rows {
        let mut whole = Bench::new(&model, rows, arguments.position)?;
        let (least, median) = whole.time(arguments.seconds)?;
        println!(
            "{rows} rows: least {:.3} ms, median {:.3} ms, {:.1} tokens/s; reading alone {:.3} ms",
            least * 1e3,
            median * 1e3,
            rows as f64 / least,
            model.bytes as f64 / rate * 1e3
        );
        if arguments.ops {
            whole.print_steps(arguments.seconds)?;
        }
    }
    Ok(())
}

fn clock() -> Duration {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    BEGIN.get_or_init(Instant::now).elapsed()
}

/// Bytes a second that the threads read together from memory larger than caches.
fn read_rate(parallel: &dyn Parallel, seconds: f64) -> f64 {
    let memory = vec![1u64; 32 << 20];
    let share = memory.len() / parallel.threads();
    let (mut least, end) = (f64::INFINITY, Instant::now() + Duration::from_secs_f64(seconds));
    while Instant::now() < end {
        let begin = Instant::now();
        parallel.run(&|worker| {
            let part = &memory[worker * share..(worker + 1) * share];
            let mut sums = [0u64; 32];
            for words in part.as_chunks::<32>().0 {
                sums.iter_mut().zip(words).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
            }
            black_box(sums);
        });
        least = least.min(begin.elapsed().as_secs_f64());
    }
    (memory.len() * 8) as f64 / least
}

struct Layer {
    mixer_norm: NormParams,
    qkv: Weight,
    out: Weight,
    norm: NormParams,
    gate_up: Weight,
    down: Weight,
    cache: State,
}

/// Weights and states.
struct Model<'a> {
    backend: &'a CpuBackend,
    embedding: Weight,
    layers: Vec<Layer>,
    norm: NormParams,
    rope: Weight,
    pages: State,
    tokens: State,
    settings: State,
    counts: State,
    /// Of the weights that a step reads.
    bytes: u64,
}

impl<'a> Model<'a> {
    fn new(backend: &'a CpuBackend, format: Format) -> Result<Self> {
        let mut random = Random::named("cpu_decoder");
        let before = backend.memory();
        let mut matrix = |rows: usize, cols: usize| {
            let (name, usage) = ("random".into(), WeightUse::Matrix);
            if !format.is_block() {
                let values = random.values(rows * cols, 0.0, 1.0 / (cols as f32).sqrt());
                return backend::upload_f32(backend, "random", usage, (rows, cols), &values);
            }
            let mut sink = backend.weight(WeightSpec { name, rows, cols, format, usage })?;
            let size = 3.0 / (cols as f32).sqrt();
            sink.push(format, &random_blocks(&mut random, format, rows * cols / format.block(), size))?;
            sink.finish()
        };
        let norm = || {
            let weight =
                backend::upload_f32(backend, "norm", WeightUse::Vector, (1, HIDDEN), &[1.0; HIDDEN])?;
            Ok::<_, Error>(NormParams { kind: NormKind::Rms, weight, eps: 1e-5 })
        };
        let state = |name, dtype, rows, cols| backend.state(StateSpec { name, dtype, rows, cols });
        let (mut weights, mut layers) = (Vec::new(), Vec::new());
        for _ in 0..LAYERS {
            let qkv = matrix((HEADS + 2 * KV_HEADS) * HEAD_DIM, HIDDEN)?;
            let out = matrix(HIDDEN, HEADS * HEAD_DIM)?;
            weights.push((qkv, out, matrix(2 * FEED_FORWARD, HIDDEN)?, matrix(HIDDEN, FEED_FORWARD)?));
        }
        let embedding = matrix(VOCABULARY, HIDDEN)?;
        let bytes = backend.memory() - before;
        for (qkv, out, gate_up, down) in weights {
            let cache = state("cache", DType::F32, CONTEXT, 2 * KV_HEADS * HEAD_DIM)?;
            layers.push(Layer { mixer_norm: norm()?, qkv, out, norm: norm()?, gate_up, down, cache });
        }
        let angles: Vec<f32> = (0..CONTEXT * HEAD_DIM).map(|i| (i as f32 * 0.37).sin()).collect();
        let shape = (CONTEXT, HEAD_DIM);
        let model = Model {
            backend,
            embedding,
            layers,
            norm: norm()?,
            rope: backend::upload_f32(backend, "rope", WeightUse::Table, shape, &angles)?,
            pages: state("pages", DType::U32, 1, CONTEXT / PAGE)?,
            tokens: state("tokens", DType::U32, 1, 4)?,
            settings: state("settings", DType::U32, 1, SETTING_WORDS)?,
            counts: state("counts", DType::U32, 1, VOCABULARY)?,
            bytes,
        };
        let pages: Vec<u32> = (0..CONTEXT as u32 / PAGE as u32).collect();
        backend.write_state(&model.pages, 0, &pages)?;
        let mut settings = [0; SETTING_WORDS];
        // Nothing is written, so that every step is at the same position.
        settings[Setting::Flags as usize] = 8;
        settings[Setting::Repetition as usize] = 1f32.to_bits();
        settings[Setting::TopP as usize] = 1f32.to_bits();
        backend.write_state(&model.settings, 0, &settings)?;
        Ok(model)
    }

    fn record(&self, g: &mut Graph) -> Result<()> {
        g.push(self.embed(g))?;
        for at in 0..LAYERS {
            self.layer(g, at).into_iter().try_for_each(|op| g.push(op))?;
        }
        g.tail(self)
    }

    fn embed(&self, g: &Graph) -> Op {
        let tables = vec![(self.embedding.clone(), TokenField::Id)];
        Op::Embed(Embed { tokens: g.tokens, tables, norm: None, out: g.x })
    }

    fn layer(&self, g: &mut Graph, at: usize) -> Vec<Op> {
        let layer = &self.layers[at];
        let (cache, pages) = (g.recorder.state(&layer.cache), g.pages);
        let norm = |x, params: &NormParams| Op::Norm(Norm { x, params: params.clone(), out: g.normed });
        let linear = |x, weight: &Weight, residual, out| {
            let (weight, bias, activation) = (weight.clone(), None, Activation::None);
            Op::Linear(Linear { x, weight, bias, activation, residual, out })
        };
        let (heads, kv_heads, head_dim) = (HEADS, KV_HEADS, HEAD_DIM);
        vec![
            norm(g.x, &layer.mixer_norm),
            linear(g.normed, &layer.qkv, None, g.qkv),
            Op::StoreKv(StoreKv {
                qkv: g.qkv,
                tokens: g.tokens,
                q_norm: None,
                k_norm: None,
                rope: self.rope.clone(),
                cache,
                pages,
                heads,
                kv_heads,
                head_dim,
            }),
            Op::CachedAttention(CachedAttention {
                q: g.qkv,
                tokens: g.tokens,
                tiles: g.tiles,
                cache,
                pages,
                context: CONTEXT,
                heads,
                kv_heads,
                head_dim,
                scale: 0.125,
                out: g.attended,
            }),
            linear(g.attended, &layer.out, Some(g.x), g.y),
            norm(g.y, &layer.norm),
            Op::GatedLinear(GatedLinear {
                x: g.normed,
                weight: layer.gate_up.clone(),
                bias: None,
                activation: Activation::Silu,
                out: g.wide,
            }),
            linear(g.wide, &layer.down, Some(g.y), g.x),
        ]
    }
}

/// A program being recorded.
struct Graph {
    recorder: Recorder,
    tokens: BufferId,
    tiles: Option<BufferId>,
    ranges: Option<BufferId>,
    targets: Option<BufferId>,
    pages: BufferId,
    x: BufferId,
    y: BufferId,
    normed: BufferId,
    qkv: BufferId,
    attended: BufferId,
    wide: BufferId,
    out: BufferId,
}

impl Graph {
    fn new(model: &Model, rows: usize) -> Self {
        let mut r = Recorder::new();
        let input = |r: &mut Recorder, name, rows, cols, count| {
            r.buffer(BufferSpec { name, dtype: DType::U32, rows, cols, count, role: Role::Input })
        };
        let prompt = rows > 1;
        let tokens = match prompt {
            true => input(&mut r, "tokens", rows, 4, Count::Tokens),
            false => r.state(&model.tokens),
        };
        let tiles = prompt.then(|| input(&mut r, "tiles", rows.div_ceil(ATTENTION_TILE), 4, Count::Tiles));
        let ranges = prompt.then(|| input(&mut r, "ranges", 1, 2, Count::Sequences));
        let targets = prompt.then(|| input(&mut r, "targets", 1, 4, Count::Sequences));
        let q8 = model.backend.capabilities().linear_input(rows, model.embedding.format());
        let mut internal = |name, dtype, cols| r.internal(name, dtype, rows, cols, Count::Tokens);
        let (x, y) = (internal("x", DType::F32, HIDDEN), internal("y", DType::F32, HIDDEN));
        let normed = internal("normed", q8, HIDDEN);
        let qkv = internal("qkv", DType::F32, (HEADS + 2 * KV_HEADS) * HEAD_DIM);
        let (attended, wide) =
            (internal("attended", q8, HEADS * HEAD_DIM), internal("wide", q8, FEED_FORWARD));
        let count = if prompt { Count::Sequences } else { Count::Tokens };
        let out = BufferSpec { name: "out", dtype: DType::F32, rows: 1, cols: 4, count, role: Role::Output };
        let (out, pages) = (r.buffer(out), r.state(&model.pages));
        Graph { recorder: r, tokens, tiles, ranges, targets, pages, x, y, normed, qkv, attended, wide, out }
    }

    fn push(&mut self, op: Op) -> Result<()> {
        self.recorder.push(op)
    }

    /// The last norm, the head and the choice of a token.
    fn tail(&mut self, model: &Model) -> Result<()> {
        let count = self.recorder.spec(self.out).count;
        let mut x = self.x;
        if let Some(ranges) = self.ranges {
            let last = self.recorder.internal("last", DType::F32, 1, HIDDEN, count);
            self.push(Op::Pool(Pool { x, ranges, modes: vec![PoolMode::LastToken], out: last }))?;
            x = last;
        }
        let q8 = model.backend.capabilities().linear_input(1, model.embedding.format());
        let normed = self.recorder.internal("last norm", q8, 1, HIDDEN, count);
        self.push(Op::Norm(Norm { x, params: model.norm.clone(), out: normed }))?;
        let logits = self.recorder.internal("logits", DType::F32, 1, VOCABULARY, count);
        self.push(Op::Linear(Linear {
            x: normed,
            weight: model.embedding.clone(),
            bias: None,
            activation: Activation::None,
            residual: None,
            out: logits,
        }))?;
        let op = Sample {
            logits,
            vocab: VOCABULARY,
            tokens: self.recorder.state(&model.tokens),
            targets: self.targets,
            settings: self.recorder.state(&model.settings),
            counts: self.recorder.state(&model.counts),
            bias: None,
            mask: None,
            out: self.out,
        };
        self.push(Op::Sample(op))
    }
}

/// A plan with its inputs.
struct Bench {
    plan: Box<dyn Plan>,
    counts: [u32; 4],
    inputs: Vec<(BufferId, Vec<u32>)>,
    out: BufferId,
}

impl Bench {
    fn new(model: &Model, rows: usize, position: usize) -> Result<Self> {
        let mut g = Graph::new(model, rows);
        model.record(&mut g)?;
        let count = rows as u32;
        let step = rows == 1;
        model.backend.write_state(&model.tokens, 0, &[7, position as u32, 0, 0])?;
        let tokens = (0..count).flat_map(|row| [row * 31 % VOCABULARY as u32, row, 0, 0]).collect();
        let tiles: Vec<u32> = (0..count)
            .step_by(ATTENTION_TILE)
            .flat_map(|first| [first, count.min(first + ATTENTION_TILE as u32), 0, 0])
            .collect();
        let counts = [count, 1, if step { 0 } else { tiles.len() as u32 / 4 }, 0];
        let mut inputs = Vec::new();
        if !step {
            inputs.push((g.tokens, tokens));
            inputs.extend(g.tiles.map(|id| (id, tiles)));
            inputs.extend(g.ranges.map(|id| (id, vec![0, count])));
            inputs.extend(g.targets.map(|id| (id, vec![0, count - 1, 0, 0])));
        }
        let out = g.out;
        let program = g.recorder.finish()?;
        Ok(Bench { plan: model.backend.prepare(&program)?, counts, inputs, out })
    }

    fn once(&mut self) -> Result<Duration> {
        let inputs: Vec<(BufferId, &[u32])> = self.inputs.iter().map(|(id, v)| (*id, v.as_slice())).collect();
        let mut values = [0.0; 4];
        let begin = Instant::now();
        let ticket = self.plan.submit(self.counts, &inputs, &[(self.out, 1)])?;
        block_on(backend::read(&mut *self.plan, ticket, &mut values))?;
        Ok(begin.elapsed())
    }

    /// Least and median seconds.
    fn time(&mut self, seconds: f64) -> Result<(f64, f64)> {
        let mut times = vec![self.once()?.as_secs_f64()];
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < end || times.len() < 5 {
            times.push(self.once()?.as_secs_f64());
        }
        times.remove(0);
        times.sort_unstable_by(f64::total_cmp);
        Ok((times[0], times[times.len() / 2]))
    }

    /// The least time of each step, those of all layers together.
    fn print_steps(&mut self, seconds: f64) -> Result<()> {
        let inputs: Vec<(BufferId, &[u32])> = self.inputs.iter().map(|(id, v)| (*id, v.as_slice())).collect();
        let mut least = self.plan.profile(self.counts, &inputs)?;
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < end {
            for (step, now) in least.iter_mut().zip(self.plan.profile(self.counts, &inputs)?) {
                step.nanoseconds = step.nanoseconds.min(now.nanoseconds);
            }
        }
        // After the embedding, as many steps for each layer.
        let mut stores = least.iter().enumerate().filter(|(_, s)| s.kernel == "store_kv").map(|(at, _)| at);
        let (first, second) = (stores.next().unwrap_or(0), stores.next().unwrap_or(1));
        let per_layer = second - first;
        let mut groups: Vec<(usize, backend::StepTime)> = Vec::new();
        for (at, step) in least.iter().enumerate() {
            let layer = at.wrapping_sub(1);
            match groups.get_mut(layer % per_layer + 1) {
                Some((times, sum)) if layer / per_layer < LAYERS && sum.kernel == step.kernel => {
                    *times += 1;
                    sum.nanoseconds += step.nanoseconds;
                }
                _ => groups.push((1, *step)),
            }
        }
        for (times, step) in groups {
            let (total, tasks) = (step.nanoseconds / 1e3, step.grid[0]);
            println!(
                "  {:>16} ({tasks:3} tasks): {times:2} x {:9.2} us = {total:10.1} us",
                step.kernel,
                total / times as f64
            );
        }
        Ok(())
    }
}
