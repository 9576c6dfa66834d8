//! The list of a GGUF file's tensors, checked.

use alloc::{collections::BTreeMap, format, string::String, vec::Vec};
use core::fmt::Write;

use super::{
    super::{Element, TensorInfo},
    reader::{Place, Reader},
};
use crate::{Result, format::Format, order::in_order};

/// GGUF's limit.
const MOST_DIMENSIONS: u32 = 4;

/// Fewest bytes of an entry: a name's length, number of dimensions, type, offset.
const SMALLEST_ENTRY: usize = 8 + 4 + 4 + 8;

/// A stored type: its elements, and values and bytes of a block.
struct Type {
    element: Element,
    block: u64,
    bytes: u64,
}

/// A type by its number; `None` for numbers that GGUF has not given, or no longer uses.
fn type_of(id: u32) -> Option<Type> {
    let weight = |format: Format| Type {
        element: Element::Weight(format),
        block: format.block() as u64,
        bytes: format.block_bytes() as u64,
    };
    let other = |name: &str, block, bytes| Type { element: Element::Other(name.into()), block, bytes };
    Some(match id {
        0 => weight(Format::F32),
        1 => weight(Format::F16),
        2 => weight(Format::Q4_0),
        3 => weight(Format::Q4_1),
        6 => weight(Format::Q5_0),
        7 => weight(Format::Q5_1),
        8 => weight(Format::Q8_0),
        10 => weight(Format::Q2K),
        11 => weight(Format::Q3K),
        12 => weight(Format::Q4K),
        13 => weight(Format::Q5K),
        14 => weight(Format::Q6K),
        16 => other("IQ2_XXS", 256, 66),
        17 => other("IQ2_XS", 256, 74),
        18 => other("IQ3_XXS", 256, 98),
        19 => other("IQ1_S", 256, 50),
        20 => weight(Format::Iq4Nl),
        21 => other("IQ3_S", 256, 110),
        22 => other("IQ2_S", 256, 82),
        23 => weight(Format::Iq4Xs),
        24 => other("I8", 1, 1),
        25 => other("I16", 1, 2),
        26 => other("I32", 1, 4),
        27 => other("I64", 1, 8),
        28 => other("F64", 1, 8),
        29 => other("IQ1_M", 256, 56),
        30 => weight(Format::BF16),
        34 => other("TQ1_0", 256, 54),
        35 => other("TQ2_0", 256, 66),
        39 => weight(Format::Mxfp4),
        40 => other("NVFP4", 64, 36),
        _ => return None,
    })
}

/// The number of a format; `None` for [`Format::Int8`], which GGUF has not.
pub(crate) fn type_id(format: Format) -> Option<u32> {
    (0..=40).find(|id| type_of(*id).is_some_and(|t| t.element == Element::Weight(format)))
}

/// Reads `count` entries. Offsets count from the start of the data, which is not known yet.
pub(super) async fn read(
    reader: &mut Reader<'_>,
    count: u64,
    alignment: u64,
) -> Result<Vec<(String, TensorInfo)>> {
    reader.check(count, SMALLEST_ENTRY, Place::Start)?;
    let mut tensors = Vec::new();
    for number in 0..count {
        let name = String::from(reader.text(Place::TensorNumber(number)).await?);
        let info = read_entry(reader, Place::Tensor(&name), alignment).await?;
        tensors.push((name, info));
    }
    Ok(tensors)
}

async fn read_entry(reader: &mut Reader<'_>, place: Place<'_>, alignment: u64) -> Result<TensorInfo> {
    let dimensions = reader.u32(place).await?;
    if dimensions > MOST_DIMENSIONS {
        let why = format!("has {dimensions} dimensions; {MOST_DIMENSIONS} are possible");
        return Err(reader.malformed(place, why));
    }
    // Fastest-varying dimension first.
    let sizes = reader.numbers(dimensions.into(), place, u64::from_le_bytes).await?;
    let id = reader.u32(place).await?;
    let Some(Type { element, block, bytes }) = type_of(id) else {
        let mut known = String::new();
        for id in 0..=40 {
            if let Some(Type { element: Element::Weight(format), .. }) = type_of(id) {
                let _ = write!(known, "{}{format}", if id == 0 { "" } else { ", " });
            }
        }
        let why = format!("has elements of the unknown type {id}; weights can be {known}");
        return Err(reader.malformed(place, why));
    };
    let offset = reader.u64(place).await?;
    let row = sizes.first().copied().unwrap_or(1);
    if !row.is_multiple_of(block) {
        let name = match &element {
            Element::Weight(format) => format.name(),
            Element::Other(name) => name,
        };
        let why = format!("rows of {row} values cannot be blocks of {block}, as {name} has");
        return Err(reader.malformed(place, why));
    }
    // An empty dimension must not hide others that multiply beyond all bounds.
    let most = sizes.iter().try_fold(1u64, |all, n| all.checked_mul((*n).max(1)));
    let values = if sizes.contains(&0) { 0 } else { most.unwrap_or(0) };
    let length = most.and_then(|_| (values / block).checked_mul(bytes));
    let shape: Option<Vec<usize>> = sizes.iter().rev().map(|n| usize::try_from(*n).ok()).collect();
    let (Some(length), Some(shape)) = (length, shape) else {
        return Err(reader.malformed(place, format!("the size of dimensions {sizes:?} overflows")));
    };
    if !offset.is_multiple_of(alignment) {
        let why =
            format!("begins at byte {offset} of the data, which is no multiple of the alignment {alignment}");
        return Err(reader.malformed(place, why));
    }
    Ok(TensorInfo { element, shape, file: 0, offset, bytes: length })
}

/// Places the tensors in the file, whose data begins at byte `start`.
///
/// # Errors
/// What is wrong with which tensor.
pub(super) fn place(
    entries: Vec<(String, TensorInfo)>,
    start: u64,
    size: u64,
) -> Result<BTreeMap<String, TensorInfo>, String> {
    let mut tensors = BTreeMap::new();
    let (mut end_before, mut before) = (0, String::new());
    for (name, mut info) in in_order(entries, |(_, info)| [info.offset, info.bytes]) {
        let end = info.offset.checked_add(info.bytes);
        if end.and_then(|end| end.checked_add(start)).is_none_or(|end| end > size) {
            return Err(format!(
                "tensor `{name}` has {} bytes from byte {} of the data on, which lie outside the file of {size} bytes: \
                 it may be truncated; download it again",
                info.bytes, info.offset
            ));
        }
        if info.offset < end_before {
            return Err(format!(
                "tensors `{before}` and `{name}` overlap at byte {} of the data",
                info.offset
            ));
        }
        end_before = info.offset + info.bytes;
        info.offset += start;
        if tensors.contains_key(&name) {
            return Err(format!("tensor `{name}` stands twice in the file"));
        }
        before.clone_from(&name);
        tensors.insert(name, info);
    }
    Ok(tensors)
}
