//! Lines that a user types, with editing and history on a terminal.

use std::io::{IsTerminal, stdin};

use inferencelayer::{Error, Result};
use rustyline::{DefaultEditor, error::ReadlineError};

const PROMPT: &str = "> ";
const STDIN: &str = "standard input";
/// Longest line, in bytes.
const LONGEST: usize = 1 << 20;

/// A line, or that there are no more.
pub enum Line {
    Text(String),
    End,
}

pub enum Reader {
    Terminal(Box<DefaultEditor>),
    Pipe,
}

impl Reader {
    /// # Errors
    /// `Io` if the terminal cannot be used.
    pub fn open() -> Result<Self> {
        if !stdin().is_terminal() {
            return Ok(Reader::Pipe);
        }
        let editor = DefaultEditor::new().map_err(failed)?;
        Ok(Reader::Terminal(Box::new(editor)))
    }

    pub fn is_terminal(&self) -> bool {
        matches!(self, Reader::Terminal(_))
    }

    /// The next line, without its end. Ctrl-C leaves out what was typed; twice in a row it is the end.
    ///
    /// # Errors
    /// `Io`.
    pub fn line(&mut self) -> Result<Line> {
        let editor = match self {
            Reader::Terminal(editor) => editor,
            Reader::Pipe => return piped(),
        };
        let mut interrupted = false;
        loop {
            match editor.readline(PROMPT) {
                Ok(line) => {
                    if !line.trim().is_empty() {
                        editor.add_history_entry(line.as_str()).map_err(failed)?;
                    }
                    return Ok(Line::Text(line));
                }
                Err(ReadlineError::Eof) => return Ok(Line::End),
                Err(ReadlineError::Interrupted) if interrupted => return Ok(Line::End),
                Err(ReadlineError::Interrupted) => {
                    eprintln!("(Ctrl-C again or Ctrl-D leaves)");
                    interrupted = true;
                }
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

fn failed(error: ReadlineError) -> Error {
    Error::io(STDIN)(std::io::Error::other(error))
}

fn piped() -> Result<Line> {
    use std::io::{BufRead, Read};
    let mut line = String::new();
    let mut input = stdin().lock().take(LONGEST as u64 + 1);
    if input.read_line(&mut line).map_err(Error::io(STDIN))? == 0 {
        return Ok(Line::End);
    }
    if line.len() > LONGEST {
        return Err(Error::Input(format!("{STDIN}: a line of more than {LONGEST} bytes")));
    }
    line.truncate(line.trim_end_matches(['\r', '\n']).len());
    Ok(Line::Text(line))
}
