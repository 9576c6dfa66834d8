//! Progress bars on a terminal. Short work shows none.

use std::{
    cell::RefCell,
    io::{IsTerminal, Write as _},
    time::{Duration, Instant},
};

#[cfg(feature = "net")]
use std::sync::{Mutex, MutexGuard, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How long work goes on before a bar appears.
const PATIENCE: Duration = Duration::from_secs(1);

/// A bar that appears on a terminal once the work has taken a while.
pub struct Bar {
    bar: ProgressBar,
    started: Instant,
    shown: bool,
    wanted: bool,
}

impl Bar {
    /// `total` bytes of work, if known.
    pub fn new(total: Option<u64>, what: &str) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        let template = match total {
            Some(_) => "{msg} {wide_bar} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}",
            None => "{spinner} {msg} {elapsed}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        Bar { bar, started: Instant::now(), shown: false, wanted: std::io::stderr().is_terminal() }
    }

    #[cfg(feature = "net")]
    /// A bar that is there from the start and moves by itself, for work that is known to be long.
    pub fn at_once(total: Option<u64>, what: &str) -> Self {
        let mut bar = Bar::new(total, what);
        if bar.wanted {
            bar.bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.bar.enable_steady_tick(Duration::from_millis(100));
            bar.shown = true;
        }
        bar
    }

    fn show_if_due(&mut self) {
        if self.wanted && !self.shown && self.started.elapsed() > PATIENCE {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = true;
        }
    }

    /// Sets how far the work is, and what to say about it.
    pub fn update(&mut self, position: u64, message: String) {
        self.bar.set_message(message);
        self.bar.set_position(position);
        self.show_if_due();
    }

    pub fn advance(&mut self, by: u64) {
        self.bar.inc(by);
        self.show_if_due();
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Shows how far the loading of a model is.
#[derive(Default)]
pub struct Loading(RefCell<Option<Bar>>);

impl Loading {
    /// `done` of `total` bytes of weights have been read.
    pub fn tell(&self, done: u64, total: u64) {
        let mut bar = self.0.borrow_mut();
        bar.get_or_insert_with(|| Bar::new(Some(total), "loading")).update(done, "loading".into());
    }
}

/// Shows transfers of models.
#[cfg(feature = "net")]
#[derive(Default)]
pub struct Transfers(Mutex<Option<Bar>>);

#[cfg(feature = "net")]
impl Transfers {
    fn bar(&self) -> MutexGuard<'_, Option<Bar>> {
        // A bar has no state that a panic could have left half-changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "net")]
impl crate::hub::Progress for Transfers {
    fn begin(&self, what: &str, done: u64, total: Option<u64>) {
        let mut bar = Bar::at_once(total, what);
        bar.advance(done);
        if !bar.wanted {
            // In a log, one line instead of a bar.
            let size = total.map_or(String::new(), |bytes| format!(" ({})", indicatif::HumanBytes(bytes)));
            let _ = writeln!(std::io::stderr(), "{what}{size} …");
        }
        *self.bar() = Some(bar);
    }

    fn advance(&self, bytes: u64) {
        if let Some(bar) = &mut *self.bar() {
            bar.advance(bytes);
        }
    }

    fn end(&self) {
        self.bar().take();
    }
}
