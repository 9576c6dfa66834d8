//! The safetensors header: a length, a JSON object of names, then the tensors' bytes without gaps.
//!
//! The header is read and checked here, not with the `safetensors` crate: that one wants the whole file in one
//! buffer and its errors do not name the tensor.

use alloc::{boxed::Box, collections::BTreeMap, format, string::String, vec, vec::Vec};
use core::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};

use super::{Element, ReadAt, Reading, TensorInfo, TensorSource};
use crate::{Error, Result, order::in_order, tensor::Format};

/// Longest header, as in the format's reference implementation.
const LONGEST_HEADER: u64 = 100_000_000;

/// One safetensors file.
pub struct Safetensors {
    file: Box<dyn ReadAt>,
    tensors: BTreeMap<String, TensorInfo>,
}

impl fmt::Debug for Safetensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Safetensors")
            .field("file", &self.file.name())
            .field("tensors", &self.tensors.len())
            .finish()
    }
}

impl Safetensors {
    /// Reads and checks the header.
    ///
    /// # Errors
    /// `Malformed`, naming the file, and the tensor if it is one tensor's fault.
    pub async fn open(file: Box<dyn ReadAt>) -> Result<Self> {
        let malformed = |why: String| Error::Malformed { file: file.name().into(), why };
        let size = file.size();
        let Some(after_length) = size.checked_sub(8) else {
            return Err(malformed(format!(
                "is {size} bytes long, too short for a safetensors header; download it again"
            )));
        };
        let mut length = [0; 8];
        file.read_at(0, &mut length).await?;
        let length = u64::from_le_bytes(length);
        if length > after_length {
            return Err(malformed(format!(
                "its header of {length} bytes does not fit in its {size} bytes: this is no safetensors file, \
                 or it is truncated; download it again"
            )));
        }
        if length > LONGEST_HEADER {
            return Err(malformed(format!("its header has {length} bytes; {LONGEST_HEADER} are possible")));
        }
        let mut header = vec![0; length as usize];
        file.read_at(8, &mut header).await?;
        let Header(entries) = serde_json::from_slice(&header)
            .map_err(|e| malformed(format!("its safetensors header is not valid: {e}")))?;
        let tensors = place(entries, 8 + length, after_length - length).map_err(malformed)?;
        Ok(Safetensors { file, tensors })
    }

    pub(super) fn tensors(&self) -> &BTreeMap<String, TensorInfo> {
        &self.tensors
    }

    pub(super) fn file(&self) -> &dyn ReadAt {
        &*self.file
    }
}

impl TensorSource for Safetensors {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn names(&self) -> Vec<&str> {
        self.tensors.keys().map(String::as_str).collect()
    }

    fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name)
    }

    fn read<'a>(&'a self, tensor: &'a TensorInfo, offset: u64, out: &'a mut [u8]) -> Reading<'a> {
        self.file.read_at(tensor.offset + offset, out)
    }
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// The header's tensors in the order they stand there.
struct Header(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    match map.next_value::<Entry>() {
                        Ok(entry) => entries.push((name, entry)),
                        Err(e) => return Err(A::Error::custom(format!("tensor `{name}`: {e}"))),
                    }
                }
                Ok(Header(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// Checks that the tensors fill the `data` bytes that begin at `start` without overlap or gap, each with as
/// many bytes as its shape says.
fn place(
    entries: Vec<(String, Entry)>,
    start: u64,
    data: u64,
) -> Result<BTreeMap<String, TensorInfo>, String> {
    let mut tensors = BTreeMap::new();
    let (mut end_before, mut before) = (0, String::new());
    for (name, entry) in in_order(entries, |(_, entry)| entry.data_offsets) {
        let Entry { dtype, shape, data_offsets: [begin, end] } = entry;
        if begin > end || end > data {
            return Err(format!(
                "tensor `{name}` has bytes {begin} to {end} of {data}: out of range, the file may be \
                 truncated; download it again"
            ));
        }
        if begin < end_before {
            return Err(format!("tensors `{before}` and `{name}` overlap at byte {begin}"));
        }
        if begin > end_before {
            return Err(format!(
                "bytes {end_before} to {begin}, before tensor `{name}`, belong to no tensor"
            ));
        }
        let sizes: Option<Vec<usize>> = shape.iter().map(|n| usize::try_from(*n).ok()).collect();
        let values = shape.iter().try_fold(1u64, |all, n| all.checked_mul(*n));
        let (Some(sizes), Some(values)) = (sizes, values) else {
            return Err(format!("tensor `{name}`: the size of shape {shape:?} overflows"));
        };
        if let Some(bits) = bits(&dtype)
            && values.checked_mul(bits) != (end - begin).checked_mul(8)
        {
            return Err(format!("tensor `{name}`: {dtype} {shape:?} does not take {} bytes", end - begin));
        }
        let element = match dtype.as_str() {
            "F32" => Element::Weight(Format::F32),
            "F16" => Element::Weight(Format::F16),
            "BF16" => Element::Weight(Format::BF16),
            _ => Element::Other(dtype),
        };
        let info = TensorInfo { element, shape: sizes, file: 0, offset: start + begin, bytes: end - begin };
        if tensors.insert(name.clone(), info).is_some() {
            return Err(format!("tensor `{name}` stands twice in the header"));
        }
        (end_before, before) = (end, name);
    }
    if end_before != data {
        return Err(format!("bytes {end_before} to {data}, at the end, belong to no tensor"));
    }
    Ok(tensors)
}

/// Bits of one element; `None` for types this reader has not heard of, which only matter once they are read.
fn bits(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F4" => 4,
        "BOOL" | "U8" | "I8" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" => 8,
        "U16" | "I16" | "F16" | "BF16" => 16,
        "U32" | "I32" | "F32" => 32,
        "U64" | "I64" | "F64" | "C64" => 64,
        _ => return None,
    })
}
