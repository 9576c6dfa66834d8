//! Activation memory, shared by all plans of one backend: runs are ordered on the queue, so slots can be too.

use alloc::vec::Vec;
use std::sync::{Mutex, PoisonError};

use super::context::{GpuContext, free};
use crate::Result;

#[derive(Debug, Default)]
struct Slots {
    buffers: Vec<wgpu::Buffer>,
    /// Those that were too small; older plans may use them.
    outgrown: Vec<wgpu::Buffer>,
}

/// Buffers by slot; a slot only grows. A plan made before keeps the buffer it was made with.
#[derive(Debug, Default)]
pub struct Arena(Mutex<Slots>);

impl Drop for Arena {
    fn drop(&mut self) {
        let slots = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        free(slots.buffers.drain(..).chain(slots.outgrown.drain(..)));
    }
}

impl Arena {
    /// Buffers of at least these sizes, bytes.
    ///
    /// # Errors
    /// `TooLarge`, `OutOfMemory`.
    pub fn reserve(&self, context: &GpuContext, sizes: &[usize]) -> Result<Vec<wgpu::Buffer>> {
        let Slots { buffers, outgrown } = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (i, size) in sizes.iter().enumerate() {
            if buffers.get(i).is_some_and(|b| b.size() >= *size as u64) {
                continue;
            }
            let usage =
                wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
            let buffer = context.buffer("activations", *size as u64, usage)?;
            if i < buffers.len() {
                outgrown.push(core::mem::replace(&mut buffers[i], buffer));
            } else {
                buffers.push(buffer);
            }
        }
        Ok(buffers[..sizes.len()].to_vec())
    }

    pub fn bytes(&self) -> u64 {
        let slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slots.buffers.iter().chain(&slots.outgrown).map(wgpu::Buffer::size).sum()
    }
}
