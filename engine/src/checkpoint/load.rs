//! Streams tensors into a backend's memory in pieces.

use alloc::{format, string::String, vec, vec::Vec};
use core::ops::Range;

use super::{Element, TensorInfo, TensorSource};
use crate::{
    Error, Result,
    backend::{Backend, WeightSink},
    tensor::{Format, Weight, WeightSpec, WeightUse, decode_f32},
};

/// Most bytes of a checkpoint that are in memory at once while it is loaded.
pub const PIECE: usize = 4 << 20;

/// A tensor that becomes some rows of a weight, and the shape it must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub name: String,
    /// Its last axis is a row of the weight, unless it is a vector.
    pub shape: Vec<usize>,
    /// Only these rows, those of all but the last axis taken together.
    rows: Option<Range<usize>>,
    /// Heads of so many rows, which are stored in pairs and wanted in halves.
    interleaved: Option<usize>,
}

impl Part {
    pub fn new(name: impl Into<String>, shape: impl Into<Vec<usize>>) -> Self {
        Part { name: name.into(), shape: shape.into(), rows: None, interleaved: None }
    }

    /// Some rows alone.
    pub fn rows(self, rows: Range<usize>) -> Self {
        Part { rows: Some(rows), ..self }
    }

    /// Rows `2i` and `2i + 1` of each head of `head_dim` rows become its rows `i` and `i + head_dim/2`: what GGUF
    /// files of some architectures need, whose rotary pairs lie side by side.
    pub fn interleaved(self, head_dim: usize) -> Self {
        Part { interleaved: Some(head_dim), ..self }
    }

    /// Rows of the tensor, and how many a vector or matrix has.
    fn height(&self) -> usize {
        // A vector's values are rows of one column to whoever reorders them.
        let axes = if self.shape.len() == 1 { 1 } else { self.shape.len() - 1 };
        self.shape[..axes.min(self.shape.len())].iter().product()
    }
}

/// Loads weights from a source into a backend.
pub struct Loader<'a> {
    source: &'a dyn TensorSource,
    backend: &'a dyn Backend,
    piece: Vec<u8>,
    loaded: u64,
    progress: Option<&'a dyn Fn(u64)>,
}

impl<'a> Loader<'a> {
    pub fn new(source: &'a dyn TensorSource, backend: &'a dyn Backend) -> Self {
        Loader { source, backend, piece: Vec::new(), loaded: 0, progress: None }
    }

    /// Calls `progress` after each piece with the bytes read so far.
    pub fn with_progress(mut self, progress: Option<&'a dyn Fn(u64)>) -> Self {
        self.progress = progress;
        self
    }

    pub fn source(&self) -> &'a dyn TensorSource {
        self.source
    }

    pub fn backend(&self) -> &'a dyn Backend {
        self.backend
    }

    /// One weight `[rows, cols]` of the parts, one after the other, in the format that the backend prefers.
    ///
    /// # Errors
    /// `MissingTensor`, `Shape` or `Malformed` naming the tensor and its file; `Shape` if the parts do not make
    /// `[rows, cols]`; those of the backend.
    pub async fn weight(
        &mut self,
        usage: WeightUse,
        shape: (usize, usize),
        parts: &[Part],
    ) -> Result<Weight> {
        self.gather(usage, shape, parts, 0).await
    }

    /// [`Loader::weight`] with rows of zeros after those of the parts, until their number is a multiple of 4.
    ///
    /// # Errors
    /// As [`Loader::weight`].
    pub async fn padded_weight(
        &mut self,
        usage: WeightUse,
        (rows, cols): (usize, usize),
        parts: &[Part],
    ) -> Result<Weight> {
        let padded = rows.next_multiple_of(4);
        self.gather(usage, (padded, cols), parts, (padded - rows) * cols).await
    }

    async fn gather(
        &mut self,
        usage: WeightUse,
        (rows, cols): (usize, usize),
        parts: &[Part],
        zeros: usize,
    ) -> Result<Weight> {
        let name = parts.first().map_or_else(String::new, |p| p.name.clone());
        let mut found = Vec::new();
        for part in parts {
            found.push(self.find(part)?);
        }
        // Parts of several formats cannot be kept as they come.
        let sources = found.iter().map(|(_, source)| *source);
        let source = sources.clone().reduce(|a, b| if a == b { a } else { Format::F32 });
        let format = self.backend.capabilities().format_for(usage, source.unwrap_or(Format::F32));
        let mut sink = self.backend.weight(WeightSpec { name, rows, cols, format, usage })?;
        for (part, (info, source)) in parts.iter().zip(found) {
            self.push(&mut *sink, part, info, source).await?;
        }
        // In a format of blocks, zero bytes are zeros as well.
        match zeros.is_multiple_of(format.block()) && Format::BLOCKS.contains(&format) {
            true => sink.push(format, &vec![0; zeros / format.block() * format.block_bytes()])?,
            false => sink.push(Format::F32, &vec![0; zeros * 4])?,
        }
        sink.finish()
    }

    /// Streams a part's rows into a sink.
    async fn push(
        &mut self,
        sink: &mut dyn WeightSink,
        part: &Part,
        info: &TensorInfo,
        source: Format,
    ) -> Result<()> {
        let height = part.height().max(1);
        let row_bytes = info.bytes / height as u64;
        let rows = part.rows.clone().unwrap_or(0..height);
        let (mut offset, end) = (rows.start as u64 * row_bytes, rows.end as u64 * row_bytes);
        // Whole heads at a time if their rows are to be reordered, else whole blocks.
        let grain = match part.interleaved {
            Some(head_dim) => head_dim as u64 * row_bytes,
            None => source.block_bytes() as u64,
        };
        while offset < end {
            let bytes = self.next_piece(info, offset..end, grain).await?;
            let length = bytes.len() as u64;
            match part.interleaved {
                Some(head_dim) => {
                    let halves = uninterleave(bytes, head_dim, row_bytes as usize);
                    sink.push(source, &halves)?;
                }
                None => sink.push(source, bytes)?,
            }
            offset += length;
        }
        Ok(())
    }

    /// A small tensor's values.
    ///
    /// # Errors
    /// As [`Loader::weight`].
    pub async fn values(&mut self, part: &Part) -> Result<Vec<f32>> {
        let (info, format) = self.find(part)?;
        let (mut values, mut offset) = (Vec::new(), 0);
        while offset < info.bytes {
            let bytes = self.next_piece(info, offset..info.bytes, format.block_bytes() as u64).await?;
            decode_f32(format, bytes, &mut values)?;
            offset += bytes.len() as u64;
        }
        Ok(values)
    }

    /// The next bytes of a range: as many whole grains as a piece holds, one at least.
    async fn next_piece(&mut self, info: &TensorInfo, range: Range<u64>, grain: u64) -> Result<&[u8]> {
        let grain = grain.max(1);
        let most = (PIECE as u64 / grain).max(1) * grain;
        let length = (range.end - range.start).min(most) as usize;
        if self.piece.len() < length {
            self.piece.resize(length.max(PIECE), 0);
        }
        self.source.read(info, range.start, &mut self.piece[..length]).await?;
        self.loaded += length as u64;
        if let Some(progress) = self.progress {
            progress(self.loaded);
        }
        Ok(&self.piece[..length])
    }

    fn find(&self, part: &Part) -> Result<(&'a TensorInfo, Format)> {
        let file = || String::from(self.source.name());
        let Some(info) = self.source.tensor(&part.name) else {
            return Err(Error::MissingTensor { tensor: part.name.clone(), file: file() });
        };
        if info.shape != part.shape {
            return Err(Error::Shape {
                what: format!("tensor `{}` of {}", part.name, file()),
                expected: format!("{:?}", part.shape),
                found: format!("{:?}", info.shape),
            });
        }
        match &info.element {
            Element::Weight(format) => Ok((info, *format)),
            Element::Other(dtype) => {
                let known = Format::ALL.into_iter().filter(|f| *f != Format::Int8).map(Format::name);
                let known: Vec<&str> = known.collect();
                let why = format!(
                    "tensor `{}` has elements of type {dtype}, which is not read; {} are",
                    part.name,
                    known.join(", ")
                );
                Err(Error::Malformed { file: file(), why })
            }
        }
    }
}

/// Pairs of rows of each head become its halves.
fn uninterleave(bytes: &[u8], head_dim: usize, row_bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for head in bytes.chunks(head_dim * row_bytes) {
        for side in 0..2 {
            let rows = head.chunks(row_bytes).skip(side).step_by(2);
            rows.for_each(|row| out.extend_from_slice(row));
        }
    }
    out
}
