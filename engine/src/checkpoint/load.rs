//! Streams tensors into a backend's memory in pieces.

use alloc::{format, string::String, vec, vec::Vec};

use super::{Element, TensorInfo, TensorSource};
use crate::{
    Error, Result,
    backend::Backend,
    tensor::{Format, Weight, WeightSpec, WeightUse, decode_f32},
};

/// Most bytes of a checkpoint that are in memory at once while it is loaded.
pub const PIECE: usize = 4 << 20;

/// A tensor that becomes some rows of a weight, and the shape it must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub name: String,
    pub shape: Vec<usize>,
}

impl Part {
    pub fn new(name: impl Into<String>, shape: impl Into<Vec<usize>>) -> Self {
        Part { name: name.into(), shape: shape.into() }
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
        (rows, cols): (usize, usize),
        parts: &[Part],
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
        for (info, source) in found {
            let mut offset = 0;
            while offset < info.bytes {
                let bytes = self.next_piece(info, source, offset).await?;
                sink.push(source, bytes)?;
                offset += bytes.len() as u64;
            }
        }
        sink.finish()
    }

    /// A small tensor's values.
    ///
    /// # Errors
    /// As [`Loader::weight`].
    pub async fn values(&mut self, part: &Part) -> Result<Vec<f32>> {
        let (info, format) = self.find(part)?;
        let (mut values, mut offset) = (Vec::new(), 0);
        while offset < info.bytes {
            let bytes = self.next_piece(info, format, offset).await?;
            decode_f32(format, bytes, &mut values)?;
            offset += bytes.len() as u64;
        }
        Ok(values)
    }

    /// The next bytes of a tensor: whole elements or blocks.
    async fn next_piece(&mut self, info: &TensorInfo, format: Format, offset: u64) -> Result<&[u8]> {
        if self.piece.is_empty() {
            self.piece = vec![0; PIECE];
        }
        let most = PIECE / format.block_bytes() * format.block_bytes();
        let length = (info.bytes - offset).min(most as u64) as usize;
        self.source.read(info, offset, &mut self.piece[..length]).await?;
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
