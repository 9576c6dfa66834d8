//! A prepared program: places in the shared arena, checked inputs, and the results of runs not yet read.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use inferencelayer_engine::{
    Error, Result,
    backend::{Plan, StepTime, Ticket, check_run},
    program::{BufferId, Counts, Program, Role},
};

use super::{
    check::Integers,
    gemm::pack::Aligned,
    isa::Isa,
    lower::lower,
    parallel::{MAX_TASKS, Parallel, Team},
    run::{Layout, Run},
    state::{CpuState, Words},
    step::{Home, Lowered, Place, Step},
    weight::{Held, Memory},
};

/// Runs that may be unread.
const DEPTH: usize = 2;
/// Words in a cache line: every place begins on one.
pub const LINE: usize = 16;

/// Time since whenever.
pub type Clock = fn() -> Duration;

/// Memory that all plans of a backend use in turn: activations live no longer than a run.
#[derive(Debug, Default)]
pub struct Arena {
    words: Aligned<u32>,
    held: Option<Held>,
}

impl Arena {
    /// Grows to at least `len` words.
    fn reserve(&mut self, len: usize, memory: &Memory) {
        if self.words.as_slice().len() < len {
            // The old one goes first: never both at once.
            *self = Arena::default();
            self.words = Aligned::zeroed(len);
            self.held = Some(memory.hold(self.words.bytes()));
        }
    }
}

/// The arena, for one user at a time. A run that panicked leaves nothing that the next one reads.
pub fn lock(arena: &Mutex<Arena>) -> MutexGuard<'_, Arena> {
    arena.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Values of a run not yet read.
#[derive(Debug)]
struct Unread {
    ticket: Option<Ticket>,
    values: Vec<f32>,
}

/// A plan of the CPU backend. A run is finished when `submit` returns.
#[derive(Debug)]
pub struct CpuPlan {
    program: Program,
    isa: Isa,
    parallel: Arc<dyn Parallel>,
    arena: Arc<Mutex<Arena>>,
    lowered: Lowered,
    places: Vec<Place>,
    /// Where the program's states are, which it keeps alive.
    states: Vec<Words>,
    layout: Layout,
    team: Team,
    clock: Option<Clock>,
    unread: [Unread; DEPTH],
    next: u64,
    _held: Held,
}

impl CpuPlan {
    /// # Errors
    /// Those of [`lower`]; `Unsupported` for more steps or tasks than can be counted.
    pub fn new(
        program: &Program,
        isa: Isa,
        parallel: Arc<dyn Parallel>,
        arena: Arc<Mutex<Arena>>,
        memory: &Memory,
        clock: Option<Clock>,
    ) -> Result<Self> {
        let (places, mut len) = places(program);
        let states = program.states.iter().map(|(_, state)| Ok(CpuState::of(state, &arena)?.words()));
        let states = states.collect::<Result<Vec<_>>>()?;
        let workers = parallel.threads().max(1);
        let lowered = lower(program, &places, isa, workers)?;
        if lowered.steps.len() >= 1 << 16 || !tasks_fit(program, &lowered) {
            let steps = lowered.steps.len();
            return Err(Error::Unsupported(format!(
                "a program of {steps} steps with too many parts to count"
            )));
        }
        let mut take = |n: usize| {
            let at = len;
            len += n.next_multiple_of(LINE);
            at
        };
        let scratch_len = lowered.scratch.next_multiple_of(LINE);
        let layout = Layout {
            words: take(lowered.words),
            scales: take(2 * lowered.quantized_rows),
            scratch: take(workers * scratch_len),
            scratch_len,
            staged: take(lowered.staged),
        };
        lock(&arena).reserve(len, memory);
        let results: usize = program.with_role(Role::Output).map(|id| program.spec(id).bytes() / 4).sum();
        let unread = || Unread { ticket: None, values: Vec::with_capacity(results) };
        Ok(CpuPlan {
            program: program.clone(),
            isa,
            parallel,
            arena,
            lowered,
            places,
            states,
            layout,
            team: Team::default(),
            clock,
            unread: [unread(), unread()],
            next: 0,
            _held: memory.hold(DEPTH * results * 4),
        })
    }
}

/// A place for every buffer, and the words they take together.
fn places(program: &Program) -> (Vec<Place>, usize) {
    let (slot_of, sizes) = program.slots();
    let mut len = 0;
    let mut take = |bytes: usize| {
        let at = len;
        len += (bytes / 4).next_multiple_of(LINE);
        at
    };
    let slots: Vec<usize> = sizes.into_iter().map(&mut take).collect();
    let places = program.buffers.iter().enumerate().zip(slot_of).map(|((i, spec), slot)| {
        let state = program.states.iter().position(|(id, _)| id.index() == i);
        let (home, at) = match (state, slot) {
            (Some(state), _) => (Home::State(state), 0),
            (None, Some(slot)) => (Home::Arena, slots[slot]),
            (None, None) => (Home::Arena, take(spec.bytes())),
        };
        Place { home, at, rows: spec.rows, cols: spec.cols, count: spec.count, dtype: spec.dtype }
    });
    (places.collect(), len)
}

/// Whether every step's tasks can be counted by a [`Team`].
fn tasks_fit(program: &Program, lowered: &Lowered) -> bool {
    let rows = |count| program.buffers.iter().filter(|b| b.count == count).map(|b| b.rows).max().unwrap_or(0);
    lowered.steps.iter().all(|step| match step {
        Step::Attention(step) => rows(step.tiles.count).saturating_mul(step.heads) <= MAX_TASKS,
        Step::Cached(step) => {
            let count = step.tiles.map_or(step.q.count, |tiles| tiles.count);
            rows(count).saturating_mul(step.heads) <= MAX_TASKS
        }
        Step::Scan(step) => step.logits.rows.saturating_mul(step.parts()) <= MAX_TASKS,
        Step::Experts(step) => rows(step.x.count).saturating_add(step.width) <= MAX_TASKS,
        Step::Linear(step) => rows(step.x.count).saturating_add(step.out.cols) <= MAX_TASKS,
        _ => true,
    })
}

impl Plan for CpuPlan {
    fn submit(
        &mut self,
        counts: Counts,
        inputs: &[(BufferId, &[u32])],
        reads: &[(BufferId, usize)],
    ) -> Result<Ticket> {
        check_run(&self.program, &counts, inputs, reads)?;
        let Some(free) = self.unread.iter().position(|u| u.ticket.is_none()) else {
            return Err(Error::Unsupported(format!(
                "more than {DEPTH} unread runs of one plan; read one first"
            )));
        };
        let mut arena = lock(&self.arena);
        let base = arena.words.as_mut_slice().as_mut_ptr();
        let run = self.begin(base, counts, inputs)?;
        let work = |worker, step, task| run.task(worker, step, task);
        self.team.run(&*self.parallel, self.lowered.steps.len(), |step| run.tasks(step), work);
        let unread = &mut self.unread[free];
        unread.values.clear();
        for (id, rows) in reads {
            let place = self.places[id.index()];
            // SAFETY: the place lies in the arena; the run is over.
            let values = unsafe {
                core::slice::from_raw_parts(base.add(place.at).cast::<f32>().cast_const(), rows * place.cols)
            };
            unread.values.extend_from_slice(values);
        }
        let ticket = Ticket(self.next);
        self.next += 1;
        unread.ticket = Some(ticket);
        Ok(ticket)
    }

    fn poll_read(&mut self, ticket: Ticket, out: &mut [f32], _: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(unread) = self.unread.iter_mut().find(|u| u.ticket == Some(ticket)) else {
            let why = format!("run {} was read already or never made", ticket.0);
            return Poll::Ready(Err(Error::Input(why)));
        };
        if unread.values.len() != out.len() {
            return Poll::Ready(Err(Error::Shape {
                what: "read".into(),
                expected: format!("{} values", unread.values.len()),
                found: format!("{}", out.len()),
            }));
        }
        out.copy_from_slice(&unread.values);
        unread.ticket = None;
        Poll::Ready(Ok(()))
    }

    fn wait(&mut self, _: Ticket) -> Result<()> {
        Ok(())
    }

    fn depth(&self) -> usize {
        DEPTH
    }

    fn profile(&mut self, counts: Counts, inputs: &[(BufferId, &[u32])]) -> Result<Vec<StepTime>> {
        let Some(clock) = self.clock else {
            return Err(Error::Unsupported(
                "this CPU backend was given no clock to measure steps with".into(),
            ));
        };
        check_run(&self.program, &counts, inputs, &[])?;
        let mut arena = lock(&self.arena);
        let base = arena.words.as_mut_slice().as_mut_ptr();
        let run = self.begin(base, counts, inputs)?;
        let mut times = Vec::with_capacity(self.lowered.steps.len());
        for (at, step) in self.lowered.steps.iter().enumerate() {
            let begin = clock();
            self.team.run(
                &*self.parallel,
                1,
                |_| run.tasks(at),
                |worker, _, task| run.task(worker, at, task),
            );
            let nanoseconds = clock().saturating_sub(begin).as_nanos() as f64;
            times.push(StepTime { kernel: step.name(), grid: [run.tasks(at) as u32, 1, 1], nanoseconds });
        }
        Ok(times)
    }
}

impl CpuPlan {
    /// Writes a run's inputs and checks its integers. `base` is the arena, which is locked.
    fn begin(&self, base: *mut u32, counts: Counts, inputs: &[(BufferId, &[u32])]) -> Result<Run<'_>> {
        for (id, data) in inputs {
            let place = self.places[id.index()];
            // SAFETY: the place lies in the arena with room for its bucket's rows, and `check_run` holds the
            // data to no more.
            unsafe { core::ptr::copy_nonoverlapping(data.as_ptr(), base.add(place.at), data.len()) };
        }
        let words = |place: Place| match place.home {
            // SAFETY: the place lies in the arena.
            Home::Arena | Home::Staged => unsafe { base.add(place.at).cast_const() },
            Home::State(at) => self.states[at].0.cast_const(),
        };
        let integers = Integers { counts: &counts, words };
        self.lowered.checks.iter().try_for_each(|check| integers.check(check))?;
        let tiles_apart = self.lowered.checks.iter().all(|check| integers.apart(check));
        Ok(Run {
            isa: self.isa,
            lowered: &self.lowered,
            layout: self.layout,
            counts,
            base,
            states: &self.states,
            workers: self.parallel.threads().max(1),
            tiles_apart,
        })
    }
}
