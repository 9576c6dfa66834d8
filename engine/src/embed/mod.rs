//! Dense embeddings: a backend, a model and a head, and the runs that turn batches into vectors.
//!
//! Batches are packed without padding, split where they are larger than a run takes, and run in plans prepared
//! for buckets of sizes. To embed with a checkpoint: [`open_weights`](crate::checkpoint::open_weights),
//! [`read_text`](crate::model::arch::read_text), [`TextModel::load`](crate::model::TextModel::load), a
//! [`Head`], [`Embedder::new`], [`Embedder::encode`].

mod bucket;
mod embedder;
mod head;
mod plans;

pub use embedder::Embedder;
pub use head::{Dense, DenseConfig, Head, HeadStep};
