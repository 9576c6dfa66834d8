//! The backend: makes weights and plans.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
};

use inferencelayer_engine::{
    Error, Result,
    backend::{Backend, Capabilities, Plan, StateReading, USUAL_PROMPT_ROWS, USUAL_STEPS_AHEAD, WeightSink},
    program::Program,
    tensor::{DType, Format, State, StateSpec, WeightSpec},
};

use super::{
    isa::Isa,
    parallel::{Parallel, Serial},
    plan::{Arena, Clock, CpuPlan},
    state::{self, CpuState},
    weight::{CpuSink, Memory},
};

/// How a CPU backend is made.
#[derive(Debug, Clone)]
pub struct CpuOptions {
    /// Threads to compute on.
    pub parallel: Arc<dyn Parallel>,
    /// The instruction set; the best there is if none is given.
    pub isa: Option<Isa>,
    /// Format of matrices: `F32` or `Int8`.
    pub matrices: Format,
    /// Format of tables: `F32`, `F16` or `BF16`.
    pub tables: Format,
    /// Weights in blocks multiply activations rounded to 8-bit blocks; else f32 ones, which is exact and slower.
    pub q8_activations: bool,
    /// Measures the steps of profiled runs, if it is there.
    pub clock: Option<Clock>,
}

impl Default for CpuOptions {
    /// f32 on the caller's thread.
    fn default() -> Self {
        CpuOptions {
            parallel: Arc::new(Serial),
            isa: None,
            matrices: Format::F32,
            tables: Format::F32,
            q8_activations: false,
            clock: None,
        }
    }
}

/// Runs programs on the CPU.
///
/// Results are bitwise the same for any number of threads and rows, on one instruction set.
#[derive(Debug)]
pub struct CpuBackend {
    capabilities: Capabilities,
    isa: Isa,
    parallel: Arc<dyn Parallel>,
    arena: Arc<Mutex<Arena>>,
    memory: Memory,
    clock: Option<Clock>,
}

impl CpuBackend {
    /// # Errors
    /// `Unsupported` for an instruction set that this processor lacks, or a format that weights cannot have.
    pub fn new(options: CpuOptions) -> Result<Self> {
        let isa = options.isa.unwrap_or_else(Isa::detect);
        if !isa.available() {
            let here: Vec<&str> = Isa::ALL.into_iter().filter(|i| i.available()).map(Isa::name).collect();
            let here = here.join(", ");
            return Err(Error::Unsupported(format!("this processor lacks {isa}; it has {here}")));
        }
        if !matches!(options.matrices, Format::F32 | Format::Int8) {
            let found = options.matrices;
            return Err(Error::Unsupported(format!("CPU matrices as {found:?}; F32 and Int8 are possible")));
        }
        if !matches!(options.tables, Format::F32 | Format::F16 | Format::BF16) {
            let found = options.tables;
            return Err(Error::Unsupported(format!(
                "CPU tables as {found:?}; F32, F16 and BF16 are possible"
            )));
        }
        let threads = options.parallel.threads().max(1);
        let workers = if threads == 1 { "1 thread".into() } else { format!("{threads} threads") };
        let capabilities = Capabilities {
            name: format!("cpu ({isa}, {workers})"),
            activations: DType::F32,
            matrices: options.matrices,
            tables: options.tables,
            blocks: &Format::BLOCKS,
            q8_rows: if options.q8_activations { usize::MAX } else { 0 },
            prompt_rows: USUAL_PROMPT_ROWS,
            steps_ahead: USUAL_STEPS_AHEAD,
        };
        let arena = Arc::default();
        let (parallel, clock) = (options.parallel, options.clock);
        Ok(CpuBackend { capabilities, isa, parallel, arena, memory: Memory::default(), clock })
    }

    pub fn isa(&self) -> Isa {
        self.isa
    }
}

impl Backend for CpuBackend {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn weight(&self, spec: WeightSpec) -> Result<Box<dyn WeightSink>> {
        Ok(Box::new(CpuSink::new(spec, self.isa, self.memory.clone())?))
    }

    fn prepare(&self, program: &Program) -> Result<Box<dyn Plan>> {
        let (parallel, arena) = (self.parallel.clone(), self.arena.clone());
        Ok(Box::new(CpuPlan::new(program, self.isa, parallel, arena, &self.memory, self.clock)?))
    }

    fn state(&self, spec: StateSpec) -> Result<State> {
        CpuState::create(spec, &self.arena, &self.memory)
    }

    fn write_state(&self, state: &State, first_row: usize, words: &[u32]) -> Result<()> {
        state::write(state, &self.arena, first_row, words)
    }

    fn copy_state(&self, state: &State, from: Range<usize>, to: usize) -> Result<()> {
        state::copy(state, &self.arena, from, to)
    }

    fn read_state<'a>(&'a self, state: &'a State, rows: Range<usize>) -> StateReading<'a> {
        Box::pin(async move { state::read(state, &self.arena, rows) })
    }

    fn memory(&self) -> u64 {
        self.memory.get()
    }
}
