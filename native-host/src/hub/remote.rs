//! A hub repository, file by file: only what a model needs, asked for by name, so that a plain mirror without the hub's
//! API serves as well.

use std::{
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use inferencelayer_engine::{
    checkpoint::{Folder, ReadAt, Reading, shard_names, split_names},
    task::block_on,
};

use super::{
    Config, Progress,
    cache::{self, RepoCache},
    download,
    http::{Client, Lookup},
};
use crate::{
    Error, Result,
    folder::{DiskFile, join},
    sentence_transformers::{Module, SentenceTransformer},
};

const REVISION: &str = "main";
/// What models may have beside their configuration, tokenizer and weights.
const OPTIONAL: [&str; 5] = [
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
    "chat_template.json",
];

/// Fetches what is missing of `repo` and returns its snapshot folder. `pins` are SHA-256 that files must have.
///
/// # Errors
/// `Fetch`, naming the URL; offline, naming the first file that is not in the cache.
pub(super) fn fetch(
    repo: &str,
    pins: &'static [(&'static str, &'static str)],
    config: &Config,
    progress: &dyn Progress,
) -> Result<PathBuf> {
    let remote = Remote::open(repo, pins, config, progress)?;
    let model = block_on(SentenceTransformer::read(&remote))?;
    let in_transformer = |name: &str| join(&model.transformer, name);
    let config = in_transformer("config.json");
    if remote.path(&config)?.is_none() {
        return Err(Error::Fetch(format!(
            "{repo} has no {config}, or does not exist ({}); a GGUF file of it is named {repo}:NAME.gguf",
            remote.url(&config)
        )));
    }
    remote.required(&in_transformer("tokenizer.json"))?;
    for name in OPTIONAL {
        remote.path(&in_transformer(name))?;
    }
    remote.weights(&model.transformer)?;
    for module in &model.head {
        if let Module::Dense(dense) = module {
            remote.weights(&dense.path)?;
        }
    }
    remote.folder()
}

/// Fetches a GGUF file of `repo`, and the other parts of its model; returns the path of the first.
///
/// # Errors
/// As [`fetch`].
pub(super) fn fetch_file(
    repo: &str,
    file: &str,
    config: &Config,
    progress: &dyn Progress,
) -> Result<PathBuf> {
    let remote = Remote::open(repo, &[], config, progress)?;
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    let parts = split_names(name).unwrap_or_else(|| vec![name.to_owned()]);
    let mut first = None;
    for part in &parts {
        let path = remote.required(&join(folder, part))?;
        first.get_or_insert(path);
    }
    first.ok_or_else(|| Error::Fetch(format!("{repo}: {file} has no parts")))
}

/// A repository seen as files: each is fetched when it is first read.
struct Remote<'a> {
    name: String,
    cache: RepoCache,
    /// `None` offline.
    client: Option<Client>,
    endpoint: String,
    /// Known from the cache, or from the first answer; all files are then of one commit.
    commit: Mutex<Option<String>>,
    pins: &'static [(&'static str, &'static str)],
    progress: &'a dyn Progress,
}

impl<'a> Remote<'a> {
    fn open(
        name: &str,
        pins: &'static [(&'static str, &'static str)],
        config: &Config,
        progress: &'a dyn Progress,
    ) -> Result<Self> {
        let cache = RepoCache::new(&config.cache, name);
        let commit = Mutex::new(cache.commit(REVISION));
        let client = match config.offline {
            true => None,
            false => Some(Client::new(&config.endpoint, config.token.as_deref(), config.retry_delay)?),
        };
        Ok(Remote {
            name: name.to_owned(),
            cache,
            client,
            endpoint: config.endpoint.clone(),
            commit,
            pins,
            progress,
        })
    }

    fn commit(&self) -> MutexGuard<'_, Option<String>> {
        // It is set in one step, so a panic elsewhere cannot have left it half-changed.
        self.commit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn folder(&self) -> Result<PathBuf> {
        let commit = self.commit();
        let commit =
            commit.as_ref().ok_or_else(|| Error::Fetch(format!("{}: nothing was fetched", self.name)))?;
        Ok(self.cache.snapshot(commit))
    }

    /// What the cache knows: `Some(Some(path))`, `Some(None)` for a file known not to exist, `None` for nothing.
    fn cached(&self, file: &str) -> Option<Option<PathBuf>> {
        let commit = self.commit();
        let commit = commit.as_ref()?;
        let path = self.cache.snapshot(commit).join(file);
        if path.is_file() {
            return Some(Some(path));
        }
        self.cache.is_missing(commit, file).then_some(None)
    }

    fn online(&self, file: &str) -> Result<&Client> {
        self.client.as_ref().ok_or_else(|| {
            Error::Fetch(format!(
                "{}: {file} is not in the cache, and the hub is not asked offline",
                self.name
            ))
        })
    }

    fn url(&self, file: &str) -> String {
        let commit = self.commit();
        let revision = commit.as_deref().unwrap_or(REVISION);
        let file = file.split('/').map(percent_encode).collect::<Vec<_>>().join("/");
        format!("{}/{}/resolve/{revision}/{file}", self.endpoint, self.name)
    }

    /// Remembers the commit from the first answer. A mirror that does not name it serves one state only.
    fn learn(&self, commit: Option<String>) -> Result<String> {
        let mut known = self.commit();
        if let Some(known) = &*known {
            return Ok(known.clone());
        }
        let commit = commit.filter(|c| cache::is_safe_name(c)).unwrap_or_else(|| REVISION.to_owned());
        self.cache.set_commit(REVISION, &commit)?;
        *known = Some(commit.clone());
        Ok(commit)
    }

    /// Asks for a file; remembers it if it does not exist.
    fn lookup(&self, client: &Client, file: &str) -> Result<Option<super::http::FileInfo>> {
        match client.lookup(&self.url(file))? {
            Lookup::Found(info) => Ok(Some(info)),
            Lookup::Missing { commit } => {
                // Without a commit this may be a repository that does not exist at all: remember nothing.
                if commit.is_some() || self.commit().is_some() {
                    let commit = self.learn(commit)?;
                    self.cache.mark_missing(&commit, file)?;
                }
                Ok(None)
            }
        }
    }

    /// The file's path in the snapshot, fetched if need be; `None` if the repository has no such file.
    fn path(&self, file: &str) -> Result<Option<PathBuf>> {
        if let Some(known) = self.cached(file) {
            return Ok(known);
        }
        let client = self.online(file)?;
        let url = self.url(file);
        let Some(info) = self.lookup(client, file)? else { return Ok(None) };
        let pin = self.pins.iter().find(|(name, _)| *name == file).map(|(_, hash)| *hash);
        let etag = download::blob(client, &self.cache, &url, &info, pin, self.progress)?;
        let commit = self.learn(info.commit)?;
        self.cache.link(&commit, file, &etag).map(Some)
    }

    fn required(&self, file: &str) -> Result<PathBuf> {
        self.path(file)?.ok_or_else(|| {
            Error::Fetch(format!("{} has no {file}, or does not exist ({})", self.name, self.url(file)))
        })
    }

    /// Fetches the weights in a folder of the repository: one file, or an index and its shards.
    fn weights(&self, folder: &str) -> Result<()> {
        if self.path(&join(folder, "model.safetensors"))?.is_some() {
            return Ok(());
        }
        let index = join(folder, "model.safetensors.index.json");
        let Some(path) = self.path(&index)? else {
            let other =
                ["pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack"];
            for name in other.map(|name| join(folder, name)) {
                if self.exists(&name)? {
                    return Err(Error::Fetch(format!(
                        "{} has {name} and no safetensors, which alone are read, since pickled weights can run \
                         code; convert it once with `AutoModel.from_pretrained('{0}').save_pretrained(folder)` of \
                         transformers and give that folder",
                        self.name
                    )));
                }
            }
            return self.required(&join(folder, "model.safetensors")).map(|_| ());
        };
        let text = std::fs::read_to_string(&path).map_err(Error::io(&path))?;
        for shard in shard_names(&format!("{}/{index}", self.name), &text)? {
            self.required(&join(folder, &shard))?;
        }
        Ok(())
    }

    /// Whether there is such a file, without fetching it.
    fn exists(&self, file: &str) -> Result<bool> {
        match self.cached(file) {
            Some(known) => Ok(known.is_some()),
            None => Ok(self.lookup(self.online(file)?, file)?.is_some()),
        }
    }

    fn open_now(&self, path: &str) -> inferencelayer_engine::Result<Option<Box<dyn ReadAt>>> {
        match self.path(path) {
            Ok(Some(local)) => DiskFile::open(&local),
            Ok(None) => Ok(None),
            Err(Error::Engine(error)) => Err(error),
            Err(error) => {
                Err(inferencelayer_engine::Error::Read { file: self.name.clone(), why: error.to_string() })
            }
        }
    }
}

/// Files are fetched when they are first opened.
impl Folder for Remote<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn open<'a>(&'a self, path: &'a str) -> Reading<'a, Option<Box<dyn ReadAt>>> {
        Box::pin(std::future::ready(self.open_now(path)))
    }
}

fn percent_encode(part: &str) -> String {
    let mut out = String::with_capacity(part.len());
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
