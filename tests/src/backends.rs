//! The backends that parity is tested on.

use std::sync::Arc;

use inferencelayer::cpu::{CpuBackend, CpuOptions, Threads};
use inferencelayer_engine::{
    backend::Backend,
    gpu::{GpuBackend, GpuContext, GpuFormats, GpuOptions},
    reference::Reference,
    task::block_on,
    tensor::{DType, Format},
};

/// A backend that has to be there: a missing one is a failure, not a skipped test.
pub type Make = fn() -> Arc<dyn Backend>;

/// f32 throughout.
pub const REFERENCE: Make = || Arc::new(Reference::new());

/// Storage in f16 and in int8, as the other backends may keep it.
pub const REFERENCE_F16: Make = || Arc::new(Reference::with_formats(DType::F16, Format::F16));
pub const REFERENCE_INT8: Make = || Arc::new(Reference::with_formats(DType::F32, Format::Int8));

pub const CPU_F32: Make = || cpu(Format::F32, false);
pub const CPU_INT8: Make = || cpu(Format::Int8, false);
/// Weights in blocks multiply activations in 8-bit blocks.
pub const CPU_Q8: Make = || cpu(Format::F32, true);

fn cpu(matrices: Format, q8_activations: bool) -> Arc<dyn Backend> {
    let parallel = Arc::new(Threads::new(2).expect("threads"));
    let options = CpuOptions { parallel, matrices, q8_activations, ..Default::default() };
    Arc::new(CpuBackend::new(options).expect("a backend"))
}

pub const GPU_F32: Make = || gpu(Format::F32, &GpuOptions::default());
pub const GPU_F16: Make = || gpu(Format::F16, &GpuOptions::default());

/// With the kernels of a real GPU, even where the adapter is software.
pub const HARDWARE_F32: Make = || gpu(Format::F32, &GpuOptions { as_hardware: true, ..Default::default() });
pub const HARDWARE_F16: Make = || gpu(Format::F16, &GpuOptions { as_hardware: true, ..Default::default() });

/// The same with activations in 8-bit blocks where weights are in blocks.
pub const HARDWARE_Q8: Make = || {
    let formats = GpuFormats { floats: Format::F16, q8_activations: true };
    gpu(formats, &GpuOptions { as_hardware: true, ..Default::default() })
};

fn gpu(format: impl Into<GpuFormats>, options: &GpuOptions) -> Arc<dyn Backend> {
    let context = block_on(GpuContext::new(options)).expect("a GPU, or a software adapter");
    Arc::new(GpuBackend::new(context, format).expect("a backend"))
}
