//! Files that must be refused.

use super::*;
use crate::testing::Random;

/// The error's text, which must begin with the file's name and have all parts.
#[track_caller]
fn refused(bytes: Vec<u8>, parts: &[&str]) {
    let text = open(bytes).unwrap_err().to_string();
    assert!(text.starts_with("model.gguf: "), "{text}");
    for part in parts {
        assert!(text.contains(part), "`{text}` lacks `{part}`");
    }
}

#[test]
fn what_is_no_gguf_file() {
    for length in 0..4 {
        refused(b"GGUF"[..length].to_vec(), &["too short"]);
    }
    refused(b"tjgg\x03\0\0\0".to_vec(), &["is no GGUF file", "begins with tjgg"]);
    refused(vec![0xff; 64], &["is no GGUF file", "\\xff"]);
}

#[test]
fn versions() {
    for version in [0, 1, 4, 77] {
        let bytes = GgufWriter::new().version(version).finish();
        refused(bytes, &[&format!("GGUF version {version}"), "versions 2 and 3"]);
    }
    for version in [2u32, 3] {
        let bytes = GgufWriter::new().version(version.swap_bytes()).finish();
        refused(bytes, &["big-endian"]);
    }
}

#[test]
fn truncated_files() {
    let whole = with_values().tensor("t", &[4], Format::F32, &[0; 16]).finish();
    open(whole.clone()).unwrap();
    for length in 4..whole.len() {
        refused(whole[..length].to_vec(), &["truncated"]);
    }
}

#[test]
fn absurd_counts() {
    for count in [3, 1 << 40, u64::MAX / 13, u64::MAX] {
        refused(GgufWriter::new().claiming_keys(count).finish(), &["the GGUF header", "truncated"]);
        refused(GgufWriter::new().claiming_tensors(count).finish(), &["the GGUF header", "truncated"]);
    }
}

#[test]
fn lengths_beyond_the_file() {
    for length in [9u64, 1 << 40, u64::MAX] {
        let bytes = [&length.to_le_bytes()[..], b"12345678"].concat();
        let key = GgufWriter::new().raw_key("s", 8, &bytes);
        refused(key.finish(), &["metadata key `s`", "truncated"]);
        for id in 0..=12u32 {
            // Numbers, strings or arrays: so many of any are too many.
            let bytes = [&id.to_le_bytes()[..], &length.to_le_bytes(), b"12345678"].concat();
            refused(GgufWriter::new().raw_key("a", 9, &bytes).finish(), &["metadata key `a`", "truncated"]);
        }
    }
    let mut name = GgufWriter::new().tensor("t", &[1], Format::F32, &[0; 4]).finish();
    name[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
    refused(name, &["tensor number 0", "truncated"]);
}

#[test]
fn types_of_values() {
    for id in [13, 99, u32::MAX] {
        refused(
            GgufWriter::new().raw_key("k", id, &[0; 8]).finish(),
            &["key `k`", &format!("unknown type {id}")],
        );
        let array = [&id.to_le_bytes()[..], &[0; 8]].concat();
        refused(
            GgufWriter::new().raw_key("k", 9, &array).finish(),
            &["key `k`", &format!("unknown type {id}")],
        );
    }
    refused(GgufWriter::new().raw_key("k", 7, &[2]).finish(), &["key `k`", "truth value 2"]);
    let truths = [&7u32.to_le_bytes()[..], &2u64.to_le_bytes(), &[1, 255]].concat();
    refused(GgufWriter::new().raw_key("k", 9, &truths).finish(), &["key `k`", "truth value 255"]);
    let text = [&2u64.to_le_bytes()[..], &[b'a', 0xff]].concat();
    refused(GgufWriter::new().raw_key("k", 8, &text).finish(), &["key `k`", "no UTF-8"]);
}

#[test]
fn nested_arrays() {
    let nested = |depth: usize| {
        let outer = [&9u32.to_le_bytes()[..], &1u64.to_le_bytes()].concat().repeat(depth - 1);
        let bytes = [&outer[..], &0u32.to_le_bytes(), &0u64.to_le_bytes()].concat();
        GgufWriter::new().raw_key("k", 9, &bytes).finish()
    };
    open(nested(4)).unwrap();
    refused(nested(5), &["key `k`", "nested deeper than 4"]);
    refused(nested(100_000), &["key `k`", "nested deeper than 4"]);
}

#[test]
fn what_stands_twice() {
    refused(GgufWriter::new().key("k", 1u32).key("k", "x").finish(), &["key `k`", "twice"]);
    let bytes = [0; 4];
    let twice =
        GgufWriter::new().tensor("t", &[1], Format::F32, &bytes).tensor("t", &[1], Format::F32, &bytes);
    refused(twice.finish(), &["tensor `t`", "twice"]);
}

#[test]
fn alignments() {
    let error = |value: Value| {
        let bytes = GgufWriter::new().key("general.alignment", value).finish();
        let text = open(bytes).unwrap_err().to_string();
        assert!(
            text.starts_with("config key `general.alignment`: ") && text.contains("(model.gguf)"),
            "{text}"
        );
        text
    };
    for alignment in [0u32, 3, 48] {
        assert!(error(alignment.into()).contains(&format!("is {alignment}, expected a power of two")));
    }
    assert!(error((-32).into()).contains("is -32"));
    assert!(error("32".into()).contains("is \"32\""));
    // So large that the data would begin beyond the file, or beyond any file.
    for alignment in [1u64 << 40, 1 << 63] {
        let writer = GgufWriter::new().key("general.alignment", alignment).raw_tensor("t", &[1], 0, 0);
        refused(writer.data(&[0; 64]).finish(), &["tensor `t`", "outside the file"]);
    }
}

/// A file of 64 bytes of data and one tensor.
fn one(sizes: &[u64], id: u32, offset: u64) -> Vec<u8> {
    GgufWriter::new().raw_tensor("t", sizes, id, offset).data(&[0; 64]).finish()
}

#[test]
fn places_of_tensors() {
    open(one(&[16], 0, 0)).unwrap();
    refused(one(&[17], 0, 0), &["tensor `t`", "68 bytes from byte 0", "outside the file"]);
    refused(one(&[9], 0, 32), &["tensor `t`", "36 bytes from byte 32", "outside the file"]);
    refused(one(&[1], 0, 96), &["tensor `t`", "outside the file"]);
    refused(one(&[1], 0, u64::MAX - 31), &["tensor `t`", "outside the file"]);
    for offset in [1, 16, 33] {
        refused(one(&[1], 0, offset), &["tensor `t`", &format!("byte {offset}"), "alignment 32"]);
    }
    let two = |at: u64| {
        let writer = GgufWriter::new().raw_tensor("a", &[10], 0, 0).raw_tensor("b", &[1], 0, at);
        writer.data(&[0; 64]).finish()
    };
    refused(two(32), &["`a`", "`b`", "overlap at byte 32"]);
    refused(two(0), &["`a`", "`b`", "overlap at byte 0"]);
    let writer = GgufWriter::new().raw_tensor("a", &[1], 0, 32).raw_tensor("b", &[8], 0, 0);
    open(writer.data(&[0; 64]).finish()).unwrap();
}

#[test]
fn shapes_of_tensors() {
    refused(one(&[48], 2, 0), &["tensor `t`", "rows of 48", "blocks of 32", "Q4_0"]);
    refused(one(&[128], 12, 0), &["tensor `t`", "blocks of 256", "Q4_K"]);
    // A matrix of whole blocks whose rows are not.
    refused(one(&[16, 2], 2, 0), &["tensor `t`", "rows of 16", "Q4_0"]);
    refused(one(&[128], 16, 0), &["tensor `t`", "blocks of 256", "IQ2_XXS"]);
    refused(one(&[], 2, 0), &["tensor `t`", "rows of 1 "]);
    for sizes in [&[1 << 32, 1 << 32][..], &[1 << 62], &[u64::MAX, 2], &[1 << 20; 4], &[0, 1 << 40, 1 << 40]]
    {
        refused(one(sizes, 0, 0), &["tensor `t`", "overflows"]);
    }
    refused(one(&[1 << 60], 1, 0), &["tensor `t`", "outside the file"]);
    refused(one(&[1; 5], 0, 0), &["tensor `t`", "5 dimensions"]);
    let mut many = one(&[1], 0, 0);
    many[24 + 8 + 1..][..4].copy_from_slice(&u32::MAX.to_le_bytes());
    refused(many, &["tensor `t`", "4294967295 dimensions"]);
    assert_eq!(open(one(&[], 0, 0)).unwrap().tensor("t").unwrap().bytes, 4);
    assert_eq!(open(one(&[32, 0], 2, 0)).unwrap().tensor("t").unwrap().shape, [0, 32]);
}

#[test]
fn types_of_tensors() {
    for id in [4, 5, 9, 31, 38, 41, u32::MAX] {
        let parts = ["tensor `t`", &format!("unknown type {id};"), "F32, F16, Q4_0", "MXFP4"];
        refused(one(&[256], id, 0), &parts);
    }
}

/// A file that says it is huge and is all one number, whose reads are counted.
struct Huge(core::sync::atomic::AtomicUsize);

impl ReadAt for Huge {
    fn name(&self) -> &str {
        "huge"
    }

    fn size(&self) -> u64 {
        u64::MAX
    }

    fn read_at<'a>(&'a self, offset: u64, out: &'a mut [u8]) -> Reading<'a> {
        self.0.fetch_add(out.len(), core::sync::atomic::Ordering::Relaxed);
        // A key `k` of an array of 2^50 bytes.
        let header = GgufWriter::new().claiming_keys(1);
        let array = [&0u32.to_le_bytes()[..], &(1u64 << 50).to_le_bytes()].concat();
        let header = header.raw_key("k", 9, &array).finish();
        out.fill(0);
        if offset == 0 {
            out[..header.len()].copy_from_slice(&header);
        }
        Box::pin(core::future::ready(Ok(())))
    }
}

#[test]
fn the_header_is_limited() {
    let file: &'static Huge = Box::leak(Box::new(Huge(0.into())));
    let text = block_on(read_header(file)).unwrap_err().to_string();
    assert!(text.starts_with("huge: metadata key `k`: the header is longer than 536870912 bytes"), "{text}");
    assert!(file.0.load(core::sync::atomic::Ordering::Relaxed) <= 1 << 16);
}

/// Only the header is read, and by ranges.
#[test]
fn tensors_are_not_read() {
    struct Front(Vec<u8>, u64);
    impl ReadAt for Front {
        fn name(&self) -> &str {
            "front"
        }

        fn size(&self) -> u64 {
            self.1
        }

        fn read_at<'a>(&'a self, offset: u64, out: &'a mut [u8]) -> Reading<'a> {
            let from = self.0.get(offset as usize..).unwrap_or_default();
            assert!(!from.is_empty(), "byte {offset} is read");
            let length = from.len().min(out.len());
            out[..length].copy_from_slice(&from[..length]);
            Box::pin(core::future::ready(Ok(())))
        }
    }
    // A vocabulary longer than the first range.
    let words = Strings::from_iter((0..40_000).map(|i| format!("word {i}")));
    let header =
        GgufWriter::new().key("words", words.clone()).raw_tensor("t", &[1 << 20, 1 << 15], 0, 0).finish();
    let size = header.len() as u64 + 31 + (4 << 35);
    let model = block_on(Gguf::open(Box::new(Front(header, size)))).unwrap();
    assert_eq!(model.metadata().strings("words").unwrap(), &words);
    assert_eq!(model.tensor("t").unwrap().shape, [1 << 15, 1 << 20]);
}

/// A small deterministic fuzz: no bytes make the reader panic.
#[test]
fn random_damage_never_panics() {
    let whole = with_values().tensor("t", &[2, 64], Format::Q4_0, &[7; 72]).finish();
    let mut random = Random::named("damage");
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..3 {
            bytes[random.below(whole.len()) as usize] = random.bits() as u8;
        }
        if let Ok(model) = open(bytes) {
            for name in model.names() {
                let info = model.tensor(name).unwrap();
                let mut out = vec![0; info.bytes as usize];
                block_on(model.read(info, 0, &mut out)).unwrap();
            }
        }
    }
}
