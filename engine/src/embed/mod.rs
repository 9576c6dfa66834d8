//! Dense embeddings: a backend, an encoder and a head, and the runs that turn batches into vectors.
//!
//! Batches are packed without padding, split where they are larger than a run takes, and run in plans prepared
//! for buckets of sizes. To embed with a checkpoint: [`open_weights`](crate::checkpoint::open_weights),
//! [`read_encoder`](crate::model::arch::read_encoder), [`Encoder::load`](crate::model::Encoder::load), a
//! [`Head`], [`Embedder::new`], [`Embedder::encode`].

mod bucket;
mod embedder;
mod head;
mod plans;

pub use embedder::Embedder;
pub use head::{Dense, DenseConfig, Head, HeadStep};
