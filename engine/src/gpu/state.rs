//! States in GPU memory: one buffer each, written and copied in the order of runs.

use alloc::{format, sync::Arc, vec, vec::Vec};
use core::{
    any::Any,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
    task::Poll,
};

use super::{
    backend::Shared,
    context::{GpuContext, free},
    readback::Readback,
};
use crate::{
    Error, Result,
    backend::check_state_rows,
    tensor::{State, StateSpec, WeightStorage},
};

/// A state's memory.
#[derive(Debug)]
pub struct GpuState {
    pub buffer: wgpu::Buffer,
    memory: Arc<AtomicU64>,
}

impl WeightStorage for GpuState {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for GpuState {
    fn drop(&mut self) {
        free([self.buffer.clone()]);
        self.memory.fetch_sub(self.buffer.size(), Ordering::Relaxed);
    }
}

impl GpuState {
    /// # Errors
    /// `TooLarge` for more than one binding holds, `OutOfMemory`.
    pub fn create(context: &GpuContext, spec: StateSpec, memory: Arc<AtomicU64>) -> Result<State> {
        let (needed, limit) = (spec.bytes(), context.limits.max_storage_buffer_binding_size);
        if needed > limit {
            let what = format!("state `{}` of {} rows (a smaller context needs less)", spec.name, spec.rows);
            return Err(Error::TooLarge { what, needed, limit });
        }
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
        // New buffers are zeroed.
        let buffer = context.buffer(spec.name, needed, usage)?;
        context.faults.check_allocation(spec.name)?;
        memory.fetch_add(buffer.size(), Ordering::Relaxed);
        Ok(State::new(spec, Arc::new(GpuState { buffer, memory })))
    }

    /// # Errors
    /// `Unsupported` for a state of another backend.
    pub fn of(state: &State) -> Result<&GpuState> {
        state.storage::<GpuState>().ok_or_else(|| {
            Error::Unsupported(format!("state `{}` belongs to another backend", state.spec().name))
        })
    }
}

fn row_bytes(state: &State) -> u64 {
    state.spec().row_words() as u64 * 4
}

pub fn write(shared: &Shared, state: &State, first_row: usize, words: &[u32]) -> Result<()> {
    let rows = first_row..first_row + words.len() / state.spec().row_words().max(1);
    check_state_rows(state.spec(), &rows, Some(words.len()))?;
    let buffer = &GpuState::of(state)?.buffer;
    shared.context.queue.write_buffer(
        buffer,
        first_row as u64 * row_bytes(state),
        bytemuck::cast_slice(words),
    );
    shared.context.faults.check()
}

pub fn copy(shared: &Shared, state: &State, from: Range<usize>, to: usize) -> Result<()> {
    check_state_rows(state.spec(), &from, None)?;
    check_state_rows(state.spec(), &(to..to + from.len()), None)?;
    let (buffer, row) = (&GpuState::of(state)?.buffer, row_bytes(state));
    let bytes = from.len() as u64 * row;
    if bytes == 0 {
        return Ok(());
    }
    // A buffer cannot be copied to itself.
    let context = &shared.context;
    let usage = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let between = context.buffer("state copy", bytes, usage)?;
    let mut encoder = context.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    encoder.copy_buffer_to_buffer(buffer, from.start as u64 * row, &between, 0, bytes);
    encoder.copy_buffer_to_buffer(&between, 0, buffer, to as u64 * row, bytes);
    context.queue.submit([encoder.finish()]);
    context.faults.check()
}

pub async fn read(shared: &Shared, state: &State, rows: Range<usize>) -> Result<Vec<u32>> {
    check_state_rows(state.spec(), &rows, None)?;
    let (buffer, row) = (&GpuState::of(state)?.buffer, row_bytes(state));
    let bytes = rows.len() as u64 * row;
    if bytes == 0 {
        return Ok(Vec::new());
    }
    let context = &shared.context;
    // A ring of its own: this is rare, and must not take a slot from runs.
    let readback = Readback::default();
    let (slot, staging) = readback.take(context, bytes)?;
    let mut encoder = context.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    encoder.copy_buffer_to_buffer(buffer, rows.start as u64 * row, &staging.buffer, 0, bytes);
    let submission = context.queue.submit([encoder.finish()]);
    readback.submitted(slot, staging, bytes, submission);
    let mut values = vec![0f32; bytes as usize / 4];
    let polled = core::future::poll_fn(|cx| match readback.poll(context, slot, &mut values, cx) {
        Poll::Pending => {
            // Natively this blocks until the copy is done; in a browser only the event loop makes progress.
            match readback.wait(context, slot) {
                Ok(()) => readback.poll(context, slot, &mut values, cx),
                Err(error) => Poll::Ready(Err(error)),
            }
        }
        ready => ready,
    });
    polled.await?;
    Ok(values.into_iter().map(f32::to_bits).collect())
}
