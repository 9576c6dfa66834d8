//! A run of a prepared plan on the CPU allocates nothing, on whatever thread and for whatever number of rows.
//!
//! Without the usual test harness: the allocator below counts for the whole process, and the harness allocates
//! on a thread of its own meanwhile.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use inferencelayer::cpu::{CpuBackend, CpuOptions, Parallel, Serial, Threads};
use inferencelayer_engine::{
    backend::{Backend, Plan},
    model::{
        Bucket, Encoder, Stage,
        decoder::{CacheOptions, Caches, Decoder, DecoderStage, Kept, Rows, Wanted},
    },
    op::{ATTENTION_TILE, Normalize, Op, Pool, PoolMode, SETTING_WORDS, Sample, Setting},
    program::{BufferId, BufferSpec, Count, Counts, Recorder, Role},
    tensor::{DType, Format, State, StateSpec},
};
use inferencelayer_tests::fixture::{Fixture, load_decoder, load_encoder};

/// The system's allocator, counting what is asked of it.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is the system allocator's doing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(p, layout, size) }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(p, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Allocations of the whole process meanwhile.
fn allocations(work: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    work();
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

const BUCKET: Bucket = Bucket { tokens: 192, sequences: 8, tiles: 11 };

/// An encoder, pooling and normalisation, prepared for [`BUCKET`].
struct Prepared {
    plan: Box<dyn Plan>,
    inputs: [BufferId; 3],
    out: BufferId,
    width: usize,
}

fn prepare(encoder: &Encoder, backend: &dyn Backend) -> Prepared {
    let mut r = Recorder::new();
    let mut input = |name, rows, cols, count| {
        r.buffer(BufferSpec { name, dtype: DType::U32, rows, cols, count, role: Role::Input })
    };
    let tokens = input("tokens", BUCKET.tokens, 4, Count::Tokens);
    let tiles = input("tiles", BUCKET.tiles, 4, Count::Tiles);
    let ranges = input("ranges", BUCKET.sequences, 2, Count::Sequences);
    let stage = Stage { tokens, tiles, hidden: None };
    let x = encoder.record(&mut r, BUCKET, encoder.layers(), stage).unwrap();
    let width = encoder.config().hidden;
    let pooled = r.internal("pooled", DType::F32, BUCKET.sequences, width, Count::Sequences);
    let out = r.buffer(BufferSpec {
        name: "vectors",
        dtype: DType::F32,
        rows: BUCKET.sequences,
        cols: width,
        count: Count::Sequences,
        role: Role::Output,
    });
    r.push(Op::Pool(Pool { x, ranges, modes: vec![PoolMode::Mean], out: pooled })).unwrap();
    r.push(Op::Normalize(Normalize { x: pooled, unit: true, out })).unwrap();
    let plan = backend.prepare(&r.finish().unwrap()).unwrap();
    Prepared { plan, inputs: [tokens, tiles, ranges], out, width }
}

/// Inputs of one run: sequences of these lengths.
struct Inputs {
    counts: Counts,
    values: [Vec<u32>; 3],
}

fn inputs(encoder: &Encoder, lengths: &[u32]) -> Inputs {
    let (config, mut values) = (encoder.config(), [const { Vec::new() }; 3]);
    let [tokens, tiles, ranges] = &mut values;
    let mut start = 0;
    for &length in lengths {
        for i in 0..length {
            let id = (start * 31 + i * 7) % config.vocab as u32;
            tokens.extend([id, config.positions.first + i, 0, 0]);
        }
        let end = start + length;
        for first in (start..end).step_by(ATTENTION_TILE) {
            tiles.extend([first, end.min(first + ATTENTION_TILE as u32), start, end]);
        }
        ranges.extend([start, end]);
        start = end;
    }
    let counts = [start, lengths.len() as u32, tiles.len() as u32 / 4, 0];
    Inputs { counts, values }
}

impl Prepared {
    fn run(&mut self, Inputs { counts, values }: &Inputs, out: &mut [f32]) {
        let [tokens, tiles, ranges] = self.inputs;
        let inputs = [(tokens, &values[0][..]), (tiles, &values[1][..]), (ranges, &values[2][..])];
        let ticket = self.plan.submit(*counts, &inputs, &[(self.out, counts[1] as usize)]).unwrap();
        self.plan.wait(ticket).unwrap();
        match self.plan.poll_read(ticket, out, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => done.unwrap(),
            Poll::Pending => panic!("a run is over when it was waited for"),
        }
    }
}

/// Waits until every thread of a pool is there: starting one allocates.
fn gather(parallel: &dyn Parallel) {
    let (here, deadline) = (AtomicUsize::new(0), Instant::now() + Duration::from_secs(60));
    parallel.run(&|_| {
        here.fetch_add(1, Ordering::Relaxed);
        while here.load(Ordering::Relaxed) < parallel.threads() && Instant::now() < deadline {
            thread::yield_now();
        }
    });
    assert_eq!(here.into_inner(), parallel.threads());
}

/// Largest number of sequences, many short ones, one alone, the whole bucket.
const LENGTHS: [&[u32]; 5] = [&[20; 8], &[1, 2, 3, 17, 5], &[7], &[48, 48, 48, 48], &[16]];

fn check(name: &str, matrices: Format, parallel: Arc<dyn Parallel>) {
    gather(&*parallel);
    let backend = CpuBackend::new(CpuOptions { parallel, matrices, ..CpuOptions::default() }).unwrap();
    let what = format!("{name} in {matrices:?} on {}", backend.capabilities().name);
    let encoder = load_encoder(&Fixture::new(name), &backend).unwrap();
    let mut prepared = prepare(&encoder, &backend);
    let inputs = LENGTHS.map(|lengths| inputs(&encoder, lengths));
    let width = prepared.width;
    let results = || LENGTHS.map(|lengths| vec![0f32; lengths.len() * width]);
    let (mut first, mut again) = (results(), results());
    // The smallest first: whatever grows with a run's rows would grow later.
    prepared.run(&inputs[4], &mut first[4]);
    let counted = allocations(|| {
        for out in [&mut first, &mut again] {
            for (inputs, out) in inputs.iter().zip(out) {
                prepared.run(inputs, out);
            }
        }
    });
    assert_eq!(counted, 0, "{what}: {counted} allocations in ten runs");
    assert_eq!(first, again, "{what}");
    for vector in first.iter().flat_map(|all| all.chunks(width)) {
        let length = vector.iter().map(|v| v * v).sum::<f32>().sqrt();
        assert!((length - 1.0).abs() < 1e-4, "{what}: a vector of length {length}");
    }
}

/// A decoder's states: what its layers keep, next tokens, settings and counts.
struct States {
    caches: Caches,
    tokens: State,
    settings: State,
    counts: State,
}

const SLOTS: usize = 3;

fn states(decoder: &Decoder, backend: &dyn Backend) -> States {
    // All slots share the one page, whose number is what new states hold; nothing depends on what is in it.
    let options = CacheOptions { slots: SLOTS, pages: 1, pages_per_slot: 1, dtype: DType::F32 };
    let state = |name, rows, cols| backend.state(StateSpec { name, dtype: DType::U32, rows, cols }).unwrap();
    let vocab = decoder.config().vocab.next_multiple_of(4);
    let caches = Caches::new(decoder, backend, options).unwrap();
    let (tokens, settings) = (state("tokens", SLOTS, 4), state("settings", SLOTS, SETTING_WORDS));
    // Greedy, sampled, and sampled with every filter and penalty.
    for slot in 0..SLOTS {
        let mut words = [0; SETTING_WORDS];
        let mut set = |setting: Setting, value: f32| words[setting as usize] = value.to_bits();
        let warm = slot > 0;
        set(Setting::Temperature, if warm { 0.8 } else { 0.0 });
        set(Setting::TopP, if slot > 1 { 0.9 } else { 1.0 });
        set(Setting::MinP, if slot > 1 { 0.01 } else { 0.0 });
        set(Setting::Repetition, if slot > 1 { 1.1 } else { 1.0 });
        words[Setting::TopK as usize] = if slot > 1 { 40 } else { 0 };
        backend.write_state(&settings, slot, &words).unwrap();
    }
    States { caches, tokens, settings, counts: state("counts", SLOTS, vocab) }
}

/// A decoding step of up to [`SLOTS`] rows: its plan, and what it chooses.
fn decoding(decoder: &Decoder, states: &States, backend: &dyn Backend) -> (Box<dyn Plan>, BufferId) {
    let mut r = Recorder::new();
    let tokens = r.state(&states.tokens);
    let stage = DecoderStage {
        rows: SLOTS,
        tokens,
        layout: Rows::Decode(Kept { caches: &states.caches, context: 64 }),
        hidden: None,
        wanted: Wanted::All,
    };
    let x = decoder.record(&mut r, decoder.layers(), stage).unwrap().expect("all rows go on");
    let columns = decoder.logit_columns();
    let logits = r.internal("logits", DType::F32, SLOTS, columns, Count::Tokens);
    decoder.record_logits(&mut r, x, logits).unwrap();
    let (dtype, count, role) = (DType::F32, Count::Tokens, Role::Output);
    let out = r.buffer(BufferSpec { name: "chosen", dtype, rows: SLOTS, cols: 4, count, role });
    let (settings, counts) = (r.state(&states.settings), r.state(&states.counts));
    r.push(Op::Sample(Sample {
        logits,
        vocab: decoder.config().vocab,
        tokens,
        targets: None,
        settings,
        counts,
        bias: None,
        mask: None,
        out,
    }))
    .unwrap();
    (backend.prepare(&r.finish().unwrap()).unwrap(), out)
}

/// Steps of a decoder allocate nothing and choose the same tokens each time.
fn check_steps(name: &str, q8_activations: bool, parallel: Arc<dyn Parallel>) {
    const STEPS: usize = 6;
    gather(&*parallel);
    let options = CpuOptions { parallel, q8_activations, ..CpuOptions::default() };
    let backend = CpuBackend::new(options).unwrap();
    let what = format!("{name}, 8-bit activations {q8_activations}, on {}", backend.capabilities().name);
    let decoder = load_decoder(&Fixture::new(name), &backend, None).unwrap();
    let states = states(&decoder, &backend);
    let (mut plan, out) = decoding(&decoder, &states, &backend);
    let mut answers = [[[0f32; 4]; SLOTS * STEPS]; 2];
    let no_counts = vec![0; states.counts.spec().rows * states.counts.spec().cols];
    for answer in &mut answers {
        backend.write_state(&states.counts, 0, &no_counts).unwrap();
        for slot in 0..SLOTS as u32 {
            backend.write_state(&states.tokens, slot as usize, &[20 + slot, 0, 0, slot]).unwrap();
        }
        let counted = allocations(|| {
            for step in 0..STEPS {
                // Fewer rows in some steps.
                let rows = SLOTS - step % 2;
                let ticket = plan.submit([rows as u32, 0, 0, 0], &[], &[(out, rows)]).unwrap();
                let values = answer[step * SLOTS..][..rows].as_flattened_mut();
                let done = plan.poll_read(ticket, values, &mut Context::from_waker(Waker::noop()));
                assert_eq!(done, Poll::Ready(Ok(())));
            }
        });
        assert_eq!(counted, 0, "{what}: {counted} allocations in {STEPS} steps");
    }
    assert_eq!(answers[0], answers[1], "{what}");
    let positions: Vec<f32> = (0..STEPS).map(|step| answers[0][step * SLOTS][2]).collect();
    assert_eq!(positions, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "{what}");
}

fn main() {
    // What is counted, on this thread and on those of a pool.
    assert_eq!(allocations(|| drop(black_box(vec![1u8; 100]))), 1);
    let threads = Threads::new(3).unwrap();
    gather(&threads);
    assert!(allocations(|| threads.run(&|_| drop(black_box(Box::new(1u64))))) >= 1);

    // Between them these have every op.
    for name in ["bert", "mpnet", "modernbert"] {
        for matrices in [Format::F32, Format::Int8] {
            check(name, matrices, Arc::new(Serial));
            check(name, matrices, Arc::new(Threads::new(2).unwrap()));
            check(name, matrices, Arc::new(Threads::new(4).unwrap()));
        }
    }
    // Between them: attention, convolutions, dense layers, experts, weights in f32 and in blocks.
    for name in ["lfm2_moe", "gguf_llama", "gguf_lfm2"] {
        for q8_activations in [false, true] {
            check_steps(name, q8_activations, Arc::new(Serial));
            check_steps(name, q8_activations, Arc::new(Threads::new(2).unwrap()));
        }
    }
    println!("runs of prepared plans allocate nothing: ok");
}
