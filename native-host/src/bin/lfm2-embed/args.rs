//! The options of `lfm2-embed`.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::Parser;
use inferencelayer::{
    cli::{input, logging, output},
    device::{Device, Dtype, MAX_THREADS},
    engine::{gpu::AdapterChoice, op::PoolMode},
    sentence_transformers::parse_pool_mode,
};

/// Turns texts into vectors with a sentence-transformers or Hugging Face encoder.
///
/// Results alone go to standard output; messages go to standard error. The exit status is 0 if all went well, 1 if
/// something failed, 2 if the command line could not be read.
#[derive(Debug, Parser)]
#[command(name = "lfm2-embed", version, max_term_width = 110)]
pub struct Args {
    /// Texts to embed.
    #[arg(value_name = "TEXT", conflicts_with_all = ["input", "similarity"])]
    pub texts: Vec<String>,

    /// An alias (see --list-models), the folder of a model, or a hub id `owner/name`.
    #[arg(long, short, value_name = "NAME", required_unless_present_any = ["list_devices", "list_models"])]
    pub model: Option<String>,

    /// Read inputs from a file, or from standard input if it is `-`: one text a line, or JSON lines
    /// {"text": …} or {"ids": […]} (token ids, special tokens included).
    #[arg(long, short, value_name = "FILE", conflicts_with = "similarity")]
    pub input: Option<String>,

    /// How the lines of --input are read.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub input_format: input::Format,

    /// Name of the model's prompt that is put before each text, such as `query`. Without it the model's default
    /// prompt is used, if it has one; an empty name asks for none.
    #[arg(long, value_name = "NAME")]
    pub prompt: Option<String>,

    /// Pool token vectors in this way instead of the model's: cls, max, mean, mean_sqrt_len_tokens, weightedmean or
    /// lasttoken; several, with commas between them, are concatenated.
    #[arg(long, value_name = "MODE", value_delimiter = ',', value_parser = pool_mode)]
    pub pooling: Vec<PoolMode>,

    /// Keep this many leading dimensions (for models trained with Matryoshka loss).
    #[arg(long, value_name = "N")]
    pub dim: Option<NonZeroUsize>,

    /// Do not scale vectors to unit length.
    #[arg(long)]
    pub no_normalize: bool,

    /// What to compute on.
    #[arg(long, value_enum, default_value_t, value_name = "DEVICE")]
    pub device: Device,

    /// How weights are kept [default: f16 on a GPU that has it, else f32].
    #[arg(long, value_enum, value_name = "DTYPE")]
    pub dtype: Option<Dtype>,

    /// Most tokens that go through the model at a time.
    #[arg(long, value_name = "N", default_value = "8192")]
    pub batch_tokens: NonZeroUsize,

    /// Use the same kernels for all batch sizes, so that results do not depend, to the last bit, on what else is in
    /// the input. Slower for short inputs.
    #[arg(long)]
    pub deterministic: bool,

    /// Threads on the CPU [default: one a core].
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,

    /// The GPU to use: its number in --list-devices, or a part of its name.
    #[arg(long, value_name = "N|NAME", value_parser = adapter)]
    pub adapter: Option<AdapterChoice>,

    /// The form of the results.
    #[arg(long, short, value_enum, default_value_t, value_name = "FORM")]
    pub output: output::Form,

    /// Write the results to a file instead of standard output.
    #[arg(long, value_name = "FILE")]
    pub output_file: Option<PathBuf>,

    /// Print the cosine similarity of the first text with each of the others, a line each.
    #[arg(long, value_names = ["A", "B"], num_args = 2.., conflicts_with_all = ["output", "output_file"])]
    pub similarity: Vec<String>,

    /// Show what there is to compute on, and stop.
    #[arg(long)]
    pub list_devices: bool,

    /// Show the models known by an alias, and stop.
    #[arg(long)]
    pub list_models: bool,

    /// How much is said on standard error.
    #[arg(long, value_enum, default_value_t, value_name = "LEVEL")]
    pub log_level: logging::Level,
}

fn pool_mode(name: &str) -> Result<PoolMode, String> {
    parse_pool_mode(name).map_err(|e| e.to_string())
}

fn threads(number: &str) -> Result<usize, String> {
    let threads = number.parse().ok().filter(|n| (1..=MAX_THREADS).contains(n));
    threads.ok_or_else(|| format!("1 to {MAX_THREADS} threads are possible"))
}

fn adapter(choice: &str) -> Result<AdapterChoice, String> {
    match choice.parse() {
        _ if choice.is_empty() => Err("it must not be empty".into()),
        Ok(index) => Ok(AdapterChoice::Index(index)),
        Err(_) => Ok(AdapterChoice::Name(choice.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn parsing() {
        let args =
            Args::try_parse_from(["x", "-m", "minilm", "--pooling", "cls,mean", "--adapter", "1", "a", "b"]);
        let args = args.unwrap();
        assert_eq!(args.pooling, [PoolMode::Cls, PoolMode::Mean]);
        assert_eq!(args.adapter, Some(AdapterChoice::Index(1)));
        assert_eq!(args.texts, ["a", "b"]);
        assert_eq!(adapter("RTX").unwrap(), AdapterChoice::Name("RTX".into()));
        for bad in [
            &["x", "text"][..],
            &["x", "-m", "m", "--dim", "0", "a"],
            &["x", "-m", "m", "--pooling", "median", "a"],
            &["x", "-m", "m", "--similarity", "a"],
            &["x", "-m", "m", "--input", "f", "a"],
            &["x", "-m", "m", "--device", "tpu", "a"],
            &["x", "-m", "m", "--threads", "0", "a"],
            &["x", "-m", "m", "--threads", "1025", "a"],
        ] {
            assert!(Args::try_parse_from(bad).is_err(), "{bad:?}");
        }
    }
}
