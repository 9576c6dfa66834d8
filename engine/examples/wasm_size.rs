//! The engine alone as a browser module: checkpoint bytes and token ids in, vectors out, on WebGPU.
//!
//! `tests/run size` builds it to measure what the engine adds to a page. It uses everything an embedding needs:
//! loading, every encoder architecture, all kernels, the head.
#![cfg(target_arch = "wasm32")]

use std::sync::Arc;

use inferencelayer_engine::{
    batch::EncBatch,
    checkpoint::{Folder, MemoryFolder, open_weights, read_text},
    embed::{Embedder, Head, HeadStep},
    gpu::{GpuBackend, GpuContext, GpuOptions},
    model::{Encoder, arch::read_encoder, config::Config},
    op::PoolMode,
    pooling::EmbedOut,
    tensor::Format,
};
use wasm_bindgen::prelude::{JsError, wasm_bindgen};

/// Loads a model with mean pooling.
#[wasm_bindgen]
pub async fn load(config: String, model: Vec<u8>) -> Result<Model, JsError> {
    let mut folder = MemoryFolder::new("model");
    folder.insert("config.json", config.into_bytes());
    folder.insert("model.safetensors", model);
    let embedder = open(&folder).await.map_err(error)?;
    Ok(Model(embedder))
}

#[wasm_bindgen]
pub struct Model(Embedder);

#[wasm_bindgen]
impl Model {
    /// The vector of one sequence of token ids.
    pub async fn encode(&mut self, ids: Vec<u32>) -> Result<Vec<f32>, JsError> {
        let batch = EncBatch::from_seqs(vec![ids]);
        match self.0.encode(&batch).await.map_err(error)? {
            EmbedOut::Pooled(vectors) => Ok(vectors.into_iter().flatten().collect()),
            _ => Err(JsError::new("the model gives no pooled vectors")),
        }
    }
}

async fn open(folder: &dyn Folder) -> inferencelayer_engine::Result<Embedder> {
    let context = GpuContext::new(&GpuOptions::default()).await?;
    let format = if context.features().f16 { Format::F16 } else { Format::F32 };
    let backend = Arc::new(GpuBackend::new(context, format)?);
    let text = read_text(folder, "config.json").await?.unwrap_or_default();
    let config = read_encoder(&Config::parse("config.json", &text)?)?;
    let source = open_weights(folder, "").await?;
    let encoder = Encoder::load(config, &*source, &*backend).await?;
    let head = Head { pooling: vec![PoolMode::Mean], steps: vec![HeadStep::Normalize], dim: None };
    Embedder::new(backend, encoder, head, 8192, false)
}

fn error(e: inferencelayer_engine::Error) -> JsError {
    JsError::new(&e.to_string())
}
