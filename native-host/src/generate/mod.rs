//! Text generation for users: a checkpoint on a device, token ids or messages in, tokens and text out.

mod engine;
mod options;
mod session;

pub use engine::GenerateEngine;
pub use options::{GenerateOptions, GenerateSettings};
pub use session::{Finish, Generation, Session, Token};
