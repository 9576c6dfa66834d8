//! Compiled GPU pipelines on disk, so that a second start is fast.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use inferencelayer_engine::gpu::PipelineStore;

/// Largest file that is believed to be a pipeline cache.
const MAX_BYTES: u64 = 256 << 20;

/// One file for each adapter and driver in a folder.
#[derive(Debug, Clone)]
pub struct DiskPipelines {
    folder: PathBuf,
}

impl DiskPipelines {
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        DiskPipelines { folder: folder.into() }
    }

    /// In `INFERENCELAYER_CACHE`, or in the user's cache folder; `None` if there is no such folder.
    pub fn from_env() -> Option<Self> {
        let var = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let own = var("INFERENCELAYER_CACHE");
        let cache = var("XDG_CACHE_HOME")
            .or_else(|| var("LOCALAPPDATA"))
            .or_else(|| var("HOME").map(|home| home.join(".cache")))
            .map(|cache| cache.join("inferencelayer"));
        own.or(cache).map(|folder| DiskPipelines::new(folder.join("pipelines")))
    }

    fn file(&self, key: &str) -> PathBuf {
        self.folder.join(key)
    }

    fn write(&self, key: &str, data: &[u8]) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        // Renamed into place, so that a process that starts meanwhile sees the old file or the new one.
        let staged = self.folder.join(format!("{key}.{}.tmp", std::process::id()));
        fs::write(&staged, data)?;
        fs::rename(&staged, self.file(key)).inspect_err(|_| drop(fs::remove_file(&staged)))
    }
}

impl PipelineStore for DiskPipelines {
    fn load(&self, key: &str) -> Option<Vec<u8>> {
        let path = self.file(key);
        let size = fs::metadata(&path).ok()?.len();
        if size > MAX_BYTES {
            log::warn!("{}: {size} bytes are too many for a pipeline cache; ignored", path.display());
            return None;
        }
        fs::read(&path).ok()
    }

    fn save(&self, key: &str, data: &[u8]) {
        if let Err(error) = self.write(key, data) {
            log::warn!("compiled pipelines could not be kept in {}: {error}", self.folder.display());
        }
    }
}

impl AsRef<Path> for DiskPipelines {
    fn as_ref(&self) -> &Path {
        &self.folder
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_loaded() {
        let root = tempfile::tempdir().unwrap();
        let store = DiskPipelines::new(root.path().join("a/b"));
        assert_eq!(store.load("key"), None);
        store.save("key", b"one");
        store.save("key", b"two");
        store.save("other", b"three");
        assert_eq!(store.load("key").as_deref(), Some(&b"two"[..]));
        let mut names: Vec<_> = fs::read_dir(&store).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort_unstable();
        assert_eq!(names, ["key", "other"], "nothing else is left");
    }

    #[test]
    fn a_folder_that_cannot_be_made_costs_nothing_but_time() {
        let root = tempfile::NamedTempFile::new().unwrap();
        let store = DiskPipelines::new(root.path());
        store.save("key", b"data");
        assert_eq!(store.load("key"), None);
    }
}
