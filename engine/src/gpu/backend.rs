//! The wgpu backend: weights, activations and plans of one engine on a shared device.

use alloc::{boxed::Box, format, sync::Arc};
use core::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{
    arena::Arena,
    context::GpuContext,
    plan::GpuPlan,
    readback::{DEPTH, Readback},
    state::{self, GpuState},
    weight::GpuSink,
};
use crate::{
    Error, Result,
    backend::{
        Backend, Capabilities, Plan, StateReading, USUAL_PROMPT_ROWS, USUAL_STEPS_AHEAD, WeightSink,
        check_state,
    },
    program::Program,
    tensor::{DType, Format, State, StateSpec, WeightSpec},
};

/// Up to so many rows share one pass over a matrix of blocks.
const Q8_ROWS: usize = 8;

/// Fewer rows leave a large GPU's matrix units without work in products with few columns.
const MATRIX_PROMPT_ROWS: usize = 2048;

/// In a browser a step of a GPU takes less than a millisecond and news of it often more than that.
const STEPS_AHEAD: usize = DEPTH - 2;

/// How a backend stores numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuFormats {
    /// F32 or F16: activations, and weights that do not come in blocks.
    pub floats: Format,
    /// Weights in blocks multiply activations rounded to 8-bit blocks where rows are few and that is faster; else
    /// blocks are dequantized and multiply floats.
    pub q8_activations: bool,
}

impl From<Format> for GpuFormats {
    fn from(floats: Format) -> Self {
        GpuFormats { floats, q8_activations: false }
    }
}

/// What the plans of one backend share.
#[derive(Debug)]
pub(super) struct Shared {
    pub context: Arc<GpuContext>,
    pub arena: Arena,
    /// What the dispatches of one op pass on among themselves.
    pub scratch: Arena,
    pub readback: Readback,
}

/// The wgpu backend.
#[derive(Debug)]
pub struct GpuBackend {
    shared: Arc<Shared>,
    capabilities: Capabilities,
    weights: Arc<AtomicU64>,
    states: Arc<AtomicU64>,
}

impl GpuBackend {
    /// A backend that stores weights and activations as `formats` say. f16 works on every adapter, as storage;
    /// arithmetic is in f32 except for the products of cooperative matrices, which accumulate in f32, and the
    /// integer dot products of 8-bit blocks.
    ///
    /// # Errors
    /// `Unsupported` for formats other than f32 and f16.
    pub fn new(context: Arc<GpuContext>, formats: impl Into<GpuFormats>) -> Result<GpuBackend> {
        let formats = formats.into();
        let activations = match formats.floats {
            Format::F32 => DType::F32,
            Format::F16 => DType::F16,
            other => return Err(Error::Unsupported(format!("{other:?} on the GPU; it has f32 and f16"))),
        };
        let capabilities = Capabilities {
            name: context.name(),
            activations,
            matrices: formats.floats,
            tables: formats.floats,
            blocks: &Format::BLOCKS,
            q8_rows: if formats.q8_activations { Q8_ROWS } else { 0 },
            prompt_rows: match context.features().cooperative_matrix {
                true => MATRIX_PROMPT_ROWS,
                false => USUAL_PROMPT_ROWS,
            },
            // A software adapter's steps take long.
            steps_ahead: match context.features().barriers {
                true => STEPS_AHEAD,
                false => USUAL_STEPS_AHEAD,
            },
        };
        let shared = Shared {
            context,
            arena: Arena::default(),
            scratch: Arena::default(),
            readback: Readback::default(),
        };
        Ok(GpuBackend {
            shared: Arc::new(shared),
            capabilities,
            weights: Arc::default(),
            states: Arc::default(),
        })
    }

    pub fn context(&self) -> &Arc<GpuContext> {
        &self.shared.context
    }

    /// [`Backend::prepare`] with the concrete type, which can also be profiled.
    ///
    /// # Errors
    /// Those of [`Backend::prepare`].
    pub fn prepare_gpu(&self, program: &Program) -> Result<GpuPlan> {
        GpuPlan::new(self.shared.clone(), program.clone())
    }
}

impl Backend for GpuBackend {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn weight(&self, spec: WeightSpec) -> Result<Box<dyn WeightSink>> {
        Ok(Box::new(GpuSink::new(self.shared.context.clone(), spec, self.weights.clone())?))
    }

    fn prepare(&self, program: &Program) -> Result<Box<dyn Plan>> {
        Ok(Box::new(self.prepare_gpu(program)?))
    }

    fn state(&self, spec: StateSpec) -> Result<State> {
        check_state(&spec)?;
        GpuState::create(&self.shared.context, spec, self.states.clone())
    }

    fn write_state(&self, state: &State, first_row: usize, words: &[u32]) -> Result<()> {
        state::write(&self.shared, state, first_row, words)
    }

    fn copy_state(&self, state: &State, from: Range<usize>, to: usize) -> Result<()> {
        state::copy(&self.shared, state, from, to)
    }

    fn read_state<'a>(&'a self, state: &'a State, rows: Range<usize>) -> StateReading<'a> {
        Box::pin(state::read(&self.shared, state, rows))
    }

    fn memory(&self) -> u64 {
        self.states.load(Ordering::Relaxed)
            + self.weights.load(Ordering::Relaxed)
            + self.shared.arena.bytes()
            + self.shared.scratch.bytes()
            + self.shared.readback.bytes()
    }
}
