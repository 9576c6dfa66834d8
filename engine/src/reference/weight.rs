//! Weights of the reference backend: f32 values, rounded to the format they pretend to be kept in.

use alloc::{boxed::Box, format, sync::Arc, vec::Vec};
use core::{
    any::Any,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    Error, Result,
    backend::WeightSink,
    tensor::{Format, Weight, WeightSpec, WeightStorage, decode_f32},
};

/// Values of a weight, row-major.
#[derive(Debug)]
pub struct ReferenceWeight {
    pub values: Vec<f32>,
    memory: Arc<AtomicU64>,
}

impl Drop for ReferenceWeight {
    fn drop(&mut self) {
        self.memory.fetch_sub(self.values.len() as u64 * 4, Ordering::Relaxed);
    }
}

impl WeightStorage for ReferenceWeight {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub struct ReferenceSink {
    spec: WeightSpec,
    values: Vec<f32>,
    memory: Arc<AtomicU64>,
}

impl ReferenceSink {
    pub fn new(spec: WeightSpec, memory: Arc<AtomicU64>) -> Self {
        ReferenceSink { spec, values: Vec::new(), memory }
    }

    fn mismatch(&self) -> Error {
        Error::Shape {
            what: format!("weight `{}`", self.spec.name),
            expected: format!("[{}, {}]", self.spec.rows, self.spec.cols),
            found: format!("{} values", self.values.len()),
        }
    }
}

impl WeightSink for ReferenceSink {
    fn push(&mut self, source: Format, bytes: &[u8]) -> Result<()> {
        decode_f32(source, bytes, &mut self.values)?;
        if self.values.len() > self.spec.rows * self.spec.cols {
            return Err(self.mismatch());
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Weight> {
        if self.values.len() != self.spec.rows * self.spec.cols {
            return Err(self.mismatch());
        }
        match self.spec.format {
            Format::F16 => {
                for v in &mut self.values {
                    *v = half::f16::from_f32(*v).to_f32();
                }
            }
            Format::Int8 => self.values.chunks_mut(self.spec.cols.max(1)).for_each(round_int8),
            _ => {}
        }
        self.memory.fetch_add(self.values.len() as u64 * 4, Ordering::Relaxed);
        Ok(Weight::new(self.spec, Arc::new(ReferenceWeight { values: self.values, memory: self.memory })))
    }
}

/// Rounds a row to symmetric 8-bit integers times one scale.
fn round_int8(row: &mut [f32]) {
    let largest = row.iter().fold(0f32, |m, v| m.max(v.abs()));
    let scale = largest / 127.0;
    for v in row {
        *v = if scale > 0.0 { libm::roundf(*v / scale).clamp(-127.0, 127.0) * scale } else { 0.0 };
    }
}
