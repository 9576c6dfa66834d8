//! Hidden states and vectors of the fixtures that embed against transformers and sentence-transformers, in
//! float32, on every backend.

use std::sync::Arc;

use inferencelayer_engine::{
    backend::Backend,
    batch::EncBatch,
    embed::{Embedder, Head, HeadStep},
    op::PoolMode,
    pooling::EmbedOut,
};
use inferencelayer_tests::{
    backends,
    compare::{Bounds, cosine_distance, relative},
    fixture::{EMBEDDERS, EncoderFixture, Expected, Fixture, load_text},
};

fn head(modes: &[PoolMode], unit: bool) -> Head {
    let steps = if unit { vec![HeadStep::Normalize] } else { vec![] };
    Head { pooling: modes.to_vec(), steps, dim: None }
}

fn embedder(name: &str, backend: &Arc<dyn Backend>, head: Head) -> Embedder {
    let model = load_text(&Fixture::new(name), &**backend).expect("the fixture loads");
    Embedder::new(backend.clone(), model, head, 512, false).expect("an embedder")
}

fn pooled(embedder: &mut Embedder, seqs: Vec<Vec<u32>>) -> Vec<Vec<f32>> {
    match embedder.encode_blocking(&EncBatch::from_seqs(seqs)).expect("vectors") {
        EmbedOut::Pooled(vectors) => vectors,
        other => panic!("{other:?}"),
    }
}

/// All checks of one fixture on one backend; the largest deviations are printed.
fn check(fixture: EncoderFixture, backend: &Arc<dyn Backend>) {
    let expected = Fixture::new(fixture.name).expected();
    let bounds = Bounds::of(backend.capabilities());
    let hidden = check_hidden_states(fixture, backend, &expected, bounds);
    let cosine = check_pooled(fixture, backend, &expected, bounds);
    println!(
        "{} on {}: hidden states {hidden:e} of {:e}, 1 - cosine {cosine:e} of {:e}",
        fixture.name,
        backend.capabilities().name,
        bounds.hidden,
        bounds.cosine
    );
}

/// Sequences of the `len{T}` entries, and `types` where there are token types.
fn check_hidden_states(
    fixture: EncoderFixture,
    backend: &Arc<dyn Backend>,
    expected: &Expected,
    bounds: Bounds,
) -> f32 {
    let mut embedder = embedder(fixture.name, backend, head(&[fixture.pooling], false));
    let width = embedder.model().hidden;
    let cases: Vec<String> = expected
        .names()
        .iter()
        .filter_map(|n| n.strip_suffix(".last_hidden_state"))
        .filter(|n| n.starts_with("len") || *n == "types")
        .map(String::from)
        .collect();
    assert!(cases.len() >= 4, "{cases:?}");
    let mut worst = 0f32;
    for case in cases {
        let seq = expected.ids(&format!("{case}.input_ids"));
        let mut batch = EncBatch::from_seqs(vec![seq.clone()]);
        if case == "types" {
            batch = batch.with_types(vec![expected.ids("types.token_type_ids")]).expect("token types");
        }
        let states = &embedder.encode_tokens_blocking(&batch).expect("hidden states")[0];
        // Long sequences keep some of their rows.
        let rows = match expected.has(&format!("{case}.positions")) {
            true => expected.ids(&format!("{case}.positions")),
            false => (0..seq.len() as u32).collect(),
        };
        let found: Vec<f32> =
            rows.iter().flat_map(|row| &states[*row as usize * width..][..width]).copied().collect();
        let off = relative(&found, &expected.floats(&format!("{case}.last_hidden_state")));
        assert!(off <= bounds.hidden, "{} {case} on {}: {off:e}", fixture.name, backend.capabilities().name);
        worst = worst.max(off);
    }
    worst
}

/// The three poolings of every `len{T}`, normalised and not, and the texts of `encode`, as one batch.
fn check_pooled(
    fixture: EncoderFixture,
    backend: &Arc<dyn Backend>,
    expected: &Expected,
    bounds: Bounds,
) -> f64 {
    let mut worst = 0f64;
    let mut close = |what: &str, found: &[f32], wanted: &[f32]| {
        let off = cosine_distance(found, wanted);
        let length = |v: &[f32]| v.iter().map(|v| v * v).sum::<f32>().sqrt();
        let longer = (length(found) / length(wanted) - 1.0).abs();
        let name = &backend.capabilities().name;
        assert!(off <= bounds.cosine, "{} {what} on {name}: 1 - cosine is {off:e}", fixture.name);
        assert!(longer <= bounds.hidden, "{} {what} on {name}: length is off by {longer:e}", fixture.name);
        worst = worst.max(off);
    };
    let modes = [("cls", PoolMode::Cls), ("mean", PoolMode::Mean), ("last", PoolMode::LastToken)];
    let names: Vec<String> =
        expected.names().iter().filter_map(|n| n.strip_suffix(".cls")).map(String::from).collect();
    let lens: Vec<&String> = names.iter().filter(|n| n.starts_with("len")).collect();
    let seqs: Vec<Vec<u32>> = lens.iter().map(|n| expected.ids(&format!("{n}.input_ids"))).collect();
    for (suffix, unit) in [("", false), ("_norm", true)] {
        // All three at once, each a third of the concatenation; normalised one by one.
        for (mode_name, mode) in modes {
            let mut embedder = embedder(fixture.name, backend, head(&[mode], unit));
            for (vector, len) in pooled(&mut embedder, seqs.clone()).iter().zip(&lens) {
                let name = format!("{len}.{mode_name}{suffix}");
                close(&name, vector, &expected.floats(&name));
            }
        }
    }
    let mut all = embedder(fixture.name, backend, head(&modes.map(|(_, mode)| mode), false));
    for (vector, len) in pooled(&mut all, seqs).iter().zip(&lens) {
        let wanted = modes.map(|(name, _)| expected.floats(&format!("{len}.{name}"))).concat();
        close(&format!("{len} concatenated"), vector, &wanted);
    }

    let mut embedder = embedder(fixture.name, backend, head(&[fixture.pooling], fixture.unit));
    let width = embedder.width();
    let texts = expected.ragged("encode.token_ids", "encode.token_offsets");
    let wanted = expected.floats("encode.embeddings");
    let vectors = pooled(&mut embedder, texts);
    assert_eq!(vectors.len() * width, wanted.len());
    for (at, (vector, wanted)) in vectors.iter().zip(wanted.chunks(width)).enumerate() {
        close(&format!("text {at}"), vector, wanted);
    }
    worst
}

fn check_all(make: backends::Make) {
    let backend = make();
    for fixture in EMBEDDERS {
        check(fixture, &backend);
    }
}

#[test]
fn reference() {
    check_all(backends::REFERENCE);
}

#[test]
fn reference_in_f16() {
    check_all(backends::REFERENCE_F16);
}

#[test]
fn reference_in_int8() {
    check_all(backends::REFERENCE_INT8);
}

#[test]
fn cpu_f32() {
    check_all(backends::CPU_F32);
}

#[test]
fn cpu_int8() {
    check_all(backends::CPU_INT8);
}

#[test]
fn gpu_f32() {
    check_all(backends::GPU_F32);
}

#[test]
fn gpu_f16() {
    check_all(backends::GPU_F16);
}

#[test]
fn hardware_kernels() {
    check_all(backends::HARDWARE_F32);
    check_all(backends::HARDWARE_F16);
}
