//! Ctrl-C: it ends an answer, and outside of answers the program.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use inferencelayer::{Error, Result};

const IDLE: u8 = 0;
const ANSWERING: u8 = 1;
const ASKED: u8 = 2;

/// Exit status of programs that Ctrl-C ended.
const STATUS: i32 = 130;

/// Whether an answer is under way, and whether its end was asked for.
pub struct Interrupts(Arc<AtomicU8>);

impl Interrupts {
    /// Listens for Ctrl-C from now on.
    ///
    /// # Errors
    /// `Io` if the system does not allow it.
    pub fn install() -> Result<Self> {
        let state = Arc::new(AtomicU8::new(IDLE));
        let seen = Arc::clone(&state);
        let handler = move || {
            // The second time during an answer it does not wait for it.
            let asked = seen.compare_exchange(ANSWERING, ASKED, Ordering::SeqCst, Ordering::SeqCst);
            if asked.is_err() {
                std::process::exit(STATUS);
            }
        };
        ctrlc::set_handler(handler).map_err(|e| Error::io("Ctrl-C")(std::io::Error::other(e)))?;
        Ok(Interrupts(state))
    }

    pub fn begin(&self) {
        self.0.store(ANSWERING, Ordering::SeqCst);
    }

    pub fn end(&self) {
        self.0.store(IDLE, Ordering::SeqCst);
    }

    pub fn asked(&self) -> bool {
        self.0.load(Ordering::SeqCst) == ASKED
    }
}
