//! Every encoder architecture, token ids in and vectors out, against sentence-transformers in float32.

use std::sync::Arc;

use inferencelayer::cpu::{CpuBackend, CpuOptions};
use inferencelayer_engine::{
    Result,
    backend::Backend,
    batch::EncBatch,
    checkpoint::{open_weights, read_text},
    embed::{Embedder, Head, HeadStep},
    gpu::{GpuBackend, GpuContext, GpuOptions},
    model::{Encoder, arch::read_encoder, config::Config},
    pooling::EmbedOut,
    tensor::Format,
};
use wasm_bindgen_test::{console_log, wasm_bindgen_test};

use crate::{
    fixtures::{self, Fixture},
    support::distance,
};

async fn load(fixture: &Fixture, backend: Arc<dyn Backend>) -> Result<Embedder> {
    let folder = fixture.folder();
    let text = read_text(&folder, "config.json").await?.expect("config.json");
    let config = read_encoder(&Config::parse("config.json", &text)?)?;
    let source = open_weights(&folder, "").await?;
    let encoder = Encoder::load(config, &*source, &*backend).await?;
    let steps = if fixture.unit { vec![HeadStep::Normalize] } else { vec![] };
    Embedder::new(backend, encoder, Head { pooling: vec![fixture.pooling], steps, dim: None }, 256, false)
}

/// All fixtures on one backend; `limit` bounds `1 − cosine`.
async fn check(backend: Arc<dyn Backend>, limit: f64) {
    for fixture in fixtures::ALL {
        let name = fixture.name;
        let mut embedder = load(&fixture, backend.clone()).await.unwrap_or_else(|e| panic!("{name}: {e}"));
        let batch = EncBatch::from_seqs(fixture.texts());
        let out = embedder.encode(&batch).await.unwrap_or_else(|e| panic!("{name}: {e}"));
        let EmbedOut::Pooled(vectors) = out else { panic!("{name}: {out:?}") };
        let (expected, width) = (fixture.embeddings(), embedder.width());
        assert_eq!(vectors.len() * width, expected.len(), "{name}");
        let mut worst = 0f64;
        for (vector, expected) in vectors.iter().zip(expected.chunks(width)) {
            let off = distance(vector, expected);
            // Also false for NaN.
            assert!(off <= limit, "{name}: 1 - cosine is {off:e}, allowed is {limit:e}");
            let length = |v: &[f32]| v.iter().map(|v| v * v).sum::<f32>().sqrt();
            assert!(
                (length(vector) / length(expected) - 1.0).abs() < 2e-2,
                "{name}: length {}",
                length(vector)
            );
            worst = worst.max(off);
        }
        console_log!("{name} on {}: 1 - cosine {worst:e}", backend.capabilities().name);
    }
}

/// One `Arc` serves natively and in a browser, where GPU objects stay on their thread.
#[allow(clippy::arc_with_non_send_sync)]
async fn gpu(format: Format) -> Arc<dyn Backend> {
    let context = GpuContext::new(&GpuOptions::default()).await.unwrap_or_else(|e| panic!("{e}"));
    Arc::new(GpuBackend::new(context, format).unwrap_or_else(|e| panic!("{e}")))
}

#[wasm_bindgen_test]
async fn gpu_f32_agrees_with_sentence_transformers() {
    check(gpu(Format::F32).await, 1e-6).await;
}

#[wasm_bindgen_test]
async fn gpu_f16_agrees_with_sentence_transformers() {
    check(gpu(Format::F16).await, 1e-4).await;
}

/// The CPU backend compiled to wasm.
#[wasm_bindgen_test]
async fn cpu_f32_agrees_with_sentence_transformers() {
    let backend = CpuBackend::new(CpuOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    check(Arc::new(backend), 1e-6).await;
}
