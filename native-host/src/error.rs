//! The one error type of this crate: the engine's errors and what a host adds to them.

use std::path::PathBuf;

/// What can go wrong outside the compute core. Every variant names the culprit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine's own errors: malformed files, missing tensors, shapes, devices.
    #[error(transparent)]
    Engine(#[from] inferencelayer_engine::Error),
    /// The operating system refused to read or write.
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// The tokenizer could not be built, or could not encode a text.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// A chat template that does not compile, or does not render a chat. `line` is in the template.
    #[error("chat template of {name}{}: {why}", .line.map_or_else(String::new, |line| format!(", line {line}")))]
    Template { name: String, line: Option<usize>, why: String },
    /// The caller's input or options cannot be processed.
    #[error("{0}")]
    Input(String),
    /// A model could not be found or fetched.
    #[error("{0}")]
    Fetch(String),
}

/// Result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An I/O error with the path it happened at.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::Io { path, source }
    }

    /// A model file whose content does not follow its format.
    pub fn malformed(file: impl Into<String>, why: impl Into<String>) -> Error {
        Error::Engine(inferencelayer_engine::Error::Malformed { file: file.into(), why: why.into() })
    }
}
