//! Poolings, dense layers and prompts of the `heads` and `prompts` fixtures against sentence-transformers.

use std::sync::Arc;

use inferencelayer_engine::{
    backend::Backend,
    batch::EncBatch,
    checkpoint::{Loader, open_module_weights},
    embed::{Dense, DenseConfig, Embedder, Head, HeadStep},
    op::{Activation, PoolMode},
    pooling::EmbedOut,
    task::block_on,
};
use inferencelayer_tests::{
    backends::{self, Make},
    compare::{Bounds, cosine_distance},
    fixture::{Fixture, load_encoder},
};

const MAKES: [Make; 6] = [
    backends::REFERENCE,
    backends::REFERENCE_F16,
    backends::CPU_F32,
    backends::CPU_INT8,
    backends::GPU_F32,
    backends::GPU_F16,
];

fn vectors(embedder: &mut Embedder, batch: &EncBatch) -> Vec<Vec<f32>> {
    match embedder.encode_blocking(batch).expect("vectors") {
        EmbedOut::Pooled(vectors) => vectors,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn close(what: &str, backend: &dyn Backend, found: &[Vec<f32>], expected: &[f32]) {
    let bound = Bounds::of(backend.capabilities()).cosine;
    let width = expected.len() / found.len();
    for (at, (found, expected)) in found.iter().zip(expected.chunks(width)).enumerate() {
        let off = cosine_distance(found, expected);
        let name = &backend.capabilities().name;
        assert!(off <= bound, "{what} {at} on {name}: 1 - cosine is {off:e}");
        let length = |v: &[f32]| v.iter().map(|v| v * v).sum::<f32>().sqrt();
        assert!(
            (length(found) / length(expected) - 1.0).abs() < 1e-2,
            "{what} {at} on {name}: another length"
        );
    }
}

/// The head of the `heads` fixture, as its module files describe it.
fn dense_head(folder: &Fixture, backend: &dyn Backend) -> Head {
    let layers = [
        ("2_Dense/", 192, 48, true, Activation::Tanh, true),
        ("3_Dense/", 48, 48, true, Activation::Gelu, true),
        ("4_Dense/", 48, 24, false, Activation::None, false),
    ];
    let load = |(path, in_features, out_features, bias, activation, residual)| {
        let config = DenseConfig { in_features, out_features, bias, activation, residual };
        let source = block_on(open_module_weights(folder, path)).expect("weights");
        HeadStep::Dense(block_on(Dense::load(&config, &mut Loader::new(&*source, backend))).expect("a layer"))
    };
    let mut steps: Vec<HeadStep> = layers.into_iter().map(load).collect();
    steps.push(HeadStep::Normalize);
    let pooling = vec![
        PoolMode::Max,
        PoolMode::Cls,
        PoolMode::MeanSqrtLen,
        PoolMode::Mean,
        PoolMode::LastToken,
        PoolMode::WeightedMean,
    ];
    Head { pooling, steps, dim: None }
}

fn embedder(folder: &Fixture, backend: &Arc<dyn Backend>, head: Head) -> Embedder {
    let encoder = load_encoder(folder, &**backend).expect("the fixture loads");
    Embedder::new(backend.clone(), encoder, head, 512, false).expect("an embedder")
}

#[test]
fn all_poolings_and_dense_layers() {
    let folder = Fixture::new("heads");
    let expected = folder.expected();
    for make in MAKES {
        let backend = make();
        let head = dense_head(&folder, &*backend);
        let mut embedder = embedder(&folder, &backend, head);
        let ids = expected.ragged("encode.token_ids", "encode.token_offsets");
        let found = vectors(&mut embedder, &EncBatch::from_seqs(ids));
        close("text", &*backend, &found, &expected.floats("encode.embeddings"));
    }
}

#[test]
fn prompts_are_not_pooled() {
    let folder = Fixture::new("prompts");
    let expected = folder.expected();
    for make in MAKES {
        let backend = make();
        let pooling = vec![PoolMode::Cls, PoolMode::Mean, PoolMode::LastToken];
        let mut embedder = embedder(&folder, &backend, Head { pooling, steps: vec![], dim: None });
        let ids = expected.ragged("encode.token_ids", "encode.token_offsets");
        let found = vectors(&mut embedder, &EncBatch::from_seqs(ids));
        close("text", &*backend, &found, &expected.floats("encode.embeddings"));
        for prompt in ["query", "document"] {
            let ids = expected.ragged(&format!("encode.{prompt}_ids"), &format!("encode.{prompt}_offsets"));
            let skipped = expected.ids(&format!("encode.{prompt}_prompt_tokens"))[0] as usize;
            assert!(skipped > 3);
            let starts = vec![skipped; ids.len()];
            let batch = EncBatch::from_seqs(ids).with_pool_starts(starts).expect("pool starts");
            let wanted = expected.floats(&format!("encode.{prompt}_embeddings"));
            close(prompt, &*backend, &vectors(&mut embedder, &batch), &wanted);
        }
    }
}
