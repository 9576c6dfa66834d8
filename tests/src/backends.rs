//! The backends that parity is tested on.

use std::sync::Arc;

use inferencelayer_engine::{
    backend::Backend,
    gpu::{GpuBackend, GpuContext, GpuOptions},
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

pub const GPU_F32: Make = || gpu(Format::F32);
pub const GPU_F16: Make = || gpu(Format::F16);

fn gpu(format: Format) -> Arc<dyn Backend> {
    let context = block_on(GpuContext::new(&GpuOptions::default())).expect("a GPU, or a software adapter");
    Arc::new(GpuBackend::new(context, format).expect("a backend"))
}
