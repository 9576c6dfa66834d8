//! What is to be answered.

use std::io::{IsTerminal, Read, stdin, stdout};

use clap::{CommandFactory, error::ErrorKind};
use inferencelayer::{
    Error, GenerateEngine, Result,
    chat::{Chat, Message},
};

use super::args::Args;

/// Longest prompt that is read from a file, in bytes.
const LONGEST: u64 = 64 << 20;

/// A prompt before the model is there.
pub enum Prompt {
    Text(String),
    Ids(Vec<u32>),
    Chat(Chat),
    /// A chat that goes on question by question.
    Interactive(Chat),
}

impl Prompt {
    /// The prompt of the command line or of a file.
    ///
    /// # Errors
    /// `Io`; `Input` for a file that is no UTF-8 or too long; `Malformed` for one that is no chat.
    pub fn read(args: &Args) -> Result<Prompt> {
        if let Some(text) = &args.prompt {
            return Ok(Prompt::Text(text.clone()));
        }
        if !args.prompt_ids.is_empty() {
            return Ok(Prompt::Ids(args.prompt_ids.clone()));
        }
        if let Some(name) = &args.prompt_file {
            return Ok(Prompt::Text(file(name)?.1));
        }
        let chat = chat(args)?;
        if args.interactive {
            return Ok(Prompt::Interactive(chat));
        }
        if args.chat.is_some() || args.user.is_some() {
            return Ok(Prompt::Chat(chat));
        }
        if stdin().is_terminal() && stdout().is_terminal() && !args.json {
            return Ok(Prompt::Interactive(chat));
        }
        let why = "no prompt: give a text, --user TEXT, --chat FILE, --prompt-file FILE (- for standard input), or \
                   --prompt-ids 1,2,3; on a terminal, none of them begins a chat (--interactive elsewhere)";
        Args::command().error(ErrorKind::MissingRequiredArgument, why).exit();
    }

    /// Token ids; with `--truncate` as many of the last as leave room for the answer's first token.
    ///
    /// # Errors
    /// `Input` for a text without a tokenizer, a chat without a template, or an empty prompt; `Template`.
    pub fn ids(self, engine: &GenerateEngine, args: &Args) -> Result<Vec<u32>> {
        let mut ids = match self {
            Prompt::Text(text) => engine.tokenizer()?.encode(&text)?.ids,
            Prompt::Ids(ids) => ids,
            Prompt::Chat(mut chat) | Prompt::Interactive(mut chat) => {
                return chat_ids(&mut chat, engine, args);
            }
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

/// Token ids of a chat. With `--truncate`, the oldest messages go until there is room for an answer's first token.
///
/// # Errors
/// As [`GenerateEngine::chat_ids`]; `Input` for a chat that leaves no room.
pub fn chat_ids(chat: &mut Chat, engine: &GenerateEngine, args: &Args) -> Result<Vec<u32>> {
    let room = engine.context();
    loop {
        let ids = engine.chat_ids(chat)?;
        if ids.len() < room {
            return Ok(ids);
        }
        let first = usize::from(chat.messages.first().is_some_and(|m| m.role == "system"));
        if !args.truncate || chat.messages.len() < first + 2 {
            return Err(Error::Input(format!(
                "the chat has {} tokens, and the context of {room} must hold an answer too; --context N makes a larger \
                 one, --truncate leaves old messages out",
                ids.len()
            )));
        }
        log::warn!("message {} was left out", first + 1);
        chat.messages.remove(first);
    }
}

/// The messages of the command line and its files.
fn chat(args: &Args) -> Result<Chat> {
    let mut chat = match &args.chat {
        Some(name) => {
            let (shown, text) = file(name)?;
            Chat::parse(&shown, &text)?
        }
        None => Chat::from(Vec::new()),
    };
    if let Some(system) = &args.system {
        if chat.messages.first().is_some_and(|m| m.role == "system") {
            return Err(Error::Input("--system: the chat has a system message already".into()));
        }
        chat.messages.insert(0, Message::system(system));
    }
    chat.messages.extend(args.user.as_ref().map(Message::user));
    if let Some(name) = &args.tools {
        let (shown, text) = file(name)?;
        chat.tools = serde_json::from_str(&text)
            .map_err(|e| Error::malformed(shown, format!("is no list of tools: {e}")))?;
    }
    if args.thinking || args.no_thinking {
        chat.variables.insert("enable_thinking".into(), args.thinking.into());
    }
    Ok(chat)
}

/// A file's name for messages, and its text.
fn file(name: &str) -> Result<(String, String)> {
    let (shown, mut file): (&str, Box<dyn Read>) = match name {
        "-" => ("standard input", Box::new(stdin())),
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
    Ok((shown.to_owned(), text))
}
