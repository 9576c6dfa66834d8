//! The options of `lfm2-generate`.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::Parser;
use inferencelayer::{
    cli::logging,
    device::{Device, Dtype},
    engine::gpu::AdapterChoice,
};

/// Orders of sampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum SamplerOrder {
    /// Temperature first, as in Hugging Face's `generate`.
    #[default]
    Hf,
    /// Temperature last, as in llama.cpp.
    Llama,
}

/// Prompts that are no chats.
const PLAIN: [&str; 3] = ["prompt", "prompt_file", "prompt_ids"];

/// Generates text with LFM2, Qwen3, Qwen2 and Llama models.
///
/// A PROMPT goes on as it is. A question (--user) or messages (--chat) become a prompt by the model's own chat template.
/// Without either, on a terminal, it is a chat: /help there says more.
///
/// The text alone goes to standard output; messages go to standard error. The exit status is 0 if all went well, 1 if
/// something failed, 2 if the command line could not be read.
#[derive(Debug, Parser)]
#[command(name = "lfm2-generate", version, max_term_width = 110)]
pub struct Args {
    /// The folder of a model, a GGUF file, an alias (see --list-models), or a hub id `owner/name`.
    #[arg(long, short, value_name = "NAME", required_unless_present = "list_models")]
    pub model: Option<String>,

    /// The prompt: text that goes on. Special tokens that the model wants at the beginning are added.
    #[arg(value_name = "PROMPT", conflicts_with_all = ["prompt_file", "prompt_ids"])]
    pub prompt: Option<String>,

    /// Read the prompt from a file, or from standard input if it is `-`.
    #[arg(long, value_name = "FILE", conflicts_with = "prompt_ids")]
    pub prompt_file: Option<String>,

    /// The prompt as token ids, with commas between them.
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub prompt_ids: Vec<u32>,

    /// Ask this, by the model's chat template.
    #[arg(long, short, value_name = "TEXT", conflicts_with_all = PLAIN)]
    pub user: Option<String>,

    /// Go on with the messages of a JSON file (`-`: standard input): a list of objects with `role` and `content`, or an
    /// object with `messages`, and with `tools` and variables of the template if need be. --user comes after them.
    #[arg(long, value_name = "FILE", conflicts_with_all = PLAIN)]
    pub chat: Option<String>,

    /// Begin the chat with this system message.
    #[arg(long, value_name = "TEXT", conflicts_with_all = PLAIN)]
    pub system: Option<String>,

    /// Functions that the model may call: a JSON file with a list of their schemas.
    #[arg(long, value_name = "FILE", conflicts_with_all = PLAIN)]
    pub tools: Option<String>,

    /// Have the model think before it answers, if its template knows `enable_thinking`.
    #[arg(long, conflicts_with_all = PLAIN)]
    pub thinking: bool,

    /// Have the model answer without thinking, if its template knows `enable_thinking`.
    #[arg(long, conflicts_with_all = PLAIN, conflicts_with = "thinking")]
    pub no_thinking: bool,

    /// Chat with lines of standard input, though it may be no terminal.
    #[arg(long, short, conflicts_with_all = PLAIN, conflicts_with_all = ["json", "logits", "profile"])]
    pub interactive: bool,

    /// If the prompt is longer than the context, leave its beginning out instead of failing; of a chat, the oldest
    /// messages but a system message.
    #[arg(long)]
    pub truncate: bool,

    /// Most tokens to generate; 0 only processes the prompt.
    #[arg(long, short = 'n', value_name = "MAX", default_value_t = 512)]
    pub max_tokens: usize,

    /// Divides logits before sampling; 0 takes the most likely token [default: the model's, else 0].
    #[arg(long, value_name = "T")]
    pub temperature: Option<f32>,

    /// Sample among this many of the most likely tokens; 0 among all [default: the model's, else 0].
    #[arg(long, value_name = "K")]
    pub top_k: Option<u32>,

    /// Sample among the most likely tokens that together have this probability [default: the model's, else 1].
    #[arg(long, value_name = "P")]
    pub top_p: Option<f32>,

    /// Sample among tokens at least this times as likely as the most likely one [default: the model's, else 0].
    #[arg(long, value_name = "P")]
    pub min_p: Option<f32>,

    /// Makes tokens less likely that were there before; 1 does nothing [default: the model's, else 1].
    #[arg(long, value_name = "R")]
    pub repeat_penalty: Option<f32>,

    /// When temperature applies: before top-k, top-p and min-p, or after them.
    #[arg(long, value_enum, default_value_t, value_name = "ORDER")]
    pub sampler_order: SamplerOrder,

    /// End the answer before this text; may be given several times.
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,

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

    /// Most tokens of the prompt that are processed at a time [default: 512, 2048 on GPUs with tensor cores].
    #[arg(long, value_name = "N")]
    pub chunk: Option<NonZeroUsize>,

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

    /// Say on standard error where the time of a chunk of the prompt and of one step goes, kernel by kernel (on GPUs
    /// with timestamps).
    #[arg(long)]
    pub profile: bool,

    /// Show the models known by an alias, and stop.
    #[arg(long)]
    pub list_models: bool,

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
