//! What is to be answered.

use std::io::Read;

use clap::{CommandFactory, error::ErrorKind};
use inferencelayer::{Error, GenerateEngine, Result};

use super::args::Args;

/// Longest prompt that is read from a file, in bytes.
const LONGEST: u64 = 64 << 20;

/// A prompt before the model is there.
pub enum Prompt {
    Text(String),
    Ids(Vec<u32>),
}

impl Prompt {
    /// The prompt of the command line or of a file.
    ///
    /// # Errors
    /// `Io`; `Input` for a file that is no UTF-8 or too long.
    pub fn read(args: &Args) -> Result<Prompt> {
        if let Some(text) = &args.prompt {
            return Ok(Prompt::Text(text.clone()));
        }
        if !args.prompt_ids.is_empty() {
            return Ok(Prompt::Ids(args.prompt_ids.clone()));
        }
        let Some(name) = args.prompt_file.as_deref() else {
            let why =
                "no prompt: give a text, --prompt-file FILE (- for standard input), or --prompt-ids 1,2,3";
            Args::command().error(ErrorKind::MissingRequiredArgument, why).exit();
        };
        let (shown, mut file): (&str, Box<dyn Read>) = match name {
            "-" => ("standard input", Box::new(std::io::stdin())),
            name => (name, Box::new(std::fs::File::open(name).map_err(Error::io(name))?)),
        };
        let mut bytes = Vec::new();
        file.by_ref().take(LONGEST + 1).read_to_end(&mut bytes).map_err(Error::io(shown))?;
        if bytes.len() as u64 > LONGEST {
            return Err(Error::Input(format!(
                "{shown} is longer than the {LONGEST} bytes that a prompt may have"
            )));
        }
        let text = String::from_utf8(bytes).map_err(|e| {
            let at = e.utf8_error().valid_up_to();
            Error::Input(format!("{shown} is not UTF-8 at byte {at}"))
        })?;
        Ok(Prompt::Text(text))
    }

    /// Token ids; with `--truncate` as many of the last as leave room for the answer's first token.
    ///
    /// # Errors
    /// `Input` for a text without a tokenizer, or an empty prompt.
    pub fn ids(self, engine: &GenerateEngine, args: &Args) -> Result<Vec<u32>> {
        let mut ids = match self {
            Prompt::Text(text) => engine.tokenizer()?.encode(&text)?.ids,
            Prompt::Ids(ids) => ids,
        };
        if ids.is_empty() {
            return Err(Error::Input("an empty prompt: give at least one token".into()));
        }
        let room = engine.context();
        if ids.len() > room && args.truncate {
            let left_out = ids.len() - room;
            log::warn!("the first {left_out} of {} tokens of the prompt were left out", ids.len());
            ids.drain(..left_out);
        }
        Ok(ids)
    }
}
