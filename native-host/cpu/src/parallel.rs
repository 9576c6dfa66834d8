//! Threads, handed in from outside: the backend itself starts none.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Calls a body on several workers.
pub trait Parallel: Send + Sync + fmt::Debug {
    /// How many workers there are at most, 1 or more.
    fn threads(&self) -> usize;

    /// Calls `body(0)` and returns when it has returned, and all other calls with it. `body(1)` up to
    /// `body(threads - 1)` may be called meanwhile from other threads, each at most once; the body must reach
    /// its end without them.
    fn run(&self, body: &(dyn Fn(usize) + Sync));

    /// Lets a waiting worker give way; `turn` counts from 0 while it waits.
    fn relax(&self, turn: u32) {
        let _ = turn;
        core::hint::spin_loop();
    }
}

/// No threads but the caller's.
#[derive(Debug, Clone, Copy, Default)]
pub struct Serial;

impl Parallel for Serial {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, body: &(dyn Fn(usize) + Sync)) {
        body(0);
    }
}

const TASK_BITS: u32 = 24;
const TASK_MASK: u64 = (1 << TASK_BITS) - 1;
/// Most tasks of a step.
pub const MAX_TASKS: usize = TASK_MASK as usize;

/// Steps in order, each split into tasks that workers claim one by one.
///
/// The leader begins a step, works like everyone, and waits until all of the step's tasks are done; a worker
/// that comes late or never costs nothing but its help.
#[derive(Debug, Default)]
pub struct Team {
    /// Step (16 bits), its number of tasks, the next task: changed only together.
    state: AtomicU64,
    done: AtomicUsize,
    over: AtomicBool,
}

impl Team {
    /// Runs `steps` on `parallel`: `tasks(step)` says how many tasks a step has, `work(worker, step, task)` does
    /// one. A step begins when the one before it is done.
    pub fn run(
        &self,
        parallel: &dyn Parallel,
        steps: usize,
        tasks: impl Fn(usize) -> usize + Sync,
        work: impl Fn(usize, usize, usize) + Sync,
    ) {
        debug_assert!(steps < 1 << 16);
        self.state.store(0, Ordering::Relaxed);
        self.over.store(false, Ordering::Relaxed);
        let over = Over(&self.over);
        parallel.run(&|worker| {
            if worker > 0 {
                let mut turn = 0;
                while !self.over.load(Ordering::Acquire) {
                    if self.work_one(worker, &work) {
                        turn = 0;
                    } else {
                        parallel.relax(turn);
                        turn = turn.saturating_add(1);
                    }
                }
                return;
            }
            let _ends = Over(&self.over);
            for step in 0..steps {
                let count = tasks(step);
                debug_assert!(count <= MAX_TASKS);
                if count == 1 {
                    work(0, step, 0);
                    continue;
                }
                self.done.store(0, Ordering::Relaxed);
                let state = (step as u64) << (2 * TASK_BITS) | (count as u64) << TASK_BITS;
                self.state.store(state, Ordering::Release);
                while self.work_one(0, &work) {}
                let mut turn = 0;
                while self.done.load(Ordering::Acquire) < count {
                    parallel.relax(turn);
                    turn = turn.saturating_add(1);
                }
            }
        });
        drop(over);
    }

    /// Claims and does one task; false if none is left.
    fn work_one(&self, worker: usize, work: &impl Fn(usize, usize, usize)) -> bool {
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            let (count, next) = ((state >> TASK_BITS) & TASK_MASK, state & TASK_MASK);
            if next >= count {
                return false;
            }
            // The step cannot end, so the state cannot belong to another one, while a claimed task is undone.
            match self.state.compare_exchange_weak(state, state + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let _done = Done(&self.done);
                    work(worker, (state >> (2 * TASK_BITS)) as usize, next as usize);
                    return true;
                }
                Err(now) => state = now,
            }
        }
    }
}

/// Counts a task as done even if it panics, so that nobody waits for it forever.
struct Done<'a>(&'a AtomicUsize);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// Sends the workers home, also when the leader panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::threads::Threads;

    fn check(parallel: &dyn Parallel) {
        let team = Team::default();
        for round in 0..50 {
            let counts = [1, 7, 0, 100, 1, 3];
            let seen = Mutex::new(Vec::new());
            team.run(
                parallel,
                counts.len(),
                |step| counts[step],
                |worker, step, task| {
                    assert!(worker < parallel.threads());
                    seen.lock().unwrap().push((step, task));
                },
            );
            let seen = seen.into_inner().unwrap();
            assert!(seen.is_sorted_by_key(|(step, _)| *step), "round {round}: a step began too early");
            let mut sorted = seen;
            sorted.sort_unstable();
            let all = (0..counts.len()).flat_map(|s| (0..counts[s]).map(move |t| (s, t)));
            assert!(sorted.into_iter().eq(all), "round {round}: a task was lost or done twice");
        }
    }

    #[test]
    fn every_task_is_done_once_and_in_the_order_of_steps() {
        check(&Serial);
        for threads in 1..5 {
            check(&Threads::new(threads).unwrap());
        }
    }

    #[test]
    fn users_on_several_threads_get_their_results() {
        let threads = Threads::new(3).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| check(&threads));
            }
        });
    }

    #[test]
    fn a_panic_in_a_worker_reaches_the_caller_and_hangs_nobody() {
        let threads = Threads::new(3).unwrap();
        let panics = || {
            Team::default().run(
                &threads,
                2,
                |_| 50,
                |_, step, task| {
                    std::thread::sleep(std::time::Duration::from_micros(50));
                    assert!((step, task) != (1, 30), "as planned");
                },
            );
        };
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics));
        assert!(outcome.is_err());
        check(&threads);
    }
}
