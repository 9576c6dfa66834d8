//! One file from a hub into the cache, resumed where an earlier attempt broke off.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom, Write},
    path::Path,
    thread,
};

use ureq::http::StatusCode;

use super::{
    Progress,
    cache::{self, RepoCache},
    http::{Client, FileInfo, text},
};
use crate::{Error, Result};

/// Attempts in a row that may bring nothing new.
const MAX_IDLE_ATTEMPTS: u32 = 5;

/// Fetches `url` and stores it as a blob; returns the blob's name. `pin` is the SHA-256 it must have.
///
/// # Errors
/// `Fetch` if the transfer keeps breaking off (what has come is kept for the next time), or if the hash is wrong
/// (then nothing is kept).
pub(super) fn blob(
    client: &Client,
    repo: &RepoCache,
    url: &str,
    info: &FileInfo,
    pin: Option<&str>,
    progress: &dyn Progress,
) -> Result<String> {
    // Servers that give no etag: the URL's hash names the partial file until the content's own is known.
    let partial = info.etag.clone().unwrap_or_else(|| cache::sha256_bytes(url.as_bytes()));
    let _lock = repo.lock(&partial)?;
    if let Some(etag) = &info.etag
        && repo.blob(etag).exists()
    {
        // Another process was faster.
        return Ok(etag.clone());
    }
    let path = repo.incomplete(&partial);
    let name = url.rsplit('/').next().unwrap_or(url);
    let transferred = transfer(client, url, &path, info.size, name, progress);
    progress.end();
    transferred?;
    // The etag of a large file is its SHA-256.
    let etag_hash =
        info.etag.as_deref().filter(|e| e.len() == 64 && e.bytes().all(|b| b.is_ascii_hexdigit()));
    for expected in [pin, etag_hash].into_iter().flatten() {
        cache::verify(&path, url, expected)?;
    }
    let etag = match &info.etag {
        Some(etag) => etag.clone(),
        None => cache::sha256_file(&path)?,
    };
    repo.store(&path, &etag)?;
    Ok(etag)
}

fn transfer(
    client: &Client,
    url: &str,
    path: &Path,
    size: Option<u64>,
    name: &str,
    progress: &dyn Progress,
) -> Result<()> {
    let mut file = File::options()
        .create(true)
        .read(true)
        .write(true)
        .truncate(false)
        .open(path)
        .map_err(Error::io(path))?;
    let mut have = file.seek(SeekFrom::End(0)).map_err(Error::io(path))?;
    progress.begin(name, have, size);
    let mut idle = 0;
    loop {
        if size.is_some_and(|size| have > size) {
            have = restart(&mut file, path)?;
        }
        if size == Some(have) {
            return file.sync_all().map_err(Error::io(path));
        }
        let before = have;
        let problem = match attempt(client, url, &mut file, path, &mut have, size, progress)? {
            Outcome::Complete => return file.sync_all().map_err(Error::io(path)),
            Outcome::BrokeOff(why) => why,
        };
        idle = if have > before { 0 } else { idle + 1 };
        if idle == MAX_IDLE_ATTEMPTS {
            let of = size.map_or("an unknown number of".into(), |s| s.to_string());
            return Err(Error::Fetch(format!(
                "{url}: broke off at {have} of {of} bytes ({problem}); run again to resume"
            )));
        }
        log::warn!("{url}: broke off at {have} bytes ({problem}); resuming");
        thread::sleep(client.retry_delay * (1 << idle));
    }
}

enum Outcome {
    Complete,
    /// Worth another attempt; says why.
    BrokeOff(String),
}

fn attempt(
    client: &Client,
    url: &str,
    file: &mut File,
    path: &Path,
    have: &mut u64,
    size: Option<u64>,
    progress: &dyn Progress,
) -> Result<Outcome> {
    let response = client.get(url, *have)?;
    match response.status() {
        StatusCode::PARTIAL_CONTENT => {
            let range = text(response.headers(), "content-range").unwrap_or_default();
            if !range.starts_with(&format!("bytes {have}-")) {
                return Err(Error::Fetch(format!("{url}: asked for bytes from {have} on, got `{range}`")));
            }
        }
        StatusCode::OK if *have > 0 => {
            log::info!("{url}: the server sends the file from its start again");
            *have = restart(file, path)?;
        }
        StatusCode::RANGE_NOT_SATISFIABLE if *have > 0 => {
            *have = restart(file, path)?;
            return Ok(Outcome::BrokeOff("the part at hand is longer than the file".into()));
        }
        StatusCode::OK => {}
        status => return Err(Error::Fetch(format!("{url}: unexpected HTTP status {status}"))),
    }
    let declared = response.body().content_length().map(|rest| *have + rest);
    let end = size.or(declared);
    let mut body = response.into_body().into_reader();
    let mut buffer = vec![0u8; 1 << 17];
    loop {
        let n = match body.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => n,
            Err(error) => return Ok(Outcome::BrokeOff(error.to_string())),
        };
        file.write_all(&buffer[..n]).map_err(Error::io(path))?;
        *have += n as u64;
        progress.advance(n as u64);
        if end.is_some_and(|end| *have > end) {
            return Err(Error::Fetch(format!("{url}: the server sends more bytes than it announced")));
        }
    }
    match end {
        Some(end) if *have < end => Ok(Outcome::BrokeOff("the connection was closed".into())),
        _ => Ok(Outcome::Complete),
    }
}

fn restart(file: &mut File, path: &Path) -> Result<u64> {
    file.set_len(0).map_err(Error::io(path))?;
    file.seek(SeekFrom::Start(0)).map_err(Error::io(path))
}
