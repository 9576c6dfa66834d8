//! candle-transformers' BERT on a folder; see ../README.md for the protocol. Threads: RAYON_NUM_THREADS.

use std::{
    env,
    error::Error,
    fs,
    io::{self, BufRead, Write},
    path::PathBuf,
    time::Instant,
};

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Request {
    texts: usize,
    tokens: usize,
    runs: usize,
}

#[derive(Serialize)]
struct Reply {
    seconds: Vec<f64>,
    vector: Vec<f32>,
}

fn encode(model: &BertModel, ids: &[u32], texts: usize, tokens: usize) -> candle_core::Result<Vec<f32>> {
    let ids = Tensor::from_slice(ids, (texts, tokens), &Device::Cpu)?;
    let hidden = model.forward(&ids, &ids.zeros_like()?, None)?;
    let mean = hidden.mean(1)?;
    let vectors = mean.broadcast_div(&mean.sqr()?.sum_keepdim(1)?.sqrt()?)?;
    vectors.flatten_all()?.to_vec1()
}

/// candle's version, as locked.
fn version() -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let after = lock.split("name = \"candle-core\"\nversion = \"").nth(1);
    after.and_then(|rest| rest.split('"').next()).unwrap_or("unknown")
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let folder = match (args.next().as_deref(), args.next()) {
        (Some("--model"), Some(folder)) => PathBuf::from(folder),
        _ => return Err("usage: candle-peer --model FOLDER".into()),
    };
    let config: Config = serde_json::from_str(&fs::read_to_string(folder.join("config.json"))?)?;
    let bytes = fs::read(folder.join("model.safetensors"))?;
    let weights = VarBuilder::from_buffered_safetensors(bytes, DType::F32, &Device::Cpu)?;
    let model = BertModel::load(weights, &config)?;
    let mut out = io::stdout().lock();
    writeln!(out, r#"{{"name":"candle","version":"{}","mode":"f32"}}"#, version())?;
    out.flush()?;
    for line in io::stdin().lock().lines() {
        let Request { texts, tokens, runs } = serde_json::from_str(&line?)?;
        let ids: Vec<u32> = (0..texts * tokens).map(|i| 1000 + (i * 7919 % 20000) as u32).collect();
        let (mut seconds, mut vector) = (Vec::new(), Vec::new());
        for _ in 0..runs {
            let start = Instant::now();
            vector = encode(&model, &ids, texts, tokens)?;
            seconds.push(start.elapsed().as_secs_f64());
        }
        vector.truncate(vector.len() / texts.max(1));
        writeln!(out, "{}", serde_json::to_string(&Reply { seconds, vector })?)?;
        out.flush()?;
    }
    Ok(())
}
