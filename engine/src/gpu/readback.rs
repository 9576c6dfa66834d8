//! A ring of mappable buffers that bring results back.

use alloc::{format, sync::Arc};
use core::task::{Context, Poll, Waker};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::context::{GpuContext, free};
use crate::{Error, Result};

/// Runs that may be unread at one time.
pub const DEPTH: usize = 8;

/// Of runs that bring back more than [`FEW_BYTES`], so many have buffers ready.
const LARGE: usize = 3;

const FEW_BYTES: u64 = 64 << 10;

/// How far a slot's mapping has come; shared with the map callback.
#[derive(Debug, Default)]
struct Progress {
    outcome: Option<Result<(), ()>>,
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
enum Slot {
    #[default]
    Empty,
    Free(Staging),
    Busy {
        staging: Staging,
        bytes: u64,
        submission: wgpu::SubmissionIndex,
    },
    /// Taken between `take` and `submitted`.
    Taken,
}

/// A mappable buffer and the state of its mapping.
#[derive(Debug)]
pub struct Staging {
    pub buffer: wgpu::Buffer,
    progress: Arc<Mutex<Progress>>,
}

impl Drop for Staging {
    fn drop(&mut self) {
        free([self.buffer.clone()]);
    }
}

/// The ring; one for all plans of a backend.
#[derive(Debug, Default)]
pub struct Readback(Mutex<[Slot; DEPTH]>);

impl Readback {
    fn slots(&self) -> MutexGuard<'_, [Slot; DEPTH]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes free slots hold at least `bytes`: all of them if that is little. Called when a plan is prepared.
    ///
    /// # Errors
    /// `TooLarge`, `OutOfMemory`.
    pub fn reserve(&self, context: &GpuContext, bytes: u64) -> Result<()> {
        let count = if bytes <= FEW_BYTES { DEPTH } else { LARGE };
        for slot in self.slots().iter_mut().take(count) {
            let enough = match &*slot {
                Slot::Empty => false,
                Slot::Free(staging) => staging.buffer.size() >= bytes,
                Slot::Busy { .. } | Slot::Taken => true,
            };
            if !enough {
                *slot = Slot::Free(make(context, bytes)?);
            }
        }
        Ok(())
    }

    /// Takes a free slot of at least `bytes`, or says that all are unread.
    ///
    /// # Errors
    /// `Unsupported` if all slots are unread.
    pub fn take(&self, context: &GpuContext, bytes: u64) -> Result<(usize, Staging)> {
        let mut slots = self.slots();
        let free = slots.iter().position(|s| matches!(s, Slot::Free(_) | Slot::Empty));
        let index = free.ok_or_else(|| Error::Unsupported(format!("more than {DEPTH} unread runs")))?;
        let staging = match core::mem::replace(&mut slots[index], Slot::Taken) {
            Slot::Free(staging) if staging.buffer.size() >= bytes => staging,
            // More large runs than usual, or a larger plan that was prepared while this slot was busy.
            _ => make(context, bytes)?,
        };
        Ok((index, staging))
    }

    /// Begins mapping a taken slot, whose copy is in `submission`.
    pub fn submitted(&self, index: usize, staging: Staging, bytes: u64, submission: wgpu::SubmissionIndex) {
        let shared = staging.progress.clone();
        *shared.lock().unwrap_or_else(PoisonError::into_inner) = Progress::default();
        staging.buffer.map_async(wgpu::MapMode::Read, ..bytes, move |outcome| {
            let mut progress = shared.lock().unwrap_or_else(PoisonError::into_inner);
            progress.outcome = Some(outcome.map_err(|_| ()));
            if let Some(waker) = progress.waker.take() {
                waker.wake();
            }
        });
        self.slots()[index] = Slot::Busy { staging, bytes, submission };
    }

    /// Blocks until a slot's copy is done.
    ///
    /// # Errors
    /// The device's fault.
    pub fn wait(&self, context: &GpuContext, index: usize) -> Result<()> {
        let submission = match &self.slots()[index] {
            Slot::Busy { submission, .. } => submission.clone(),
            _ => return Ok(()),
        };
        let poll = wgpu::PollType::Wait { submission_index: Some(submission), timeout: None };
        let outcome = context.device.poll(poll);
        context.faults.check()?;
        outcome.map(|_| ()).map_err(|e| Error::DeviceLost(format!("{e}")))
    }

    /// Copies a slot's values out and frees it, once they are there.
    pub fn poll(
        &self,
        context: &GpuContext,
        index: usize,
        out: &mut [f32],
        cx: &mut Context<'_>,
    ) -> Poll<Result<()>> {
        // Natively callbacks run inside poll; in a browser this does nothing.
        let _ = context.device.poll(wgpu::PollType::Poll);
        let mut slots = self.slots();
        let Slot::Busy { staging, bytes, .. } = &slots[index] else {
            return Poll::Ready(Err(Error::Input("this run was read already".into())));
        };
        let bytes = *bytes;
        let outcome = {
            let mut progress = staging.progress.lock().unwrap_or_else(PoisonError::into_inner);
            match progress.outcome {
                Some(outcome) => outcome,
                None => {
                    progress.waker = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            }
        };
        let result = match outcome {
            Ok(()) => copy_out(&staging.buffer, bytes, out),
            Err(()) => Err(Error::DeviceLost("a result could not be mapped".into())),
        };
        staging.buffer.unmap();
        if let Slot::Busy { staging, .. } = core::mem::take(&mut slots[index]) {
            slots[index] = Slot::Free(staging);
        }
        drop(slots);
        Poll::Ready(context.faults.check().and(result))
    }

    pub fn bytes(&self) -> u64 {
        let size = |s: &Slot| match s {
            Slot::Free(staging) | Slot::Busy { staging, .. } => staging.buffer.size(),
            Slot::Empty | Slot::Taken => 0,
        };
        self.slots().iter().map(size).sum()
    }

    /// Gives up an unread run, for instance when its plan is dropped.
    pub fn abandon(&self, index: usize) {
        let mut slots = self.slots();
        if matches!(slots[index], Slot::Busy { .. } | Slot::Taken) {
            // The buffer is still being mapped: dropping it is right, reusing it is not.
            slots[index] = Slot::Empty;
        }
    }
}

fn make(context: &GpuContext, bytes: u64) -> Result<Staging> {
    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
    Ok(Staging { buffer: context.buffer("read-back", bytes, usage)?, progress: Arc::default() })
}

fn copy_out(buffer: &wgpu::Buffer, bytes: u64, out: &mut [f32]) -> Result<()> {
    if bytes != out.len() as u64 * 4 {
        return Err(Error::Shape {
            what: "read".into(),
            expected: format!("{} values", bytes / 4),
            found: format!("{}", out.len()),
        });
    }
    let view = buffer.get_mapped_range(..bytes).map_err(|e| Error::Gpu(format!("{e}")))?;
    for (value, bytes) in out.iter_mut().zip(view.as_chunks::<4>().0) {
        *value = f32::from_le_bytes(*bytes);
    }
    Ok(())
}
