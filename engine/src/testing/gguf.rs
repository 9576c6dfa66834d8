//! Writes GGUF files, sound ones and damaged ones, for tests.

use alloc::{vec, vec::Vec};

use crate::{
    checkpoint::gguf::{Array, Value, type_id},
    format::Format,
};

/// A GGUF file being put together.
#[derive(Debug, Clone)]
pub struct GgufWriter {
    version: u32,
    alignment: usize,
    claimed_keys: Option<u64>,
    claimed_tensors: Option<u64>,
    keys: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    data: Vec<u8>,
}

impl Default for GgufWriter {
    fn default() -> Self {
        GgufWriter {
            version: 3,
            alignment: 32,
            claimed_keys: None,
            claimed_tensors: None,
            keys: vec![],
            tensors: vec![],
            data: vec![],
        }
    }
}

impl GgufWriter {
    /// An empty file of version 3 whose tensors begin at multiples of 32.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes another version.
    pub fn version(self, version: u32) -> Self {
        GgufWriter { version, ..self }
    }

    /// Aligns tensors that are added from now on, and says so in a key.
    pub fn aligned(self, alignment: u32) -> Self {
        GgufWriter { alignment: alignment as usize, ..self }.key("general.alignment", alignment)
    }

    /// Claims to have so many keys.
    pub fn claiming_keys(self, count: u64) -> Self {
        GgufWriter { claimed_keys: Some(count), ..self }
    }

    /// Claims to have so many tensors.
    pub fn claiming_tensors(self, count: u64) -> Self {
        GgufWriter { claimed_tensors: Some(count), ..self }
    }

    /// Adds a key.
    pub fn key(self, key: &str, value: impl Into<Value>) -> Self {
        let mut bytes = Vec::new();
        let id = write_value(&value.into(), &mut bytes);
        self.raw_key(key, id, &bytes)
    }

    /// Adds a key with any type number and bytes.
    pub fn raw_key(mut self, key: &str, id: u32, value: &[u8]) -> Self {
        self.keys.push([&text(key)[..], &id.to_le_bytes(), value].concat());
        self
    }

    /// Adds a tensor of a shape with the slowest-varying dimension first.
    ///
    /// # Panics
    /// For a format that GGUF has not.
    pub fn tensor(mut self, name: &str, shape: &[usize], format: Format, bytes: &[u8]) -> Self {
        let id = type_id(format).expect("a format that GGUF has");
        let sizes: Vec<u64> = shape.iter().rev().map(|n| *n as u64).collect();
        let offset = self.data.len().next_multiple_of(self.alignment);
        self.data.resize(offset, 0);
        self.data.extend_from_slice(bytes);
        self.raw_tensor(name, &sizes, id, offset as u64)
    }

    /// Adds the entry of a tensor with any dimensions, fastest-varying first, type number and offset, but no data.
    pub fn raw_tensor(mut self, name: &str, sizes: &[u64], id: u32, offset: u64) -> Self {
        let mut entry = text(name);
        entry.extend((sizes.len() as u32).to_le_bytes());
        entry.extend(sizes.iter().flat_map(|n| n.to_le_bytes()));
        entry.extend(id.to_le_bytes());
        entry.extend(offset.to_le_bytes());
        self.tensors.push(entry);
        self
    }

    /// Adds bytes to the data.
    pub fn data(mut self, bytes: &[u8]) -> Self {
        self.data.extend_from_slice(bytes);
        self
    }

    pub fn finish(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.claimed_tensors.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.claimed_keys.unwrap_or(self.keys.len() as u64).to_le_bytes());
        out.extend(self.keys.iter().chain(&self.tensors).flatten());
        if !self.data.is_empty() {
            out.resize(out.len().next_multiple_of(self.alignment), 0);
        }
        out.extend_from_slice(&self.data);
        out
    }
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// Appends a value and gives its type's number.
fn write_value(value: &Value, out: &mut Vec<u8>) -> u32 {
    match value {
        Value::U8(v) => numbers(0, &[*v], u8::to_le_bytes, out),
        Value::I8(v) => numbers(1, &[*v], i8::to_le_bytes, out),
        Value::U16(v) => numbers(2, &[*v], u16::to_le_bytes, out),
        Value::I16(v) => numbers(3, &[*v], i16::to_le_bytes, out),
        Value::U32(v) => numbers(4, &[*v], u32::to_le_bytes, out),
        Value::I32(v) => numbers(5, &[*v], i32::to_le_bytes, out),
        Value::F32(v) => numbers(6, &[*v], f32::to_le_bytes, out),
        Value::Bool(v) => numbers(7, &[*v], |v| [u8::from(v)], out),
        Value::String(v) => {
            out.extend(text(v));
            8
        }
        Value::Array(v) => {
            write_array(v, out);
            9
        }
        Value::U64(v) => numbers(10, &[*v], u64::to_le_bytes, out),
        Value::I64(v) => numbers(11, &[*v], i64::to_le_bytes, out),
        Value::F64(v) => numbers(12, &[*v], f64::to_le_bytes, out),
    }
}

/// Appends an array's element type, length and elements.
fn write_array(array: &Array, out: &mut Vec<u8>) {
    let mut items = Vec::new();
    let id = match array {
        Array::U8(v) => numbers(0, v, u8::to_le_bytes, &mut items),
        Array::I8(v) => numbers(1, v, i8::to_le_bytes, &mut items),
        Array::U16(v) => numbers(2, v, u16::to_le_bytes, &mut items),
        Array::I16(v) => numbers(3, v, i16::to_le_bytes, &mut items),
        Array::U32(v) => numbers(4, v, u32::to_le_bytes, &mut items),
        Array::I32(v) => numbers(5, v, i32::to_le_bytes, &mut items),
        Array::F32(v) => numbers(6, v, f32::to_le_bytes, &mut items),
        Array::Bool(v) => numbers(7, v, |v| [u8::from(v)], &mut items),
        Array::Strings(v) => {
            v.iter().for_each(|s| items.extend(text(s)));
            8
        }
        Array::Arrays(v) => {
            v.iter().for_each(|a| write_array(a, &mut items));
            9
        }
        Array::U64(v) => numbers(10, v, u64::to_le_bytes, &mut items),
        Array::I64(v) => numbers(11, v, i64::to_le_bytes, &mut items),
        Array::F64(v) => numbers(12, v, f64::to_le_bytes, &mut items),
    };
    out.extend(id.to_le_bytes());
    out.extend((array.len() as u64).to_le_bytes());
    out.extend(items);
}

fn numbers<const N: usize, T: Copy>(
    id: u32,
    values: &[T],
    bytes: fn(T) -> [u8; N],
    out: &mut Vec<u8>,
) -> u32 {
    out.extend(values.iter().flat_map(|v| bytes(*v)));
    id
}
