//! Sound files, and damaged ones: each error names the file and the key or tensor at fault; nothing panics.

mod damaged;

use alloc::{
    boxed::Box,
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};

use serde_json::Value as Json;

use super::*;
use crate::{
    checkpoint::{Element, Loader, MemoryFile, Part},
    format::Format,
    quant::decode_f32,
    reference::Reference,
    task::block_on,
    tensor::WeightUse,
    testing::GgufWriter,
};

fn open(bytes: Vec<u8>) -> Result<Gguf> {
    open_named("model.gguf", bytes)
}

fn open_named(name: &str, bytes: Vec<u8>) -> Result<Gguf> {
    block_on(Gguf::open(Box::new(MemoryFile::new(name, bytes))))
}

/// A value of every type.
fn every_value() -> Vec<(&'static str, Value)> {
    let nested = vec![Array::Arrays(vec![Array::I16(vec![-3])]), Array::Strings(Strings::default())];
    vec![
        ("u8", Value::from(200u8)),
        ("i8", Value::from(-7i8)),
        ("u16", Value::from(60000u16)),
        ("i16", Value::from(-30000i16)),
        ("u32", Value::from(u32::MAX)),
        ("i32", Value::from(i32::MIN)),
        ("u64", Value::from(u64::MAX)),
        ("i64", Value::from(i64::MIN)),
        ("f32", Value::from(1.5f32)),
        ("f64", Value::from(-0.25f64)),
        ("bool", Value::from(true)),
        ("string", Value::from("grün")),
        ("empty", Value::from("")),
        ("strings", Value::from(Strings::from_iter(["a", "", "bc", "日本"]))),
        ("u8s", Value::from(vec![1u8, 2])),
        ("i8s", Value::from(vec![-1i8])),
        ("u16s", Value::from(vec![1u16, 65535])),
        ("i16s", Value::from(vec![-5i16, 5])),
        ("u32s", Value::from(vec![7u32, u32::MAX])),
        ("i32s", Value::from(vec![4, 0, 3])),
        ("u64s", Value::from(vec![u64::MAX])),
        ("i64s", Value::from(vec![-1i64])),
        ("f32s", Value::from(vec![0.5f32, -2.0])),
        ("f64s", Value::from(vec![0.5f64])),
        ("bools", Value::from(vec![true, false])),
        ("none", Value::from(Vec::<u32>::new())),
        ("nested", Value::from(nested)),
    ]
}

fn with_values() -> GgufWriter {
    every_value().into_iter().fold(GgufWriter::new(), |w, (key, value)| w.key(key, value))
}

#[test]
fn values_of_every_type() {
    for version in [2, 3] {
        let file = open(with_values().version(version).finish()).unwrap();
        let metadata = file.metadata();
        for (key, value) in every_value() {
            assert_eq!(metadata.get(key), Some(&value), "{key}");
        }
        assert_eq!(metadata.keys().count(), every_value().len());
        assert_eq!(file.names().len(), 0);
    }
    let strings = Strings::from_iter(["a", "", "bc"]);
    assert_eq!(strings.iter().collect::<Vec<_>>(), ["a", "", "bc"]);
    assert_eq!((0..4).map(|i| strings.get(i)).collect::<Vec<_>>(), [Some("a"), Some(""), Some("bc"), None]);
}

#[test]
fn typed_values() {
    let file = open(with_values().finish()).unwrap();
    let m = file.metadata();
    assert_eq!(m.count("u16", 1 << 20).unwrap(), 60000);
    assert_eq!(m.opt_u64("u64").unwrap(), Some(u64::MAX));
    assert_eq!(m.opt_id("u32").unwrap(), Some(u32::MAX));
    assert_eq!((m.positive("f32").unwrap(), m.positive("u8").unwrap()), (1.5, 200.0));
    assert_eq!(m.opt_f32("f64").unwrap(), Some(-0.25));
    assert_eq!(m.opt_bool("bool").unwrap(), Some(true));
    assert_eq!(m.string("string").unwrap(), "grün");
    assert_eq!(m.strings("strings").unwrap().get(3), Some("日本"));
    assert_eq!(m.opt_f32s("f32s").unwrap(), Some(&[0.5, -2.0][..]));
    assert_eq!(m.opt_u32s("u32s").unwrap().as_deref(), Some(&[7, u32::MAX][..]));
    assert_eq!(m.opt_i32s("u16s").unwrap().as_deref(), Some(&[1, 65535][..]));
    assert_eq!(m.per_layer("i32s", 3, 8).unwrap(), [4, 0, 3]);
    assert_eq!(m.per_layer("u8", 2, 256).unwrap(), [200, 200]);
    assert_eq!((m.opt_count("missing", 1).unwrap(), m.opt_strings("missing").unwrap()), (None, None));
}

#[test]
fn values_of_other_types_are_refused() {
    let file = open(with_values().finish()).unwrap();
    let m = file.metadata();
    #[track_caller]
    fn refused<T: fmt::Debug>(result: Result<T>, parts: &[&str]) {
        let text = result.unwrap_err().to_string();
        for part in parts.iter().chain(&["config key `", "(model.gguf)"]) {
            assert!(text.contains(part), "`{text}` lacks `{part}`");
        }
    }
    refused(m.count("missing", 9), &["`missing`", "is missing"]);
    refused(m.count("u16", 9), &["`u16`", "is 60000", "from 1 to 9"]);
    refused(m.count("i8", 9), &["is -7"]);
    refused(m.count("string", 9), &["is \"grün\"", "a whole number"]);
    refused(m.opt_u64("i64"), &["from 0 on"]);
    refused(m.opt_id("u64"), &["a token id"]);
    refused(m.positive("f64"), &["is -0.25", "above 0"]);
    refused(m.opt_bool("u8"), &["true or false"]);
    refused(m.string("strings"), &["an array of 4 values", "a string"]);
    refused(m.strings("string"), &["an array of strings"]);
    refused(m.opt_f32s("f64s"), &["an array of f32"]);
    refused(m.opt_u32s("i64s"), &["an array of whole numbers"]);
    refused(m.opt_i32s("u32s"), &["32-bit"]);
    refused(m.per_layer("i32s", 4, 8), &["has 3 values for 4 layers"]);
    refused(m.per_layer("i32s", 3, 3), &["from 0 to 3"]);
    refused(m.per_layer("f32s", 2, 3), &["from 0 to 3"]);
}

/// A model of two tensors, of which one is in blocks.
fn two_tensors(alignment: u32) -> GgufWriter {
    let writer = GgufWriter::new().aligned(alignment);
    let mut blocks = Vec::new();
    crate::quant::quantize(Format::Q8_0, &[1.0; 128], &mut blocks).unwrap();
    writer.tensor("plain", &[3], Format::F32, &[1f32, 2.0, 3.0].map(f32::to_le_bytes).concat()).tensor(
        "blocks",
        &[2, 64],
        Format::Q8_0,
        &blocks,
    )
}

#[test]
fn tensors_are_found_at_any_alignment() {
    for alignment in [1, 8, 32, 4096] {
        let file = open(two_tensors(alignment).finish()).unwrap();
        assert_eq!(file.names(), ["blocks", "plain"]);
        let backend = Reference::new();
        let mut loader = Loader::new(&file, &backend);
        assert_eq!(block_on(loader.values(&Part::new("plain", [3]))).unwrap(), [1.0, 2.0, 3.0]);
        let values = block_on(loader.values(&Part::new("blocks", [2, 64]))).unwrap();
        assert!(values.len() == 128 && values.iter().all(|v| (v - 1.0).abs() < 1e-3), "{values:?}");
        let parts = [Part::new("blocks", [2, 64]), Part::new("blocks", [2, 64])];
        let weight = block_on(loader.weight(WeightUse::Matrix, (4, 64), &parts)).unwrap();
        assert_eq!((weight.rows(), weight.cols()), (4, 64));
        let wrong = block_on(loader.values(&Part::new("blocks", [64, 2]))).unwrap_err().to_string();
        assert_eq!(wrong, "tensor `blocks` of model.gguf: expected shape [64, 2], found [2, 64]");
    }
}

/// Blocks do not divide a piece of the loader's, and must not be cut.
#[test]
fn pieces_end_where_blocks_end() {
    let (rows, cols) = (20_000, 512);
    let block: Vec<u8> = (0..210).map(|i| if i < 208 { i as u8 } else { [0x34, 0x12][i - 208] }).collect();
    let bytes = block.repeat(rows * cols / 256);
    let file = open(GgufWriter::new().tensor("w", &[rows, cols], Format::Q6K, &bytes).finish()).unwrap();
    let backend = Reference::new();
    let values = block_on(Loader::new(&file, &backend).values(&Part::new("w", [rows, cols]))).unwrap();
    let mut one = Vec::new();
    decode_f32(Format::Q6K, &block, &mut one).unwrap();
    assert!(values.len() == rows * cols && values.chunks(256).all(|c| c == one));
}

#[test]
fn types_that_weights_cannot_have() {
    // IQ2_XXS: known, but not read.
    let file = open(GgufWriter::new().raw_tensor("w", &[256], 16, 0).data(&[0; 66]).finish()).unwrap();
    assert_eq!(file.tensor("w").unwrap().element, Element::Other("IQ2_XXS".into()));
    let backend = Reference::new();
    let error =
        block_on(Loader::new(&file, &backend).values(&Part::new("w", [256]))).unwrap_err().to_string();
    assert!(error.starts_with("model.gguf: tensor `w`") && error.contains("IQ2_XXS"), "{error}");
    assert!(error.contains("Q4_K") && !error.contains("Int8"), "{error}");
}

fn parts(count: u16, promised: i32) -> Vec<Vec<u8>> {
    (0..count)
        .map(|number| {
            let mut writer = GgufWriter::new().key("split.no", number).key("split.count", count);
            writer = writer.key("split.tensors.count", promised);
            if number == 0 {
                writer = writer.key("general.name", "whole");
            }
            writer.tensor(&format!("t{number}"), &[1], Format::F32, &[number as u8; 4]).finish()
        })
        .collect()
}

fn open_parts(parts: Vec<Vec<u8>>) -> Result<Gguf> {
    let file = |(i, bytes)| Box::new(MemoryFile::new(format!("part{i}"), bytes)) as Box<dyn ReadAt>;
    block_on(Gguf::open_split(parts.into_iter().enumerate().map(file).collect()))
}

#[test]
fn split_files() {
    let model = open_parts(parts(3, 3)).unwrap();
    assert_eq!((model.names(), model.name()), (vec!["t0", "t1", "t2"], "part0"));
    assert_eq!(model.metadata().string("general.name").unwrap(), "whole");
    for (i, name) in ["t0", "t1", "t2"].into_iter().enumerate() {
        let info = model.tensor(name).unwrap();
        let mut bytes = [0; 4];
        block_on(model.read(info, 0, &mut bytes)).unwrap();
        assert_eq!((info.file, bytes), (i, [i as u8; 4]));
    }

    let error = |files| open_parts(files).unwrap_err().to_string();
    let [a, b, c] = <[_; 3]>::try_from(parts(3, 3)).unwrap();
    let text = error(vec![a.clone()]);
    assert!(text.starts_with("part0: is part 1 of 3") && text.contains("part 1 of 1"), "{text}");
    let text = error(vec![a.clone(), c.clone(), b.clone()]);
    assert!(text.starts_with("part1: is part 3 of 3") && text.contains("part 2 of 3"), "{text}");
    let text = error(vec![a.clone(), b, GgufWriter::new().finish()]);
    assert!(text.starts_with("part2: is part 1 of 1"), "{text}");
    let text = error(parts(2, 3));
    assert!(text.contains("`split.tensors.count`: is 3, but the parts have 2"), "{text}");
    let twice = GgufWriter::new().key("split.no", 1u16).key("split.count", 2u16);
    let [first, _] = <[_; 2]>::try_from(parts(2, 2)).unwrap();
    let text = error(vec![first, twice.tensor("t0", &[1], Format::F32, &[0; 4]).finish()]);
    assert!(text.starts_with("part1: tensor `t0` is in another part"), "{text}");
    let text = error(vec![GgufWriter::new().key("split.no", 2u16).key("split.count", 2u16).finish()]);
    assert!(text.contains("`split.no`: is 2, though there are 2 parts"), "{text}");
    assert!(error(vec![]).contains("one file at least"));
}

#[test]
fn names_of_split_files() {
    let names = |name| split_names(name).map(|names| names.join(" "));
    let all = "m-q4-00001-of-00002.gguf m-q4-00002-of-00002.gguf";
    assert_eq!(names("m-q4-00001-of-00002.gguf").as_deref(), Some(all));
    assert_eq!(names("m-q4-00002-of-00002.gguf").as_deref(), Some(all));
    for name in [
        "m.gguf",
        "m-00000-of-00002.gguf",
        "m-00003-of-00002.gguf",
        "m-1-of-2.gguf",
        "m-00001-of-00002.bin",
        "m-+0001-of-00002.gguf",
        "00001-of-00002.gguf",
        "-of-.gguf",
    ] {
        assert_eq!(names(name), None, "{name}");
    }
}

/// The fixtures, as the `gguf` Python package reads them (`tests/fixtures/make_gguf.py`).
#[test]
fn models_as_another_reader_sees_them() {
    for (name, count) in [("gguf_lfm2", 40), ("gguf_llama", 30), ("gguf_qwen3", 24)] {
        let path = format!("{}/../tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
        let read = |file: &str| std::fs::read(format!("{path}/{file}")).unwrap();
        let model = open_named(name, read("model.gguf")).unwrap();
        let listing: Json = serde_json::from_slice(&read("tensors.json")).unwrap();
        let tensors = listing["tensors"].as_object().unwrap();
        assert_eq!((model.names().len(), tensors.len()), (count, count), "{name}");
        for (tensor, listed) in tensors {
            let info = model.tensor(tensor).unwrap();
            assert_eq!(listed["shape"], Json::from(info.shape.clone()), "{name}: {tensor}");
            let Element::Weight(format) = info.element else { panic!("{name}: {tensor}") };
            assert_eq!(format.name(), listed["type"].as_str().unwrap(), "{name}: {tensor}");
            let backend = Reference::new();
            let part = Part::new(tensor.as_str(), info.shape.clone());
            let values = block_on(Loader::new(&model, &backend).values(&part)).unwrap();
            let (first, last) = (floats(&listed["first"]), floats(&listed["last"]));
            assert!(first.len() == 3 && values.starts_with(&first), "{name}: {tensor}");
            assert!(last.len() == 3 && values.ends_with(&last), "{name}: {tensor}");
        }
        check_keys(&model, listing["keys"].as_object().unwrap());
    }
}

fn floats(json: &Json) -> Vec<f32> {
    json.as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect()
}

fn check_keys(model: &Gguf, keys: &serde_json::Map<String, Json>) {
    let metadata = model.metadata();
    assert!(metadata.keys().count() == keys.len() && keys.len() > 15);
    for (key, listed) in keys {
        match metadata.get(key).unwrap() {
            Value::Array(array) => assert_eq!(listed.as_u64(), Some(array.len() as u64), "{key}"),
            Value::String(text) => assert_eq!(listed.as_str(), Some(text.as_str()), "{key}"),
            Value::Bool(truth) => assert_eq!(listed.as_bool(), Some(*truth), "{key}"),
            number => assert_eq!(listed.as_f64(), number.number(), "{key}"),
        }
    }
}
