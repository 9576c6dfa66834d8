//! Weights as this backend keeps them, and the sinks that fill them row by row.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use half::{bf16, f16};
use inferencelayer_engine::{
    Error, Result,
    backend::WeightSink,
    quant::Unpacked,
    tensor::{Format, Weight, WeightSpec, WeightStorage, WeightUse, decode_f32},
};

use super::{
    blocks::pack::{Layout, PackedBlocks},
    gemm::pack::{MAX_INT8_INPUTS, PackedF32, PackedInt8},
    isa::Isa,
    table::{Table, Values},
};

/// Elements decoded at a time.
const PIECE: usize = 1 << 14;

/// Bytes that a backend holds; counted when they come and when they go.
#[derive(Debug, Clone, Default)]
pub struct Memory(Arc<AtomicU64>);

impl Memory {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts `bytes` until the result is dropped.
    pub fn hold(&self, bytes: usize) -> Held {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
        Held { memory: self.clone(), bytes: bytes as u64 }
    }
}

/// Bytes counted.
#[derive(Debug)]
pub struct Held {
    memory: Memory,
    bytes: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// One weight's memory.
#[derive(Debug)]
pub enum Kept {
    F32(PackedF32),
    Int8(PackedInt8),
    Blocks(PackedBlocks),
    Table(Table),
    /// Filled up with zeros to a multiple of [`VECTOR_FILL`], so that a bias can be read in whole panels.
    Vector(Vec<f32>),
}

/// A multiple of every instruction set's panel.
pub const VECTOR_FILL: usize = 64;

/// A weight, packed for one instruction set.
#[derive(Debug)]
pub struct CpuWeight {
    pub isa: Isa,
    pub kept: Kept,
    _held: Held,
}

impl WeightStorage for CpuWeight {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// What a weight of an op is kept as.
///
/// # Errors
/// `Unsupported` for a weight of another backend, or one packed for another instruction set.
pub fn kept(weight: &Weight, isa: Isa) -> Result<&Kept> {
    match weight.storage::<CpuWeight>() {
        Some(found) if found.isa == isa => Ok(&found.kept),
        _ => Err(Error::Unsupported(format!(
            "weight `{}` belongs to another backend; upload it to the one that runs the program",
            weight.name()
        ))),
    }
}

/// Fills a weight.
pub struct CpuSink {
    spec: WeightSpec,
    isa: Isa,
    memory: Memory,
    kept: Kept,
    /// Values taken.
    filled: usize,
    /// An 8-bit weight's row so far.
    row: Vec<f32>,
    piece: Vec<f32>,
    /// The blocks of a row so far.
    blocks: Vec<u8>,
    unpacked: Unpacked,
}

impl CpuSink {
    /// # Errors
    /// `Unsupported` for a format that this use of a weight is not kept in.
    pub fn new(spec: WeightSpec, isa: Isa, memory: Memory) -> Result<Self> {
        let (rows, cols) = (spec.rows, spec.cols);
        let size = rows.checked_mul(cols).filter(|n| *n <= isize::MAX as usize / 16).ok_or_else(|| {
            Error::Unsupported(format!("weight `{}`: [{rows}, {cols}] is more than memory", spec.name))
        })?;
        if !cols.is_multiple_of(spec.format.block()) {
            return Err(Error::Shape {
                what: format!("weight `{}` in {}", spec.name, spec.format),
                expected: format!("rows of a multiple of {} values", spec.format.block()),
                found: format!("[{rows}, {cols}]"),
            });
        }
        let layout = Layout::of(spec.format);
        let kept = match (spec.usage, spec.format, layout) {
            (WeightUse::Matrix, _, Some(layout)) => {
                Kept::Blocks(PackedBlocks::zeroed(isa, layout, rows, cols))
            }
            (WeightUse::Table, format, Some(_)) => {
                let bytes = Vec::with_capacity(rows * format.row_bytes(cols));
                table(rows, cols, Values::Blocks(format, bytes))
            }
            (WeightUse::Matrix, Format::F32, _) => Kept::F32(PackedF32::zeroed(isa, rows, cols)),
            (WeightUse::Matrix, Format::Int8, _) if cols <= MAX_INT8_INPUTS => {
                Kept::Int8(PackedInt8::zeroed(isa, rows, cols))
            }
            (WeightUse::Table, Format::F32, _) => table(rows, cols, Values::F32(Vec::with_capacity(size))),
            (WeightUse::Table, Format::F16, _) => table(rows, cols, Values::F16(Vec::with_capacity(size))),
            (WeightUse::Table, Format::BF16, _) => table(rows, cols, Values::Bf16(Vec::with_capacity(size))),
            (WeightUse::Vector, Format::F32, _) => {
                Kept::Vector(Vec::with_capacity(size.next_multiple_of(VECTOR_FILL)))
            }
            (usage, format, _) => {
                return Err(Error::Unsupported(format!(
                    "weight `{}`: the CPU backend keeps no {usage:?} of {cols} columns as {format:?}; it keeps \
                     matrices as F32, Int8 (up to {MAX_INT8_INPUTS} columns) or blocks, tables as F32, F16, BF16 or \
                     blocks, and vectors as F32",
                    spec.name
                )));
            }
        };
        Ok(CpuSink {
            spec,
            isa,
            memory,
            kept,
            filled: 0,
            row: Vec::new(),
            piece: Vec::new(),
            blocks: Vec::new(),
            unpacked: Unpacked::default(),
        })
    }

    fn size(&self) -> usize {
        self.spec.rows * self.spec.cols
    }

    fn mismatch(&self, found: usize) -> Error {
        Error::Shape {
            what: format!("weight `{}`", self.spec.name),
            expected: format!("[{}, {}]", self.spec.rows, self.spec.cols),
            found: format!("{found} values"),
        }
    }

    /// Takes the values in `piece`.
    fn take(&mut self) {
        let piece = self.piece.as_slice();
        match &mut self.kept {
            Kept::F32(packed) => packed.set(self.filled, piece),
            Kept::Int8(packed) => {
                let (cols, mut rest, mut at) = (self.spec.cols, piece, self.filled);
                while !rest.is_empty() {
                    let (now, later) = rest.split_at(rest.len().min(cols - self.row.len()));
                    self.row.extend_from_slice(now);
                    if self.row.len() == cols {
                        packed.set_row(at / cols, &self.row);
                        self.row.clear();
                    }
                    (rest, at) = (later, at + now.len());
                }
            }
            Kept::Table(Table { values, .. }) => match values {
                Values::F32(values) => values.extend_from_slice(piece),
                Values::F16(values) => values.extend(piece.iter().map(|v| f16::from_f32(*v))),
                Values::Bf16(values) => values.extend(piece.iter().map(|v| bf16::from_f32(*v))),
                // They take blocks.
                Values::Blocks(..) => {}
            },
            Kept::Vector(values) => values.extend_from_slice(piece),
            Kept::Blocks(_) => {}
        }
        self.filled += piece.len();
    }

    /// Takes whole blocks of the weight's own format.
    fn take_blocks(&mut self, bytes: &[u8]) -> Result<()> {
        let (format, cols) = (self.spec.format, self.spec.cols);
        match &mut self.kept {
            Kept::Table(Table { values: Values::Blocks(_, kept), .. }) => kept.extend_from_slice(bytes),
            Kept::Blocks(packed) => {
                let (row_bytes, mut rest) = (format.row_bytes(cols), bytes);
                while !rest.is_empty() {
                    let (now, later) = rest.split_at(rest.len().min(row_bytes - self.blocks.len()));
                    self.blocks.extend_from_slice(now);
                    self.filled += now.len() / format.block_bytes() * format.block();
                    if self.blocks.len() == row_bytes {
                        packed.set_row(self.filled / cols - 1, format, &self.blocks, &mut self.unpacked)?;
                        self.blocks.clear();
                    }
                    rest = later;
                }
                return Ok(());
            }
            _ => {}
        }
        self.filled += bytes.len() / format.block_bytes() * format.block();
        Ok(())
    }
}

fn table(rows: usize, cols: usize, values: Values) -> Kept {
    Kept::Table(Table { rows, cols, values })
}

impl WeightSink for CpuSink {
    fn push(&mut self, source: Format, bytes: &[u8]) -> Result<()> {
        let (block, block_bytes) = (source.block(), source.block_bytes());
        let after = self.filled + bytes.len() / block_bytes * block;
        if after > self.size() {
            return Err(self.mismatch(after));
        }
        if self.spec.format.is_block() {
            if source != self.spec.format || !bytes.len().is_multiple_of(block_bytes) {
                return Err(Error::Unsupported(format!(
                    "weight `{}`: {} bytes of {source} for blocks of {}",
                    self.spec.name,
                    bytes.len(),
                    self.spec.format
                )));
            }
            return self.take_blocks(bytes);
        }
        for piece in bytes.chunks(PIECE / block * block_bytes) {
            self.piece.clear();
            decode_f32(source, piece, &mut self.piece)?;
            self.take();
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Weight> {
        if self.filled != self.size() {
            return Err(self.mismatch(self.filled));
        }
        let bytes = match &mut self.kept {
            Kept::F32(packed) => packed.bytes(),
            Kept::Int8(packed) => packed.bytes(),
            Kept::Blocks(packed) => packed.bytes(),
            Kept::Table(table) => table.bytes(),
            Kept::Vector(values) => {
                values.resize(values.len().next_multiple_of(VECTOR_FILL), 0.0);
                values.len() * 4
            }
        };
        let weight = CpuWeight { isa: self.isa, kept: self.kept, _held: self.memory.hold(bytes) };
        Ok(Weight::new(self.spec, Arc::new(weight)))
    }
}
