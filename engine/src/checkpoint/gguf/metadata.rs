//! GGUF's metadata: values by key. Errors name the key and the file.

use alloc::{borrow::Cow, boxed::Box, collections::BTreeMap, format, string::String, vec, vec::Vec};
use core::{future::Future, pin::Pin};

use super::{
    reader::{Place, Reader},
    value::{Array, Strings, Value},
};
use crate::{Error, Result};

/// Arrays may hold arrays, to this depth.
const DEEPEST: usize = 4;

/// Fewest bytes of a key with its value: a length, a type, a byte.
const SMALLEST_PAIR: usize = 8 + 4 + 1;

/// A file's metadata.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata {
    file: String,
    values: BTreeMap<String, Value>,
}

impl Metadata {
    /// Metadata that `file` is said to hold, for error messages.
    pub fn new(file: impl Into<String>, values: impl IntoIterator<Item = (String, Value)>) -> Self {
        Metadata { file: file.into(), values: values.into_iter().collect() }
    }

    /// For error messages: where the metadata came from.
    pub fn file(&self) -> &str {
        &self.file
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// The error for a key.
    pub fn wrong(&self, key: &str, why: &str) -> Error {
        Error::Config { key: key.into(), why: format!("{why} ({})", self.file) }
    }

    fn required<T>(&self, key: &str, value: Result<Option<T>>) -> Result<T> {
        value?.ok_or_else(|| self.wrong(key, "is missing"))
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        kind: &str,
        as_type: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match as_type(value) {
            Some(found) => Ok(Some(found)),
            None => Err(self.wrong(key, &format!("is {value}, expected {kind}"))),
        }
    }

    /// A whole number between 1 and `limit`.
    ///
    /// # Errors
    /// `Config` if it is missing or not that.
    pub fn count(&self, key: &str, limit: usize) -> Result<usize> {
        self.required(key, self.opt_count(key, limit))
    }

    /// [`Metadata::count`], or `None` if the key is missing.
    ///
    /// # Errors
    /// `Config` if it is another value.
    pub fn opt_count(&self, key: &str, limit: usize) -> Result<Option<usize>> {
        self.typed(key, &format!("a whole number from 1 to {limit}"), |v| {
            usize::try_from(v.integer()?).ok().filter(|n| (1..=limit).contains(n))
        })
    }

    /// A whole number from 0 on.
    ///
    /// # Errors
    /// `Config` if it is another value.
    pub fn opt_u64(&self, key: &str) -> Result<Option<u64>> {
        self.typed(key, "a whole number from 0 on", |v| u64::try_from(v.integer()?).ok())
    }

    /// A token id.
    ///
    /// # Errors
    /// `Config` if it is another value.
    pub fn opt_id(&self, key: &str) -> Result<Option<u32>> {
        self.typed(key, "a token id", |v| u32::try_from(v.integer()?).ok())
    }

    /// A finite number above 0.
    ///
    /// # Errors
    /// `Config` if it is missing or not that.
    pub fn positive(&self, key: &str) -> Result<f32> {
        self.required(key, self.opt_positive(key))
    }

    /// [`Metadata::positive`], or `None` if the key is missing.
    ///
    /// # Errors
    /// `Config` if it is another value.
    pub fn opt_positive(&self, key: &str) -> Result<Option<f32>> {
        self.typed(key, "a number above 0", |v| {
            v.number().map(|v| v as f32).filter(|v| v.is_finite() && *v > 0.0)
        })
    }

    /// A finite number.
    ///
    /// # Errors
    /// `Config` if it is another value.
    pub fn opt_f32(&self, key: &str) -> Result<Option<f32>> {
        self.typed(key, "a finite number", |v| v.number().map(|v| v as f32).filter(|v| v.is_finite()))
    }

    /// # Errors
    /// `Config` if it is another value.
    pub fn opt_bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", |v| if let Value::Bool(v) = v { Some(*v) } else { None })
    }

    /// # Errors
    /// `Config` if it is missing or no string.
    pub fn string(&self, key: &str) -> Result<&str> {
        self.required(key, self.opt_string(key))
    }

    /// # Errors
    /// `Config` if it is no string.
    pub fn opt_string(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a string", |v| if let Value::String(v) = v { Some(v.as_str()) } else { None })
    }

    fn opt_array<'a, T>(
        &'a self,
        key: &str,
        of: &str,
        as_type: impl Fn(&'a Array) -> Option<T>,
    ) -> Result<Option<T>> {
        self.typed(key, &format!("an array of {of}"), |v| {
            if let Value::Array(array) = v { as_type(array) } else { None }
        })
    }

    /// # Errors
    /// `Config` if it is missing or no array of strings.
    pub fn strings(&self, key: &str) -> Result<&Strings> {
        self.required(key, self.opt_strings(key))
    }

    /// # Errors
    /// `Config` if it is no array of strings.
    pub fn opt_strings(&self, key: &str) -> Result<Option<&Strings>> {
        self.opt_array(key, "strings", |a| if let Array::Strings(v) = a { Some(v) } else { None })
    }

    /// # Errors
    /// `Config` if it is no array of f32.
    pub fn opt_f32s(&self, key: &str) -> Result<Option<&[f32]>> {
        self.opt_array(key, "f32 numbers", |a| if let Array::F32(v) = a { Some(v.as_slice()) } else { None })
    }

    /// An array of integers of any type, each of which fits.
    ///
    /// # Errors
    /// `Config` if it is another value.
    pub fn opt_u32s(&self, key: &str) -> Result<Option<Cow<'_, [u32]>>> {
        self.opt_array(key, "whole numbers from 0 to 4294967295", |a| match a {
            Array::U32(v) => Some(Cow::Borrowed(v.as_slice())),
            other => other.integers().map(Cow::Owned),
        })
    }

    /// An array of integers of any type, each of which fits.
    ///
    /// # Errors
    /// `Config` if it is another value.
    pub fn opt_i32s(&self, key: &str) -> Result<Option<Cow<'_, [i32]>>> {
        self.opt_array(key, "32-bit whole numbers", |a| match a {
            Array::I32(v) => Some(Cow::Borrowed(v.as_slice())),
            other => other.integers().map(Cow::Owned),
        })
    }

    /// A whole number between 0 and `limit` for each layer: an array, or one number for all.
    ///
    /// # Errors
    /// `Config` if it is missing, another value, or an array of another length.
    pub fn per_layer(&self, key: &str, layers: usize, limit: usize) -> Result<Vec<usize>> {
        self.required(key, self.opt_per_layer(key, layers, limit))
    }

    /// [`Metadata::per_layer`], or `None` if the key is missing.
    ///
    /// # Errors
    /// `Config` if it is another value, or an array of another length.
    pub fn opt_per_layer(&self, key: &str, layers: usize, limit: usize) -> Result<Option<Vec<usize>>> {
        if let Some(Value::Array(array)) = self.get(key)
            && array.len() != layers
        {
            return Err(self.wrong(key, &format!("has {} values for {layers} layers", array.len())));
        }
        self.typed(key, &format!("whole numbers from 0 to {limit}"), |v| {
            let values: Vec<usize> = match v {
                Value::Array(array) => array.integers()?,
                one => vec![usize::try_from(one.integer()?).ok()?; layers],
            };
            values.iter().all(|v| *v <= limit).then_some(values)
        })
    }
}

/// Reads `count` keys with their values.
pub(super) async fn read(reader: &mut Reader<'_>, file: &str, count: u64) -> Result<Metadata> {
    reader.check(count, SMALLEST_PAIR, Place::Start)?;
    let mut values = BTreeMap::new();
    for number in 0..count {
        let key = String::from(reader.text(Place::KeyNumber(number)).await?);
        let place = Place::Key(&key);
        let value = read_value(reader, place).await?;
        if values.contains_key(&key) {
            return Err(reader.malformed(place, "stands twice in the file"));
        }
        values.insert(key, value);
    }
    Ok(Metadata { file: file.into(), values })
}

async fn read_value(reader: &mut Reader<'_>, place: Place<'_>) -> Result<Value> {
    Ok(match reader.u32(place).await? {
        0 => Value::U8(u8::from_le_bytes(reader.bytes(place).await?)),
        1 => Value::I8(i8::from_le_bytes(reader.bytes(place).await?)),
        2 => Value::U16(u16::from_le_bytes(reader.bytes(place).await?)),
        3 => Value::I16(i16::from_le_bytes(reader.bytes(place).await?)),
        4 => Value::U32(u32::from_le_bytes(reader.bytes(place).await?)),
        5 => Value::I32(i32::from_le_bytes(reader.bytes(place).await?)),
        6 => Value::F32(f32::from_le_bytes(reader.bytes(place).await?)),
        7 => {
            let [byte] = reader.bytes(place).await?;
            Value::Bool(truth(byte).map_err(|why| reader.malformed(place, why))?)
        }
        8 => Value::String(reader.text(place).await?.into()),
        9 => Value::Array(read_array(reader, place, 1).await?),
        10 => Value::U64(u64::from_le_bytes(reader.bytes(place).await?)),
        11 => Value::I64(i64::from_le_bytes(reader.bytes(place).await?)),
        12 => Value::F64(f64::from_le_bytes(reader.bytes(place).await?)),
        id => return Err(reader.malformed(place, unknown(id))),
    })
}

fn truth(byte: u8) -> Result<bool, String> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(format!("the truth value {byte} is neither 0 nor 1")),
    }
}

fn unknown(id: u32) -> String {
    format!("has values of the unknown type {id}; types 0 to 12 are known")
}

async fn read_array(reader: &mut Reader<'_>, place: Place<'_>, depth: usize) -> Result<Array> {
    let (id, count) = (reader.u32(place).await?, reader.u64(place).await?);
    Ok(match id {
        0 => Array::U8(reader.numbers(count, place, u8::from_le_bytes).await?),
        1 => Array::I8(reader.numbers(count, place, i8::from_le_bytes).await?),
        2 => Array::U16(reader.numbers(count, place, u16::from_le_bytes).await?),
        3 => Array::I16(reader.numbers(count, place, i16::from_le_bytes).await?),
        4 => Array::U32(reader.numbers(count, place, u32::from_le_bytes).await?),
        5 => Array::I32(reader.numbers(count, place, i32::from_le_bytes).await?),
        6 => Array::F32(reader.numbers(count, place, f32::from_le_bytes).await?),
        7 => {
            let bytes = reader.numbers(count, place, u8::from_le_bytes).await?;
            let truths: Result<Vec<bool>, String> = bytes.into_iter().map(truth).collect();
            Array::Bool(truths.map_err(|why| reader.malformed(place, why))?)
        }
        8 => {
            // Each has a length of 8 bytes at least.
            let count = reader.check(count, 8, place)?;
            let mut strings = Strings::with_capacity(count);
            for _ in 0..count {
                strings.push(reader.text(place).await?);
            }
            Array::Strings(strings)
        }
        9 if depth == DEEPEST => {
            return Err(reader.malformed(place, format!("holds arrays nested deeper than {DEEPEST}")));
        }
        9 => {
            // Each has a type and a length at least.
            let count = reader.check(count, 12, place)?;
            let mut arrays = Vec::new();
            for _ in 0..count {
                let inner: Pin<Box<dyn Future<Output = Result<Array>> + '_>> =
                    Box::pin(read_array(reader, place, depth + 1));
                arrays.push(inner.await?);
            }
            Array::Arrays(arrays)
        }
        10 => Array::U64(reader.numbers(count, place, u64::from_le_bytes).await?),
        11 => Array::I64(reader.numbers(count, place, i64::from_le_bytes).await?),
        12 => Array::F64(reader.numbers(count, place, f64::from_le_bytes).await?),
        id => return Err(reader.malformed(place, unknown(id))),
    })
}
