//! Properties of the embedder: packing, splitting, layer ranges, heads, errors.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Waker},
};

use inferencelayer_engine::{
    Result,
    backend::{self, Backend},
    batch::EncBatch,
    checkpoint::{Loader, MemoryFile, Safetensors},
    embed::{Dense, DenseConfig, Embedder, Head, HeadStep},
    model::{Bucket, Encoder, Stage},
    op::{Activation, Normalize, Op, PoolMode},
    pooling::EmbedOut,
    program::{BufferId, BufferSpec, Count, Recorder, Role},
    task::block_on,
    tensor::DType,
};
use inferencelayer_tests::{
    backends::{self, Make},
    compare::{cosine_distance, relative},
    fixture::{EMBEDDERS, ENCODERS, Fixture, load_encoder, load_text},
    rewrite::{Stored, Tensors, to_file},
};
use safetensors::Dtype;

fn mean(unit: bool) -> Head {
    let mut head = Head { pooling: vec![PoolMode::Mean], steps: vec![], dim: None };
    head.set_unit(unit);
    head
}

fn embedder(name: &str, backend: &Arc<dyn Backend>, head: Head, max: usize, deterministic: bool) -> Embedder {
    let model = load_text(&Fixture::new(name), &**backend).expect("the fixture loads");
    Embedder::new(backend.clone(), model, head, max, deterministic).expect("an embedder")
}

fn encode(embedder: &mut Embedder, seqs: &[Vec<u32>]) -> Vec<Vec<f32>> {
    match embedder.encode_blocking(&EncBatch::from_seqs(seqs.to_vec())).expect("vectors") {
        EmbedOut::Pooled(vectors) => vectors,
        other => panic!("{other:?}"),
    }
}

/// Sequences of many lengths, the longest as long as the smallest fixture takes.
fn texts() -> Vec<Vec<u32>> {
    let mut state = 7u32;
    [1, 17, 64, 2, 33, 5, 48, 1, 9, 60, 3, 12]
        .iter()
        .map(|n| {
            (0..*n)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    4 + (state >> 16) % 380
                })
                .collect()
        })
        .collect()
}

fn singles(embedder: &mut Embedder, texts: &[Vec<u32>]) -> Vec<Vec<f32>> {
    texts.iter().map(|t| encode(embedder, std::slice::from_ref(t)).remove(0)).collect()
}

/// A batch of N gives what N batches of one give, in whatever buckets they run.
fn batch_equals_singles(make: Make, deterministic: bool, exact: bool) {
    let backend = make();
    for fixture in EMBEDDERS {
        let mut embedder = embedder(fixture.name, &backend, mean(true), 300, deterministic);
        let texts = texts();
        let together = encode(&mut embedder, &texts);
        let alone = singles(&mut embedder, &texts);
        if exact {
            assert_eq!(together, alone, "{}", fixture.name);
        }
        let half = backend.capabilities().activations == DType::F16;
        let (values, cosine) = if half { (1e-2, 1e-4) } else { (1e-5, 1e-7) };
        for (a, b) in together.iter().zip(&alone) {
            assert!(relative(a, b) <= values && cosine_distance(a, b) <= cosine, "{}", fixture.name);
        }
    }
}

#[test]
fn batch_equals_singles_on_the_reference() {
    batch_equals_singles(backends::REFERENCE, false, true);
}

#[test]
fn batch_equals_singles_on_a_cpu() {
    batch_equals_singles(backends::CPU_F32, false, true);
    batch_equals_singles(backends::CPU_INT8, false, true);
}

#[test]
fn batch_equals_singles_with_hardware_kernels() {
    batch_equals_singles(backends::HARDWARE_F32, false, false);
    batch_equals_singles(backends::HARDWARE_F32, true, true);
    batch_equals_singles(backends::HARDWARE_F16, true, true);
}

#[test]
fn batch_equals_singles_on_a_gpu() {
    batch_equals_singles(backends::GPU_F32, false, false);
    batch_equals_singles(backends::GPU_F16, false, false);
}

#[test]
fn deterministic_batches_equal_singles_bitwise_on_a_gpu() {
    batch_equals_singles(backends::GPU_F32, true, true);
    batch_equals_singles(backends::GPU_F16, true, true);
}

/// Batches above the cap are split, whatever the cap is.
#[test]
fn splitting_changes_nothing() {
    for make in [backends::REFERENCE, backends::CPU_F32, backends::GPU_F32] {
        let backend = make();
        let texts = texts();
        let mut whole = embedder("xlmr", &backend, mean(true), 4096, false);
        let expected = encode(&mut whole, &texts);
        for max in [64, 65, 100, 200] {
            let mut small = embedder("xlmr", &backend, mean(true), max, false);
            for (a, b) in encode(&mut small, &texts).iter().zip(&expected) {
                assert!(relative(a, b) <= 1e-5, "batches of {max}");
            }
        }
    }
}

#[test]
fn more_sequences_than_a_run_takes() {
    let backend = backends::REFERENCE();
    let mut embedder = embedder("distilbert", &backend, mean(true), 8192, false);
    let texts: Vec<Vec<u32>> = (0..1030).map(|i| vec![i % 500]).collect();
    let vectors = encode(&mut embedder, &texts);
    assert_eq!(vectors.len(), 1030);
    assert_eq!(vectors[1024], encode(&mut embedder, &texts[1024..1025])[0]);
    assert_eq!(vectors[24], vectors[524]);
}

#[test]
fn plans_are_bounded() {
    let backend = backends::REFERENCE();
    let mut embedder = embedder("roberta", &backend, mean(true), 2000, false);
    let text = vec![5; 16];
    for count in (1..100).chain([5, 50, 1]) {
        let vectors = encode(&mut embedder, &vec![text.clone(); count]);
        assert!(vectors.iter().all(|v| *v == vectors[0]));
        assert!(embedder.prepared_plans() <= 17, "{} plans", embedder.prepared_plans());
    }
    assert!(embedder.prepared_plans() > 8);
}

#[test]
fn refused_batches() {
    let backend = backends::REFERENCE();
    let mut embedder = embedder("bert", &backend, mean(true), 50, false);
    let mut error = |seqs: Vec<Vec<u32>>| {
        embedder.encode_blocking(&EncBatch::from_seqs(seqs)).expect_err("a refused batch").to_string()
    };
    assert_eq!(
        error(vec![vec![3], vec![]]),
        "sequence 1 is empty; a model's special tokens at least are needed"
    );
    assert!(error(vec![vec![512]]).contains("sequence 0 has id 512 at token 0"));
    assert!(error(vec![vec![1; 65]]).contains("has 65 tokens, the model takes 64"));
    assert!(error(vec![vec![1; 51]]).contains("has 51 tokens, a batch takes 50: truncate it, or raise"));
    // Nothing of a refused batch remains.
    assert_eq!(encode(&mut embedder, &[]), Vec::<Vec<f32>>::new());
    assert_eq!(encode(&mut embedder, &[vec![3]]).len(), 1);
}

#[test]
fn impossible_embedders() {
    let backend = backends::REFERENCE();
    let error = |head: Head, max: usize| {
        let encoder = load_encoder(&Fixture::new("bert"), &*backend).expect("the fixture loads");
        Embedder::new(backend.clone(), encoder, head, max, false).expect_err("no embedder").to_string()
    };
    assert!(error(mean(true), 0).contains("at most 0 tokens"));
    assert!(error(Head { dim: Some(65), ..mean(true) }, 9).contains("65 dimensions asked for"));
    assert!(error(Head { dim: Some(0), ..mean(true) }, 9).contains("0 dimensions asked for"));
    assert!(error(Head { pooling: vec![], ..mean(true) }, 9).contains("no way of pooling"));
}

/// A future that is dropped while its runs are on their way leaves the embedder usable.
#[test]
fn dropped_futures() {
    for make in [backends::REFERENCE, backends::CPU_F32, backends::GPU_F32] {
        let backend = make();
        let mut embedder = embedder("mpnet", &backend, mean(true), 64, false);
        let texts = texts();
        let expected = encode(&mut embedder, &texts);
        let batch = EncBatch::from_seqs(texts.clone());
        for _ in 0..5 {
            let mut future = pin!(embedder.encode(&batch));
            let _ = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        assert_eq!(encode(&mut embedder, &texts), expected);
    }
}

#[test]
fn truncation_renormalises() {
    for make in [backends::REFERENCE, backends::CPU_F32, backends::GPU_F32] {
        let backend = make();
        let full = encode(&mut embedder("bert", &backend, mean(false), 512, false), &texts());
        // 10 is not a multiple of 4, the width of rows on a device.
        for (dim, unit) in [(64, true), (16, true), (10, true), (1, true), (16, false), (10, false)] {
            let head = Head { dim: Some(dim), ..mean(unit) };
            let mut embedder = embedder("bert", &backend, head, 512, false);
            assert_eq!(embedder.width(), dim);
            for (vector, full) in encode(&mut embedder, &texts()).iter().zip(&full) {
                assert_eq!(vector.len(), dim);
                let scale = match unit {
                    true => full[..dim].iter().map(|v| v * v).sum::<f32>().sqrt(),
                    false => 1.0,
                };
                let expected: Vec<f32> = full[..dim].iter().map(|v| v / scale).collect();
                assert!(relative(vector, &expected) < 1e-5, "{dim} values");
            }
        }
    }
}

#[test]
fn pooled_ranges_leave_the_prompt_out() {
    let backend = backends::REFERENCE();
    let mut embedder = embedder("bert", &backend, mean(false), 512, false);
    let texts = vec![vec![2, 40, 41, 42, 3], vec![2, 50, 3]];
    let states = embedder.encode_tokens_blocking(&EncBatch::from_seqs(texts.clone())).expect("states");
    let batch = EncBatch::from_seqs(texts).with_pool_starts(vec![2, 0]).expect("pool starts");
    let EmbedOut::Pooled(vectors) = embedder.encode_blocking(&batch).expect("vectors") else {
        panic!("no vectors")
    };
    for (at, (states, skipped)) in states.iter().zip([2, 0]).enumerate() {
        let rows: Vec<&[f32]> = states.chunks(64).skip(skipped).collect();
        let expected: Vec<f32> =
            (0..64).map(|c| rows.iter().map(|r| r[c]).sum::<f32>() / rows.len() as f32).collect();
        assert!(relative(&vectors[at], &expected) < 1e-5);
    }
}

/// Dense layers, with each kind of residual, against plain loops on the pooled vectors.
#[test]
fn dense_layers() {
    let random = |n: usize, seed: u32| -> Vec<f32> {
        let step = |s: &mut u32| {
            *s = s.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            Some((*s >> 8) as f32 / (1 << 23) as f32 - 1.0)
        };
        std::iter::repeat_n((), n).scan(seed, |s, ()| step(s)).map(|v| v * 0.3).collect()
    };
    let stored = |shape: &[usize], values: &[f32]| Stored {
        dtype: Dtype::F32,
        shape: shape.to_vec(),
        bytes: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    };
    for make in [backends::REFERENCE, backends::CPU_F32, backends::GPU_F32] {
        let backend = make();
        for (out, bias, residual) in [(64, true, true), (24, true, true), (96, false, false)] {
            let (weight, b, r) = (random(out * 64, 1), random(out, 2), random(out * 64, 3));
            let tensors: Tensors = [
                ("linear.weight".into(), stored(&[out, 64], &weight)),
                ("linear.bias".into(), stored(&[out], &b)),
                ("residual.weight".into(), stored(&[out, 64], &r)),
            ]
            .into();
            let source = MemoryFile::new("dense", to_file(&tensors));
            let source = block_on(Safetensors::open(Box::new(source))).expect("a safetensors file");
            let (in_features, activation) = (64, Activation::Tanh);
            let config = DenseConfig { in_features, out_features: out, bias, activation, residual };
            let dense =
                block_on(Dense::load(&config, &mut Loader::new(&source, &*backend))).expect("a layer");

            let plain = encode(&mut embedder("bert", &backend, mean(false), 512, false), &texts());
            let steps = vec![HeadStep::Dense(dense)];
            let head = Head { pooling: vec![PoolMode::Mean], steps, dim: None };
            let found = encode(&mut embedder("bert", &backend, head, 512, false), &texts());
            for (x, y) in plain.iter().zip(&found) {
                let row =
                    |m: &[f32], i: usize| m[i * 64..][..64].iter().zip(x).map(|(w, x)| w * x).sum::<f32>();
                let expected: Vec<f32> = (0..out)
                    .map(|i| {
                        let y = (row(&weight, i) + if bias { b[i] } else { 0.0 }).tanh();
                        let skip = if out == 64 { x[i] } else { row(&r, i) };
                        y + if residual { skip } else { 0.0 }
                    })
                    .collect();
                assert!(relative(y, &expected) < 1e-4, "{config:?}");
            }
        }
    }
}

#[test]
fn dense_layers_must_fit() {
    let backend = backends::REFERENCE();
    let tensors: Tensors = [(
        "linear.weight".into(),
        Stored { dtype: Dtype::F32, shape: vec![8, 32], bytes: vec![0; 8 * 32 * 4] },
    )]
    .into();
    let source =
        block_on(Safetensors::open(Box::new(MemoryFile::new("dense", to_file(&tensors))))).expect("a file");
    let load = |out_features, in_features| {
        let activation = Activation::None;
        let config = DenseConfig { in_features, out_features, bias: false, activation, residual: false };
        block_on(Dense::load(&config, &mut Loader::new(&source, &*backend)))
    };
    let text = load(8, 64).expect_err("another shape").to_string();
    assert_eq!(text, "tensor `linear.weight` of dense: expected shape [8, 64], found [8, 32]");
    let steps = vec![HeadStep::Dense(load(8, 32).expect("a layer"))];
    let encoder = load_encoder(&Fixture::new("bert"), &*backend).expect("the fixture loads");
    let head = Head { pooling: vec![PoolMode::Mean], steps, dim: None };
    let text = Embedder::new(backend.clone(), encoder, head, 64, false).expect_err("no embedder").to_string();
    assert_eq!(text, "vectors before the dense layer `linear.weight`: expected shape [32], found [64]");
}

/// Runs layers `range` alone, from tokens or from hidden states.
fn run_layers(
    encoder: &Encoder,
    backend: &dyn Backend,
    range: std::ops::Range<usize>,
    tokens: &[u32],
    hidden: Option<&[f32]>,
) -> Result<Vec<f32>> {
    let (rows, cols) = (tokens.len() / 4, encoder.config().hidden);
    let bucket = Bucket { tokens: rows + 3, sequences: 1, tiles: 2 };
    let mut recorder = Recorder::new();
    let mut buffer = |name, dtype, rows, cols, count, role| {
        recorder.buffer(BufferSpec { name, dtype, rows, cols, count, role })
    };
    let token_rows = buffer("tokens", DType::U32, bucket.tokens, 4, Count::Tokens, Role::Input);
    let tiles = buffer("tiles", DType::U32, bucket.tiles, 4, Count::Tiles, Role::Input);
    let given = hidden.map(|_| buffer("hidden", DType::F32, bucket.tokens, cols, Count::Tokens, Role::Input));
    let out = buffer("out", DType::F32, bucket.tokens, cols, Count::Tokens, Role::Output);
    let x =
        encoder.record(&mut recorder, bucket, range, Stage { tokens: token_rows, tiles, hidden: given })?;
    recorder.push(Op::Normalize(Normalize { x, unit: false, out }))?;
    let mut plan = backend.prepare(&recorder.finish()?)?;
    let bits: Vec<u32> = hidden.unwrap_or_default().iter().map(|v| v.to_bits()).collect();
    let end = rows as u32;
    let tile_rows = [0, end, 0, end];
    let mut inputs: Vec<(BufferId, &[u32])> = vec![(token_rows, tokens), (tiles, &tile_rows)];
    inputs.extend(given.map(|id| (id, bits.as_slice())));
    let ticket = plan.submit([end, 1, 1, 0], &inputs, &[(out, rows)])?;
    plan.wait(ticket)?;
    let mut values = vec![0.0; rows * cols];
    block_on(backend::read(&mut *plan, ticket, &mut values))?;
    Ok(values)
}

/// Layers a..b, their output handed over, then b..c: the same bits as all at once. Also when each part has
/// only its own layers loaded.
fn parts_equal_the_whole(make: Make) {
    let backend = make();
    for fixture in ENCODERS {
        let folder = Fixture::new(fixture.name);
        let encoder = load_encoder(&folder, &*backend).expect("the fixture loads");
        let first = encoder.config().positions.first;
        let tokens: Vec<u32> = (0..20).flat_map(|i| [5 + i * 7, first + i, 0, 0]).collect();
        let count = encoder.layers().end;
        let whole = run_layers(&encoder, &*backend, 0..count, &tokens, None).expect("states");
        for cut in 1..count {
            let states = run_layers(&encoder, &*backend, 0..cut, &tokens, None).expect("states");
            let ended = run_layers(&encoder, &*backend, cut..count, &tokens, Some(&states)).expect("states");
            assert_eq!(ended, whole, "{} cut at {cut}", fixture.name);

            let part = |range: std::ops::Range<usize>| {
                let config = encoder.config().clone();
                let source = block_on(inferencelayer_engine::checkpoint::open_weights(&folder, ""))?;
                block_on(Encoder::load_layers(config, range, &mut Loader::new(&*source, &*backend)))
            };
            let (head, tail) = (part(0..cut).expect("layers"), part(cut..count).expect("layers"));
            let states = run_layers(&head, &*backend, 0..cut, &tokens, None).expect("states");
            let ended = run_layers(&tail, &*backend, cut..count, &tokens, Some(&states)).expect("states");
            assert_eq!(ended, whole, "{} in shards cut at {cut}", fixture.name);
            let error = run_layers(&tail, &*backend, 0..count, &tokens, None).expect_err("not loaded");
            assert!(error.to_string().contains("loaded"), "{error}");
        }
    }
}

#[test]
fn parts_equal_the_whole_on_the_reference() {
    parts_equal_the_whole(backends::REFERENCE);
    parts_equal_the_whole(backends::REFERENCE_F16);
}

#[test]
fn parts_equal_the_whole_on_a_cpu() {
    parts_equal_the_whole(backends::CPU_F32);
    parts_equal_the_whole(backends::CPU_INT8);
}

#[test]
fn parts_equal_the_whole_on_a_gpu() {
    parts_equal_the_whole(backends::GPU_F32);
    parts_equal_the_whole(backends::GPU_F16);
}
