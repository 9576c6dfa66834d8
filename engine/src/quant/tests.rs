//! Blocks against what the `gguf` Python package makes of them, bit for bit (`tests/fixtures/make_gguf.py`).

use alloc::{boxed::Box, collections::BTreeSet, string::ToString, vec, vec::Vec};

use super::*;
use crate::{
    checkpoint::{MemoryFile, Safetensors, TensorSource},
    task::block_on,
    testing::Random,
};

const BLOBS: &[u8] = include_bytes!("../../../tests/fixtures/gguf_blocks/expected.safetensors");

fn blobs() -> Safetensors {
    block_on(Safetensors::open(Box::new(MemoryFile::new("blobs", BLOBS)))).unwrap()
}

fn bytes(source: &Safetensors, name: &str) -> Vec<u8> {
    let info = source.tensor(name).unwrap_or_else(|| panic!("{name} is missing"));
    let mut bytes = vec![0; info.bytes as usize];
    block_on(source.read(info, 0, &mut bytes)).unwrap();
    bytes
}

fn floats(source: &Safetensors, name: &str) -> Vec<f32> {
    let mut values = Vec::new();
    decode_f32(Format::F32, &bytes(source, name), &mut values).unwrap();
    values
}

/// Tensors `[random.]FORMAT.bytes` of formats that are read.
fn encoded(source: &Safetensors) -> Vec<(&str, Format)> {
    let format =
        |name: &str| Format::ALL.into_iter().find(|f| name.trim_start_matches("random.") == f.name());
    let names = source.names().into_iter().filter_map(|n| n.strip_suffix(".bytes"));
    names.filter_map(|name| Some((name, format(name)?))).collect()
}

fn assert_bits(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        assert_eq!(a.to_bits(), b.to_bits(), "{what}: value {i} is {a}, not {b}");
    }
}

#[test]
fn every_format_decodes_bit_for_bit() {
    let source = blobs();
    let mut seen = BTreeSet::new();
    for (name, format) in encoded(&source) {
        let expected = floats(&source, &format!("{name}.dequant"));
        let mut found = Vec::new();
        decode_f32(format, &bytes(&source, &format!("{name}.bytes")), &mut found).unwrap();
        assert_bits(&found, &expected, name);
        seen.insert(format);
    }
    let all: BTreeSet<_> = Format::ALL.into_iter().filter(|f| f.is_block()).collect();
    assert!(seen.is_superset(&all), "not all of {all:?}: {seen:?}");
}

#[test]
fn blocks_unpack_into_integers_and_scales() {
    let source = blobs();
    for format in Format::ALL.into_iter().filter(|f| f.is_block()) {
        let name = format!("random.{format}");
        let expected = floats(&source, &format!("{name}.dequant"));
        let data = bytes(&source, &format!("{name}.bytes"));
        // What an earlier block left must not matter.
        let mut block = Unpacked {
            q: [77; 256],
            scale: [3.0; 16],
            min: [5.0; 16],
            steps: [(7, 8); 16],
            d: 9.0,
            dmin: 10.0,
            group: 1,
            len: 1,
        };
        for (bytes, expected) in data.chunks(format.block_bytes()).zip(expected.chunks(format.block())) {
            unpack(format, bytes, &mut block).unwrap();
            assert_eq!(block.len, format.block(), "{format}");
            for (i, expected) in expected.iter().enumerate() {
                let g = i / block.group;
                let value = block.scale[g] * f32::from(block.q[i]) + block.min[g];
                assert_eq!(value.to_bits(), expected.to_bits(), "{format}: value {i}");
                if block.len == 256 {
                    let (scale, min) = block.steps[g];
                    assert_eq!(block.d * f32::from(scale), block.scale[g], "{format}: scale {g}");
                    assert_eq!(-(block.dmin * f32::from(min)), block.min[g], "{format}: minimum {g}");
                }
            }
        }
    }
}

#[test]
fn simple_formats_quantize_bit_for_bit() {
    let source = blobs();
    let values = floats(&source, "source");
    for format in [Format::Q8_0, Format::Q4_0, Format::Q4_1, Format::Q5_0, Format::Q5_1] {
        let mut found = Vec::new();
        quantize(format, &values, &mut found).unwrap();
        assert_eq!(found, bytes(&source, &format!("{format}.bytes")), "{format}");
    }
}

/// Values about as normal ones are spread, and differently from block to block.
fn values(count: usize) -> Vec<f32> {
    let mut random = Random::named("quantized values");
    let value = |i: usize| (random.unit() + random.unit() + random.unit()) * (1.0 + (i / 32 % 5) as f32);
    (0..count).map(value).collect()
}

#[test]
fn quantizing_is_as_fine_as_the_format() {
    let values = values(4096);
    let power: f32 = values.iter().map(|v| v * v).sum();
    let formats = [
        (Format::Q8_0, 0.005),
        (Format::Q4_0, 0.09),
        (Format::Q4_1, 0.08),
        (Format::Q5_0, 0.045),
        (Format::Q5_1, 0.04),
        (Format::Q4K, 0.08),
        (Format::Q5K, 0.04),
        (Format::Q6K, 0.025),
    ];
    for (format, most) in formats {
        let (mut bytes, mut back) = (Vec::new(), Vec::new());
        quantize(format, &values, &mut bytes).unwrap();
        assert_eq!(bytes.len(), format.row_bytes(values.len()), "{format}");
        decode_f32(format, &bytes, &mut back).unwrap();
        let error: f32 = values.iter().zip(&back).map(|(a, b)| (a - b) * (a - b)).sum();
        let error = libm::sqrtf(error / power);
        assert!(error < most && error > most / 4.0, "{format}: an error of {error}");
    }
}

#[test]
fn nothing_is_quantized_to_nothing() {
    for format in
        [Format::Q8_0, Format::Q4_0, Format::Q4_1, Format::Q5_1, Format::Q4K, Format::Q5K, Format::Q6K]
    {
        // The smallest f32 has no inverse.
        for value in [0.0, f32::from_bits(1), -1e-30] {
            let (mut bytes, mut back) = (Vec::new(), Vec::new());
            quantize(format, &[value; 256], &mut bytes).unwrap();
            decode_f32(format, &bytes, &mut back).unwrap();
            assert!(back.iter().all(|v| *v == 0.0), "{format} of {value}: {back:?}");
        }
    }
}

#[test]
fn what_cannot_be_read_or_written() {
    let mut out = Vec::new();
    for format in Format::ALL.into_iter().filter(|f| *f != Format::Int8) {
        let bytes = vec![0; format.block_bytes() + 1];
        if format.block_bytes() > 1 {
            let text = decode_f32(format, &bytes, &mut out).unwrap_err().to_string();
            assert!(text.contains(format.name()) && text.contains("multiple of"), "{text}");
        }
    }
    assert!(out.is_empty());
    let mut block = Unpacked::default();
    assert!(unpack(Format::Q4K, &[0; 143], &mut block).unwrap_err().to_string().contains("blocks of Q4_K"));
    assert!(unpack(Format::F16, &[0; 2], &mut block).unwrap_err().to_string().contains("F16 has no blocks"));

    let mut out = Vec::new();
    let mut error = |format, values: &[f32]| quantize(format, values, &mut out).unwrap_err().to_string();
    assert!(error(Format::Mxfp4, &[0.0; 32]).contains("MXFP4"));
    assert!(error(Format::Q4K, &[0.0; 32]).contains("a multiple of 256"));
    for bad in [f32::NAN, f32::INFINITY, 1e6] {
        assert!(error(Format::Q8_0, &[bad; 32]).contains("cannot be quantized"));
    }
}
