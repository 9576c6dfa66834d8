//! What the bits of a block of weights mean: the one place that knows the block layouts.
//!
//! Backends keep blocks in whatever order suits their kernels; they get integers and scales from [`unpack`] or
//! values from [`decode_f32`], and both agree bit for bit with the dequantization of the `gguf` Python package.

mod blocks256;
mod blocks32;
pub mod q8;
mod quantize;
#[cfg(test)]
mod tests;

use alloc::{format, vec::Vec};

use half::{bf16, f16};
pub use quantize::quantize;

use crate::{Error, Result, format::Format};

/// The 8-bit values that IQ4_NL's and IQ4_XS's indices stand for.
pub const IQ4_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the values of MXFP4's floats (e2m1). There is no negative zero.
pub const MXFP4_VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// What takes the place of a minimum where a format has none: adding it leaves every value as it is, a negative
/// zero too.
pub const NO_MIN: f32 = -0.0;

/// One block: value `i` is `scale[i / group] * q[i] + min[i / group]`, rounded to f32 after each operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Unpacked {
    /// Integers in the order of the row; the first `len` are meant.
    pub q: [i8; 256],
    /// Scale of each group.
    pub scale: [f32; 16],
    /// What is added to each group's values; [`NO_MIN`] in formats without minima.
    pub min: [f32; 16],
    /// Of blocks of 256: `scale[g]` is `d` times the first of `steps[g]`, `min[g]` is `-(dmin` times the second`)`.
    pub steps: [(i8, u8); 16],
    pub d: f32,
    pub dmin: f32,
    /// Values of one group: 16 or 32.
    pub group: usize,
    /// Values of the block: [`Format::block`].
    pub len: usize,
}

impl Default for Unpacked {
    fn default() -> Self {
        Unpacked {
            q: [0; 256],
            scale: [0.0; 16],
            min: [NO_MIN; 16],
            steps: [(0, 0); 16],
            d: 0.0,
            dmin: 0.0,
            group: 32,
            len: 0,
        }
    }
}

impl Unpacked {
    /// Appends the block's values.
    pub fn values(&self, out: &mut Vec<f32>) {
        let groups = self.q[..self.len].chunks_exact(self.group);
        for ((q, &scale), &min) in groups.zip(&self.scale).zip(&self.min) {
            out.extend(q.iter().map(|&q| scale * f32::from(q) + min));
        }
    }
}

/// Reads one block of a block format.
///
/// # Errors
/// `Unsupported` for a format without blocks, `Shape` if `block` has not [`Format::block_bytes`] bytes.
pub fn unpack(format: Format, block: &[u8], out: &mut Unpacked) -> Result<()> {
    let unpacked = match format {
        Format::Q8_0 => block.try_into().map(|b| blocks32::q8_0(b, out)),
        Format::Q4_0 => block.try_into().map(|b| blocks32::q4_0(b, out)),
        Format::Q4_1 => block.try_into().map(|b| blocks32::q4_1(b, out)),
        Format::Q5_0 => block.try_into().map(|b| blocks32::q5_0(b, out)),
        Format::Q5_1 => block.try_into().map(|b| blocks32::q5_1(b, out)),
        Format::Iq4Nl => block.try_into().map(|b| blocks32::iq4_nl(b, out)),
        Format::Mxfp4 => block.try_into().map(|b| blocks32::mxfp4(b, out)),
        Format::Q2K => block.try_into().map(|b| blocks256::q2_k(b, out)),
        Format::Q3K => block.try_into().map(|b| blocks256::q3_k(b, out)),
        Format::Q4K => block.try_into().map(|b| blocks256::q4_k(b, out)),
        Format::Q5K => block.try_into().map(|b| blocks256::q5_k(b, out)),
        Format::Q6K => block.try_into().map(|b| blocks256::q6_k(b, out)),
        Format::Iq4Xs => block.try_into().map(|b| blocks256::iq4_xs(b, out)),
        Format::F32 | Format::F16 | Format::BF16 | Format::Int8 => {
            return Err(Error::Unsupported(format!("{format} has no blocks to unpack")));
        }
    };
    unpacked.map_err(|_| not_whole(format, block.len()))
}

/// Appends little-endian elements of a plain `format`, or the values of its blocks.
///
/// # Errors
/// `Unsupported` for `Int8`, whose rows are no source format; `Shape` if `bytes` are not whole elements or blocks.
/// Nothing is appended then.
pub fn decode_f32(format: Format, bytes: &[u8], out: &mut Vec<f32>) -> Result<()> {
    if !bytes.len().is_multiple_of(format.block_bytes()) {
        return Err(not_whole(format, bytes.len()));
    }
    match format {
        Format::F32 => out.extend(bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b))),
        Format::F16 => out.extend(bytes.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f32())),
        Format::BF16 => out.extend(bytes.as_chunks().0.iter().map(|b| bf16::from_le_bytes(*b).to_f32())),
        Format::Int8 => return Err(Error::Unsupported("int8 rows are not a source format".into())),
        _ => {
            out.reserve(bytes.len() / format.block_bytes() * format.block());
            let mut unpacked = Unpacked::default();
            for block in bytes.chunks_exact(format.block_bytes()) {
                unpack(format, block, &mut unpacked)?;
                unpacked.values(out);
            }
        }
    }
    Ok(())
}

#[cold]
fn not_whole(format: Format, bytes: usize) -> Error {
    let unit = if format.is_block() { "blocks" } else { "elements" };
    Error::Shape {
        what: format!("{unit} of {format}"),
        expected: format!("a multiple of {} bytes", format.block_bytes()),
        found: format!("{bytes}"),
    }
}

/// The f16 at a place of a block.
fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}
