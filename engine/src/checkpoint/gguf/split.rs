//! GGUF models in several files: their names, and how they are put together.

use alloc::{collections::BTreeMap, format, string::String, vec::Vec};

use super::{super::TensorInfo, metadata::Metadata};
use crate::{Error, Result};

/// The names of all files of a split model, from one of them: `x-00002-of-00003.gguf` gives those of parts 1 to 3.
/// `None` if it is no such name.
pub fn split_names(name: &str) -> Option<Vec<String>> {
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (prefix, number) = rest.rsplit_once('-')?;
    let (number, count) = (number_of(number)?, number_of(count)?);
    if number == 0 || number > count {
        return None;
    }
    Some((1..=count).map(|number| format!("{prefix}-{number:05}-of-{count:05}.gguf")).collect())
}

/// As they are written: five digits.
fn number_of(digits: &str) -> Option<u32> {
    if digits.len() == 5 && digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
}

/// Which part of how many a file says it is; `(0, 1)` for a file that is the whole model.
pub(super) fn part(metadata: &Metadata) -> Result<(u64, u64)> {
    let count = metadata.opt_u64("split.count")?.unwrap_or(1).max(1);
    let number = metadata.opt_u64("split.no")?.unwrap_or(0);
    if number >= count {
        return Err(
            metadata.wrong("split.no", &format!("is {number}, though there are {count} parts from 0 on"))
        );
    }
    Ok((number, count))
}

/// Puts the files' tensors together. The first file's metadata are the model's.
pub(super) fn merge(
    files: Vec<(Metadata, BTreeMap<String, TensorInfo>)>,
) -> Result<(Metadata, BTreeMap<String, TensorInfo>)> {
    let given = files.len() as u64;
    let (mut metadata, mut tensors) = (None, BTreeMap::new());
    for (at, (more, of_file)) in files.into_iter().enumerate() {
        let (number, count) = part(&more)?;
        if (number, count) != (at as u64, given) {
            let why = format!(
                "is part {} of {count}, but was given as part {} of {given}; give all parts in order",
                number + 1,
                at + 1
            );
            return Err(Error::Malformed { file: more.file().into(), why });
        }
        for (name, info) in of_file {
            if tensors.contains_key(&name) {
                let why = format!("tensor `{name}` is in another part of the model already");
                return Err(Error::Malformed { file: more.file().into(), why });
            }
            tensors.insert(name, TensorInfo { file: at, ..info });
        }
        metadata.get_or_insert(more);
    }
    let Some(metadata) = metadata else {
        return Err(Error::Input("a GGUF model needs one file at least".into()));
    };
    if let Some(promised) = metadata.opt_u64("split.tensors.count")?
        && promised != tensors.len() as u64
    {
        let why = format!("is {promised}, but the parts have {} tensors", tensors.len());
        return Err(metadata.wrong("split.tensors.count", &why));
    }
    Ok((metadata, tensors))
}
