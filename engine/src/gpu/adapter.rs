//! Choosing an adapter and describing what there is.

use alloc::{format, string::String, vec::Vec};

use crate::{Error, Result};

/// Which adapter to use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AdapterChoice {
    /// The fastest: discrete, then integrated, then virtual, then software.
    #[default]
    Best,
    /// By its number in [`list_adapters`].
    Index(usize),
    /// The first whose name contains this text, ignoring case.
    Name(String),
}

/// What `--list-devices` shows of an adapter.
#[derive(Debug, Clone)]
pub struct AdapterDescription {
    pub index: usize,
    pub name: String,
    /// Vulkan, Metal, Dx12, Gl or BrowserWebGpu.
    pub api: String,
    /// DiscreteGpu, IntegratedGpu, VirtualGpu, Cpu or Other.
    pub kind: String,
    pub driver: String,
    pub f16: bool,
    pub subgroups: bool,
    /// Smallest and largest subgroup.
    pub subgroup_size: (u32, u32),
    pub cooperative_matrix: bool,
    pub timestamps: bool,
    pub max_buffer_bytes: u64,
    pub max_binding_bytes: u64,
    pub max_workgroup_bytes: u32,
    pub max_workgroup_invocations: u32,
    pub max_storage_buffers: u32,
}

/// Adapters of this machine; in a browser at most one.
pub async fn list_adapters() -> Vec<AdapterDescription> {
    let adapters = all().await;
    adapters.iter().enumerate().map(|(i, a)| describe(i, a)).collect()
}

fn instance(backends: wgpu::Backends) -> wgpu::Instance {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = backends;
    // Validation layers are for developers: WGPU_VALIDATION=1 and friends switch them on.
    descriptor.flags = wgpu::InstanceFlags::empty().with_env();
    wgpu::Instance::new(descriptor)
}

async fn all() -> Vec<wgpu::Adapter> {
    #[cfg(target_arch = "wasm32")]
    {
        let options = wgpu::RequestAdapterOptions {
            power_preference: wgpu::PowerPreference::HighPerformance,
            ..Default::default()
        };
        let found = instance(wgpu::Backends::BROWSER_WEBGPU).request_adapter(&options).await;
        found.into_iter().collect()
    }
    #[cfg(not(target_arch = "wasm32"))]
    {
        // OpenGL shows the same devices again, with less: only where nothing else is there.
        for backends in [wgpu::Backends::PRIMARY, wgpu::Backends::GL] {
            let mut adapters = instance(backends).enumerate_adapters(backends).await;
            let compute = wgpu::DownlevelFlags::COMPUTE_SHADERS;
            adapters.retain(|a| a.get_downlevel_capabilities().flags.contains(compute));
            if !adapters.is_empty() {
                return adapters;
            }
        }
        Vec::new()
    }
}

pub(super) async fn choose(choice: &AdapterChoice) -> Result<wgpu::Adapter> {
    let mut adapters = all().await;
    if adapters.is_empty() {
        let hint = "no adapter was found; install a Vulkan, Metal or DX12 driver, or use the CPU";
        return Err(Error::NoAdapter(hint.into()));
    }
    let index = match choice {
        AdapterChoice::Best => {
            let rank = |a: &wgpu::Adapter| match a.get_info().device_type {
                wgpu::DeviceType::DiscreteGpu => 0,
                wgpu::DeviceType::IntegratedGpu => 1,
                wgpu::DeviceType::VirtualGpu => 2,
                wgpu::DeviceType::Other => 3,
                wgpu::DeviceType::Cpu => 4,
            };
            (0..adapters.len()).min_by_key(|i| rank(&adapters[*i]))
        }
        AdapterChoice::Index(i) => Some(*i).filter(|i| *i < adapters.len()),
        AdapterChoice::Name(name) => {
            let wanted = name.to_lowercase();
            adapters.iter().position(|a| a.get_info().name.to_lowercase().contains(&wanted))
        }
    };
    match index {
        Some(index) => Ok(adapters.swap_remove(index)),
        None => {
            let names: Vec<String> = adapters
                .iter()
                .enumerate()
                .map(|(i, a)| format!("{} (number {i})", a.get_info().name))
                .collect();
            let wanted = match choice {
                AdapterChoice::Best => "at all".into(),
                AdapterChoice::Index(index) => format!("of number {index}"),
                AdapterChoice::Name(name) => format!("with `{name}` in its name"),
            };
            Err(Error::NoAdapter(format!("there is no adapter {wanted}; there is {}", names.join(", "))))
        }
    }
}

pub(super) fn describe(index: usize, adapter: &wgpu::Adapter) -> AdapterDescription {
    let (info, limits, features) = (adapter.get_info(), adapter.limits(), adapter.features());
    AdapterDescription {
        index,
        api: format!("{:?}", info.backend),
        kind: format!("{:?}", info.device_type),
        driver: format!("{} {}", info.driver, info.driver_info),
        f16: features.contains(wgpu::Features::SHADER_F16),
        subgroups: features.contains(wgpu::Features::SUBGROUP),
        subgroup_size: (info.subgroup_min_size, info.subgroup_max_size),
        cooperative_matrix: features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX),
        timestamps: features.contains(wgpu::Features::TIMESTAMP_QUERY),
        max_buffer_bytes: limits.max_buffer_size,
        max_binding_bytes: limits.max_storage_buffer_binding_size,
        max_workgroup_bytes: limits.max_compute_workgroup_storage_size,
        max_workgroup_invocations: limits.max_compute_invocations_per_workgroup,
        max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
        name: info.name,
    }
}
