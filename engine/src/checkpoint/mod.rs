//! Where weights come from: files behind [`ReadAt`], folders behind [`Folder`], tensors behind [`TensorSource`].
//!
//! Nothing here knows a file system. Native code implements the two file traits with `std::fs`, a browser with
//! what it fetches or has stored; [`MemoryFolder`] serves tests. Reading is asynchronous for the browser's sake
//! and always by ranges: a checkpoint is never in memory whole.

pub mod gguf;
mod load;
mod memory;
mod open;
mod safetensors;
mod sharded;
#[cfg(test)]
mod tests;

use alloc::{boxed::Box, format, string::String, vec, vec::Vec};
use core::{future::Future, pin::Pin};

pub use gguf::{Gguf, split_names};
pub use load::{Loader, Part};
pub use memory::{MemoryFile, MemoryFolder};
pub use open::{open_gguf, open_module_weights, open_weights};
pub use safetensors::Safetensors;
pub use sharded::{Shards, shard_names};

use crate::{
    Error, Result,
    tensor::{Format, MaybeSendSync},
};

/// A reading in progress.
pub type Reading<'a, T = ()> = Pin<Box<dyn Future<Output = Result<T>> + 'a>>;

/// A file's bytes.
pub trait ReadAt: MaybeSendSync {
    /// For error messages: the file's name.
    fn name(&self) -> &str;

    /// Length in bytes.
    fn size(&self) -> u64;

    /// Fills `out` with the bytes from `offset` on.
    ///
    /// # Errors
    /// `Read` if they cannot be had.
    fn read_at<'a>(&'a self, offset: u64, out: &'a mut [u8]) -> Reading<'a>;
}

/// A folder of files, named by paths relative to it with `/` between components.
pub trait Folder: MaybeSendSync {
    /// For error messages: where the folder is.
    fn name(&self) -> &str;

    /// Opens a file; `None` if there is none of this name.
    ///
    /// # Errors
    /// `Read` if it is there and cannot be opened.
    fn open<'a>(&'a self, path: &'a str) -> Reading<'a, Option<Box<dyn ReadAt>>>;
}

/// Longest text file (configurations, tokenizers) that is read whole, in bytes.
const LONGEST_TEXT: u64 = 256 << 20;

/// A text file of a folder; `None` if there is none of this name.
///
/// # Errors
/// `Read`, or `Malformed` if the file is not UTF-8 or too long.
pub async fn read_text(folder: &dyn Folder, path: &str) -> Result<Option<String>> {
    let Some(file) = folder.open(path).await? else { return Ok(None) };
    let size = file.size();
    if size > LONGEST_TEXT {
        let why = format!("is {size} bytes long; a text file of a checkpoint has at most {LONGEST_TEXT}");
        return Err(Error::Malformed { file: file.name().into(), why });
    }
    let mut bytes = vec![0; size as usize];
    file.read_at(0, &mut bytes).await?;
    let text = String::from_utf8(bytes)
        .map_err(|e| Error::Malformed { file: file.name().into(), why: format!("is not UTF-8 ({e})") })?;
    Ok(Some(text))
}

/// Element type of a stored tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Element {
    /// One that weights can have.
    Weight(Format),
    /// Another, by the name that the file gives it.
    Other(String),
}

/// Where a tensor is and what it looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    pub element: Element,
    pub shape: Vec<usize>,
    /// Index of the file among the source's files.
    pub file: usize,
    /// First byte in the file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// Named tensors.
pub trait TensorSource: MaybeSendSync {
    /// For error messages: the file, or the files.
    fn name(&self) -> &str;

    /// All names, in order.
    fn names(&self) -> Vec<&str>;

    fn tensor(&self, name: &str) -> Option<&TensorInfo>;

    /// Bytes of all tensors.
    fn total_bytes(&self) -> u64 {
        self.names().iter().filter_map(|name| self.tensor(name)).map(|tensor| tensor.bytes).sum()
    }

    /// Fills `out` with the tensor's bytes from `offset` on.
    ///
    /// # Errors
    /// `Read`.
    fn read<'a>(&'a self, tensor: &'a TensorInfo, offset: u64, out: &'a mut [u8]) -> Reading<'a>;
}
