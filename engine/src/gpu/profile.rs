//! GPU time of a plan's steps, from timestamp queries. Native: it blocks.

use alloc::{vec, vec::Vec};

use super::plan::GpuPlan;
use crate::{
    Error, Result,
    backend::{StepTime, check_run},
    program::{BufferId, Counts},
};

impl GpuPlan {
    /// Runs once with a timestamp before and after each step. Steps are kept apart by passes, so their sum is
    /// somewhat more than an undisturbed run takes: see [`GpuPlan::time`] for that.
    ///
    /// # Errors
    /// `Unsupported` where the adapter has no timestamps, and those of a run.
    pub fn profile_steps(&mut self, counts: Counts, inputs: &[(BufferId, &[u32])]) -> Result<Vec<StepTime>> {
        let queries = self.steps.len() as u32 * 2;
        let times = self.timestamps(counts, inputs, queries, |plan, encoder, set| {
            for (i, step) in plan.steps.iter().enumerate() {
                let writes = wgpu::ComputePassTimestampWrites {
                    query_set: set,
                    beginning_of_pass_write_index: Some(2 * i as u32),
                    end_of_pass_write_index: Some(2 * i as u32 + 1),
                };
                plan.encode_steps(encoder, core::slice::from_ref(step), Some(writes));
            }
        })?;
        let step_time = |(step, pair): (&super::plan::Step, &[f64])| StepTime {
            kernel: step.name,
            grid: step.grid,
            nanoseconds: pair[1] - pair[0],
        };
        Ok(self.steps.iter().zip(times.chunks_exact(2)).map(step_time).collect())
    }

    /// GPU nanoseconds of one undisturbed run repeated `runs` times in one submission, per run.
    ///
    /// # Errors
    /// `Unsupported` where the adapter has no timestamps, and those of a run.
    pub fn time(&mut self, counts: Counts, inputs: &[(BufferId, &[u32])], runs: u32) -> Result<f64> {
        let times = self.timestamps(counts, inputs, 2, |plan, encoder, set| {
            let steps = plan.steps.iter().cycle().take(plan.steps.len() * runs as usize);
            let writes = wgpu::ComputePassTimestampWrites {
                query_set: set,
                beginning_of_pass_write_index: Some(0),
                end_of_pass_write_index: Some(1),
            };
            plan.encode_steps(encoder, steps, Some(writes));
        })?;
        Ok((times[1] - times[0]) / f64::from(runs.max(1)))
    }

    /// Runs what `encode` records and returns the query set's values in nanoseconds.
    fn timestamps(
        &mut self,
        counts: Counts,
        inputs: &[(BufferId, &[u32])],
        queries: u32,
        encode: impl FnOnce(&GpuPlan, &mut wgpu::CommandEncoder, &wgpu::QuerySet),
    ) -> Result<Vec<f64>> {
        check_run(&self.program, &counts, inputs, &[])?;
        let context = self.shared.context.clone();
        if !context.features.timestamps {
            return Err(Error::Unsupported("this adapter has no timestamp queries".into()));
        }
        self.write_inputs(&counts, inputs);
        let set = context.device.create_query_set(&wgpu::QuerySetDescriptor {
            label: None,
            ty: wgpu::QueryType::Timestamp,
            count: queries,
        });
        let bytes = u64::from(queries) * 8;
        let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
        let resolved = context.buffer("timestamps", bytes, usage)?;
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let mapped = context.buffer("timestamps", bytes, usage)?;
        let mut encoder = context.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encode(self, &mut encoder, &set);
        encoder.resolve_query_set(&set, 0..queries, &resolved, 0);
        encoder.copy_buffer_to_buffer(&resolved, 0, &mapped, 0, bytes);
        context.queue.submit([encoder.finish()]);
        mapped.map_async(wgpu::MapMode::Read, ..bytes, |_| {});
        let waited = context.device.poll(wgpu::PollType::wait_indefinitely());
        context.faults.check()?;
        waited.map_err(|e| Error::DeviceLost(alloc::format!("{e}")))?;
        let view = mapped.get_mapped_range(..bytes).map_err(|e| Error::Gpu(alloc::format!("{e}")))?;
        let period = f64::from(context.queue.get_timestamp_period());
        let mut times = vec![0.0; queries as usize];
        let first = view.as_chunks::<8>().0.first().map_or(0, |b| u64::from_le_bytes(*b));
        for (time, bytes) in times.iter_mut().zip(view.as_chunks::<8>().0) {
            *time = u64::from_le_bytes(*bytes).wrapping_sub(first) as i64 as f64 * period;
        }
        Ok(times)
    }
}
