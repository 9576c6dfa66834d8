//! A few threads that wait for work: [`Parallel`] where there are threads.
//!
//! The caller's thread is worker 0 and begins at once, while the others are still being woken; after a run they
//! look out for the next for some microseconds before they sleep, which is what keeps single texts fast.

use std::{
    any::Any,
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{Builder, JoinHandle},
};

use super::parallel::Parallel;

/// Turns of looking out before a thread sleeps, or lets others run while it waits within a run.
const SPIN: u32 = 2000;

/// The body of a run, with its lifetime erased.
#[derive(Clone, Copy)]
struct Body(*const (dyn Fn(usize) + Sync + 'static));

// SAFETY: the pointer is followed only between the beginning and the end of `run`, while the body it points to
// lives; the body is `Sync`.
unsafe impl Send for Body {}

#[derive(Default)]
struct State {
    /// There while a run goes on.
    body: Option<Body>,
    /// Runs begun.
    runs: u64,
    /// Threads inside the body.
    inside: usize,
    panic: Option<Box<dyn Any + Send>>,
    stop: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// A copy of the state's, to look at without locking.
    runs: AtomicU64,
    begun: Condvar,
    left: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Threads of this process that run bodies together with the caller.
pub struct Threads {
    shared: Arc<Shared>,
    handles: Vec<JoinHandle<()>>,
    /// Held during a run.
    busy: Mutex<()>,
}

impl Threads {
    /// `threads` workers (at least 1), the caller's thread among them.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn new(threads: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut pool = Threads { shared, handles: Vec::new(), busy: Mutex::new(()) };
        for worker in 1..threads {
            let shared = pool.shared.clone();
            let name = format!("inference-{worker}");
            pool.handles.push(Builder::new().name(name).spawn(move || follow(&shared, worker))?);
        }
        Ok(pool)
    }

    /// One worker for each processor that this process may use.
    ///
    /// # Errors
    /// As [`Threads::new`].
    pub fn for_machine() -> io::Result<Self> {
        Self::new(std::thread::available_parallelism().map_or(1, usize::from))
    }
}

/// What a thread does all its life.
fn follow(shared: &Shared, worker: usize) {
    let mut seen = 0;
    loop {
        let mut turn = 0;
        while turn < SPIN && shared.runs.load(Ordering::Relaxed) == seen {
            std::hint::spin_loop();
            turn += 1;
        }
        let mut state = shared.lock();
        while !state.stop && (state.body.is_none() || state.runs == seen) {
            seen = state.runs;
            state = shared.begun.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.stop {
            return;
        }
        seen = state.runs;
        let Some(body) = state.body else { continue };
        state.inside += 1;
        drop(state);
        // SAFETY: `run` does not return, so the body lives, while `inside` is not 0.
        let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { (*body.0)(worker) }));
        let mut state = shared.lock();
        state.inside -= 1;
        if let Err(panic) = outcome {
            state.panic.get_or_insert(panic);
        }
        if state.inside == 0 {
            shared.left.notify_all();
        }
    }
}

/// Ends a run: nobody begins any more, and everybody who did has left.
struct Run<'a>(&'a Shared);

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.body = None;
        while state.inside > 0 {
            state = self.0.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Parallel for Threads {
    fn threads(&self) -> usize {
        self.handles.len() + 1
    }

    fn run(&self, body: &(dyn Fn(usize) + Sync)) {
        // Another run goes on: this one does without the threads.
        let Ok(_busy) = self.busy.try_lock() else { return body(0) };
        // SAFETY: only the lifetime changes, and the pointer is used only until `Run` is dropped below.
        let erased = unsafe {
            core::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const (dyn Fn(usize) + Sync + 'static)>(
                body,
            )
        };
        let run = Run(&self.shared);
        {
            let mut state = self.shared.lock();
            state.body = Some(Body(erased));
            state.runs += 1;
            self.shared.runs.store(state.runs, Ordering::Relaxed);
        }
        self.shared.begun.notify_all();
        body(0);
        drop(run);
        let panic = self.shared.lock().panic.take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    fn relax(&self, turn: u32) {
        if turn < SPIN {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.runs.fetch_add(1, Ordering::Relaxed);
        self.shared.begun.notify_all();
        for handle in self.handles.drain(..) {
            // A thread catches its bodies' panics, so there is none to report.
            let _ = handle.join();
        }
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").field("threads", &self.threads()).finish_non_exhaustive()
    }
}
