//! What models run on: one device for all models of a worker.

use std::sync::Arc;

use inferencelayer::{
    cpu::{CpuBackend, CpuOptions},
    engine::{
        Error,
        backend::Backend,
        gpu::{GpuBackend, GpuContext, GpuFormats, GpuOptions},
        tensor::Format,
        testing::quick_check,
    },
};
use js_sys::{Function, Promise};
use serde::{Deserialize, Serialize};
use wasm_bindgen::{JsValue, prelude::wasm_bindgen};

use crate::{
    error::{JsResult, thrown},
    options,
};

/// How weights and activations are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    F32,
    F16,
    /// CPU only.
    Int8,
}

/// Kinds of device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// The GPU if there is one that computes right, else the CPU.
    #[default]
    Auto,
    /// WebGPU, on whatever adapter the browser gives; an error if it gives none.
    WebGpu,
    /// The processor, one thread of it.
    Cpu,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Options {
    kind: Kind,
    /// Use WebGPU's default limits even if the adapter allows more.
    default_limits: bool,
    no_f16: bool,
    no_subgroups: bool,
}

/// What the start-up check did.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct SelfCheck {
    /// Nothing was computed wrong by the fastest kernels.
    ok: bool,
    /// What is not used because kernels with it computed wrong.
    without: Vec<&'static str>,
    /// What was wrong.
    failures: Vec<String>,
    milliseconds: f64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Info {
    kind: &'static str,
    /// The adapter, or the processor's instruction set.
    name: String,
    /// A processor that poses as a GPU.
    software: bool,
    f16: bool,
    subgroups: bool,
    /// Integer dot products of 8-bit activations with weights in blocks.
    packed_dot: bool,
    max_buffer_bytes: u64,
    max_binding_bytes: u64,
    max_workgroup_bytes: u32,
    max_workgroup_invocations: u32,
    max_storage_buffers: u32,
    self_check: Option<SelfCheck>,
    /// Why this is not a GPU, if one was wanted.
    reason: Option<String>,
}

#[derive(Debug)]
struct Gpu {
    context: Arc<GpuContext>,
    packed_dot: bool,
}

/// An open device.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Device {
    gpu: Option<Gpu>,
    check: Option<SelfCheck>,
    reason: Option<String>,
}

#[wasm_bindgen]
impl Device {
    /// Opens a device and checks that it computes right: `{kind: "auto" | "webgpu" | "cpu", ...}`. A GPU that does
    /// not is tried again without what may be at fault.
    ///
    /// # Errors
    /// `NoWebGpu` if a GPU was asked for and there is none that computes right.
    pub async fn open(options: JsValue) -> JsResult<Device> {
        let options: Options = options::read("device options", &options)?;
        let cpu = |reason| Device { gpu: None, check: None, reason };
        if options.kind == Kind::Cpu {
            return Ok(cpu(None));
        }
        let auto = options.kind == Kind::Auto;
        match open_checked(&options, auto).await {
            Ok(Ok(device)) => Ok(device),
            Ok(Err(reason)) => Ok(cpu(Some(reason))),
            Err(Error::NoAdapter(why)) if auto => Ok(cpu(Some(why))),
            Err(error) => Err(thrown(error)),
        }
    }

    /// For people and programs: what it is and what it can do.
    pub fn info(&self) -> JsResult<JsValue> {
        let info = match &self.gpu {
            Some(Gpu { context, packed_dot }) => {
                let (adapter, features) = (context.adapter(), context.features());
                Info {
                    kind: "webgpu",
                    name: adapter.name.clone(),
                    software: adapter.kind == "Cpu",
                    f16: features.f16,
                    subgroups: features.subgroups,
                    packed_dot: *packed_dot,
                    max_buffer_bytes: adapter.max_buffer_bytes,
                    max_binding_bytes: adapter.max_binding_bytes,
                    max_workgroup_bytes: adapter.max_workgroup_bytes,
                    max_workgroup_invocations: adapter.max_workgroup_invocations,
                    max_storage_buffers: adapter.max_storage_buffers,
                    self_check: self.check.clone(),
                    reason: None,
                }
            }
            None => Info {
                kind: "cpu",
                name: CpuBackend::new(CpuOptions::default()).map_err(thrown)?.capabilities().name.clone(),
                software: true,
                f16: false,
                subgroups: false,
                packed_dot: false,
                max_buffer_bytes: 0,
                max_binding_bytes: 0,
                max_workgroup_bytes: 0,
                max_workgroup_invocations: 0,
                max_storage_buffers: 0,
                self_check: None,
                reason: self.reason.clone(),
            },
        };
        options::write(&info)
    }

    /// Done when the device has taken in what was handed to it so far: whoever uploads much waits for it now and then,
    /// so that it does not pile up.
    pub fn idle(&self) -> Promise {
        Promise::new(&mut |resolve, _| match &self.gpu {
            Some(gpu) => gpu.context.queue().on_submitted_work_done(move || settle(&resolve)),
            None => settle(&resolve),
        })
    }

    /// Whether the device is gone, so that it has to be opened again.
    #[wasm_bindgen(getter)]
    pub fn lost(&self) -> bool {
        self.gpu.as_ref().is_some_and(|gpu| gpu.context.is_lost())
    }
}

fn settle(resolve: &Function) {
    // A promise's functions do not throw.
    let _ = resolve.call0(&JsValue::NULL);
}

/// `Backend`s are shared by `Arc`, which serves natively too; in a browser GPU objects stay on their thread.
#[allow(clippy::arc_with_non_send_sync)]
impl Device {
    /// A backend for one embedding model.
    pub(crate) fn encoder_backend(&self, dtype: Option<Dtype>) -> JsResult<Arc<dyn Backend>> {
        self.backend(dtype, false)
    }

    /// A backend for one generating model: without a dtype, weights in blocks multiply activations in 8-bit blocks.
    pub(crate) fn decoder_backend(&self, dtype: Option<Dtype>) -> JsResult<Arc<dyn Backend>> {
        if dtype == Some(Dtype::Int8) {
            return Err(thrown(Error::Input(
                "int8 is for embeddings: text is generated in f32 or f16".into(),
            )));
        }
        self.backend(dtype, dtype.is_none())
    }

    fn backend(&self, dtype: Option<Dtype>, packed: bool) -> JsResult<Arc<dyn Backend>> {
        let Some(Gpu { context, packed_dot }) = &self.gpu else { return cpu_backend(dtype, packed) };
        let floats = match dtype {
            Some(Dtype::F32) => Format::F32,
            Some(Dtype::F16) => Format::F16,
            Some(Dtype::Int8) => {
                let why = "int8 runs on the CPU only: use device \"cpu\", or dtype \"f16\"";
                return Err(thrown(Error::Input(why.into())));
            }
            None if context.features().f16 => Format::F16,
            None => Format::F32,
        };
        let formats = GpuFormats { floats, q8_activations: packed && *packed_dot };
        Ok(Arc::new(GpuBackend::new(context.clone(), formats).map_err(thrown)?))
    }
}

fn cpu_backend(dtype: Option<Dtype>, packed: bool) -> JsResult<Arc<dyn Backend>> {
    let matrices = match dtype {
        None | Some(Dtype::F32) => Format::F32,
        Some(Dtype::Int8) => Format::Int8,
        Some(Dtype::F16) => {
            let why = "f16 runs on GPUs: use dtype \"f32\" or \"int8\" on the CPU";
            return Err(thrown(Error::Input(why.into())));
        }
    };
    let options = CpuOptions { matrices, q8_activations: packed, ..CpuOptions::default() };
    Ok(Arc::new(CpuBackend::new(options).map_err(thrown)?))
}

/// The GPU with the fastest kernels that compute right, or why the CPU is the better choice.
async fn open_checked(options: &Options, auto: bool) -> Result<Result<Device, String>, Error> {
    let start = js_sys::Date::now();
    let mut check = SelfCheck::default();
    for without in [&[][..], &["subgroups"], &["subgroups", "f16"]] {
        let gpu = GpuOptions {
            default_limits: options.default_limits,
            no_f16: options.no_f16 || without.contains(&"f16"),
            no_subgroups: options.no_subgroups || without.contains(&"subgroups"),
            ..GpuOptions::default()
        };
        let context = GpuContext::new(&gpu).await?;
        // A software adapter is the CPU by a detour.
        if auto && context.adapter().kind == "Cpu" {
            return Ok(Err(format!("the browser has a software adapter only ({})", context.adapter().name)));
        }
        check.without = without.to_vec();
        let floats = if context.features().f16 { Format::F16 } else { Format::F32 };
        let formats = GpuFormats { floats, q8_activations: true };
        let wrong = quick_check(&GpuBackend::new(context.clone(), formats)?).await;
        if context.is_lost() {
            return Err(Error::DeviceLost(format!("{} was lost while it was being checked", context.name())));
        }
        let usable = wrong.other.is_empty();
        let packed_dot = wrong.q8.is_empty();
        if usable && !packed_dot {
            check.without.push("packed dot products");
        }
        check.failures.extend(wrong.other.into_iter().chain(wrong.q8));
        if usable {
            check.ok = check.failures.is_empty();
            check.milliseconds = js_sys::Date::now() - start;
            let gpu = Some(Gpu { context, packed_dot });
            return Ok(Ok(Device { gpu, check: Some(check), reason: None }));
        }
    }
    let some = check.failures[..check.failures.len().min(3)].join("; ");
    let why =
        format!("this adapter or its driver computes wrong ({some}); update the driver, or use the CPU");
    if auto { Ok(Err(why)) } else { Err(Error::NoAdapter(why)) }
}
