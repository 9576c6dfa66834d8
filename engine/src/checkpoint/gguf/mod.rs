//! GGUF files: metadata by key, then tensors in plain or block formats, in one file or several.
//!
//! Only the header is read here, and no count or length in it is taken on trust: what it makes the reader allocate
//! is bounded by the file's own size.

mod metadata;
mod reader;
mod split;
mod tensors;
#[cfg(test)]
mod tests;
mod value;

use alloc::{boxed::Box, collections::BTreeMap, format, string::String, vec, vec::Vec};
use core::fmt;

pub use metadata::Metadata;
pub use split::split_names;
pub(crate) use tensors::type_id;
pub use value::{Array, Strings, Value};

use self::reader::{Place, Reader};
use super::{ReadAt, Reading, TensorInfo, TensorSource};
use crate::{Error, Result};

/// Alignment of tensors where the file says nothing.
const ALIGNMENT: u64 = 32;

/// A GGUF model.
pub struct Gguf {
    files: Vec<Box<dyn ReadAt>>,
    metadata: Metadata,
    tensors: BTreeMap<String, TensorInfo>,
}

impl fmt::Debug for Gguf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gguf")
            .field("file", &self.name())
            .field("files", &self.files.len())
            .field("tensors", &self.tensors.len())
            .finish()
    }
}

impl Gguf {
    /// Reads and checks the header of a model in one file.
    ///
    /// # Errors
    /// `Malformed` naming the file, and the key or tensor at fault; `Config` for a key of an impossible value;
    /// `Unsupported` for a version or byte order that is not read.
    pub async fn open(file: Box<dyn ReadAt>) -> Result<Self> {
        Self::open_split(vec![file]).await
    }

    /// [`Gguf::open`] for a model in several files, all of them in order ([`split_names`]).
    ///
    /// # Errors
    /// As [`Gguf::open`]; `Malformed` if they are not the parts of one model.
    pub async fn open_split(files: Vec<Box<dyn ReadAt>>) -> Result<Self> {
        let mut read = Vec::with_capacity(files.len());
        for file in &files {
            read.push(read_header(&**file).await?);
        }
        let (metadata, tensors) = split::merge(read)?;
        Ok(Gguf { files, metadata, tensors })
    }

    /// The model's metadata: the first file's.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

impl TensorSource for Gguf {
    fn name(&self) -> &str {
        self.metadata.file()
    }

    fn names(&self) -> Vec<&str> {
        self.tensors.keys().map(String::as_str).collect()
    }

    fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name)
    }

    fn read<'a>(&'a self, tensor: &'a TensorInfo, offset: u64, out: &'a mut [u8]) -> Reading<'a> {
        self.files[tensor.file].read_at(tensor.offset + offset, out)
    }
}

async fn read_header(file: &dyn ReadAt) -> Result<(Metadata, BTreeMap<String, TensorInfo>)> {
    let malformed = |why: String| Error::Malformed { file: file.name().into(), why };
    let mut reader = Reader::new(file);
    if file.size() < 4 {
        return Err(malformed(format!("is {} bytes long, too short for a GGUF file", file.size())));
    }
    let magic: [u8; 4] = reader.bytes(Place::Start).await?;
    if magic != *b"GGUF" {
        return Err(malformed(format!("is no GGUF file: it begins with {}", magic.escape_ascii())));
    }
    let version = reader.u32(Place::Start).await?;
    if !(2..=3).contains(&version) {
        let why = if (1..=3).contains(&version.swap_bytes()) {
            "is a GGUF file in big-endian byte order; only little-endian ones are read, convert it with \
             gguf-convert-endian of the gguf Python package"
                .into()
        } else {
            format!(
                "has GGUF version {version}; versions 2 and 3 are read, convert it with a newer llama.cpp"
            )
        };
        return Err(Error::Unsupported(format!("{}: {why}", file.name())));
    }
    let (tensors, keys) = (reader.u64(Place::Start).await?, reader.u64(Place::Start).await?);
    let metadata = metadata::read(&mut reader, file.name(), keys).await?;
    let alignment = metadata.opt_u64("general.alignment")?.unwrap_or(ALIGNMENT);
    if !alignment.is_power_of_two() {
        return Err(metadata.wrong("general.alignment", &format!("is {alignment}, expected a power of two")));
    }
    let entries = tensors::read(&mut reader, tensors, alignment).await?;
    let end = reader.position();
    let start = end.checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
    Ok((metadata, tensors::place(entries, start, file.size()).map_err(malformed)?))
}
