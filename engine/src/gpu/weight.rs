//! Weights in GPU memory, split by rows into pieces that one binding can hold.

use alloc::{boxed::Box, format, sync::Arc, vec::Vec};
use core::{
    any::Any,
    sync::atomic::{AtomicU64, Ordering},
};

use super::context::GpuContext;
use crate::{
    Error, Result,
    backend::WeightSink,
    tensor::{Format, Weight, WeightSpec, WeightStorage, decode_f32},
};

/// Converted bytes are handed to the queue in pieces of about this size.
const UPLOAD_BYTES: usize = 4 << 20;
/// The queue's own staging memory is released by a submit after this many bytes.
const FLUSH_BYTES: u64 = 64 << 20;

/// Some rows of a weight in one buffer.
#[derive(Debug, Clone)]
pub struct Piece {
    pub buffer: wgpu::Buffer,
    pub first_row: usize,
    pub rows: usize,
}

/// A weight in GPU memory.
#[derive(Debug)]
pub struct GpuWeight {
    pub pieces: Vec<Piece>,
    bytes: u64,
    memory: Arc<AtomicU64>,
}

impl Drop for GpuWeight {
    fn drop(&mut self) {
        self.memory.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl WeightStorage for GpuWeight {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Converts and uploads a weight as it arrives.
#[derive(Debug)]
pub struct GpuSink {
    context: Arc<GpuContext>,
    spec: WeightSpec,
    pieces: Vec<Piece>,
    /// Converted bytes not yet written.
    pending: Vec<u8>,
    /// Bytes written.
    written: u64,
    unflushed: u64,
    scratch: Vec<f32>,
    memory: Arc<AtomicU64>,
}

impl GpuSink {
    pub fn new(context: Arc<GpuContext>, spec: WeightSpec, memory: Arc<AtomicU64>) -> Result<Self> {
        if !matches!(spec.format, Format::F32 | Format::F16) {
            return Err(Error::Unsupported(format!(
                "weight `{}`: the GPU keeps f32 and f16, not {:?}",
                spec.name, spec.format
            )));
        }
        let row_bytes = spec.format.row_bytes(spec.cols) as u64;
        // A multiple of four rows, since kernels make four outputs at a time.
        let limit = (context.max_piece() / row_bytes.max(1)) as usize / 4 * 4;
        if limit == 0 {
            let what = format!("one row of weight `{}`", spec.name);
            return Err(Error::TooLarge { what, needed: row_bytes * 4, limit: context.max_piece() });
        }
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        let pieces = (0..spec.rows)
            .step_by(limit)
            .map(|first_row| {
                let rows = limit.min(spec.rows - first_row);
                let buffer = context.buffer(&spec.name, rows as u64 * row_bytes, usage)?;
                Ok(Piece { buffer, first_row, rows })
            })
            .collect::<Result<Vec<_>>>()?;
        let (pending, scratch) = (Vec::new(), Vec::new());
        Ok(GpuSink { context, spec, pieces, pending, written: 0, unflushed: 0, scratch, memory })
    }

    fn total(&self) -> u64 {
        (self.spec.format.row_bytes(self.spec.cols) * self.spec.rows) as u64
    }

    fn mismatch(&self) -> Error {
        let arrived = self.written + self.pending.len() as u64;
        Error::Shape {
            what: format!("weight `{}`", self.spec.name),
            expected: format!("[{}, {}]", self.spec.rows, self.spec.cols),
            found: format!("{} values", arrived / self.spec.format.row_bytes(1) as u64),
        }
    }

    /// Writes pending bytes; all of them, or as many as are a multiple of the 4 bytes that a write must have.
    fn write(&mut self, last: bool) -> Result<()> {
        if last {
            self.pending.resize(self.pending.len().next_multiple_of(4), 0);
        }
        let row_bytes = self.spec.format.row_bytes(self.spec.cols) as u64;
        let ready = self.pending.len() / 4 * 4;
        let mut done = 0usize;
        while done < ready {
            let at = self.written + done as u64;
            let row = (at / row_bytes) as usize;
            let Some(piece) = self.pieces.iter().rev().find(|p| p.first_row <= row) else { break };
            let offset = at - piece.first_row as u64 * row_bytes;
            let room = piece.buffer.size() - offset;
            let bytes = (ready - done).min(room as usize);
            if bytes == 0 {
                break;
            }
            self.context.queue.write_buffer(&piece.buffer, offset, &self.pending[done..done + bytes]);
            done += bytes;
        }
        self.pending.drain(..done);
        self.written += done as u64;
        self.unflushed += done as u64;
        if self.unflushed > FLUSH_BYTES {
            self.unflushed = 0;
            self.context.queue.submit([]);
            // Lets the queue free its staging memory; an error here shows up in the fault check.
            let _ = self.context.device.poll(wgpu::PollType::wait_indefinitely());
        }
        self.context.faults.check_allocation(&self.spec.name)
    }
}

impl WeightSink for GpuSink {
    fn push(&mut self, source: Format, bytes: &[u8]) -> Result<()> {
        let element = source.row_bytes(1);
        for piece in bytes.chunks(UPLOAD_BYTES / 4 * element) {
            if source == self.spec.format {
                self.pending.extend_from_slice(piece);
            } else {
                self.scratch.clear();
                decode_f32(source, piece, &mut self.scratch)?;
                encode(self.spec.format, &self.scratch, &mut self.pending);
            }
            if self.written + self.pending.len() as u64 > self.total() {
                return Err(self.mismatch());
            }
            if self.pending.len() >= UPLOAD_BYTES {
                self.write(false)?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Weight> {
        if self.written + self.pending.len() as u64 != self.total() {
            return Err(self.mismatch());
        }
        self.write(true)?;
        let bytes = self.pieces.iter().map(|p| p.buffer.size()).sum();
        self.memory.fetch_add(bytes, Ordering::Relaxed);
        let storage = GpuWeight { pieces: self.pieces, bytes, memory: self.memory };
        Ok(Weight::new(self.spec, Arc::new(storage)))
    }
}

fn encode(format: Format, values: &[f32], out: &mut Vec<u8>) {
    if format == Format::F16 {
        out.extend(values.iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()));
    } else {
        out.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    }
}
