//! What the tests share: fixtures, expected values, backends, a small HTTP server.

pub mod backends;
pub mod compare;
pub mod fixture;
pub mod rewrite;
pub mod server;
