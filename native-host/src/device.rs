//! Choosing and opening what a model runs on.

use std::sync::Arc;

use inferencelayer_engine::{
    Error as EngineError,
    backend::Backend,
    gpu::{AdapterChoice, GpuBackend, GpuContext, GpuFormats, GpuOptions},
    reference::Reference,
    task::block_on,
    tensor::{DType, Format},
};

use crate::{Error, Result, pipelines::DiskPipelines};

/// Kinds of device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Device {
    /// The GPU if there is one, else the CPU.
    #[default]
    Auto,
    /// A GPU; an error if there is none.
    Gpu,
    /// The processor.
    Cpu,
    /// The slow, plain implementation that the others are tested against.
    Reference,
}

/// How weights and activations are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Dtype {
    /// Single precision.
    F32,
    /// Half precision, sums in single.
    F16,
    /// Matrices as 8-bit integers, on the CPU only.
    Int8,
    /// As the weights come; activations in 8-bit blocks where that is faster.
    AsIs,
}

/// What to run on.
#[derive(Debug, Clone, Default)]
pub struct DeviceOptions {
    pub device: Device,
    /// `None`: f16 on a GPU that has it, else f32.
    pub dtype: Option<Dtype>,
    pub adapter: AdapterChoice,
    /// CPU threads, 1 to [`MAX_THREADS`]; `None` for one a core.
    pub threads: Option<usize>,
}

/// More threads than any machine has processors.
pub const MAX_THREADS: usize = 1024;

/// An open device.
pub(crate) struct Opened {
    pub backend: Arc<dyn Backend>,
    pub gpu: Option<GpuHandle>,
}

/// Keeps a GPU's compiled pipelines.
#[derive(Debug, Clone)]
pub(crate) struct GpuHandle(Arc<GpuContext>);

impl GpuHandle {
    pub fn save_pipelines(&self) {
        self.0.save_pipelines();
    }

    /// Names of the adapter and its driver.
    pub fn adapter(&self) -> (String, String) {
        let adapter = self.0.adapter();
        (adapter.name.clone(), adapter.driver.trim().to_string())
    }
}

/// Opens what the options ask for.
///
/// # Errors
/// `NoAdapter` if a GPU is asked for and there is none; `Unsupported` for a dtype that the device does not have.
pub(crate) fn open(options: &DeviceOptions) -> Result<Opened> {
    check(options)?;
    match options.device {
        Device::Gpu => open_gpu(open_context(options)?, options.dtype),
        Device::Cpu => open_cpu(options, false),
        Device::Reference => Ok(open_reference(options.dtype)),
        Device::Auto if options.dtype == Some(Dtype::Int8) => {
            log::warn!("int8 runs on the CPU");
            open_cpu(options, false)
        }
        Device::Auto => match open_context(options) {
            // A software adapter is the CPU by a detour, unless it was asked for.
            Ok(context) if context.adapter().kind == "Cpu" && options.adapter == AdapterChoice::Best => {
                log::info!("{} is no GPU: using the CPU directly", context.name());
                open_cpu(options, false)
            }
            Ok(context) => open_gpu(context, options.dtype),
            Err(Error::Engine(EngineError::NoAdapter(why))) if options.adapter == AdapterChoice::Best => {
                log::info!("no GPU ({why}): using the CPU");
                open_cpu(options, false)
            }
            Err(error) => Err(error),
        },
    }
}

/// Opens what a generating model is to run on. Without a dtype, weights are computed as they come: those in blocks
/// with activations rounded to 8 bits where that is faster.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_decoder(options: &DeviceOptions) -> Result<Opened> {
    check(options)?;
    let as_is = options.dtype.is_none() || options.dtype == Some(Dtype::AsIs);
    let floats = if as_is { None } else { options.dtype };
    let gpu = |context: Arc<GpuContext>| {
        let floats = match floats {
            Some(Dtype::F32) => Format::F32,
            Some(Dtype::F16) => Format::F16,
            Some(Dtype::Int8 | Dtype::AsIs) => return Err(no_int8()),
            None if context.features().f16 => Format::F16,
            None => Format::F32,
        };
        let formats = GpuFormats { floats, q8_activations: as_is };
        let backend = Arc::new(GpuBackend::new(context.clone(), formats)?);
        Ok(Opened { backend, gpu: Some(GpuHandle(context)) })
    };
    let cpu = || open_cpu(&DeviceOptions { dtype: floats, ..options.clone() }, as_is);
    match options.device {
        _ if floats == Some(Dtype::Int8) => Err(no_int8()),
        Device::Gpu => gpu(open_context(options)?),
        Device::Cpu => cpu(),
        Device::Reference => Ok(open_reference(floats)),
        Device::Auto => match open_context(options) {
            Ok(context) if context.adapter().kind == "Cpu" && options.adapter == AdapterChoice::Best => {
                log::info!("{} is no GPU: using the CPU directly", context.name());
                cpu()
            }
            Ok(context) => gpu(context),
            Err(Error::Engine(EngineError::NoAdapter(why))) if options.adapter == AdapterChoice::Best => {
                log::info!("no GPU ({why}): using the CPU");
                cpu()
            }
            Err(error) => Err(error),
        },
    }
}

/// What makes no sense on any device.
fn check(options: &DeviceOptions) -> Result<()> {
    if let Some(threads) = options.threads.filter(|threads| !(1..=MAX_THREADS).contains(threads)) {
        let why = format!("{threads} threads: 1 to {MAX_THREADS} are possible");
        return Err(EngineError::Input(why).into());
    }
    if options.adapter != AdapterChoice::Best && matches!(options.device, Device::Cpu | Device::Reference) {
        log::warn!("an adapter is a GPU: it is not used on the CPU");
    }
    Ok(())
}

fn no_int8() -> Error {
    let why = "int8 is for encoders on the CPU: text is generated in f32, f16 or as-is";
    EngineError::Unsupported(why.into()).into()
}

fn open_context(options: &DeviceOptions) -> Result<Arc<GpuContext>> {
    let pipeline_store = DiskPipelines::from_env().map(|store| Arc::new(store) as _);
    let gpu = GpuOptions { adapter: options.adapter.clone(), pipeline_store, ..GpuOptions::default() };
    Ok(block_on(GpuContext::new(&gpu))?)
}

fn open_gpu(context: Arc<GpuContext>, dtype: Option<Dtype>) -> Result<Opened> {
    let format = match dtype {
        Some(Dtype::F32) => Format::F32,
        Some(Dtype::F16) => Format::F16,
        Some(Dtype::Int8) => {
            let why = "int8 runs on the CPU only: use --device cpu, or f16 on the GPU";
            return Err(EngineError::Unsupported(why.into()).into());
        }
        None | Some(Dtype::AsIs) if context.features().f16 => Format::F16,
        None | Some(Dtype::AsIs) => Format::F32,
    };
    let backend = Arc::new(GpuBackend::new(context.clone(), format)?);
    Ok(Opened { backend, gpu: Some(GpuHandle(context)) })
}

/// `q8_activations`: see [`crate::cpu::CpuOptions`].
#[cfg(feature = "encoder-cpu")]
fn open_cpu(options: &DeviceOptions, q8_activations: bool) -> Result<Opened> {
    use std::{
        sync::OnceLock,
        time::{Duration, Instant},
    };

    use crate::cpu::{CpuBackend, CpuOptions, Threads};

    let matrices = match options.dtype {
        None | Some(Dtype::F32 | Dtype::AsIs) => Format::F32,
        Some(Dtype::Int8) => Format::Int8,
        Some(Dtype::F16) => {
            let why = "f16 runs on GPUs: use --dtype f32 or int8 on the CPU (to generate, f32 or as-is)";
            return Err(EngineError::Unsupported(why.into()).into());
        }
    };
    let threads = match options.threads {
        Some(threads) => Threads::new(threads),
        None => Threads::for_machine(),
    }
    .map_err(|e| EngineError::Unsupported(format!("cannot start CPU threads: {e}")))?;
    let clock: fn() -> Duration = || {
        static BEGIN: OnceLock<Instant> = OnceLock::new();
        BEGIN.get_or_init(Instant::now).elapsed()
    };
    let (parallel, clock) = (Arc::new(threads), Some(clock));
    let cpu = CpuOptions { parallel, matrices, q8_activations, clock, ..CpuOptions::default() };
    Ok(Opened { backend: Arc::new(CpuBackend::new(cpu)?), gpu: None })
}

#[cfg(not(feature = "encoder-cpu"))]
fn open_cpu(_: &DeviceOptions, _: bool) -> Result<Opened> {
    Err(EngineError::Unsupported("this build has no CPU backend (feature encoder-cpu)".into()).into())
}

fn open_reference(dtype: Option<Dtype>) -> Opened {
    let (activations, weights) = match dtype {
        None | Some(Dtype::F32 | Dtype::AsIs) => (DType::F32, Format::F32),
        Some(Dtype::F16) => (DType::F16, Format::F16),
        Some(Dtype::Int8) => (DType::F32, Format::Int8),
    };
    Opened { backend: Arc::new(Reference::with_formats(activations, weights)), gpu: None }
}
