//! Pipelines by kernel and definitions, made once and kept.

use alloc::{string::String, sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU64, Ordering};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use super::{
    faults::Faults,
    kernel::{self, Kernel},
    template::{self, Access, FIRST_STORAGE},
};
use crate::{Error, Result};

/// A kernel's template definitions.
pub type Definitions = Vec<(&'static str, String)>;

/// A compiled kernel.
#[derive(Debug, Clone)]
pub struct Pipeline {
    pub pipeline: wgpu::ComputePipeline,
    pub layout: wgpu::BindGroupLayout,
    /// Storage bindings, in order from [`FIRST_STORAGE`].
    pub bindings: Arc<[Access]>,
}

type Layouts = (wgpu::BindGroupLayout, wgpu::PipelineLayout);

/// The cache.
#[derive(Debug)]
pub struct Pipelines {
    device: wgpu::Device,
    faults: Arc<Faults>,
    checked: bool,
    /// Cooperative matrices are computed by plain arithmetic.
    #[cfg_attr(target_arch = "wasm32", expect(dead_code, reason = "browsers have none"))]
    emulated: bool,
    driver_cache: Option<wgpu::PipelineCache>,
    made: Mutex<HashMap<(&'static str, Definitions), Pipeline>>,
    layouts: Mutex<HashMap<Arc<[Access]>, Layouts>>,
    /// How many pipelines the saved driver cache holds.
    saved: AtomicU64,
}

impl Pipelines {
    pub fn new(
        device: wgpu::Device,
        faults: Arc<Faults>,
        checked: bool,
        emulated: bool,
        driver_cache: Option<wgpu::PipelineCache>,
    ) -> Self {
        Pipelines {
            device,
            faults,
            checked,
            emulated,
            driver_cache,
            made: Mutex::default(),
            layouts: Mutex::default(),
            saved: AtomicU64::new(0),
        }
    }

    /// The driver's cache, if pipelines were made since the last call.
    pub fn new_cache_data(&self) -> Option<Vec<u8>> {
        let made = self.made();
        let news = self.saved.swap(made, Ordering::Relaxed) != made;
        self.driver_cache.as_ref().filter(|_| news)?.get_data()
    }

    /// How many pipelines there are.
    pub fn made(&self) -> u64 {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    /// The pipeline of a kernel with these definitions.
    ///
    /// # Errors
    /// `Gpu` with the compiler's message.
    pub fn get(&self, kernel: &Kernel, definitions: &Definitions) -> Result<Pipeline> {
        let key = (kernel.name, definitions.clone());
        if let Some(found) = self.made.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(found.clone());
        }
        let pipeline = self.make(kernel, definitions)?;
        self.made.lock().unwrap_or_else(PoisonError::into_inner).insert(key, pipeline.clone());
        Ok(pipeline)
    }

    fn make(&self, kernel: &Kernel, definitions: &Definitions) -> Result<Pipeline> {
        let borrowed: Vec<_> = definitions.iter().map(|(k, v)| (*k, v.as_str())).collect();
        let expanded = template::expand(kernel.text, kernel::LIBRARY, &borrowed)
            .map_err(|e| Error::Gpu(alloc::format!("shaders/{}.wgsl: {e}", kernel.name)))?;
        let mut wgsl = prelude(kernel, definitions);
        wgsl.push_str(&expanded.wgsl);
        #[cfg(not(target_arch = "wasm32"))]
        if self.emulated && kernel.needs.contains(&"coop") {
            wgsl = super::emulate::matrices(&wgsl);
        }
        let descriptor = wgpu::ShaderModuleDescriptor {
            label: Some(kernel.name),
            source: wgpu::ShaderSource::Wgsl(wgsl.into()),
        };
        let module = if self.checked {
            self.device.create_shader_module(descriptor)
        } else {
            // SAFETY: every kernel keeps its accesses inside its buffers, whose sizes `Op::check` and the
            // lowering tie to its parameters; the op suite also runs them with checks on.
            unsafe {
                self.device.create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked())
            }
        };
        let bindings: Arc<[Access]> = expanded.bindings.into();
        let (layout, pipeline_layout) = self.layout(&bindings);
        let pipeline = self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(kernel.name),
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: self.driver_cache.as_ref(),
        });
        self.faults.check()?;
        Ok(Pipeline { pipeline, layout, bindings })
    }

    fn layout(&self, bindings: &Arc<[Access]>) -> Layouts {
        let mut layouts = self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let entry = |binding: u32, ty: wgpu::BufferBindingType| wgpu::BindGroupLayoutEntry {
                binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
                count: None,
            };
            let mut entries: Vec<_> =
                (0..FIRST_STORAGE).map(|i| entry(i, wgpu::BufferBindingType::Uniform)).collect();
            entries.extend(bindings.iter().zip(FIRST_STORAGE..).map(|(access, i)| {
                entry(i, wgpu::BufferBindingType::Storage { read_only: *access == Access::Read })
            }));
            let layout = self.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: None,
                entries: &entries,
            });
            let pipeline_layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: None,
                bind_group_layouts: &[Some(&layout)],
                immediate_size: 0,
            });
            (layout, pipeline_layout)
        };
        layouts.entry(bindings.clone()).or_insert_with(make).clone()
    }
}

/// Lines that a target's shader compiler wants before a kernel.
fn prelude(kernel: &Kernel, definitions: &Definitions) -> String {
    // A kernel that can do without subgroups says so.
    let subgroups = !definitions.iter().any(|(key, word)| *key == "SUBGROUPS" && word == "0");
    let mut text = String::new();
    for need in kernel.needs {
        match *need {
            "f16" => text.push_str("enable f16;\n"),
            "coop" => text.push_str("enable wgpu_cooperative_matrix;\n"),
            // Browsers require the line, naga rejects it.
            "subgroups" if cfg!(target_arch = "wasm32") && subgroups => text.push_str("enable subgroups;\n"),
            _ => {}
        }
    }
    text
}
