//! Reads a file's header from the front, by ranges that grow, and never takes a length in it on trust.

use alloc::{format, vec::Vec};
use core::fmt;

use super::super::ReadAt;
use crate::{Error, Result};

/// Longest header in bytes; vocabularies take some tens of MB.
pub(super) const LONGEST_HEADER: u64 = 512 << 20;

/// Bytes of the first range that is read, and of the largest.
const RANGES: (usize, usize) = (64 << 10, 4 << 20);

/// Numbers of an array are converted in pieces of so many bytes.
const PIECE: usize = 1 << 20;

/// What is being read, for error messages.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    Start,
    KeyNumber(u64),
    Key(&'a str),
    TensorNumber(u64),
    Tensor(&'a str),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Start => f.write_str("the GGUF header"),
            Place::KeyNumber(n) => write!(f, "metadata key number {n}"),
            Place::Key(key) => write!(f, "metadata key `{key}`"),
            Place::TensorNumber(n) => write!(f, "tensor number {n}"),
            Place::Tensor(name) => write!(f, "tensor `{name}`"),
        }
    }
}

pub(super) struct Reader<'a> {
    file: &'a dyn ReadAt,
    /// Bytes of the file from `start` on.
    buffer: Vec<u8>,
    start: u64,
    /// Bytes of the buffer that are taken.
    taken: usize,
    range: usize,
}

impl<'a> Reader<'a> {
    pub fn new(file: &'a dyn ReadAt) -> Self {
        Reader { file, buffer: Vec::new(), start: 0, taken: 0, range: RANGES.0 }
    }

    /// Bytes read so far.
    pub fn position(&self) -> u64 {
        self.start + self.taken as u64
    }

    pub fn malformed(&self, place: Place<'_>, why: impl fmt::Display) -> Error {
        Error::Malformed { file: self.file.name().into(), why: format!("{place}: {why}") }
    }

    /// `count` as a size in memory, if the rest of the file can hold so many items of `bytes` each.
    pub fn check(&self, count: u64, bytes: usize, place: Place<'_>) -> Result<usize> {
        let (at, size) = (self.position(), self.file.size());
        let needed = count.checked_mul(bytes as u64);
        if needed.is_none_or(|n| n > size.saturating_sub(at)) {
            let why = format!(
                "{count} × {bytes} bytes at byte {at} are more than the file's {size} bytes hold: it is truncated \
                 or damaged; download it again"
            );
            return Err(self.malformed(place, why));
        }
        match (needed, usize::try_from(count)) {
            (Some(needed), Ok(count)) if at + needed <= LONGEST_HEADER => Ok(count),
            _ => {
                let why = format!(
                    "the header is longer than {LONGEST_HEADER} bytes, which is the most that is read"
                );
                Err(self.malformed(place, why))
            }
        }
    }

    /// The next `count` bytes.
    pub async fn take(&mut self, count: u64, place: Place<'_>) -> Result<&[u8]> {
        let count = self.check(count, 1, place)?;
        if self.buffer.len() - self.taken < count {
            self.buffer.drain(..self.taken);
            self.start += self.taken as u64;
            self.taken = 0;
            let from = self.buffer.len();
            let rest = self.file.size() - self.start - from as u64;
            let range = (count - from).max(self.range).min(usize::try_from(rest).unwrap_or(usize::MAX));
            self.range = (self.range * 2).min(RANGES.1);
            self.buffer.resize(from + range, 0);
            self.file.read_at(self.start + from as u64, &mut self.buffer[from..]).await?;
        }
        self.taken += count;
        Ok(&self.buffer[self.taken - count..self.taken])
    }

    pub async fn bytes<const N: usize>(&mut self, place: Place<'_>) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N as u64, place).await?);
        Ok(bytes)
    }

    pub async fn u32(&mut self, place: Place<'_>) -> Result<u32> {
        Ok(u32::from_le_bytes(self.bytes(place).await?))
    }

    pub async fn u64(&mut self, place: Place<'_>) -> Result<u64> {
        Ok(u64::from_le_bytes(self.bytes(place).await?))
    }

    /// A length, and so many bytes of UTF-8.
    pub async fn text(&mut self, place: Place<'_>) -> Result<&str> {
        let length = self.u64(place).await?;
        let at = self.position();
        let file = self.file;
        core::str::from_utf8(self.take(length, place).await?).map_err(|e| {
            let why = format!("{place}: the {length} bytes at byte {at} are no UTF-8 ({e})");
            Error::Malformed { file: file.name().into(), why }
        })
    }

    /// `count` numbers of `N` bytes.
    pub async fn numbers<const N: usize, T>(
        &mut self,
        count: u64,
        place: Place<'_>,
        from: fn([u8; N]) -> T,
    ) -> Result<Vec<T>> {
        let count = self.check(count, N, place)?;
        let mut numbers = Vec::with_capacity(count);
        while numbers.len() < count {
            let next = (count - numbers.len()).min(PIECE / N);
            let bytes = self.take((next * N) as u64, place).await?;
            numbers.extend(bytes.as_chunks().0.iter().map(|b| from(*b)));
        }
        Ok(numbers)
    }
}
