//! The performance ledger: named benches, run beside the peers that users could pick instead, recorded as JSON
//! lines in the repository and rendered as one table.
//!
//! [`mod@bench`] holds the benches, [`contest`] times contenders by turns, [`peer`] talks to other engines,
//! [`measured`] knows figures of those that cannot run here,
//! [`ledger`] keeps what was measured and [`render`] shows it.

pub mod bench;
pub mod contest;
pub mod engine;
pub mod generating;
pub mod ledger;
pub mod machine;
pub mod measured;
pub mod memory;
pub mod model;
pub mod peer;
pub mod render;
pub mod run;
