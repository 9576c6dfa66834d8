//! Holds the browser tests in `tests/browser`; `tests/run browser` runs them.
