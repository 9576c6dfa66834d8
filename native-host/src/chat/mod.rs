//! Chats: messages become a prompt by the model's own template, as Hugging Face's `apply_chat_template` does it.
//!
//! A template is a program in Jinja that came with a checkpoint. It runs on minijinja with the functions, filters and
//! whitespace rules of transformers, without files or network, and with a limit on its work, memory and depth.

mod clock;
mod environment;
mod message;
mod python;
mod source;
mod template;
mod templates;

pub use message::{Chat, Content, Message};
use template::Template;
pub use templates::ChatTemplates;
