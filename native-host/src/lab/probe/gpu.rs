//! What this GPU does at best, by kernels of our own on the engine's device.

use std::{sync::Arc, time::Instant};

use inferencelayer_engine::{Error as EngineError, gpu::GpuContext, task::block_on};

use crate::{Error, Result};

const COPY: &str = include_str!("copy.wgsl");
const FMA: &str = include_str!("fma.wgsl");
const MATRIX: &str = include_str!("matrix.wgsl");
const TINY: &str = include_str!("tiny.wgsl");

/// Threads of a workgroup in every probe but the matrix one.
const GROUP: u64 = 256;
/// Seconds that one measurement should take.
const TARGET: f64 = 0.02;

/// Small programs on one device.
pub struct Probe {
    context: Arc<GpuContext>,
    from: wgpu::Buffer,
    to: wgpu::Buffer,
}

/// What starting and waiting costs, seconds.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Latency {
    /// A tiny kernel that depends on the one before, in one pass.
    pub dispatch: f64,
    /// Submitting an almost empty command buffer and waiting for it.
    pub submit: f64,
}

impl Probe {
    /// Makes the buffers: 256 MiB each, less where the device allows less.
    ///
    /// # Errors
    /// `Gpu` if they cannot be made.
    pub fn new(context: &Arc<GpuContext>) -> Result<Probe> {
        let adapter = context.adapter();
        let software = !context.features().barriers;
        let limits = context.device().limits();
        let most = limits.max_buffer_size.min(limits.max_storage_buffer_binding_size);
        let wanted: u64 = if software { 32 << 20 } else { 256 << 20 };
        let bytes = wanted.min(most) / 4096 * 4096;
        let make = |label| {
            context.device().create_buffer(&wgpu::BufferDescriptor {
                label: Some(label),
                size: bytes,
                usage: wgpu::BufferUsages::STORAGE,
                mapped_at_creation: false,
            })
        };
        let scope = context.device().push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let probe = Probe { context: context.clone(), from: make("probe from"), to: make("probe to") };
        match block_on(scope.pop()) {
            Some(_) => Err(Error::Engine(EngineError::OutOfMemory(format!("probes of {}", adapter.name)))),
            None => Ok(probe),
        }
    }

    /// Bytes read and written each second by a copying kernel.
    ///
    /// # Errors
    /// `Gpu` if the kernel does not compile or run.
    pub fn copy_bandwidth(&self) -> Result<f64> {
        let groups = self.from.size() / 16 / GROUP;
        // Two dimensions, since one holds at most 65535 groups.
        let grid = [groups.min(32_768) as u32, groups.div_ceil(32_768) as u32, 1];
        let pipeline = self.pipeline(COPY)?;
        Ok(2.0 * self.from.size() as f64 / self.seconds(&pipeline, grid)?)
    }

    /// f32 multiplications and additions each second, by fused multiply-adds.
    ///
    /// # Errors
    /// `Gpu` if the kernel does not compile or run.
    pub fn fma_rate(&self) -> Result<f64> {
        // As in the shader: loop rounds, chains of vec4.
        const FLOPS_A_THREAD: f64 = 256.0 * 8.0 * 4.0 * 2.0;
        let groups: u32 = if self.context.features().barriers { 4096 } else { 64 };
        let pipeline = self.pipeline(FMA)?;
        let seconds = self.seconds(&pipeline, [groups, 1, 1])?;
        Ok(f64::from(groups) * GROUP as f64 * FLOPS_A_THREAD / seconds)
    }

    /// Multiplications and additions each second of 16×16×16 cooperative matrices, f16 summed in f32; `None`
    /// where the device has none.
    ///
    /// # Errors
    /// `Gpu` if the kernel does not compile or run.
    pub fn matrix_rate(&self) -> Result<Option<f64>> {
        if !self.context.features().cooperative_matrix {
            return Ok(None);
        }
        // As in the shader: loop rounds, chains, subgroups of 32 threads in a workgroup.
        const FLOPS_A_GROUP: f64 = 256.0 * 8.0 * 2.0 * 16.0 * 16.0 * 16.0 * 4.0;
        let groups = 2048;
        let pipeline = self.pipeline(MATRIX)?;
        Ok(Some(f64::from(groups) * FLOPS_A_GROUP / self.seconds(&pipeline, [groups, 1, 1])?))
    }

    /// What starting a kernel and waiting for it costs.
    ///
    /// # Errors
    /// `Gpu` if the kernel does not compile or run.
    pub fn latency(&self) -> Result<Latency> {
        let pipeline = self.pipeline(TINY)?;
        let dispatch = self.seconds(&pipeline, [1, 1, 1])?;
        let mut submits: Vec<f64> = Vec::new();
        for _ in 0..50 {
            submits.push(self.run(&pipeline, [1, 1, 1], 1)?);
        }
        let submit = super::super::stats::Summary::of(&submits).map_or(0.0, |s| s.median);
        Ok(Latency { dispatch, submit })
    }

    /// Seconds of one dispatch among many: the difference between long and short runs, at the median.
    fn seconds(
        &self,
        (pipeline, bindings): &(wgpu::ComputePipeline, wgpu::BindGroup),
        grid: [u32; 3],
    ) -> Result<f64> {
        let kernel = &(pipeline.clone(), bindings.clone());
        self.run(kernel, grid, 1)?;
        let once = self.run(kernel, grid, 1)?;
        let mut many = 4;
        loop {
            let seconds = self.run(kernel, grid, many)?;
            if seconds - once > TARGET || many >= 1 << 14 || seconds > 1.0 {
                break;
            }
            many *= 4;
        }
        let mut each = Vec::new();
        for _ in 0..5 {
            let once = self.run(kernel, grid, 1)?;
            each.push((self.run(kernel, grid, many)? - once) / f64::from(many - 1));
        }
        let median = super::super::stats::Summary::of(&each).map_or(0.0, |s| s.median);
        Ok(median.max(1e-9))
    }

    /// Wall-clock seconds of `repeats` dispatches, one after the other in one submission.
    fn run(
        &self,
        (pipeline, bindings): &(wgpu::ComputePipeline, wgpu::BindGroup),
        grid: [u32; 3],
        repeats: u32,
    ) -> Result<f64> {
        let device = self.context.device();
        let start = Instant::now();
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(pipeline);
        pass.set_bind_group(0, bindings, &[]);
        for _ in 0..repeats {
            pass.dispatch_workgroups(grid[0], grid[1], grid[2]);
        }
        drop(pass);
        let submission = self.context.queue().submit([encoder.finish()]);
        let wait = wgpu::PollType::Wait { submission_index: Some(submission), timeout: None };
        device.poll(wait).map_err(|e| Error::Engine(EngineError::DeviceLost(e.to_string())))?;
        Ok(start.elapsed().as_secs_f64())
    }

    fn pipeline(&self, source: &str) -> Result<(wgpu::ComputePipeline, wgpu::BindGroup)> {
        let device = self.context.device();
        let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some("probe"),
            source: wgpu::ShaderSource::Wgsl(source.into()),
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some("probe"),
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: Default::default(),
            cache: None,
        });
        let bindings = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("probe"),
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[
                wgpu::BindGroupEntry { binding: 0, resource: self.from.as_entire_binding() },
                wgpu::BindGroupEntry { binding: 1, resource: self.to.as_entire_binding() },
            ],
        });
        match block_on(scope.pop()) {
            Some(error) => Err(Error::Engine(EngineError::Gpu(format!("a probe: {error}")))),
            None => Ok((pipeline, bindings)),
        }
    }
}

#[cfg(test)]
mod tests {
    use wgpu::naga::{
        front::wgsl,
        valid::{Capabilities, ValidationFlags, Validator},
    };

    /// The matrix probe runs on no software adapter, so its text is checked here.
    #[test]
    fn probes_are_valid() {
        for source in [super::COPY, super::FMA, super::MATRIX, super::TINY] {
            let options = wgsl::Options { parse_doc_comments: false, capabilities: Capabilities::all() };
            let module = wgsl::Frontend::new_with_options(options).parse(source).unwrap();
            Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&module).unwrap();
        }
    }
}
