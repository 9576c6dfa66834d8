//! What a model runs on in a browser.

use std::sync::Arc;

use inferencelayer::{
    cpu::{CpuBackend, CpuOptions},
    engine::{
        Error, Result,
        backend::Backend,
        gpu::{GpuBackend, GpuContext, GpuOptions},
        tensor::Format,
    },
};
use serde::Deserialize;

/// Kinds of device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// The GPU if there is one, else the CPU.
    #[default]
    Auto,
    /// WebGPU, on whatever adapter the browser gives; an error if it gives none.
    Gpu,
    /// The processor, one thread of it.
    Cpu,
}

/// How weights and activations are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    F32,
    F16,
    /// CPU only.
    Int8,
}

/// Opens a device.
///
/// # Errors
/// `NoAdapter` if a GPU was asked for and there is none; `Unsupported` for a dtype that the device has not.
pub async fn open(device: Device, dtype: Option<Dtype>) -> Result<Arc<dyn Backend>> {
    match device {
        Device::Gpu => gpu(GpuContext::new(&GpuOptions::default()).await?, dtype),
        Device::Cpu => cpu(dtype),
        // Only the CPU has int8.
        Device::Auto if dtype == Some(Dtype::Int8) => cpu(dtype),
        Device::Auto => match GpuContext::new(&GpuOptions::default()).await {
            // A software adapter is the CPU by a detour.
            Ok(context) if context.adapter().kind == "Cpu" => cpu(dtype),
            Ok(context) => gpu(context, dtype),
            Err(Error::NoAdapter(_)) => cpu(dtype),
            Err(error) => Err(error),
        },
    }
}

/// `Backend`s are shared by `Arc`, which serves natively too; in a browser GPU objects stay on their thread.
#[allow(clippy::arc_with_non_send_sync)]
fn gpu(context: Arc<GpuContext>, dtype: Option<Dtype>) -> Result<Arc<dyn Backend>> {
    let format = match dtype {
        Some(Dtype::F32) => Format::F32,
        Some(Dtype::F16) => Format::F16,
        Some(Dtype::Int8) => {
            let why = "int8 runs on the CPU only: use device \"cpu\", or dtype \"f16\"";
            return Err(Error::Unsupported(why.into()));
        }
        None if context.features().f16 => Format::F16,
        None => Format::F32,
    };
    Ok(Arc::new(GpuBackend::new(context, format)?))
}

fn cpu(dtype: Option<Dtype>) -> Result<Arc<dyn Backend>> {
    let matrices = match dtype {
        None | Some(Dtype::F32) => Format::F32,
        Some(Dtype::Int8) => Format::Int8,
        Some(Dtype::F16) => {
            let why = "f16 runs on GPUs: use dtype \"f32\" or \"int8\" on the CPU";
            return Err(Error::Unsupported(why.into()));
        }
    };
    Ok(Arc::new(CpuBackend::new(CpuOptions { matrices, ..CpuOptions::default() })?))
}
