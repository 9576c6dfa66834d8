//! A device, what it can do, and the pipelines made on it; shared by all engines of a process.

use alloc::{format, string::String, sync::Arc, vec::Vec};
use core::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{
    adapter::{self, AdapterChoice, AdapterDescription},
    faults::Faults,
    pipelines::Pipelines,
};
use crate::{Error, Result, tensor::MaybeSendSync};

/// How to open a device.
#[derive(Debug, Clone, Default)]
pub struct GpuOptions {
    pub adapter: AdapterChoice,
    /// Use the WebGPU default limits even if the adapter allows more.
    pub default_limits: bool,
    /// Do not use half-precision arithmetic even where offered.
    pub no_f16: bool,
    /// Do not use subgroup operations even where offered.
    pub no_subgroups: bool,
    /// Do not use cooperative matrices (tensor cores) even where offered.
    pub no_cooperative_matrix: bool,
    /// Compute what kernels do with cooperative matrices by plain arithmetic where the adapter has none, to test these
    /// kernels there: slow. Native only.
    pub emulate_cooperative_matrix: bool,
    /// The tile of `linear_coop` to take wherever it can be, by its word there, to compare tiles.
    pub linear_tile: Option<&'static str>,
    /// Split weights as if a binding held no more than this, to test the splitting with small weights.
    pub max_binding_bytes: Option<u64>,
    /// Choose kernels as for a real GPU even on a software adapter, to test them there.
    pub as_hardware: bool,
    /// Give every op dispatches of its own, to compare: results are the same within rounding, decoding is slower.
    pub no_fusion: bool,
    /// Keep the driver's bounds checks in shaders.
    pub checked_shaders: bool,
    /// Where compiled pipelines are kept between processes, on APIs that have such a cache (Vulkan).
    pub pipeline_store: Option<Arc<dyn PipelineStore>>,
}

/// Keeps compiled pipelines between processes, so that a second start is fast.
pub trait PipelineStore: fmt::Debug + MaybeSendSync {
    /// What was saved for this adapter; `key` is a file name made of letters, digits and `_`. Data that the
    /// driver does not know is ignored by it.
    fn load(&self, key: &str) -> Option<Vec<u8>>;

    /// Saves; a failure only costs time at the next start.
    fn save(&self, key: &str, data: &[u8]);
}

/// What kernels may use on this device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    pub f16: bool,
    pub subgroups: bool,
    pub subgroup_size: (u32, u32),
    /// 16×16×16 cooperative matrices of f16 accumulated in f32, subgroups of 32, subgroup barriers.
    pub cooperative_matrix: bool,
    pub timestamps: bool,
    /// Workgroup memory pays. Not on a CPU that pretends to be a GPU, where barriers are slow.
    pub barriers: bool,
}

/// An open device.
#[derive(Debug)]
pub struct GpuContext {
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    pub(super) features: Features,
    pub(super) limits: wgpu::Limits,
    pub(super) fusion: bool,
    pub(super) faults: Arc<Faults>,
    pub(super) pipelines: Pipelines,
    pub(super) linear_tile: Option<&'static str>,
    description: AdapterDescription,
    max_piece: u64,
    created: AtomicU64,
    store: Option<(Arc<dyn PipelineStore>, String)>,
}

impl GpuContext {
    /// Opens a device.
    ///
    /// # Errors
    /// `NoAdapter` if none matches, `Gpu` if the device cannot be opened.
    pub async fn new(options: &GpuOptions) -> Result<Arc<GpuContext>> {
        #[cfg(target_arch = "wasm32")]
        super::web_shim::install_shim();
        let adapter = adapter::choose(&options.adapter).await?;
        #[cfg_attr(not(target_arch = "wasm32"), expect(unused_mut))]
        let mut description = adapter::describe(0, &adapter);
        let mut features = offered(&adapter, options);
        let emulated = options.emulate_cooperative_matrix && !features.cooperative_matrix && features.f16;
        let mut required = wgpu::Features::empty();
        required.set(wgpu::Features::SHADER_F16, features.f16);
        required.set(wgpu::Features::SUBGROUP, features.subgroups);
        required.set(wgpu::Features::TIMESTAMP_QUERY, features.timestamps);
        required.set(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX, features.cooperative_matrix);
        required.set(wgpu::Features::SUBGROUP_BARRIER, features.cooperative_matrix);
        let has_cache = adapter.features().contains(wgpu::Features::PIPELINE_CACHE);
        required.set(wgpu::Features::PIPELINE_CACHE, has_cache);
        let limits = if options.default_limits { wgpu::Limits::default() } else { adapter.limits() };
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("inferencelayer"),
            required_features: required,
            required_limits: limits.clone(),
            experimental_features: if features.cooperative_matrix {
                // SAFETY: cooperative matrices are the one experimental feature used; their kernels are tested
                // against the reference backend on the device.
                unsafe { wgpu::ExperimentalFeatures::enabled() }
            } else {
                wgpu::ExperimentalFeatures::disabled()
            },
            memory_hints: wgpu::MemoryHints::Performance,
            trace: wgpu::Trace::Off,
        };
        let (device, queue) = adapter
            .request_device(&descriptor)
            .await
            .map_err(|e| Error::Gpu(format!("cannot open {}: {e}", description.name)))?;
        // wgpu cannot ask a browser for subgroups or names; the shim saw the request.
        #[cfg(target_arch = "wasm32")]
        {
            description.name = super::web_shim::name_of_adapter();
            features.subgroups = super::web_shim::subgroups_were_granted() && !options.no_subgroups;
        }
        let faults = Faults::listen(&device);
        let key = wgpu::util::pipeline_cache_key(&adapter.get_info()).filter(|_| has_cache);
        let saved = key.as_ref().and_then(|key| options.pipeline_store.as_ref()?.load(key));
        let cache = key.as_ref().map(|_| open_cache(&device, saved.as_deref()));
        let pipelines =
            Pipelines::new(device.clone(), faults.clone(), options.checked_shaders, emulated, cache);
        features.cooperative_matrix |= emulated;
        let allowed = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size);
        let max_piece = options.max_binding_bytes.map_or(allowed, |b| b.min(allowed));
        let created = AtomicU64::new(0);
        Ok(Arc::new(GpuContext {
            device,
            queue,
            features,
            limits,
            fusion: !options.no_fusion,
            faults,
            pipelines,
            linear_tile: options.linear_tile,
            description,
            max_piece,
            created,
            store: options.pipeline_store.clone().zip(key),
        }))
    }

    pub fn features(&self) -> Features {
        self.features
    }

    pub fn adapter(&self) -> &AdapterDescription {
        &self.description
    }

    /// The device, for programs that run kernels of their own on it.
    pub fn device(&self) -> &wgpu::Device {
        &self.device
    }

    /// The device's queue.
    pub fn queue(&self) -> &wgpu::Queue {
        &self.queue
    }

    /// For people: adapter, API, driver.
    pub fn name(&self) -> String {
        let d = &self.description;
        // Browsers tell no driver.
        match d.driver.trim() {
            "" => format!("{} ({})", d.name, d.api),
            driver => format!("{} ({}, {driver})", d.name, d.api),
        }
    }

    /// Saves the pipelines compiled so far to the store, if there is one and any are new.
    pub fn save_pipelines(&self) {
        if let Some((store, key)) = &self.store
            && let Some(data) = self.pipelines.new_cache_data()
        {
            store.save(key, &data);
        }
    }

    /// GPU objects made so far: buffers, bind groups, pipelines. A plan's runs make none.
    pub fn objects_created(&self) -> u64 {
        self.created.load(Ordering::Relaxed) + self.pipelines.made()
    }

    /// Destroys the device as a driver reset would, to test what follows.
    pub fn lose_device(&self) {
        self.faults.lost("the device was destroyed on request".into());
        self.device.destroy();
    }

    pub(super) fn count_created(&self) {
        self.created.fetch_add(1, Ordering::Relaxed);
    }

    /// Largest weight piece one binding can hold, bytes.
    pub(super) fn max_piece(&self) -> u64 {
        self.max_piece
    }

    /// Makes a buffer, or says why not.
    pub(super) fn buffer(&self, label: &str, bytes: u64, usage: wgpu::BufferUsages) -> Result<wgpu::Buffer> {
        if bytes > self.limits.max_buffer_size {
            return Err(Error::TooLarge {
                what: label.into(),
                needed: bytes,
                limit: self.limits.max_buffer_size,
            });
        }
        let size = bytes.next_multiple_of(4).max(16);
        let descriptor =
            wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation: false };
        let buffer = self.device.create_buffer(&descriptor);
        self.count_created();
        self.faults.check_allocation(label)?;
        Ok(buffer)
    }
}

fn offered(adapter: &wgpu::Adapter, options: &GpuOptions) -> Features {
    let (features, info) = (adapter.features(), adapter.get_info());
    let f16 = features.contains(wgpu::Features::SHADER_F16) && !options.no_f16;
    let subgroups = features.contains(wgpu::Features::SUBGROUP);
    let square = |p: &wgpu::CooperativeMatrixProperties| {
        (p.m_size, p.n_size, p.k_size) == (16, 16, 16)
            && p.ab_type == wgpu::CooperativeScalarType::F16
            && p.cr_type == wgpu::CooperativeScalarType::F32
    };
    let cooperative_matrix = features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX)
        && features.contains(wgpu::Features::SUBGROUP_BARRIER)
        && f16
        && subgroups
        && !options.no_cooperative_matrix
        && !options.no_subgroups
        && !options.default_limits
        && info.subgroup_min_size == 32
        && info.subgroup_max_size == 32
        && adapter.cooperative_matrix_properties().iter().any(square);
    Features {
        f16,
        subgroups: subgroups && !options.no_subgroups,
        subgroup_size: (info.subgroup_min_size, info.subgroup_max_size),
        cooperative_matrix,
        timestamps: features.contains(wgpu::Features::TIMESTAMP_QUERY),
        barriers: options.as_hardware || !is_software(&info),
    }
}

/// Browsers hide the device type, so names count too.
fn is_software(info: &wgpu::AdapterInfo) -> bool {
    let name = format!("{} {} {}", info.name, info.driver, info.driver_info).to_lowercase();
    info.device_type == wgpu::DeviceType::Cpu || name.contains("swiftshader") || name.contains("llvmpipe")
}

fn open_cache(device: &wgpu::Device, data: Option<&[u8]>) -> wgpu::PipelineCache {
    let descriptor = wgpu::PipelineCacheDescriptor { label: Some("pipelines"), data, fallback: true };
    // SAFETY: the data was written by `save_pipelines`; the driver checks its header, and with `fallback` data
    // it does not know gives an empty cache.
    unsafe { device.create_pipeline_cache(&descriptor) }
}
