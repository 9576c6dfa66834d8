//! What is written when an answer is done.

use std::{
    collections::HashMap,
    fmt::Write as _,
    io::{self, Write},
    path::Path,
    time::Duration,
};

use inferencelayer::{Error, Result, generate::Finish};
use safetensors::{Dtype, tensor::TensorView};
use serde::Serialize;

/// How long everything took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Timings {
    pub load: Duration,
    /// From the prompt to the first token.
    pub prefill: Duration,
    /// From the first token to the last.
    pub decode: Duration,
}

/// A prompt and its answer.
#[derive(Debug, Default)]
pub struct Answer {
    pub prompt_ids: Vec<u32>,
    pub ids: Vec<u32>,
    /// `None` for a model without a tokenizer.
    pub text: Option<String>,
    pub finish: Option<Finish>,
    /// The user did not want more of it.
    pub stopped: bool,
    pub timings: Timings,
    /// Bytes held by the backend.
    pub memory: u64,
}

/// Tokens each second; `None` for no time.
fn rate(tokens: usize, time: Duration) -> Option<f64> {
    (tokens > 0 && time > Duration::ZERO).then(|| tokens as f64 / time.as_secs_f64())
}

impl Answer {
    fn prefill_rate(&self) -> Option<f64> {
        rate(self.prompt_ids.len(), self.timings.prefill)
    }

    /// The first token came with the prompt.
    fn decode_rate(&self) -> Option<f64> {
        rate(self.ids.len().saturating_sub(1), self.timings.decode)
    }
}

#[derive(Serialize)]
struct Json<'a> {
    prompt_ids: &'a [u32],
    ids: &'a [u32],
    text: Option<&'a str>,
    finish_reason: Option<&'static str>,
    timings: JsonTimings,
    memory_bytes: u64,
}

/// Seconds, and tokens each second.
#[derive(Serialize)]
struct JsonTimings {
    load: f64,
    first_token: f64,
    decode: f64,
    prefill_tokens_per_second: Option<f64>,
    decode_tokens_per_second: Option<f64>,
}

fn finish_reason(finish: Option<Finish>) -> Option<&'static str> {
    finish.map(|f| match f {
        Finish::Stop => "stop",
        Finish::Length => "length",
    })
}

/// Name of standard output in errors.
pub const STDOUT: &str = "standard output";

/// Writes to standard output at once.
///
/// # Errors
/// `Io`.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::io(STDOUT))
}

/// One JSON object on standard output.
///
/// # Errors
/// `Io`.
pub fn json(answer: &Answer) -> Result<()> {
    let value = Json {
        prompt_ids: &answer.prompt_ids,
        ids: &answer.ids,
        text: answer.text.as_deref(),
        finish_reason: finish_reason(answer.finish),
        timings: JsonTimings {
            load: answer.timings.load.as_secs_f64(),
            first_token: answer.timings.prefill.as_secs_f64(),
            decode: answer.timings.decode.as_secs_f64(),
            prefill_tokens_per_second: answer.prefill_rate(),
            decode_tokens_per_second: answer.decode_rate(),
        },
        memory_bytes: answer.memory,
    };
    let text = serde_json::to_string(&value).map_err(|e| Error::Input(format!("the answer as JSON: {e}")))?;
    print(&(text + "\n"))
}

/// Times and memory, for people. An answer in the middle of a chat has no time of loading.
pub fn stats(answer: &Answer) -> String {
    let Timings { load, prefill, decode } = answer.timings;
    let mut text = String::new();
    let mut line = |what: &str, time: Duration, tokens: usize, rate: Option<f64>| {
        let rate = rate.map_or_else(String::new, |r| format!(", {tokens} tokens, {r:.1} tokens/s"));
        let _ = writeln!(text, "{what:>12} {:9.1} ms{rate}", time.as_secs_f64() * 1e3);
    };
    if load > Duration::ZERO {
        line("load", load, 0, None);
    }
    line("first token", prefill, answer.prompt_ids.len(), answer.prefill_rate());
    line("decode", decode, answer.ids.len().saturating_sub(1), answer.decode_rate());
    let _ = writeln!(text, "{:>12} {:9.1} MB", "memory", answer.memory as f64 / 1e6);
    text
}

/// Writes `logits` `[rows, vocabulary]`.
///
/// # Errors
/// `Io`, naming the file.
pub fn logits(path: &Path, logits: &[f32], rows: usize) -> Result<()> {
    let bytes: &[u8] = bytemuck::cast_slice(logits);
    let shape = vec![rows, logits.len() / rows.max(1)];
    let failed = |e: safetensors::SafeTensorError| Error::Io {
        path: path.to_owned(),
        source: io::Error::other(e.to_string()),
    };
    let view = TensorView::new(Dtype::F32, shape, bytes).map_err(failed)?;
    let tensors = HashMap::from([("logits", view)]);
    let bytes = safetensors::serialize(tensors, None).map_err(failed)?;
    // Not by a new file of this name: the path may be a pipe, a device or a link.
    std::fs::write(path, bytes).map_err(Error::io(path))
}
