//! Values of GGUF's metadata. Arrays are kept compactly: a vocabulary has hundreds of thousands of entries.

use alloc::{string::String, vec::Vec};
use core::fmt;

/// A value, of the type that the file gives it.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// Values of one type.
#[derive(Debug, Clone, PartialEq)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    Strings(Strings),
    Arrays(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

/// Strings, one after the other in one piece of memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Strings {
    text: String,
    ends: Vec<usize>,
}

impl Strings {
    pub(super) fn with_capacity(count: usize) -> Self {
        Strings { text: String::new(), ends: Vec::with_capacity(count) }
    }

    pub fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(self.text.len());
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at a place, if there are so many.
    pub fn get(&self, at: usize) -> Option<&str> {
        let end = *self.ends.get(at)?;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.text[start..end])
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |&end| &self.text[core::mem::replace(&mut start, end)..end])
    }
}

impl<S: AsRef<str>> FromIterator<S> for Strings {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Self {
        let mut all = Strings::default();
        strings.into_iter().for_each(|s| all.push(s.as_ref()));
        all
    }
}

impl Value {
    /// A whole number of any type.
    pub fn integer(&self) -> Option<i128> {
        Some(match self {
            Value::U8(v) => (*v).into(),
            Value::I8(v) => (*v).into(),
            Value::U16(v) => (*v).into(),
            Value::I16(v) => (*v).into(),
            Value::U32(v) => (*v).into(),
            Value::I32(v) => (*v).into(),
            Value::U64(v) => (*v).into(),
            Value::I64(v) => (*v).into(),
            _ => return None,
        })
    }

    /// A number of any type.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::F32(v) => Some((*v).into()),
            Value::F64(v) => Some(*v),
            _ => self.integer().map(|v| v as f64),
        }
    }
}

impl Array {
    pub fn len(&self) -> usize {
        match self {
            Array::U8(v) => v.len(),
            Array::I8(v) => v.len(),
            Array::U16(v) => v.len(),
            Array::I16(v) => v.len(),
            Array::U32(v) => v.len(),
            Array::I32(v) => v.len(),
            Array::F32(v) => v.len(),
            Array::Bool(v) => v.len(),
            Array::Strings(v) => v.len(),
            Array::Arrays(v) => v.len(),
            Array::U64(v) => v.len(),
            Array::I64(v) => v.len(),
            Array::F64(v) => v.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whole numbers of any type, if each fits a `T`.
    pub(super) fn integers<T: TryFrom<i128>>(&self) -> Option<Vec<T>> {
        fn all<T: TryFrom<i128>, V: Copy + Into<i128>>(values: &[V]) -> Option<Vec<T>> {
            values.iter().map(|v| T::try_from((*v).into()).ok()).collect()
        }
        match self {
            Array::U8(v) => all(v),
            Array::I8(v) => all(v),
            Array::U16(v) => all(v),
            Array::I16(v) => all(v),
            Array::U32(v) => all(v),
            Array::I32(v) => all(v),
            Array::U64(v) => all(v),
            Array::I64(v) => all(v),
            _ => None,
        }
    }
}

/// For error messages: what a value is, shortened.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::U8(v) => v.fmt(f),
            Value::I8(v) => v.fmt(f),
            Value::U16(v) => v.fmt(f),
            Value::I16(v) => v.fmt(f),
            Value::U32(v) => v.fmt(f),
            Value::I32(v) => v.fmt(f),
            Value::F32(v) => v.fmt(f),
            Value::Bool(v) => v.fmt(f),
            Value::U64(v) => v.fmt(f),
            Value::I64(v) => v.fmt(f),
            Value::F64(v) => v.fmt(f),
            Value::Array(v) => write!(f, "an array of {} values", v.len()),
            Value::String(v) => match v.char_indices().nth(60) {
                Some((end, _)) => write!(f, "{:?}…", &v[..end]),
                None => write!(f, "{v:?}"),
            },
        }
    }
}

/// `From` for values of Rust's types.
macro_rules! from {
    ($($type:ty => $variant:ident),*) => { $(
        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Value::$variant(value)
            }
        }

        impl From<Vec<$type>> for Value {
            fn from(values: Vec<$type>) -> Self {
                Value::Array(Array::$variant(values))
            }
        }
    )* };
}
from!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, f32 => F32, bool => Bool, u64 => U64,
    i64 => I64, f64 => F64);

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::String(value.into())
    }
}

impl From<Strings> for Value {
    fn from(values: Strings) -> Self {
        Value::Array(Array::Strings(values))
    }
}

impl From<Vec<Array>> for Value {
    fn from(values: Vec<Array>) -> Self {
        Value::Array(Array::Arrays(values))
    }
}
