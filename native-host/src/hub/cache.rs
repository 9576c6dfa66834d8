//! The hub cache on disk: `models--owner--name/{blobs,refs,snapshots}` and `.locks` beside it.
//!
//! A blob is named by the etag its server gave, a snapshot by a commit; snapshot files are links to blobs.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// One repository's part of the cache.
#[derive(Debug, Clone)]
pub(super) struct RepoCache {
    dir: PathBuf,
    locks: PathBuf,
}

/// Whether a name from outside may become a file name: letters, digits, `.`, `_`, `-`, not starting with a dot.
pub(super) fn is_safe_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=128).contains(&name.len()) && !name.starts_with('.') && name.chars().all(plain)
}

/// Lower-case hexadecimal SHA-256 of a file.
///
/// # Errors
/// `Io`.
pub fn sha256_file(path: &Path) -> Result<String> {
    let mut file = File::open(path).map_err(Error::io(path))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0u8; 1 << 20];
    loop {
        let n = file.read(&mut buffer).map_err(Error::io(path))?;
        if n == 0 {
            return Ok(hex(&hash.finalize()));
        }
        hash.update(&buffer[..n]);
    }
}

/// Lower-case hexadecimal SHA-256 of bytes.
pub(super) fn sha256_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Checks a file against its expected hash and removes it if it is not the same.
///
/// # Errors
/// `Fetch` naming the file and both hashes.
pub(super) fn verify(path: &Path, what: &str, expected: &str) -> Result<()> {
    let found = sha256_file(path)?;
    if found == expected {
        return Ok(());
    }
    fs::remove_file(path).map_err(Error::io(path))?;
    Err(Error::Fetch(format!(
        "{what}: SHA-256 is {found}, expected {expected}; the file was changed or damaged on the way and has been removed"
    )))
}

impl RepoCache {
    /// `repo` is `owner/name`.
    pub fn new(cache: &Path, repo: &str) -> Self {
        let name = format!("models--{}", repo.replace('/', "--"));
        RepoCache { dir: cache.join(&name), locks: cache.join(".locks").join(name) }
    }

    /// The commit a revision (branch, tag) was at when it was fetched.
    pub fn commit(&self, revision: &str) -> Option<String> {
        let commit = fs::read_to_string(self.dir.join("refs").join(revision)).ok()?;
        let commit = commit.trim();
        is_safe_name(commit).then(|| commit.to_owned())
    }

    pub fn set_commit(&self, revision: &str, commit: &str) -> Result<()> {
        write_atomically(&self.dir.join("refs").join(revision), commit.as_bytes())
    }

    pub fn snapshot(&self, commit: &str) -> PathBuf {
        self.dir.join("snapshots").join(commit)
    }

    pub fn blob(&self, etag: &str) -> PathBuf {
        self.dir.join("blobs").join(etag)
    }

    /// Where a blob grows while it is fetched.
    pub fn incomplete(&self, etag: &str) -> PathBuf {
        self.dir.join("blobs").join(format!("{etag}.incomplete"))
    }

    /// Remembers that a commit has no such file.
    pub fn mark_missing(&self, commit: &str, file: &str) -> Result<()> {
        write_atomically(&self.dir.join(".no_exist").join(commit).join(file), b"")
    }

    pub fn is_missing(&self, commit: &str, file: &str) -> bool {
        self.dir.join(".no_exist").join(commit).join(file).exists()
    }

    /// Waits until no other process fetches the same blob; released when the file is dropped.
    pub fn lock(&self, etag: &str) -> Result<File> {
        let path = self.locks.join(format!("{etag}.lock"));
        create_parent(&path)?;
        let file = File::options().create(true).append(true).open(&path).map_err(Error::io(&path))?;
        if let Err(fs::TryLockError::WouldBlock) = file.try_lock() {
            log::warn!("waiting for another process that fetches the same file ({})", path.display());
            file.lock().map_err(Error::io(&path))?;
        }
        create_parent(&self.blob(etag))?;
        Ok(file)
    }

    /// Turns a complete, verified file into a blob.
    pub fn store(&self, complete: &Path, etag: &str) -> Result<()> {
        let blob = self.blob(etag);
        create_parent(&blob)?;
        fs::rename(complete, &blob).map_err(Error::io(&blob))
    }

    /// Puts a blob into a snapshot under its file name: a relative link where links work, else a copy.
    pub fn link(&self, commit: &str, file: &str, etag: &str) -> Result<PathBuf> {
        let path = self.snapshot(commit).join(file);
        create_parent(&path)?;
        let up = "../".repeat(2 + file.matches('/').count());
        let staged = path.with_extension(format!("{}.link", std::process::id()));
        let _ = fs::remove_file(&staged);
        if symlink(Path::new(&format!("{up}blobs/{etag}")), &staged).is_err() {
            fs::copy(self.blob(etag), &staged).map_err(Error::io(&path))?;
        }
        fs::rename(&staged, &path).map_err(Error::io(&path))?;
        Ok(path)
    }
}

#[cfg(unix)]
fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(windows)]
fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target, link)
}

#[cfg(not(any(unix, windows)))]
fn symlink(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn create_parent(path: &Path) -> Result<()> {
    match path.parent() {
        Some(parent) => fs::create_dir_all(parent).map_err(Error::io(parent)),
        None => Ok(()),
    }
}

/// Writes a small file so that nobody ever sees half of it.
pub(super) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    create_parent(path)?;
    let staged = path.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&staged, bytes).map_err(Error::io(&staged))?;
    fs::rename(&staged, path).map_err(Error::io(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout() {
        let root = tempfile::tempdir().unwrap();
        let repo = RepoCache::new(root.path(), "owner/name");
        assert_eq!(repo.commit("main"), None);
        repo.set_commit("main", "abc123").unwrap();
        assert_eq!(repo.commit("main").as_deref(), Some("abc123"));
        let lock = repo.lock("etag").unwrap();
        fs::write(repo.incomplete("etag"), b"content").unwrap();
        repo.store(&repo.incomplete("etag"), "etag").unwrap();
        let path = repo.link("abc123", "1_Pooling/config.json", "etag").unwrap();
        drop(lock);
        assert_eq!(path, root.path().join("models--owner--name/snapshots/abc123/1_Pooling/config.json"));
        assert_eq!(fs::read(&path).unwrap(), b"content");
        #[cfg(unix)]
        assert_eq!(fs::read_link(&path).unwrap(), Path::new("../../../blobs/etag"));
        // Linking again replaces the link.
        repo.link("abc123", "1_Pooling/config.json", "etag").unwrap();
        assert!(!repo.is_missing("abc123", "a/b.json"));
        repo.mark_missing("abc123", "a/b.json").unwrap();
        assert!(repo.is_missing("abc123", "a/b.json"));
        assert!(root.path().join(".locks/models--owner--name/etag.lock").exists());
    }

    #[test]
    fn hostile_names() {
        for name in ["", ".", "..", ".hidden", "a/b", "a\\b", "a\0", &"x".repeat(129)] {
            assert!(!is_safe_name(name), "{name:?}");
        }
        let root = tempfile::tempdir().unwrap();
        let repo = RepoCache::new(root.path(), "owner/name");
        repo.set_commit("main", "../../etc").unwrap();
        assert_eq!(repo.commit("main"), None, "a ref that leaves the cache is ignored");
    }

    #[test]
    fn a_wrong_hash_removes_the_file() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("f");
        fs::write(&path, b"abc").unwrap();
        // FIPS 180-2, appendix B.1.
        verify(&path, "f", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad").unwrap();
        let error = verify(&path, "f", "00").unwrap_err().to_string();
        assert!(error.starts_with("f: SHA-256 is ba7816bf"), "{error}");
        assert!(!path.exists());
    }
}
