//! What a machine does at best: copying, multiplying and adding, starting a kernel. The floors of every op are
//! computed from it.

pub mod cpu;
pub mod gpu;

use inferencelayer_engine::tensor::Format;
use serde::Serialize;

use super::{
    costs::Costs,
    variant::{Device, Opened, Variant},
};
use crate::Result;

/// A machine's best, as measured by small programs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Best {
    /// Bytes read and written each second by a copy.
    pub bytes_per_second: f64,
    /// Multiplications and additions each second with the variant's operands; `None` if no probe knows them.
    pub flops_per_second: Option<f64>,
}

impl Best {
    /// Seconds that an op takes at least, and what bounds it.
    pub fn floor(&self, costs: Costs) -> (f64, Bound) {
        let moving = costs.bytes as f64 / self.bytes_per_second;
        let multiplying = self.flops_per_second.map_or(0.0, |rate| costs.flops as f64 / rate);
        if moving >= multiplying { (moving, Bound::Memory) } else { (multiplying, Bound::Arithmetic) }
    }
}

/// What an op's floor comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    Memory,
    Arithmetic,
}

/// Measures the machine that a variant runs on.
///
/// # Errors
/// The GPU's errors.
pub fn best(opened: &Opened, variant: &Variant, threads: usize) -> Result<Best> {
    match opened {
        Opened::Gpu(gpu) => {
            let probe = gpu::Probe::new(gpu.context())?;
            let matrices = if variant.format == Format::F16 { probe.matrix_rate()? } else { None };
            let flops = match matrices {
                Some(rate) => rate,
                None => probe.fma_rate()?,
            };
            Ok(Best { bytes_per_second: probe.copy_bandwidth()?, flops_per_second: Some(flops) })
        }
        Opened::Other(_) => {
            let int8 = variant.device == Device::Cpu && variant.format == Format::Int8;
            let arithmetic = if int8 { cpu::Arithmetic::Int8 } else { cpu::Arithmetic::F32 };
            // The reference is one thread of scalar code; its floor is that of the machine all the same.
            let threads = if variant.device == Device::Reference { 1 } else { threads };
            Ok(Best {
                bytes_per_second: cpu::copy_bandwidth(threads),
                flops_per_second: cpu::rate(arithmetic, threads),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_time_is_the_floor() {
        let best = Best { bytes_per_second: 100.0, flops_per_second: Some(1000.0) };
        assert_eq!(best.floor(Costs { bytes: 50, flops: 400 }), (0.5, Bound::Memory));
        assert_eq!(best.floor(Costs { bytes: 50, flops: 600 }), (0.6, Bound::Arithmetic));
        let unknown = Best { flops_per_second: None, ..best };
        assert_eq!(unknown.floor(Costs { bytes: 50, flops: 600 }), (0.5, Bound::Memory));
    }
}
