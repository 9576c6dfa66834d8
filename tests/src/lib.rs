//! What the parity tests share: fixtures, expected values, backends.

pub mod backends;
pub mod compare;
pub mod fixture;
pub mod rewrite;
