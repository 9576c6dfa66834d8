//! An encoder in the shape of MiniLM-L6, with random weights, on the CPU backend.
//!
//! `cargo bench --bench cpu_encoder -- [--threads N] [--isa NAME] [--dtype f32|int8] [--seconds S]
//! [--shapes 1x16,32x128] [--ops]`
//!
//! Prints, for each shape (sequences × tokens), the least and the median time of a run; with `--ops`, each kind
//! of op alone as well, with its arithmetic rate.

use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use inferencelayer_cpu::{CpuBackend, CpuOptions, Isa, Threads};
use inferencelayer_engine::{
    Result,
    backend::{self, Backend, Plan},
    op::{
        ATTENTION_TILE, Activation, Attention, Embed, Linear, Norm, NormKind, NormParams, Normalize, Op,
        Pool, PoolMode, TokenField,
    },
    program::{BufferId, BufferSpec, Count, Recorder, Role},
    task::block_on,
    tensor::{DType, Format, Weight, WeightUse},
};

const LAYERS: usize = 6;
const HIDDEN: usize = 384;
const HEADS: usize = 12;
const FEED_FORWARD: usize = 1536;
const VOCABULARY: usize = 30522;
const POSITIONS: usize = 512;

struct Arguments {
    threads: usize,
    isa: Isa,
    matrices: Format,
    seconds: f64,
    shapes: Vec<(usize, usize)>,
    ops: bool,
}

fn arguments() -> Result<Arguments, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut parsed = Arguments {
        threads,
        isa: Isa::detect(),
        matrices: Format::F32,
        seconds: 2.0,
        shapes: vec![(1, 16), (1, 128), (32, 128)],
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
            "--dtype" => {
                parsed.matrices = match value()?.as_str() {
                    "f32" => Format::F32,
                    "int8" => Format::Int8,
                    other => return Err(format!("--dtype {other}: f32 or int8")),
                }
            }
            "--seconds" => parsed.seconds = value()?.parse().map_err(|e| format!("--seconds: {e}"))?,
            "--shapes" => {
                let pair = |shape: &str| {
                    let (sequences, tokens) = shape.split_once('x')?;
                    Some((sequences.parse().ok()?, tokens.parse().ok()?))
                };
                let shapes = value()?;
                parsed.shapes = shapes
                    .split(',')
                    .map(|shape| pair(shape).ok_or_else(|| format!("--shapes {shape}: sequences x tokens")))
                    .collect::<Result<_, _>>()?;
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
    let outcome = arguments().and_then(|a| run(&a).map_err(|e| e.to_string()));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let threads = Threads::new(arguments.threads)
        .map_err(|e| inferencelayer_engine::Error::Unsupported(format!("threads: {e}")))?;
    let backend = CpuBackend::new(CpuOptions {
        parallel: Arc::new(threads),
        isa: Some(arguments.isa),
        matrices: arguments.matrices,
        ..CpuOptions::default()
    })?;
    println!("{}, matrices {:?}", backend.capabilities().name, arguments.matrices);
    let weights = Weights::new(&backend)?;
    println!("weights: {:.1} MB", backend.memory() as f64 / 1e6);
    for &(sequences, tokens) in &arguments.shapes {
        let shape = Shape { sequences, tokens };
        let mut whole = Bench::new(&backend, shape, false, |r, b| weights.encoder(r, b))?;
        let (least, median) = whole.time(arguments.seconds)?;
        let rows = shape.rows() as f64;
        println!(
            "{sequences}x{tokens}: least {:.3} ms, median {:.3} ms, {:.0} tokens/s, {:.0} GFLOP/s",
            least * 1e3,
            median * 1e3,
            rows / least,
            flops(shape) / least / 1e9,
        );
        if arguments.ops {
            for Alone { name, times, flops, op } in weights.ops(shape) {
                let mut bench = Bench::new(&backend, shape, true, |r, b| r.push(op(b)))?;
                let (least, _) = bench.time(arguments.seconds / 4.0)?;
                println!(
                    "  {name:>14}: {:8.1} us x {times:2} = {:7.3} ms, {:.0} GFLOP/s",
                    least * 1e6,
                    least * 1e3 * times as f64,
                    flops / least / 1e9
                );
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Shape {
    sequences: usize,
    tokens: usize,
}

impl Shape {
    fn rows(self) -> usize {
        self.sequences * self.tokens
    }

    fn linear(self, inputs: usize, outputs: usize) -> f64 {
        2.0 * (self.rows() * inputs * outputs) as f64
    }

    fn attention(self) -> f64 {
        4.0 * (self.rows() * self.tokens * HIDDEN) as f64
    }
}

/// Arithmetic of matrix products and attention.
fn flops(shape: Shape) -> f64 {
    let layer =
        shape.linear(HIDDEN, 4 * HIDDEN) + 2.0 * shape.linear(HIDDEN, FEED_FORWARD) + shape.attention();
    LAYERS as f64 * layer
}

struct Layer {
    qkv: (Weight, Weight),
    output: (Weight, Weight),
    norm: NormParams,
    up: (Weight, Weight),
    down: (Weight, Weight),
    last_norm: NormParams,
}

struct Weights {
    tables: Vec<(Weight, TokenField)>,
    norm: NormParams,
    layers: Vec<Layer>,
}

impl Weights {
    fn new(backend: &dyn Backend) -> Result<Self> {
        let mut seed = 1u64;
        let mut values = |n: usize, size: f32| -> Vec<f32> {
            let mut next = || {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ((seed >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * size
            };
            (0..n).map(|_| next()).collect()
        };
        let mut upload = |usage, rows: usize, cols: usize| {
            backend::upload_f32(backend, "random", usage, (rows, cols), &values(rows * cols, 0.08))
        };
        let norm = || {
            let ones: Vec<f32> = (0..2 * HIDDEN).map(|i| if i < HIDDEN { 1.0 } else { 0.0 }).collect();
            let weight = backend::upload_f32(backend, "norm", WeightUse::Vector, (2, HIDDEN), &ones)?;
            Ok(NormParams { kind: NormKind::Layer, weight, eps: 1e-12 })
        };
        let mut layers = Vec::new();
        for _ in 0..LAYERS {
            let mut linear = |outputs, inputs| {
                Ok((upload(WeightUse::Matrix, outputs, inputs)?, upload(WeightUse::Vector, 1, outputs)?))
            };
            layers.push(Layer {
                qkv: linear(3 * HIDDEN, HIDDEN)?,
                output: linear(HIDDEN, HIDDEN)?,
                norm: norm()?,
                up: linear(FEED_FORWARD, HIDDEN)?,
                down: linear(HIDDEN, FEED_FORWARD)?,
                last_norm: norm()?,
            });
        }
        let tables = vec![
            (upload(WeightUse::Table, VOCABULARY, HIDDEN)?, TokenField::Id),
            (upload(WeightUse::Table, POSITIONS, HIDDEN)?, TokenField::Position),
        ];
        Ok(Weights { tables, norm: norm()?, layers })
    }

    fn encoder(&self, r: &mut Recorder, b: &Buffers) -> Result<()> {
        r.push(self.embed(b, b.x))?;
        for layer in &self.layers {
            r.push(linear(b.x, &layer.qkv, Activation::None, None, b.qkv))?;
            r.push(b.attention())?;
            r.push(linear(b.mixed, &layer.output, Activation::None, Some(b.x), b.y))?;
            r.push(Op::Norm(Norm { x: b.y, params: layer.norm.clone(), out: b.x }))?;
            r.push(linear(b.x, &layer.up, Activation::Gelu, None, b.wide))?;
            r.push(linear(b.wide, &layer.down, Activation::None, Some(b.x), b.y))?;
            r.push(Op::Norm(Norm { x: b.y, params: layer.last_norm.clone(), out: b.x }))?;
        }
        let pooled = Pool { x: b.x, ranges: b.ranges, modes: vec![PoolMode::Mean], out: b.pooled };
        r.push(Op::Pool(pooled))?;
        r.push(Op::Normalize(Normalize { x: b.pooled, unit: true, out: b.out }))
    }

    fn embed(&self, b: &Buffers, out: BufferId) -> Op {
        let (tables, norm) = (self.tables.clone(), Some(self.norm.clone()));
        Op::Embed(Embed { tokens: b.tokens, tables, norm, out })
    }

    /// Each kind of op alone.
    fn ops(&self, shape: Shape) -> Vec<Alone<'_>> {
        let layer = &self.layers[0];
        let (wide, narrow) = (shape.linear(HIDDEN, FEED_FORWARD), shape.linear(HIDDEN, HIDDEN));
        let norm = |b: &Buffers| Op::Norm(Norm { x: b.y, params: layer.norm.clone(), out: b.x });
        let qkv = |b: &Buffers| linear(b.x, &layer.qkv, Activation::None, None, b.qkv);
        let output = |b: &Buffers| linear(b.mixed, &layer.output, Activation::None, Some(b.x), b.y);
        let up = |b: &Buffers| linear(b.x, &layer.up, Activation::Gelu, None, b.wide);
        let down = |b: &Buffers| linear(b.wide, &layer.down, Activation::None, Some(b.x), b.y);
        vec![
            Alone::new("embed", 1, 0.0, |b| self.embed(b, b.x)),
            Alone::new("qkv", LAYERS, 3.0 * narrow, qkv),
            Alone::new("attention", LAYERS, shape.attention(), Buffers::attention),
            Alone::new("output", LAYERS, narrow, output),
            Alone::new("norm", 2 * LAYERS, 0.0, norm),
            Alone::new("up, gelu", LAYERS, wide, up),
            Alone::new("down", LAYERS, wide, down),
        ]
    }
}

/// A kind of op of the encoder, by itself.
struct Alone<'a> {
    name: &'static str,
    /// How often a run has it.
    times: usize,
    flops: f64,
    op: Box<dyn Fn(&Buffers) -> Op + 'a>,
}

impl<'a> Alone<'a> {
    fn new(name: &'static str, times: usize, flops: f64, op: impl Fn(&Buffers) -> Op + 'a) -> Self {
        Alone { name, times, flops, op: Box::new(op) }
    }
}

fn linear(
    x: BufferId,
    (weight, bias): &(Weight, Weight),
    activation: Activation,
    residual: Option<BufferId>,
    out: BufferId,
) -> Op {
    Op::Linear(Linear { x, weight: weight.clone(), bias: Some(bias.clone()), activation, residual, out })
}

struct Buffers {
    tokens: BufferId,
    tiles: BufferId,
    ranges: BufferId,
    x: BufferId,
    y: BufferId,
    qkv: BufferId,
    mixed: BufferId,
    wide: BufferId,
    pooled: BufferId,
    out: BufferId,
}

impl Buffers {
    fn new(r: &mut Recorder, shape: Shape) -> Self {
        let (rows, sequences) = (shape.rows(), shape.sequences);
        let mut input = |name, rows, cols, count| {
            r.buffer(BufferSpec { name, dtype: DType::U32, rows, cols, count, role: Role::Input })
        };
        let tokens = input("tokens", rows, 4, Count::Tokens);
        let tiles = input("tiles", sequences * shape.tokens.div_ceil(ATTENTION_TILE), 4, Count::Tiles);
        let ranges = input("ranges", sequences, 2, Count::Sequences);
        let mut internal = |name, cols| r.internal(name, DType::F32, rows, cols, Count::Tokens);
        let (x, y, qkv) = (internal("x", HIDDEN), internal("y", HIDDEN), internal("qkv", 3 * HIDDEN));
        let (mixed, wide) = (internal("mixed", HIDDEN), internal("wide", FEED_FORWARD));
        let pooled = r.internal("pooled", DType::F32, sequences, HIDDEN, Count::Sequences);
        let (dtype, role) = (DType::F32, Role::Output);
        let spec =
            BufferSpec { name: "out", dtype, rows: sequences, cols: HIDDEN, count: Count::Sequences, role };
        let out = r.buffer(spec);
        Buffers { tokens, tiles, ranges, x, y, qkv, mixed, wide, pooled, out }
    }

    fn attention(&self) -> Op {
        Op::Attention(Attention {
            qkv: self.qkv,
            tiles: self.tiles,
            heads: HEADS,
            kv_heads: HEADS,
            head_dim: HIDDEN / HEADS,
            scale: 1.0 / ((HIDDEN / HEADS) as f32).sqrt(),
            window: None,
            causal: false,
            bias: None,
            out: self.mixed,
        })
    }
}

/// A plan with its inputs.
struct Bench {
    plan: Box<dyn Plan>,
    counts: [u32; 4],
    inputs: Vec<(BufferId, Vec<u32>)>,
    out: BufferId,
    values: Vec<f32>,
    sequences: usize,
}

impl Bench {
    fn new(
        backend: &dyn Backend,
        shape: Shape,
        alone: bool,
        record: impl FnOnce(&mut Recorder, &Buffers) -> Result<()>,
    ) -> Result<Self> {
        let mut r = Recorder::new();
        let b = Buffers::new(&mut r, shape);
        record(&mut r, &b)?;
        if alone {
            // A program needs an output.
            r.push(Op::Normalize(Normalize { x: b.pooled, unit: false, out: b.out }))?;
        }
        let (rows, length) = (shape.rows() as u32, shape.tokens as u32);
        let mut tokens = Vec::new();
        for row in 0..rows {
            tokens.extend([row.wrapping_mul(2_654_435_761) % VOCABULARY as u32, row % length, 0, 0]);
        }
        let (mut tiles, mut ranges) = (Vec::new(), Vec::new());
        for start in (0..rows).step_by(shape.tokens) {
            let end = start + length;
            ranges.extend([start, end]);
            for first in (start..end).step_by(ATTENTION_TILE) {
                tiles.extend([first, end.min(first + ATTENTION_TILE as u32), start, end]);
            }
        }
        let counts = [rows, shape.sequences as u32, tiles.len() as u32 / 4, 0];
        let inputs = vec![(b.tokens, tokens), (b.tiles, tiles), (b.ranges, ranges)];
        let (plan, values) = (backend.prepare(&r.finish()?)?, vec![0.0; shape.sequences * HIDDEN]);
        Ok(Bench { plan, counts, inputs, out: b.out, values, sequences: shape.sequences })
    }

    fn once(&mut self) -> Result<Duration> {
        let inputs: Vec<(BufferId, &[u32])> = self.inputs.iter().map(|(id, v)| (*id, v.as_slice())).collect();
        let begin = Instant::now();
        let ticket = self.plan.submit(self.counts, &inputs, &[(self.out, self.sequences)])?;
        self.plan.wait(ticket)?;
        block_on(backend::read(&mut *self.plan, ticket, &mut self.values))?;
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
}
