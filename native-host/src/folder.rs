//! Checkpoint folders: the engine's [`Folder`] on disk, and json files of any folder.

#[cfg(not(target_arch = "wasm32"))]
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use inferencelayer_engine::checkpoint::{Folder, read_text};
#[cfg(not(target_arch = "wasm32"))]
use inferencelayer_engine::{
    checkpoint::{self, Gguf, ReadAt, Reading},
    task::block_on,
};
use serde::de::DeserializeOwned;

use crate::{Error, Result};

/// Reads and parses a json file; `None` if it is not there.
///
/// # Errors
/// `Malformed` naming the file, the line and the column; `Read`.
pub async fn json<T: DeserializeOwned>(folder: &dyn Folder, name: &str) -> Result<Option<T>> {
    let Some(text) = read_text(folder, name).await? else { return Ok(None) };
    // Some editors write a byte-order mark, which json forbids.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    serde_json::from_slice(text.as_bytes())
        .map(Some)
        .map_err(|e| Error::malformed(describe(folder, name), e.to_string()))
}

/// Like [`json`], for a file that must be there.
///
/// # Errors
/// `Malformed` if it is missing or does not parse.
pub async fn required_json<T: DeserializeOwned>(folder: &dyn Folder, name: &str) -> Result<T> {
    json(folder, name).await?.ok_or_else(|| Error::malformed(describe(folder, name), "the file is missing"))
}

/// A file for error messages.
pub fn describe(folder: &dyn Folder, name: &str) -> String {
    format!("{}/{name}", folder.name())
}

/// Joins a folder inside a model and a file name; an empty folder is the model's root.
pub fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// A folder on disk.
#[cfg(not(target_arch = "wasm32"))]
#[derive(Debug, Clone)]
pub struct DiskFolder {
    path: PathBuf,
    name: String,
}

#[cfg(not(target_arch = "wasm32"))]
impl DiskFolder {
    /// # Errors
    /// `Io` if there is no such folder.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let meta = fs::metadata(path).map_err(Error::io(path))?;
        if !meta.is_dir() {
            return Err(Error::Input(format!("{} is not a folder", path.display())));
        }
        Ok(DiskFolder { path: path.to_owned(), name: path.display().to_string() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(not(target_arch = "wasm32"))]
impl Folder for DiskFolder {
    fn name(&self) -> &str {
        &self.name
    }

    fn open<'a>(&'a self, path: &'a str) -> Reading<'a, Option<Box<dyn ReadAt>>> {
        Box::pin(std::future::ready(DiskFile::open(&self.path.join(path))))
    }
}

/// Opens a GGUF model on disk by the path of its file, or of any of its files (`…-00001-of-00003.gguf`) if it has
/// several. Only headers are read; the files stay open, and tensors are read from them in pieces.
///
/// # Errors
/// `Input` for a path that names no file; the engine's errors, which name the file that is missing or what is wrong
/// in it.
#[cfg(not(target_arch = "wasm32"))]
pub fn open_gguf(path: impl AsRef<Path>) -> Result<Gguf> {
    let path = path.as_ref();
    let Some(name) = path.file_name().and_then(|n| n.to_str()) else {
        return Err(Error::Input(format!("{} is no name of a GGUF file", path.display())));
    };
    let parent = path.parent().unwrap_or(Path::new(""));
    let shown = if parent.as_os_str().is_empty() { ".".into() } else { parent.display().to_string() };
    let folder = DiskFolder { path: parent.to_owned(), name: shown };
    Ok(block_on(checkpoint::open_gguf(&folder, name))?)
}

/// A file on disk that is read by ranges.
#[cfg(not(target_arch = "wasm32"))]
#[derive(Debug)]
pub struct DiskFile {
    name: String,
    size: u64,
    file: File,
}

#[cfg(not(target_arch = "wasm32"))]
impl DiskFile {
    /// `None` if there is no file of this name.
    ///
    /// # Errors
    /// `Read` if it is there and cannot be opened.
    pub fn open(path: &Path) -> inferencelayer_engine::Result<Option<Box<dyn ReadAt>>> {
        let name = path.display().to_string();
        let failed =
            |e: io::Error| inferencelayer_engine::Error::Read { file: name.clone(), why: e.to_string() };
        // Looked at first: opening a pipe would wait for whoever writes into it.
        let meta = match fs::metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found.map_err(failed)?,
        };
        if !meta.is_file() {
            return Err(failed(io::Error::other("is not a file")));
        }
        let file = File::open(path).map_err(failed)?;
        Ok(Some(Box::new(DiskFile { size: meta.len(), file, name })))
    }
}

#[cfg(not(target_arch = "wasm32"))]
impl ReadAt for DiskFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at<'a>(&'a self, offset: u64, out: &'a mut [u8]) -> Reading<'a> {
        let done = read_exact_at(&self.file, out, offset).map_err(|e| inferencelayer_engine::Error::Read {
            file: self.name.clone(),
            why: format!("{} bytes at {offset}: {e}", out.len()),
        });
        Box::pin(std::future::ready(done))
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut out: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !out.is_empty() {
        let n = std::os::windows::fs::FileExt::seek_read(file, out, offset)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        out = &mut out[n..];
        offset += n as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use inferencelayer_engine::{
        checkpoint::{MemoryFolder, TensorSource},
        tensor::Format,
        testing::GgufWriter,
    };
    use serde_json::Value;

    use super::*;

    #[test]
    fn json_names_the_file_and_the_place() {
        let mut folder = MemoryFolder::new("model");
        folder.insert("a.json", &b"{\"x\":\n oops}"[..]);
        let error = block_on(json::<Value>(&folder, "a.json")).unwrap_err().to_string();
        assert!(error.starts_with("model/a.json: ") && error.contains("line 2"), "{error}");
        assert!(block_on(json::<Value>(&folder, "b.json")).unwrap().is_none());
        let error = block_on(required_json::<Value>(&folder, "b.json")).unwrap_err().to_string();
        assert_eq!(error, "model/b.json: the file is missing");
        folder.insert("c.json", &b"\xef\xbb\xbf{\"x\":1}"[..]);
        let value: Value = block_on(required_json(&folder, "c.json")).unwrap();
        assert_eq!(value["x"], 1, "a byte-order mark is skipped");
    }

    #[test]
    fn disk() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("f"), b"0123456789").unwrap();
        fs::create_dir(root.path().join("d")).unwrap();
        let folder = DiskFolder::open(root.path()).unwrap();
        let file = block_on(folder.open("f")).unwrap().unwrap();
        assert_eq!(file.size(), 10);
        let mut out = [0; 4];
        block_on(file.read_at(3, &mut out)).unwrap();
        assert_eq!(&out, b"3456");
        let error = block_on(file.read_at(8, &mut out)).unwrap_err().to_string();
        assert!(error.contains("f: 4 bytes at 8"), "{error}");
        assert!(block_on(folder.open("missing")).unwrap().is_none());
        assert!(block_on(folder.open("d")).map(|_| ()).unwrap_err().to_string().contains("is not a file"));
    }

    #[test]
    fn a_missing_folder_is_named() {
        let error = DiskFolder::open("/nonexistent/model").unwrap_err().to_string();
        assert!(error.starts_with("/nonexistent/model: "), "{error}");
    }

    #[test]
    fn gguf_models() {
        let root = tempfile::tempdir().unwrap();
        let part = |number: u16| {
            let writer = GgufWriter::new().key("split.no", number).key("split.count", 2u16);
            writer.tensor(&format!("t{number}"), &[1], Format::F32, &[number as u8; 4]).finish()
        };
        let path = |name: &str| root.path().join(name);
        let error = |name: &str| open_gguf(path(name)).unwrap_err().to_string();
        fs::write(path("m-00001-of-00002.gguf"), part(0)).unwrap();
        let text = error("m-00001-of-00002.gguf");
        assert!(text.contains("m-00002-of-00002.gguf: is missing, though the model has 2 parts"), "{text}");
        fs::write(path("m-00002-of-00002.gguf"), part(1)).unwrap();
        for name in ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"] {
            let model = open_gguf(path(name)).unwrap();
            assert_eq!(model.names(), ["t0", "t1"]);
            let mut bytes = [9; 4];
            block_on(model.read(model.tensor("t1").unwrap(), 0, &mut bytes)).unwrap();
            assert_eq!(bytes, [1; 4]);
        }
        // One part under a name of its own says that it is not all.
        fs::write(path("alone.gguf"), part(0)).unwrap();
        let text = error("alone.gguf");
        assert!(text.contains("alone.gguf: is part 1 of 2"), "{text}");

        fs::write(path("page.gguf"), "<!doctype html>").unwrap();
        let text = error("page.gguf");
        assert!(text.contains("page.gguf: is no GGUF file: it begins with <!do"), "{text}");
        assert!(error("none.gguf").ends_with("none.gguf: is missing"));
        fs::create_dir(path("folder.gguf")).unwrap();
        assert!(error("folder.gguf").contains("folder.gguf: is not a file"));
        assert!(open_gguf("..").unwrap_err().to_string().contains("is no name of a GGUF file"));
        let text = open_gguf("none.gguf").unwrap_err().to_string();
        assert_eq!(text, "./none.gguf: is missing");
    }
}
