//! A prepared program: places in the shared arena, checked inputs, and the results of runs not yet read.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use inferencelayer_engine::{
    Error, Result,
    backend::{Plan, Ticket, check_run},
    op::ATTENTION_TILE,
    program::{BufferId, Counts, Program, Role},
};

use super::{
    attention,
    gemm::pack::Aligned,
    isa::Isa,
    parallel::{MAX_TASKS, Parallel, Team},
    run::{Layout, Run},
    step::{Check, Lowered, Place, Step, lower},
    weight::{Held, Memory},
};

/// Runs that may be unread.
const DEPTH: usize = 2;
/// Words in a cache line: every place begins on one.
const LINE: usize = 16;

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
fn lock(arena: &Mutex<Arena>) -> MutexGuard<'_, Arena> {
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
    layout: Layout,
    team: Team,
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
    ) -> Result<Self> {
        let (places, mut len) = places(program);
        let lowered = lower(program, &places, isa)?;
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
        let workers = parallel.threads().max(1);
        let scratch_len = attention::scratch_len(lowered.head_dim).next_multiple_of(LINE);
        let layout = Layout {
            words: take(lowered.words),
            scales: take(2 * lowered.quantized_rows),
            scratch: take(workers * scratch_len),
            scratch_len,
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
            layout,
            team: Team::default(),
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
    let places = program.buffers.iter().zip(slot_of).map(|(spec, slot)| {
        let at = match slot {
            Some(slot) => slots[slot],
            None => take(spec.bytes()),
        };
        Place { at, cols: spec.cols, count: spec.count }
    });
    (places.collect(), len)
}

/// Whether every step's tasks can be counted by a [`Team`].
fn tasks_fit(program: &Program, lowered: &Lowered) -> bool {
    let rows = |count| program.buffers.iter().filter(|b| b.count == count).map(|b| b.rows).max().unwrap_or(0);
    lowered.steps.iter().all(|step| match step {
        Step::Attention(step) => rows(step.tiles.count).saturating_mul(step.heads) <= MAX_TASKS,
        Step::Linear(step) => rows(step.x.count).saturating_add(step.out.cols) <= MAX_TASKS,
        _ => true,
    })
}

/// Checks a run's integers: indices into tables and rows.
fn check(checks: &[Check], counts: &Counts, integers: impl Fn(Place) -> *const u32) -> Result<()> {
    let rows = |place: Place| counts[place.count as usize] as usize;
    let values = |place: Place| {
        // SAFETY: the place lies in the arena, which nothing else uses now.
        unsafe { core::slice::from_raw_parts(integers(place), rows(place) * place.cols) }
    };
    for check in checks {
        match check {
            Check::Entry { tokens, field, rows, name } => {
                let entries = values(*tokens).iter().skip(*field).step_by(tokens.cols);
                if let Some(entry) = entries.copied().find(|entry| *entry as usize >= *rows) {
                    return Err(Error::Input(format!("row {entry} of table `{name}`, which has {rows}")));
                }
            }
            Check::Tiles { tiles, qkv } => {
                let limit = rows(*qkv);
                for (i, tile) in values(*tiles).as_chunks::<4>().0.iter().enumerate() {
                    let [first, last, start, end] = tile.map(|v| v as usize);
                    let inside = start <= first && first <= last && last <= end && end <= limit;
                    if !inside || last - first > ATTENTION_TILE {
                        return Err(Error::Input(format!(
                            "tile {i}: queries {first}..{last} of the sequence {start}..{end} among {limit} rows"
                        )));
                    }
                }
            }
            Check::Ranges { ranges, x } => {
                let limit = rows(*x);
                for (i, [start, end]) in values(*ranges).as_chunks::<2>().0.iter().enumerate() {
                    if start < end && *end as usize > limit {
                        return Err(Error::Input(format!("range {i}: {start}..{end} among {limit} rows")));
                    }
                }
            }
        }
    }
    Ok(())
}

/// Whether tiles follow each other without sharing query rows.
fn apart(tiles: &[u32]) -> bool {
    let ends = tiles.as_chunks::<4>().0;
    ends.windows(2).all(|pair| pair[0][1] <= pair[1][0])
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
        let place = |id: BufferId| self.places[id.index()];
        for (id, data) in inputs {
            // SAFETY: the place lies in the arena with room for its bucket's rows, and `check_run` holds the
            // data to no more.
            unsafe { core::ptr::copy_nonoverlapping(data.as_ptr(), base.add(place(*id).at), data.len()) };
        }
        // SAFETY: places lie in the arena.
        check(&self.lowered.checks, &counts, |place| unsafe { base.add(place.at).cast_const() })?;
        let tiles_apart = self.lowered.checks.iter().all(|check| match check {
            Check::Tiles { tiles, .. } => {
                let len = counts[tiles.count as usize] as usize * tiles.cols;
                // SAFETY: as above.
                apart(unsafe { core::slice::from_raw_parts(base.add(tiles.at), len) })
            }
            _ => true,
        });
        let run = Run {
            isa: self.isa,
            lowered: &self.lowered,
            layout: self.layout,
            counts,
            base,
            workers: self.parallel.threads().max(1),
            tiles_apart,
        };
        let work = |worker, step, task| run.task(worker, step, task);
        self.team.run(&*self.parallel, self.lowered.steps.len(), |step| run.tasks(step), work);
        let unread = &mut self.unread[free];
        unread.values.clear();
        for (id, rows) in reads {
            let place = self.places[id.index()];
            // SAFETY: as above; the run is over.
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
}
