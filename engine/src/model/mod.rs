//! Models: a configuration, weights, and `record(&mut Recorder, layers a..b)`.
//!
//! There is one [`Encoder`] and one [`Decoder`](decoder::Decoder); either embeds, as a [`TextModel`]. A file of [`arch`] reads one architecture's
//! `config.json` into an [`EncoderConfig`] or a [`DecoderConfig`](decoder::DecoderConfig) and names its tensors; it
//! holds no layer maths. To add an architecture, add such a file.

pub mod arch;
pub mod config;
pub mod decoder;
mod encoder;
mod load;
mod record;
#[cfg(test)]
mod tests;
mod text;

pub use encoder::{Encoder, EncoderConfig, LayerKind, LayerNames, Names, NormOrder, Positions};
pub use load::{RELATIVE_BUCKETS, RELATIVE_RADIUS, relative_bucket};
pub use record::{Bucket, Stage};
pub use text::{TextConfig, TextModel, TextShape};
