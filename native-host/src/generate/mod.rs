//! Text generation for users: a checkpoint on a device, token ids or messages in, tokens and text out.

#[cfg(feature = "tokenizer")]
mod answer;
mod defaults;
#[cfg(feature = "tokenizer")]
mod detokenize;
mod engine;
mod options;
mod session;
mod stop;

#[cfg(feature = "tokenizer")]
pub use answer::{Answer, Piece};
pub use defaults::GenerationDefaults;
#[cfg(feature = "tokenizer")]
pub use detokenize::Detokenizer;
pub use engine::GenerateEngine;
pub use options::{GenerateOptions, GenerateSettings};
pub use session::{Finish, Generation, Session, Token};
pub use stop::StopTexts;
