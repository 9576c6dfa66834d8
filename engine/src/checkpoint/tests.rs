//! Damaged and unusual files: each error names the file and what is wrong in it; nothing panics.

use alloc::{
    boxed::Box,
    format,
    string::{String, ToString},
    sync::Arc,
    vec,
    vec::Vec,
};
use core::cell::Cell;
use std::sync::Mutex;

use super::*;
use crate::{
    backend::{Backend, Capabilities, Plan, WeightSink},
    program::Program,
    reference::Reference,
    task::block_on,
    tensor::{Weight, WeightSpec, WeightUse},
};

/// A file of this header and so many bytes of data.
fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    bytes.extend((0..data).map(|i| i as u8));
    bytes
}

fn open(bytes: Vec<u8>) -> Result<Safetensors> {
    block_on(Safetensors::open(Box::new(MemoryFile::new("weights.safetensors", bytes))))
}

/// The error's text, which must begin with the file's name.
#[track_caller]
fn refused(bytes: Vec<u8>) -> String {
    let text = open(bytes).unwrap_err().to_string();
    assert!(text.starts_with("weights.safetensors: "), "{text}");
    text
}

#[track_caller]
fn refused_header(header: &str, data: usize, parts: &[&str]) {
    let text = refused(file(header, data));
    for part in parts {
        assert!(text.contains(part), "`{text}` lacks `{part}`");
    }
}

const TWO: &str = r#"{"__metadata__":{"format":"pt"},
    "b":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},
    "a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}}"#;

#[test]
fn reads_a_header() {
    let tensors = open(file(TWO, 32)).unwrap();
    assert_eq!(tensors.names(), ["a", "b"]);
    let b = tensors.tensor("b").unwrap();
    assert_eq!((b.shape.as_slice(), b.bytes), (&[2, 3][..], 24));
    assert_eq!(b.element, Element::Weight(Format::F32));
    let mut bytes = [0; 4];
    block_on(tensors.read(b, 4, &mut bytes)).unwrap();
    assert_eq!(bytes, [12, 13, 14, 15]);
}

#[test]
fn empty_and_odd_tensors_are_fine() {
    let header = r#"{"none":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},
        "one":{"dtype":"I64","shape":[],"data_offsets":[0,8]},
        "new":{"dtype":"X17","shape":[3],"data_offsets":[8,9]}}"#;
    let tensors = open(file(header, 9)).unwrap();
    assert_eq!(tensors.tensor("one").unwrap().element, Element::Other("I64".into()));
    assert_eq!(open(file("{}", 0)).unwrap().names().len(), 0);
}

#[test]
fn truncated_files() {
    for length in 0..8 {
        assert!(refused(vec![1; length]).contains("too short"));
    }
    // Cut anywhere: in the header or in the data.
    let whole = file(TWO, 32);
    for length in 8..whole.len() {
        let text = refused(whole[..length].to_vec());
        assert!(text.contains("truncated") || text.contains("does not fit"), "{text}");
    }
}

#[test]
fn header_length_beyond_the_file() {
    for length in [31, 1 << 40, u64::MAX - 8, u64::MAX] {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend([b'{'; 30]);
        assert!(refused(bytes).contains("does not fit in its 38 bytes"));
    }
}

/// A file that claims to be huge, so that only the limit keeps its header from being allocated.
struct Huge;

impl ReadAt for Huge {
    fn name(&self) -> &str {
        "huge"
    }

    fn size(&self) -> u64 {
        u64::MAX
    }

    fn read_at<'a>(&'a self, _: u64, out: &'a mut [u8]) -> Reading<'a> {
        assert_eq!(out.len(), 8, "more than the length was read");
        out.copy_from_slice(&(1u64 << 50).to_le_bytes());
        Box::pin(core::future::ready(Ok(())))
    }
}

#[test]
fn header_length_is_limited() {
    let text = block_on(Safetensors::open(Box::new(Huge))).unwrap_err().to_string();
    assert!(text.contains("1125899906842624 bytes; 100000000 are possible"), "{text}");
}

#[test]
fn headers_that_are_no_headers() {
    for header in ["", "{", "[]", "null", "{\"a\":1}", "{\"a\":{\"dtype\":\"F32\"}}", "{} x", "\u{1}"] {
        refused_header(header, 0, &["header is not valid"]);
    }
    refused(file("", 0));
    let mut bytes = file("{}", 0);
    bytes[8] = 0xff;
    refused(bytes);
    let entry = |offsets: &str| format!(r#"{{"x":{{"dtype":"F32","shape":[1],"data_offsets":{offsets}}}}}"#);
    for offsets in ["[0]", "[0,4,8]", "[-1,4]", "[0,4.5]", "\"0\"", "[0,18446744073709551616]"] {
        refused_header(&entry(offsets), 4, &["tensor `x`"]);
    }
    let shape = r#"{"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#;
    refused_header(shape, 4, &["tensor `x`"]);
}

#[test]
fn offsets() {
    let two = |a: &str, b: &str| {
        format!(
            r#"{{"a":{{"dtype":"F32","shape":[2],"data_offsets":{a}}},
                "b":{{"dtype":"F32","shape":[2],"data_offsets":{b}}}}}"#
        )
    };
    refused_header(&two("[0,8]", "[4,12]"), 16, &["`a`", "`b`", "overlap at byte 4"]);
    refused_header(&two("[0,8]", "[0,8]"), 8, &["`a`", "`b`", "overlap at byte 0"]);
    refused_header(&two("[0,8]", "[12,20]"), 20, &["bytes 8 to 12", "`b`", "no tensor"]);
    refused_header(&two("[0,8]", "[8,16]"), 20, &["bytes 16 to 20", "no tensor"]);
    refused_header(&two("[0,8]", "[8,24]"), 20, &["`b`", "8 to 24 of 20", "out of range"]);
    refused_header(&two("[0,8]", "[16,8]"), 20, &["`b`", "16 to 8", "out of range"]);
    refused_header(&two("[0,8]", "[8,18446744073709551615]"), 20, &["`b`", "out of range"]);
}

#[test]
fn shapes_that_do_not_match_the_bytes() {
    let one = |dtype: &str, shape: &str| {
        format!(r#"{{"x":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,8]}}}}"#)
    };
    for (dtype, shape) in [("F32", "[3]"), ("F16", "[2]"), ("I64", "[2]"), ("U8", "[9]"), ("F32", "[]")] {
        refused_header(&one(dtype, shape), 8, &["tensor `x`", dtype, "does not take 8 bytes"]);
    }
    refused_header(&one("F32", "[4294967296,4294967296]"), 8, &["tensor `x`", "overflows"]);
    refused_header(&one("F32", "[4611686018427387904]"), 8, &["tensor `x`", "does not take"]);
}

#[test]
fn a_name_that_stands_twice() {
    let header = r#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
        "x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#;
    refused_header(header, 8, &["tensor `x`", "twice"]);
}

/// A small deterministic fuzz: no bytes make the reader panic.
#[test]
fn random_damage_never_panics() {
    let (whole, mut state) = (file(TWO, 32), 1u64);
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..3 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) as usize % bytes.len();
            bytes[at] = (state >> 24) as u8;
        }
        if let Ok(tensors) = open(bytes) {
            for name in tensors.names() {
                let info = tensors.tensor(name).unwrap();
                let mut out = vec![0; info.bytes as usize];
                block_on(tensors.read(info, 0, &mut out)).unwrap();
            }
        }
    }
}

fn shard(name: &str, tensor: &str) -> Safetensors {
    let header = format!(r#"{{"{tensor}":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}}}"#);
    block_on(Safetensors::open(Box::new(MemoryFile::new(name, file(&header, 4))))).unwrap()
}

#[test]
fn shards() {
    let index = r#"{"metadata":{},"weight_map":{"x":"1.safetensors","y":"2.safetensors"}}"#;
    assert_eq!(shard_names("index", index).unwrap(), ["1.safetensors", "2.safetensors"]);
    let good =
        Shards::new("index", index, vec![shard("1.safetensors", "x"), shard("2.safetensors", "y")]).unwrap();
    assert_eq!(good.names(), ["x", "y"]);
    assert_eq!(good.tensor("y").unwrap().file, 1);

    let error = |files| Shards::new("index", index, files).unwrap_err().to_string();
    let text = error(vec![shard("1.safetensors", "x"), shard("2.safetensors", "z")]);
    assert_eq!(text, "tensor `y` is missing from 2.safetensors");
    let text = error(vec![shard("1.safetensors", "x"), shard("2.safetensors", "x")]);
    assert!(text.starts_with("2.safetensors: tensor `x` is in another file"), "{text}");
    // The tensors are there, but not where the index says.
    let text = error(vec![shard("1.safetensors", "y"), shard("2.safetensors", "x")]);
    assert!(text.contains("is missing from"), "{text}");

    for bad in ["", "{}", r#"{"weight_map":3}"#, r#"{"weight_map":{"x":1}}"#] {
        let text = shard_names("index", bad).unwrap_err().to_string();
        assert!(text.starts_with("index: is no index"), "{text}");
    }
    for name in ["../x.safetensors", "/x", "a/b", "a\\\\b", ".hidden"] {
        let index = format!(r#"{{"weight_map":{{"x":"{name}"}}}}"#);
        assert!(shard_names("index", &index).unwrap_err().to_string().contains("only files beside it"));
    }
}

fn folder(files: &[&str]) -> MemoryFolder {
    let mut folder = MemoryFolder::new("model");
    for name in files {
        folder.insert(*name, &b"{}"[..]);
    }
    folder
}

#[test]
fn folders_without_weights() {
    let error = |files: &[&str]| block_on(open_weights(&folder(files), "")).err().unwrap().to_string();
    let text = error(&[]);
    assert!(text.starts_with("model/model.safetensors: is missing"), "{text}");
    let text = error(&["pytorch_model.bin"]);
    assert!(text.contains("model/pytorch_model.bin") && text.contains("save_pretrained"), "{text}");

    let mut sharded = folder(&[]);
    let index = r#"{"weight_map":{"x":"1.safetensors"}}"#;
    sharded.insert("model.safetensors.index.json", index.as_bytes());
    let text = block_on(open_weights(&sharded, "")).err().unwrap().to_string();
    assert!(text.starts_with("model/1.safetensors: is missing"), "{text}");
}

/// A backend that notes how a weight's bytes arrive.
struct Watching {
    inner: Reference,
    pushes: Arc<Mutex<Vec<usize>>>,
}

struct WatchingSink(Box<dyn WeightSink>, Arc<Mutex<Vec<usize>>>);

impl WeightSink for WatchingSink {
    fn push(&mut self, source: Format, bytes: &[u8]) -> Result<()> {
        self.1.lock().unwrap().push(bytes.len());
        self.0.push(source, bytes)
    }

    fn finish(self: Box<Self>) -> Result<Weight> {
        self.0.finish()
    }
}

impl Backend for Watching {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn weight(&self, spec: WeightSpec) -> Result<Box<dyn WeightSink>> {
        Ok(Box::new(WatchingSink(self.inner.weight(spec)?, self.pushes.clone())))
    }

    fn prepare(&self, program: &Program) -> Result<Box<dyn Plan>> {
        self.inner.prepare(program)
    }

    fn state(&self, spec: crate::tensor::StateSpec) -> Result<crate::tensor::State> {
        self.inner.state(spec)
    }

    fn write_state(&self, state: &crate::tensor::State, first_row: usize, words: &[u32]) -> Result<()> {
        self.inner.write_state(state, first_row, words)
    }

    fn copy_state(
        &self,
        state: &crate::tensor::State,
        from: core::ops::Range<usize>,
        to: usize,
    ) -> Result<()> {
        self.inner.copy_state(state, from, to)
    }

    fn read_state<'a>(
        &'a self,
        state: &'a crate::tensor::State,
        rows: core::ops::Range<usize>,
    ) -> crate::backend::StateReading<'a> {
        self.inner.read_state(state, rows)
    }

    fn memory(&self) -> u64 {
        self.inner.memory()
    }
}

#[test]
fn weights_arrive_in_pieces() {
    let (rows, cols) = (3000, 1024);
    let bytes = rows * cols * 4;
    let header = format!(r#"{{"w":{{"dtype":"F32","shape":[{rows},{cols}],"data_offsets":[0,{bytes}]}}}}"#);
    let tensors = open(file(&header, bytes)).unwrap();
    let pushes = Arc::new(Mutex::new(Vec::new()));
    let backend = Watching { inner: Reference::new(), pushes: pushes.clone() };
    let seen = Cell::new(0);
    let progress = |bytes| seen.set(bytes);
    let mut loader = Loader::new(&tensors, &backend).with_progress(Some(&progress));
    let part = [Part::new("w", [rows, cols])];
    let weight = block_on(loader.weight(WeightUse::Matrix, (rows, cols), &part)).unwrap();
    assert_eq!((weight.rows(), weight.cols()), (rows, cols));
    let pushes = pushes.lock().unwrap();
    assert_eq!(pushes.iter().sum::<usize>(), bytes);
    assert!(pushes.iter().all(|n| *n <= 4 << 20), "{pushes:?}");
    assert_eq!(seen.get(), bytes as u64);
}

#[test]
fn parts_become_the_rows_of_one_weight() {
    let tensors = open(file(TWO, 32)).unwrap();
    let backend = Reference::new();
    let mut loader = Loader::new(&tensors, &backend);
    let parts = [Part::new("b", [2, 3]), Part::new("b", [2, 3])];
    let weight = block_on(loader.weight(WeightUse::Matrix, (4, 3), &parts)).unwrap();
    assert_eq!((weight.rows(), weight.name()), (4, "b"));
    // One row too few, and one too many.
    for rows in [3, 5] {
        let error = block_on(loader.weight(WeightUse::Matrix, (rows, 3), &parts)).unwrap_err();
        assert!(error.to_string().contains("weight `b`: expected shape"), "{error}");
    }
}

#[test]
fn tensors_that_do_not_fit() {
    let header = r#"{"a":{"dtype":"I64","shape":[4],"data_offsets":[0,32]}}"#;
    let tensors = open(file(header, 32)).unwrap();
    let backend = Reference::new();
    let error = |name: &str, shape: &[usize]| {
        let part = [Part::new(name, shape)];
        let mut loader = Loader::new(&tensors, &backend);
        block_on(loader.weight(WeightUse::Vector, (1, 4), &part)).unwrap_err().to_string()
    };
    assert_eq!(error("b", &[4]), "tensor `b` is missing from weights.safetensors");
    assert_eq!(error("a", &[2, 2]), "tensor `a` of weights.safetensors: expected shape [2, 2], found [4]");
    let text = error("a", &[4]);
    assert!(text.contains("weights.safetensors: tensor `a`") && text.contains("I64"), "{text}");
}

#[test]
fn text_files() {
    let mut folder = folder(&["config.json"]);
    assert_eq!(block_on(read_text(&folder, "config.json")).unwrap().unwrap(), "{}");
    assert_eq!(block_on(read_text(&folder, "other.json")).unwrap(), None);
    folder.insert("config.json", &[0xff, 0xfe][..]);
    let text = block_on(read_text(&folder, "config.json")).unwrap_err().to_string();
    assert!(text.starts_with("model/config.json: is not UTF-8"), "{text}");
}
