//! The options of `lfm2-generate`.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::Parser;
use inferencelayer::{
    cli::logging,
    device::{Device, Dtype},
    engine::gpu::AdapterChoice,
};

/// Generates text with LFM2, Qwen3, Qwen2 and Llama models.
///
/// The text alone goes to standard output; messages go to standard error. The exit status is 0 if all went well, 1 if
/// something failed, 2 if the options make no sense.
#[derive(Debug, Parser)]
#[command(name = "lfm2-generate", version, max_term_width = 110)]
pub struct Args {
    /// The folder of a model, or a GGUF file.
    #[arg(long, short, value_name = "NAME")]
    pub model: PathBuf,

    /// The prompt as token ids, with commas between them.
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub prompt_ids: Vec<u32>,

    /// Most tokens to generate; 0 only processes the prompt.
    #[arg(long, short = 'n', value_name = "MAX", default_value_t = 512)]
    pub max_tokens: usize,

    /// Divides logits before sampling; 0 takes the most likely token.
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    pub temperature: f32,

    /// Sample among this many of the most likely tokens; 0 among all.
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub top_k: u32,

    /// Sample among the most likely tokens that together have this probability.
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    pub top_p: f32,

    /// Sample among tokens at least this times as likely as the most likely one.
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub min_p: f32,

    /// Makes tokens less likely that were there before; 1 does nothing.
    #[arg(long, value_name = "R", default_value_t = 1.0)]
    pub repeat_penalty: f32,

    /// Makes sampling repeatable.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,

    /// Go on after the model's end-of-sequence tokens.
    #[arg(long)]
    pub ignore_eos: bool,

    /// What to compute on.
    #[arg(long, value_enum, default_value_t, value_name = "DEVICE")]
    pub device: Device,

    /// How numbers are kept: f32 reads quantized weights exactly; as-is may round activations to 8 bits [default:
    /// as-is].
    #[arg(long, value_enum, value_name = "DTYPE")]
    pub dtype: Option<Dtype>,

    /// Most tokens of prompt and answer together [default: the model's, at most 4096].
    #[arg(long, value_name = "N")]
    pub context: Option<usize>,

    /// Most tokens of the prompt that are processed at a time.
    #[arg(long, value_name = "N", default_value = "512")]
    pub chunk: NonZeroUsize,

    /// Threads on the CPU [default: one a core].
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,

    /// The GPU to use: its number in `lfm2-embed --list-devices`, or a part of its name.
    #[arg(long, value_name = "N|NAME", value_parser = inferencelayer::cli::adapter)]
    pub adapter: Option<AdapterChoice>,

    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,

    /// Write the logits at each position of the prompt to this safetensors file, as `logits` [positions, vocabulary].
    #[arg(long, value_name = "FILE")]
    pub logits: Option<PathBuf>,

    /// Say on standard error how long everything took.
    #[arg(long)]
    pub stats: bool,

    /// Say on standard error where the time of one step goes, kernel by kernel (on GPUs with timestamps).
    #[arg(long)]
    pub profile: bool,

    /// How much is said on standard error.
    #[arg(long, value_enum, default_value_t, value_name = "LEVEL")]
    pub log_level: logging::Level,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn consistent() {
        Args::command().debug_assert();
    }
}
