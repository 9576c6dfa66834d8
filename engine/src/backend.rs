//! What a backend offers: it holds weights, prepares programs and replays them.

use alloc::{boxed::Box, format, string::String, vec::Vec};
use core::{
    future::Future,
    ops::Range,
    pin::Pin,
    task::{Context, Poll},
};

use crate::{
    Error, Result,
    program::{BufferId, Counts, Program, Role},
    tensor::{DType, Format, MaybeSendSync, State, StateSpec, Weight, WeightSpec, WeightUse},
};

/// What a backend can do and prefers; fixed for its lifetime.
#[derive(Debug, Clone, PartialEq)]
pub struct Capabilities {
    /// For people: kind, adapter, driver.
    pub name: String,
    /// Element type of activations between ops.
    pub activations: DType,
    /// Format to keep matrices in.
    pub matrices: Format,
    /// Format to keep lookup tables in.
    pub tables: Format,
    /// Block formats in which matrices and tables are kept as they come.
    pub blocks: &'static [Format],
    /// Up to so many rows, linear ops with block weights take inputs of [`DType::Q8`] best; 0 if it has none.
    pub q8_rows: usize,
    /// So many rows of a prompt at a time are worth their memory.
    pub prompt_rows: usize,
    /// Decoding steps to submit before the first is read, so that the device never waits for whoever reads.
    pub steps_ahead: usize,
}

/// [`Capabilities::prompt_rows`] where nothing is gained by more.
pub const USUAL_PROMPT_ROWS: usize = 512;

/// [`Capabilities::steps_ahead`] where a step takes longer than reading its tokens: one runs while another is read. What
/// is ahead when an answer ends was computed for nothing.
pub const USUAL_STEPS_AHEAD: usize = 2;

impl Capabilities {
    /// The format a weight of this use is kept in that comes as `source`.
    pub fn format_for(&self, usage: WeightUse, source: Format) -> Format {
        match usage {
            WeightUse::Matrix | WeightUse::Table if self.blocks.contains(&source) => source,
            WeightUse::Matrix => self.matrices,
            WeightUse::Table => self.tables,
            WeightUse::Vector => Format::F32,
        }
    }

    /// Element type of the input that a linear op with a weight of this format takes best, for up to `rows` rows.
    pub fn linear_input(&self, rows: usize, format: Format) -> DType {
        if format.is_block() && rows <= self.q8_rows { DType::Q8 } else { self.activations }
    }
}

/// Takes a weight's rows as they come, so that a checkpoint never has to be in memory whole.
pub trait WeightSink {
    /// Appends little-endian elements or blocks of `source`; pieces may end anywhere between them.
    ///
    /// # Errors
    /// `Shape` if more arrives than the weight holds, and the backend's own errors.
    fn push(&mut self, source: Format, bytes: &[u8]) -> Result<()>;

    /// # Errors
    /// `Shape` if values are missing, and the backend's own errors.
    fn finish(self: Box<Self>) -> Result<Weight>;
}

/// A state's words on their way.
pub type StateReading<'a> = Pin<Box<dyn Future<Output = Result<Vec<u32>>> + 'a>>;

/// Runs programs. Implemented by `gpu`, `reference`, and the CPU backend of the native crate.
pub trait Backend: MaybeSendSync {
    fn capabilities(&self) -> &Capabilities;

    /// Begins a weight.
    ///
    /// # Errors
    /// `Unsupported` for a format it cannot keep, `TooLarge`, `OutOfMemory`.
    fn weight(&self, spec: WeightSpec) -> Result<Box<dyn WeightSink>>;

    /// Lowers a program. All that a run needs is made here.
    ///
    /// # Errors
    /// `Unsupported` for an op or weight of another backend, `TooLarge`, `OutOfMemory`.
    fn prepare(&self, program: &Program) -> Result<Box<dyn Plan>>;

    /// Makes memory that outlives runs, filled with zeros.
    ///
    /// # Errors
    /// `TooLarge`, `OutOfMemory`.
    fn state(&self, spec: StateSpec) -> Result<State>;

    /// Writes whole rows from `first_row` on, as 32-bit words: f32 bits, or two f16 with the first in the low half.
    /// Runs submitted before see the old rows, later ones the new.
    ///
    /// # Errors
    /// `Shape` for rows that are not there or not whole, `Unsupported` for a state of another backend.
    fn write_state(&self, state: &State, first_row: usize, words: &[u32]) -> Result<()>;

    /// Copies rows within a state, in the order of runs. The ranges must not overlap.
    ///
    /// # Errors
    /// As [`Backend::write_state`].
    fn copy_state(&self, state: &State, from: Range<usize>, to: usize) -> Result<()>;

    /// Reads whole rows, as words, when all runs submitted before are done.
    ///
    /// # Errors
    /// As [`Backend::write_state`], and `DeviceLost`.
    fn read_state<'a>(&'a self, state: &'a State, rows: Range<usize>) -> StateReading<'a>;

    /// Bytes held: weights, states, activations and read-back buffers.
    fn memory(&self) -> u64;
}

/// Names one submitted run of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(pub u64);

/// A prepared program. A run creates no buffer, bind group or pipeline.
pub trait Plan: MaybeSendSync {
    /// Runs once with these inputs and asks for the first rows of some outputs. Does not wait for the result on
    /// a GPU. At most [`Plan::depth`] runs may be unread.
    ///
    /// # Errors
    /// `Shape` for inputs or counts that do not fit the program, `Unsupported` when too many runs are unread,
    /// and the backend's own errors.
    fn submit(
        &mut self,
        counts: Counts,
        inputs: &[(BufferId, &[u32])],
        reads: &[(BufferId, usize)],
    ) -> Result<Ticket>;

    /// The values asked for by `ticket`, one read after the other, once they are there.
    /// `out` holds exactly as many values as were asked for.
    ///
    /// # Errors
    /// `DeviceLost` and the backend's other errors; `Input` for a ticket that was never given or is read already.
    fn poll_read(&mut self, ticket: Ticket, out: &mut [f32], cx: &mut Context<'_>) -> Poll<Result<()>>;

    /// Blocks until the next [`Plan::poll_read`] of `ticket` is ready. Does nothing in a browser, where only
    /// the event loop makes progress.
    ///
    /// # Errors
    /// `DeviceLost`.
    fn wait(&mut self, ticket: Ticket) -> Result<()>;

    /// How many runs may be submitted before the first is read.
    fn depth(&self) -> usize;

    /// Runs once and measures every step by itself; their sum is somewhat more than an undisturbed run takes.
    /// Blocks, and so is not for browsers.
    ///
    /// # Errors
    /// `Unsupported` where steps cannot be measured; those of [`Plan::submit`].
    fn profile(&mut self, _counts: Counts, _inputs: &[(BufferId, &[u32])]) -> Result<Vec<StepTime>> {
        Err(Error::Unsupported("this backend does not measure the steps of a run".into()))
    }
}

/// Time of one step of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTime {
    /// Kernel name.
    pub kernel: &'static str,
    /// Workgroups.
    pub grid: [u32; 3],
    /// Between the step's start and end.
    pub nanoseconds: f64,
}

/// Reads a run's values, waiting asynchronously.
///
/// # Errors
/// Those of [`Plan::poll_read`].
pub async fn read(plan: &mut dyn Plan, ticket: Ticket, out: &mut [f32]) -> Result<()> {
    core::future::poll_fn(|cx| plan.poll_read(ticket, out, cx)).await
}

/// Checks a run's counts, inputs and reads against the program; every backend calls it first.
///
/// # Errors
/// `Shape` naming the buffer.
pub fn check_run(
    program: &Program,
    counts: &Counts,
    inputs: &[(BufferId, &[u32])],
    reads: &[(BufferId, usize)],
) -> Result<()> {
    let mismatch = |name: &str, expected: String, found: String| {
        Err(Error::Shape { what: format!("run: buffer `{name}`"), expected, found })
    };
    for spec in program.buffers.iter().filter(|b| b.role != Role::State) {
        let count = counts[spec.count as usize] as usize;
        if count > spec.rows {
            return mismatch(spec.name, format!("at most {} rows", spec.rows), format!("{count}"));
        }
    }
    for (id, data) in inputs {
        let spec = program.spec(*id);
        let expected = counts[spec.count as usize] as usize * spec.cols;
        if spec.role != Role::Input || data.len() != expected {
            return mismatch(spec.name, format!("an input of {expected} values"), format!("{}", data.len()));
        }
    }
    if let Some(id) = program.with_role(Role::Input).find(|id| !inputs.iter().any(|(given, _)| given == id)) {
        return mismatch(program.spec(id).name, "a value".into(), "none".into());
    }
    for (id, rows) in reads {
        let spec = program.spec(*id);
        let count = counts[spec.count as usize] as usize;
        if spec.role != Role::Output || *rows > count {
            return mismatch(spec.name, format!("a read of at most {count} rows"), format!("{rows}"));
        }
    }
    Ok(())
}

/// Checks that a state can be made; every backend calls it first.
///
/// # Errors
/// `Unsupported` for 8-bit blocks, which are written whole and between two ops only.
pub fn check_state(spec: &StateSpec) -> Result<()> {
    if spec.dtype == DType::Q8 {
        return Err(Error::Unsupported(format!("state `{}` of 8-bit blocks", spec.name)));
    }
    Ok(())
}

/// Checks that rows `rows` are a state's, and that there are as many words; every backend calls it first.
///
/// # Errors
/// `Shape` naming the state.
pub fn check_state_rows(spec: &StateSpec, rows: &Range<usize>, words: Option<usize>) -> Result<()> {
    let expected = rows.len() * spec.row_words();
    if rows.start > rows.end || rows.end > spec.rows || words.is_some_and(|w| w != expected) {
        return Err(Error::Shape {
            what: format!("state `{}`", spec.name),
            expected: format!("rows of {} words within 0..{}", spec.row_words(), spec.rows),
            found: format!("rows {rows:?}, {} words", words.unwrap_or(expected)),
        });
    }
    Ok(())
}

/// Uploads a whole weight from f32 values.
///
/// # Errors
/// Those of [`Backend::weight`] and [`WeightSink`].
pub fn upload_f32(
    backend: &dyn Backend,
    name: &str,
    usage: WeightUse,
    (rows, cols): (usize, usize),
    values: &[f32],
) -> Result<Weight> {
    let format = backend.capabilities().format_for(usage, Format::F32);
    let mut sink = backend.weight(WeightSpec { name: name.into(), rows, cols, format, usage })?;
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    sink.push(Format::F32, &bytes)?;
    sink.finish()
}
