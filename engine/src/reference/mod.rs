//! The scalar backend: slow, obvious, covers every option of every op. The truth the others are tested against.
//!
//! Buffers hold f32 values; those declared f16 are rounded to f16 when written, so that this backend shows
//! exactly what storage in f16 costs.

mod ops;
mod plan;
mod weight;

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU64, Ordering};

pub use ops::activate;

use crate::{
    Error, Result,
    backend::{Backend, Capabilities, Plan, WeightSink},
    program::Program,
    tensor::{DType, Format, WeightSpec},
};
use plan::ReferencePlan;
use weight::ReferenceSink;

/// The scalar reference backend.
#[derive(Debug)]
pub struct Reference {
    capabilities: Capabilities,
    memory: Arc<AtomicU64>,
}

impl Reference {
    /// f32 throughout.
    pub fn new() -> Self {
        Self::with_formats(DType::F32, Format::F32)
    }

    /// With activations and weights rounded the way another backend stores them.
    pub fn with_formats(activations: DType, weights: Format) -> Self {
        let tables = if weights == Format::F16 { Format::F16 } else { Format::F32 };
        let capabilities =
            Capabilities { name: "reference (scalar)".into(), activations, matrices: weights, tables };
        Reference { capabilities, memory: Arc::default() }
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
        Ok(Box::new(ReferencePlan::new(program.clone())))
    }

    fn memory(&self) -> u64 {
        self.memory.load(Ordering::Relaxed)
    }
}

/// Values of one buffer while a plan runs.
pub(crate) type Values = Vec<f32>;
