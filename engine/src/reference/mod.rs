//! The scalar backend: slow, obvious, covers every option of every op. The truth the others are tested against.
//!
//! Buffers hold f32 values; those declared f16 are rounded to f16 when written, so that this backend shows
//! exactly what storage in f16 costs.

mod decoder;
mod ops;
mod plan;
mod sample;
mod state;
mod weight;

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

pub use ops::activate;
pub use sample::pcg4d;

use crate::{
    Error, Result,
    backend::{
        Backend, Capabilities, Plan, StateReading, USUAL_PROMPT_ROWS, USUAL_STEPS_AHEAD, WeightSink,
        check_state, check_state_rows,
    },
    program::Program,
    tensor::{DType, Format, State, StateSpec, WeightSpec},
};
use plan::ReferencePlan;
use state::ReferenceState;
use weight::ReferenceSink;

/// The scalar reference backend.
#[derive(Debug)]
pub struct Reference {
    capabilities: Capabilities,
    memory: Arc<AtomicU64>,
    others: ops::Others,
}

impl Reference {
    /// f32 throughout.
    pub fn new() -> Self {
        Self::with_formats(DType::F32, Format::F32)
    }

    /// With activations and weights rounded the way another backend stores them.
    pub fn with_formats(activations: DType, weights: Format) -> Self {
        Self::with(activations, weights, ops::every_other)
    }

    fn with(activations: DType, weights: Format, others: ops::Others) -> Self {
        let tables = if weights == Format::F16 { Format::F16 } else { Format::F32 };
        let capabilities = Capabilities {
            name: "reference (scalar)".into(),
            activations,
            matrices: weights,
            tables,
            blocks: &Format::BLOCKS,
            q8_rows: 0,
            prompt_rows: USUAL_PROMPT_ROWS,
            steps_ahead: USUAL_STEPS_AHEAD,
        };
        Reference { capabilities, memory: Arc::default(), others }
    }

    /// f32 throughout, with the ops of [`quick_check`](crate::testing::quick_check) alone: a program that has no other
    /// use for the reference does not hold all of it.
    pub fn for_quick_check() -> Self {
        Self::with(DType::F32, Format::F32, ops::no_other)
    }

    /// The same with 8-bit inputs of linear ops with block weights, for up to `rows` rows.
    pub fn with_q8(mut self, rows: usize) -> Self {
        self.capabilities.q8_rows = rows;
        self
    }
}

impl Default for Reference {
    fn default() -> Self {
        Self::new()
    }
}

impl Backend for Reference {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn weight(&self, spec: WeightSpec) -> Result<Box<dyn WeightSink>> {
        if spec.format == Format::BF16 {
            return Err(Error::Unsupported(alloc::format!("weight `{}`: kept as bf16", spec.name)));
        }
        Ok(Box::new(ReferenceSink::new(spec, self.memory.clone())))
    }

    fn prepare(&self, program: &Program) -> Result<Box<dyn Plan>> {
        Ok(Box::new(ReferencePlan::new(program.clone(), self.others)?))
    }

    fn state(&self, spec: StateSpec) -> Result<State> {
        check_state(&spec)?;
        Ok(ReferenceState::create(spec, self.memory.clone()))
    }

    fn write_state(&self, state: &State, first_row: usize, words: &[u32]) -> Result<()> {
        let rows = first_row..first_row + words.len() / state.spec().row_words().max(1);
        check_state_rows(state.spec(), &rows, Some(words.len()))?;
        ReferenceState::of(state)?.write(first_row * state.spec().row_words(), words);
        Ok(())
    }

    fn copy_state(&self, state: &State, from: Range<usize>, to: usize) -> Result<()> {
        let words = state.spec().row_words();
        check_state_rows(state.spec(), &from, None)?;
        check_state_rows(state.spec(), &(to..to + from.len()), None)?;
        let held = ReferenceState::of(state)?;
        held.write(to * words, &held.read(from.start * words..from.end * words));
        Ok(())
    }

    fn read_state<'a>(&'a self, state: &'a State, rows: Range<usize>) -> StateReading<'a> {
        let words = state.spec().row_words();
        Box::pin(async move {
            check_state_rows(state.spec(), &rows, None)?;
            Ok(ReferenceState::of(state)?.read(rows.start * words..rows.end * words))
        })
    }

    fn memory(&self) -> u64 {
        self.memory.load(Ordering::Relaxed)
    }
}

/// Values of one buffer while a plan runs.
pub(crate) type Values = Vec<f32>;
