//! What decoders rely on beyond the values: how many dispatches their ops take, and that a row's bits depend neither
//! on its neighbours, nor on the bucket, nor on how a prompt was cut.
#![cfg(feature = "gpu")]

use inferencelayer_engine::{
    backend::{Backend, Plan, read, upload_f32},
    gpu::{GpuBackend, GpuContext, GpuOptions, GpuPlan},
    op::{
        CachedAttention, ConvRows, ExpertGatedLinear, ExpertLinear, Normalize, Op, PAGE, Route,
        SETTING_WORDS, Sample, Scoring, ShortConv, StoreKv,
    },
    program::{BufferId, BufferSpec, Count, Recorder, Role},
    tensor::{DType, Format, State, StateSpec, WeightUse},
};

const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 32;
const SLOTS: usize = 4;
const PER_SLOT: usize = 4;

fn backend(options: &GpuOptions, format: Format) -> GpuBackend {
    let context = pollster::block_on(GpuContext::new(options)).unwrap_or_else(|e| panic!("{e}"));
    GpuBackend::new(context, format).unwrap()
}

/// Values in ±1 that look random.
fn values(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..count).map(next).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

fn state(backend: &GpuBackend, name: &'static str, dtype: DType, rows: usize, cols: usize) -> State {
    backend.state(StateSpec { name, dtype, rows, cols }).unwrap()
}

/// One slot's rows at consecutive positions.
#[derive(Clone, Copy)]
struct Run {
    slot: usize,
    position: usize,
    rows: usize,
}

/// The value that a row is given follows from its slot and position alone.
fn row_values(run: Run, cols: usize) -> Vec<f32> {
    (run.position..run.position + run.rows)
        .flat_map(|position| values(cols, (run.slot * 1000 + position) as u32))
        .collect()
}

fn tokens(runs: &[Run]) -> Vec<u32> {
    let row = |run: &Run, i: usize| [0, (run.position + i) as u32, 0, run.slot as u32];
    runs.iter().flat_map(|run| (0..run.rows).flat_map(|i| row(run, i)).collect::<Vec<_>>()).collect()
}

/// First and past-the-end row of each run's pieces of at most `most` rows, in `words` words.
fn pieces(runs: &[Run], most: usize, words: usize) -> Vec<u32> {
    let (mut all, mut start) = (Vec::new(), 0);
    for run in runs {
        let end = start + run.rows;
        for first in (start..end).step_by(most) {
            let mut piece = vec![first as u32, end.min(first + most) as u32];
            piece.resize(words, 0);
            all.extend(piece);
        }
        start = end;
    }
    all
}

struct Recording {
    recorder: Recorder,
    rows: usize,
}

impl Recording {
    fn new(rows: usize) -> Self {
        Recording { recorder: Recorder::new(), rows }
    }

    fn buffer(
        &mut self,
        name: &'static str,
        dtype: DType,
        cols: usize,
        count: Count,
        role: Role,
    ) -> BufferId {
        let rows = self.rows;
        self.recorder.buffer(BufferSpec { name, dtype, rows, cols, count, role })
    }

    /// An f32 input, copied to a buffer of the backend's type.
    fn given(&mut self, backend: &GpuBackend, cols: usize) -> (BufferId, BufferId) {
        let given = self.buffer("given", DType::F32, cols, Count::Tokens, Role::Input);
        let dtype = backend.capabilities().activations;
        let out = self.buffer("staged", dtype, cols, Count::Tokens, Role::Internal);
        self.recorder.push(Op::Normalize(Normalize { x: given, unit: false, out })).unwrap();
        (given, out)
    }
}

/// Keys and values of all positions of all slots, in pages that lie in no order.
fn cache(backend: &GpuBackend, dtype: DType) -> (State, State) {
    let cols = 2 * KV_HEADS * HEAD_DIM;
    let pages: Vec<u32> = (0..SLOTS * PER_SLOT).map(|i| (i * 7 % (SLOTS * PER_SLOT)) as u32).collect();
    let table = state(backend, "pages", DType::U32, SLOTS, PER_SLOT);
    backend.write_state(&table, 0, &pages).unwrap();
    let cache = state(backend, "cache", dtype, SLOTS * PER_SLOT * PAGE, cols);
    let all = values(SLOTS * PER_SLOT * PAGE * cols, 3);
    let words = match dtype {
        DType::F32 => bits(&all),
        _ => all.chunks(2).map(|p| u32::from_ne_bytes(bytes(p))).collect(),
    };
    backend.write_state(&cache, 0, &words).unwrap();
    (cache, table)
}

fn bytes(pair: &[f32]) -> [u8; 4] {
    let [a, b] = [0, 1].map(|i| half::f16::from_f32(pair[i]).to_le_bytes());
    [a[0], a[1], b[0], b[1]]
}

/// Attention of these rows in a program for `bucket` rows, with tiles of at most `tile` rows, or none.
fn attend(backend: &GpuBackend, kept: &(State, State), runs: &[Run], bucket: usize, tile: usize) -> Vec<f32> {
    let cols = HEADS * HEAD_DIM;
    let mut r = Recording::new(bucket);
    let (given, q) = r.given(backend, cols);
    let places = r.buffer("tokens", DType::U32, 4, Count::Tokens, Role::Input);
    let tiles = (tile > 0).then(|| r.buffer("tiles", DType::U32, 4, Count::Tiles, Role::Input));
    let out = r.buffer("out", DType::F32, cols, Count::Tokens, Role::Output);
    let (cache, pages) = (r.recorder.state(&kept.0), r.recorder.state(&kept.1));
    let (heads, kv_heads, head_dim) = (HEADS, KV_HEADS, HEAD_DIM);
    let context = PER_SLOT * PAGE;
    r.recorder
        .push(Op::CachedAttention(CachedAttention {
            q,
            tokens: places,
            tiles,
            cache,
            pages,
            context,
            heads,
            kv_heads,
            head_dim,
            scale: 0.2,
            out,
        }))
        .unwrap();
    let x: Vec<f32> = runs.iter().flat_map(|run| row_values(*run, cols)).collect();
    let (x, tokens, pieces) = (bits(&x), tokens(runs), pieces(runs, tile.max(1), 4));
    let rows = tokens.len() / 4;
    let mut inputs = vec![(given, &x[..]), (places, &tokens[..])];
    inputs.extend(tiles.map(|tiles| (tiles, &pieces[..])));
    let tile_count = if tile > 0 { pieces.len() / 4 } else { 0 };
    let mut plan = backend.prepare_gpu(&r.recorder.finish().unwrap()).unwrap();
    run(&mut plan, [rows, 0, tile_count], &inputs, (out, rows, cols))
}

fn run(
    plan: &mut GpuPlan,
    counts: [usize; 3],
    inputs: &[(BufferId, &[u32])],
    (out, rows, cols): (BufferId, usize, usize),
) -> Vec<f32> {
    let [a, b, c] = counts.map(|v| v as u32);
    let ticket = plan.submit([a, b, c, 0], inputs, &[(out, rows)]).unwrap();
    plan.wait(ticket).unwrap();
    let mut result = vec![0.0; rows * cols];
    pollster::block_on(read(plan, ticket, &mut result)).unwrap();
    result
}

#[track_caller]
fn same(expected: &[f32], found: &[f32]) {
    assert_eq!(bits(expected), bits(found));
}

#[test]
fn attention_of_a_row_does_not_depend_on_others() {
    let plain = GpuOptions { no_subgroups: true, ..Default::default() };
    for options in [GpuOptions::default(), plain] {
        for (format, dtype) in [(Format::F32, DType::F32), (Format::F16, DType::F16)] {
            let backend = backend(&options, format);
            let kept = cache(&backend, dtype);
            let row = Run { slot: 2, position: 170, rows: 1 };
            let others = [(0, 255), (1, 3), (3, 64)].map(|(slot, position)| Run { slot, position, rows: 1 });
            let alone = attend(&backend, &kept, &[row], 1, 0);
            same(&alone, &attend(&backend, &kept, &[row], 9, 0));
            let all = attend(&backend, &kept, &[others[0], row, others[1], others[2]], 4, 0);
            same(&alone, &all[alone.len()..2 * alone.len()]);
        }
    }
}

#[test]
fn attention_does_not_depend_on_how_a_prompt_is_cut() {
    for as_hardware in [false, true] {
        for (format, dtype) in [(Format::F32, DType::F32), (Format::F16, DType::F16)] {
            let backend = backend(&GpuOptions { as_hardware, ..Default::default() }, format);
            let kept = cache(&backend, dtype);
            let run = Run { slot: 1, position: 0, rows: 150 };
            let whole = attend(&backend, &kept, &[run], 150, 64);
            same(&whole, &attend(&backend, &kept, &[run], 200, 17));
            let mut parts = Vec::new();
            for (position, rows) in [(0, 40), (40, 70), (110, 40)] {
                let other = Run { slot: 3, position: 5, rows: 20 };
                let part = attend(&backend, &kept, &[other, Run { position, rows, ..run }], 90, 64);
                parts.extend_from_slice(&part[20 * HEADS * HEAD_DIM..]);
            }
            same(&whole, &parts);
        }
    }
}

/// A convolution of these runs after each other, each in a program of its own.
fn convolve(backend: &GpuBackend, runs: &[Run], spans: bool) -> Vec<f32> {
    let cols = 36;
    let kept = state(backend, "conv", DType::F32, SLOTS * 2, cols);
    let weight = upload_f32(backend, "taps", WeightUse::Vector, (3, cols), &values(3 * cols, 5)).unwrap();
    let mut all = Vec::new();
    for one in runs {
        let mut r = Recording::new(one.rows);
        let (given, bcx) = r.given(backend, 3 * cols);
        let tokens_in = r.buffer("tokens", DType::U32, 4, Count::Tokens, Role::Input);
        let ranges = spans.then(|| r.buffer("spans", DType::U32, 2, Count::Sequences, Role::Input));
        let out = r.buffer("out", DType::F32, cols, Count::Tokens, Role::Output);
        let (weight, state) = (weight.clone(), r.recorder.state(&kept));
        let rows = ConvRows::Slots { tokens: tokens_in, spans: ranges, state };
        let op = ShortConv { bcx, rows, weight, bias: None, out };
        r.recorder.push(Op::ShortConv(op)).unwrap();
        let (x, places) = (bits(&row_values(*one, 3 * cols)), tokens(&[*one]));
        let span = [0, one.rows as u32];
        let mut inputs = vec![(given, &x[..]), (tokens_in, &places[..])];
        inputs.extend(ranges.map(|ranges| (ranges, &span[..])));
        let mut plan = backend.prepare_gpu(&r.recorder.finish().unwrap()).unwrap();
        all.extend(run(&mut plan, [one.rows, 1, 0], &inputs, (out, one.rows, cols)));
    }
    all
}

#[test]
fn convolution_goes_on_where_it_was() {
    let backend = backend(&GpuOptions::default(), Format::F32);
    let run = |position, rows| Run { slot: 1, position, rows };
    let whole = convolve(&backend, &[run(0, 41)], true);
    same(&whole, &convolve(&backend, &[run(0, 1), run(1, 35), run(36, 1), run(37, 4)], true));
    let single: Vec<Run> = (0..41).map(|position| run(position, 1)).collect();
    same(&whole, &convolve(&backend, &single, false));
}

/// The names of one op's kernels.
fn kernels(backend: &GpuBackend, r: Recording) -> Vec<&'static str> {
    let plan = backend.prepare_gpu(&r.recorder.finish().unwrap()).unwrap();
    plan.steps().map(|(name, _)| name).collect()
}

#[test]
fn ops_of_a_step_take_few_dispatches() {
    let backend = backend(&GpuOptions::default(), Format::F16);
    let half = backend.capabilities().activations;
    let weight = |rows: usize, cols: usize, usage| {
        upload_f32(&backend, "w", usage, (rows, cols), &values(rows * cols, 1)).unwrap()
    };
    let attention = |context: usize| {
        let mut r = Recording::new(2);
        let cols = 2 * KV_HEADS * HEAD_DIM;
        let cache = r.recorder.state(&state(&backend, "cache", DType::F16, PAGE, cols));
        let pages = r.recorder.state(&state(&backend, "pages", DType::U32, 2, context / PAGE));
        let tokens = r.recorder.state(&state(&backend, "tokens", DType::U32, 2, 4));
        let qkv = r.buffer("qkv", half, (HEADS + 2 * KV_HEADS) * HEAD_DIM, Count::Tokens, Role::Internal);
        let out = r.buffer("out", half, HEADS * HEAD_DIM, Count::Tokens, Role::Internal);
        let (heads, kv_heads, head_dim) = (HEADS, KV_HEADS, HEAD_DIM);
        let rope = upload_f32(&backend, "rope", WeightUse::Vector, (9, HEAD_DIM), &values(9 * HEAD_DIM, 2));
        r.recorder
            .push(Op::StoreKv(StoreKv {
                qkv,
                tokens,
                q_norm: None,
                k_norm: None,
                rope: rope.unwrap(),
                cache,
                pages,
                heads,
                kv_heads,
                head_dim,
            }))
            .unwrap();
        r.recorder
            .push(Op::CachedAttention(CachedAttention {
                q: qkv,
                tokens,
                tiles: None,
                cache,
                pages,
                context,
                heads,
                kv_heads,
                head_dim,
                scale: 1.0,
                out,
            }))
            .unwrap();
        kernels(&backend, r).len()
    };
    assert_eq!((attention(1024), attention(2048)), (2, 3));

    let mut r = Recording::new(2);
    let vocab = 1000;
    let logits = r.buffer("logits", DType::F32, vocab, Count::Sequences, Role::Internal);
    let out = r.buffer("out", DType::F32, 4, Count::Sequences, Role::Output);
    let mut kept = |name, dtype, cols| r.recorder.state(&state(&backend, name, dtype, 3, cols));
    let (tokens, counts) = (kept("tokens", DType::U32, 4), kept("counts", DType::U32, vocab));
    let (settings, bias) = (kept("settings", DType::U32, SETTING_WORDS), kept("bias", DType::F32, vocab));
    let (bias, mask) = (Some(bias), Some(kept("mask", DType::U32, 32)));
    let targets = None;
    let op = Sample { logits, vocab, tokens, targets, settings, counts, bias, mask, out };
    r.recorder.push(Op::Sample(op)).unwrap();
    assert_eq!(kernels(&backend, r), ["sample_logits", "sample_choose"]);

    let mut r = Recording::new(2);
    let (experts, used, cols, width) = (8, 2, 64, 32);
    let x = r.buffer("x", half, cols, Count::Tokens, Role::Internal);
    let routes = r.buffer("routes", DType::F32, 2 * used, Count::Tokens, Role::Internal);
    let inner = r.buffer("inner", half, used * width, Count::Tokens, Role::Internal);
    let out = r.buffer("out", half, cols, Count::Tokens, Role::Internal);
    let (scoring, scale) = (Scoring::Softmax, 1.0);
    let router = weight(experts, cols, WeightUse::Vector);
    let op = Route { x, weight: router, bias: None, scoring, used, normalize: None, scale, out: routes };
    r.recorder.push(Op::Route(op)).unwrap();
    let activation = inferencelayer_engine::op::Activation::Silu;
    let gate_up = weight(experts * 2 * width, cols, WeightUse::Matrix);
    let op = ExpertGatedLinear { x, routes, used, weight: gate_up, activation, out: inner };
    r.recorder.push(Op::ExpertGatedLinear(op)).unwrap();
    let down = weight(experts * cols, width, WeightUse::Matrix);
    let op = ExpertLinear { x: inner, routes, used, weight: down, residual: Some(x), out };
    r.recorder.push(Op::ExpertLinear(op)).unwrap();
    assert_eq!(kernels(&backend, r), ["route", "expert_gated_linear", "expert_linear"]);
}
