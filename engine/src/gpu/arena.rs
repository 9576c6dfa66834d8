//! Activation memory, shared by all plans of one backend: runs are ordered on the queue, so slots can be too.

use alloc::vec::Vec;
use std::sync::{Mutex, PoisonError};

use super::context::GpuContext;
use crate::Result;

/// Buffers by slot; a slot only grows. A plan made before keeps the buffer it was made with.
#[derive(Debug, Default)]
pub struct Arena(Mutex<Vec<wgpu::Buffer>>);

impl Arena {
    /// Buffers of at least these sizes, bytes.
    ///
    /// # Errors
    /// `TooLarge`, `OutOfMemory`.
    pub fn reserve(&self, context: &GpuContext, sizes: &[usize]) -> Result<Vec<wgpu::Buffer>> {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (i, size) in sizes.iter().enumerate() {
            if slots.get(i).is_some_and(|b| b.size() >= *size as u64) {
                continue;
            }
            let usage =
                wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
            let buffer = context.buffer("activations", *size as u64, usage)?;
            if i < slots.len() {
                slots[i] = buffer;
            } else {
                slots.push(buffer);
            }
        }
        Ok(slots[..sizes.len()].to_vec())
    }

    pub fn bytes(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(wgpu::Buffer::size).sum()
    }
}
