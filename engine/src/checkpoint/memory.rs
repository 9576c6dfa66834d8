//! Files and folders in memory: for tests, and for small models that are part of a program.

use alloc::{boxed::Box, collections::BTreeMap, format, string::String, sync::Arc};
use core::fmt;

use super::{Folder, ReadAt, Reading};
use crate::{Error, Result, tensor::MaybeSendSync};

/// A file whose bytes are in memory.
#[derive(Clone)]
pub struct MemoryFile<B> {
    name: String,
    bytes: B,
}

impl<B: AsRef<[u8]>> MemoryFile<B> {
    pub fn new(name: impl Into<String>, bytes: B) -> Self {
        MemoryFile { name: name.into(), bytes }
    }

    fn copy(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let bytes = self.bytes.as_ref();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let found = start.checked_add(out.len()).and_then(|end| bytes.get(start..end));
        let Some(found) = found else {
            let why = format!("{} bytes at {offset} of a file of {}", out.len(), bytes.len());
            return Err(Error::Read { file: self.name.clone(), why });
        };
        out.copy_from_slice(found);
        Ok(())
    }
}

impl<B: AsRef<[u8]> + MaybeSendSync> ReadAt for MemoryFile<B> {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.bytes.as_ref().len() as u64
    }

    fn read_at<'a>(&'a self, offset: u64, out: &'a mut [u8]) -> Reading<'a> {
        let done = self.copy(offset, out);
        Box::pin(core::future::ready(done))
    }
}

/// A folder whose files are in memory.
#[derive(Clone, Default)]
pub struct MemoryFolder {
    name: String,
    files: BTreeMap<String, Arc<[u8]>>,
}

impl fmt::Debug for MemoryFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryFolder").field("name", &self.name).field("files", &self.files.keys()).finish()
    }
}

impl MemoryFolder {
    pub fn new(name: impl Into<String>) -> Self {
        MemoryFolder { name: name.into(), files: BTreeMap::new() }
    }

    /// Adds a file or replaces it.
    pub fn insert(&mut self, path: impl Into<String>, bytes: impl Into<Arc<[u8]>>) {
        self.files.insert(path.into(), bytes.into());
    }

    /// Removes a file; true if there was one.
    pub fn remove(&mut self, path: &str) -> bool {
        self.files.remove(path).is_some()
    }

    /// A file's bytes.
    pub fn get(&self, path: &str) -> Option<&[u8]> {
        self.files.get(path).map(|bytes| &**bytes)
    }
}

impl Folder for MemoryFolder {
    fn name(&self) -> &str {
        &self.name
    }

    fn open<'a>(&'a self, path: &'a str) -> Reading<'a, Option<Box<dyn ReadAt>>> {
        let file = self.files.get(path).map(|bytes| {
            let file = MemoryFile::new(format!("{}/{path}", self.name), bytes.clone());
            Box::new(file) as Box<dyn ReadAt>
        });
        Box::pin(core::future::ready(Ok(file)))
    }
}
