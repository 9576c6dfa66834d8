//! Weights in GPU memory, split by rows into pieces that one binding can hold.

use alloc::{boxed::Box, format, sync::Arc, vec::Vec};
use core::{
    any::Any,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{
    blocks::{Layout, Row},
    context::{GpuContext, free},
};
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
        free(self.pieces.drain(..).map(|piece| piece.buffer));
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
    /// How rows of blocks are kept, and the blocks of a row that is not whole yet.
    layout: Option<Layout>,
    blocks: Vec<u8>,
    row: Row,
    /// Bytes of a row as it is kept.
    row_bytes: usize,
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
        let layout = Layout::of(spec.format);
        if layout.is_none() && !matches!(spec.format, Format::F32 | Format::F16) {
            return Err(Error::Unsupported(format!(
                "weight `{}`: the GPU keeps f32, f16 and GGUF's blocks, not {}",
                spec.name, spec.format
            )));
        }
        if !spec.cols.is_multiple_of(spec.format.block()) {
            return Err(Error::Shape {
                what: format!("weight `{}` in {}", spec.name, spec.format),
                expected: format!("rows of a multiple of {} values", spec.format.block()),
                found: format!("[{}, {}]", spec.rows, spec.cols),
            });
        }
        let row_bytes = layout.map_or(spec.format.row_bytes(spec.cols), |l| l.row_bytes(spec.cols));
        let (per_row, row_bytes) = (row_bytes, row_bytes as u64);
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
        Ok(GpuSink {
            context,
            spec,
            pieces,
            layout,
            blocks: Vec::new(),
            row: Row::default(),
            row_bytes: per_row,
            pending: Vec::new(),
            written: 0,
            unflushed: 0,
            scratch: Vec::new(),
            memory,
        })
    }

    fn total(&self) -> u64 {
        (self.row_bytes * self.spec.rows) as u64
    }

    fn mismatch(&self) -> Error {
        let (bytes, format) = (self.written + self.pending.len() as u64, self.spec.format);
        let arrived = match self.layout {
            Some(_) => {
                let rest = self.blocks.len() / format.block_bytes() * format.block();
                bytes / self.row_bytes.max(1) as u64 * self.spec.cols as u64 + rest as u64
            }
            None => bytes / format.row_bytes(1) as u64,
        };
        Error::Shape {
            what: format!("weight `{}`", self.spec.name),
            expected: format!("[{}, {}]", self.spec.rows, self.spec.cols),
            found: format!("{arrived} values"),
        }
    }

    /// Writes pending bytes; all of them, or as many as are a multiple of the 4 bytes that a write must have.
    fn write(&mut self, last: bool) -> Result<()> {
        if last {
            self.pending.resize(self.pending.len().next_multiple_of(4), 0);
        }
        let row_bytes = self.row_bytes as u64;
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

    /// Appends some source bytes to `pending`, as they are kept.
    fn convert(&mut self, source: Format, piece: &[u8]) -> Result<()> {
        let format = self.spec.format;
        match self.layout {
            Some(layout) if source == format => {
                self.blocks.extend_from_slice(piece);
                let row = format.row_bytes(self.spec.cols).max(1);
                let whole = self.blocks.len() / row * row;
                for blocks in self.blocks[..whole].chunks_exact(row) {
                    layout.pack_row(format, blocks, &mut self.row, &mut self.pending)?;
                }
                self.blocks.drain(..whole);
            }
            Some(_) => {
                let name = &self.spec.name;
                return Err(Error::Unsupported(format!(
                    "weight `{name}`: {source} values for blocks of {format}"
                )));
            }
            None if source == format => self.pending.extend_from_slice(piece),
            None => {
                self.scratch.clear();
                decode_f32(source, piece, &mut self.scratch)?;
                encode(format, &self.scratch, &mut self.pending);
            }
        }
        Ok(())
    }
}

impl WeightSink for GpuSink {
    fn push(&mut self, source: Format, bytes: &[u8]) -> Result<()> {
        let grain = source.block_bytes();
        for piece in bytes.chunks(UPLOAD_BYTES / 4 / source.block() * grain) {
            self.convert(source, piece)?;
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
        if self.written + self.pending.len() as u64 != self.total() || !self.blocks.is_empty() {
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
