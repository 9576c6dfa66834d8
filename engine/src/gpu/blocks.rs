//! How the GPU keeps weights in block formats: a row's integers and scales in planes of whole words, without loss.
//!
//! A row is, one after the other: the integers' low bits, their high bits, the groups' scales, the scales' own scales,
//! and zeros up to a multiple of 16 bytes. `shaders/lib/blocks.wgsl` reads these rows and computes the same offsets.
//!
//! - Low bits: 32 values are 16 bytes, byte `i` holding values `i` and `i + 16`; whole 8-bit integers lie as they come.
//! - High bits of 6: 32 values are two words for values `0..16` and `16..32`; of value `4j + b` there, bits `2j` and
//!   `2j + 1` of byte `b`.

use alloc::vec::Vec;

use half::f16;

use crate::{
    Result,
    format::Format,
    quant::{self, Unpacked},
};

/// What the scale of a group of values is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scales {
    /// f16.
    Half,
    /// f16 scale and minimum.
    HalfMin,
    /// f32.
    Float,
    /// i8, times one f16 a block of 256.
    Byte,
    /// Unsigned bytes of scale and minimum, times two f16 a block of 256.
    ByteMin,
}

/// A way to keep blocks; several formats share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The shaders' word for it, a format's own name where it is kept as it comes.
    pub word: &'static str,
    /// Bits of an integer: 4, 6 or 8.
    bits: usize,
    /// What is added to an integer to make it unsigned, for fewer than 8 bits.
    offset: i8,
    /// Values that share a scale.
    group: usize,
    scales: Scales,
}

impl Layout {
    /// How a format is kept; `None` for formats without blocks.
    pub const fn of(format: Format) -> Option<Layout> {
        let (word, bits, offset, group, scales) = match format {
            Format::Q8_0 | Format::Q5_0 | Format::Iq4Nl => ("q8_0", 8, 0, 32, Scales::Half),
            Format::Q5_1 => ("q8_1", 8, 0, 32, Scales::HalfMin),
            // Its scales reach beyond f16's range.
            Format::Mxfp4 => ("q8_f", 8, 0, 32, Scales::Float),
            Format::Q4_0 => ("q4_0", 4, 8, 32, Scales::Half),
            Format::Q4_1 => ("q4_1", 4, 0, 32, Scales::HalfMin),
            Format::Q2K => ("q2_k", 4, 0, 16, Scales::ByteMin),
            Format::Q3K => ("q3_k", 4, 4, 16, Scales::Byte),
            Format::Q4K => ("q4_k", 4, 0, 32, Scales::ByteMin),
            Format::Q5K => ("q5_k", 8, 0, 32, Scales::ByteMin),
            Format::Q6K => ("q6_k", 6, 32, 16, Scales::Byte),
            Format::Iq4Xs => ("iq4_xs", 8, 0, 32, Scales::Byte),
            Format::F32 | Format::F16 | Format::BF16 | Format::Int8 => return None,
        };
        Some(Layout { word, bits, offset, group, scales })
    }

    /// Whether an integer takes a byte.
    pub fn whole_bytes(self) -> bool {
        self.bits == 8
    }

    /// Bytes of a row of `cols` values, whole blocks.
    pub const fn row_bytes(self, cols: usize) -> usize {
        let (low, high) = match self.bits {
            4 => (cols / 2, 0),
            6 => (cols / 2, cols / 4),
            _ => (cols, 0),
        };
        let groups = cols / self.group;
        let scales = match self.scales {
            Scales::Half => (groups * 2).next_multiple_of(4),
            Scales::HalfMin | Scales::Float => groups * 4,
            Scales::Byte => groups + (cols / 256 * 2).next_multiple_of(4),
            Scales::ByteMin => groups * 2 + cols / 256 * 4,
        };
        (low + high + scales).next_multiple_of(16)
    }

    /// Appends a row given as blocks of `format`.
    ///
    /// # Errors
    /// Those of [`quant::unpack`].
    pub fn pack_row(self, format: Format, blocks: &[u8], scratch: &mut Row, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        scratch.clear();
        for block in blocks.chunks(format.block_bytes()) {
            quant::unpack(format, block, &mut scratch.block)?;
            self.integers(&scratch.block, out, &mut scratch.high);
            self.scales(&scratch.block, &mut scratch.scales, &mut scratch.steps);
        }
        for plane in [&mut scratch.high, &mut scratch.scales, &mut scratch.steps] {
            plane.resize(plane.len().next_multiple_of(4), 0);
            out.extend_from_slice(plane);
        }
        out.resize(start + (out.len() - start).next_multiple_of(16), 0);
        Ok(())
    }

    fn integers(self, block: &Unpacked, low: &mut Vec<u8>, high: &mut Vec<u8>) {
        let q = &block.q[..block.len];
        if self.bits == 8 {
            low.extend(q.iter().map(|q| *q as u8));
            return;
        }
        for q in q.as_chunks::<32>().0 {
            let unsigned = |i: usize| (q[i] + self.offset) as u8;
            low.extend((0..16).map(|i| unsigned(i) & 15 | unsigned(i + 16) << 4));
            if self.bits == 6 {
                let byte = |at: usize| (0..4).fold(0, |bits, j| bits | unsigned(at + 4 * j) >> 4 << (2 * j));
                high.extend((0..4).chain(16..20).map(byte));
            }
        }
    }

    fn scales(self, block: &Unpacked, scales: &mut Vec<u8>, steps: &mut Vec<u8>) {
        let half = |v: f32| f16::from_f32(v).to_le_bytes();
        let groups = &block.steps[..block.len / block.group];
        match self.scales {
            Scales::Half => scales.extend(half(block.scale[0])),
            Scales::HalfMin => scales.extend([half(block.scale[0]), half(block.min[0])].concat()),
            Scales::Float => scales.extend(block.scale[0].to_le_bytes()),
            Scales::Byte => {
                scales.extend(groups.iter().map(|(scale, _)| *scale as u8));
                steps.extend(half(block.d));
            }
            Scales::ByteMin => {
                scales.extend(groups.iter().flat_map(|(scale, min)| [*scale as u8, *min]));
                steps.extend([half(block.d), half(block.dmin)].concat());
            }
        }
    }
}

/// Planes of one row on their way.
#[derive(Debug, Default)]
pub struct Row {
    block: Unpacked,
    high: Vec<u8>,
    scales: Vec<u8>,
    steps: Vec<u8>,
}

impl Row {
    fn clear(&mut self) {
        self.high.clear();
        self.scales.clear();
        self.steps.clear();
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::gpu::kernel;

    #[test]
    fn rows_have_the_bytes_that_are_promised() {
        for format in Format::ALL {
            let Some(layout) = Layout::of(format) else {
                assert!(!format.is_block());
                continue;
            };
            for kernel in [
                kernel::EMBED,
                kernel::LINEAR_COOP,
                kernel::LINEAR_DIRECT,
                kernel::LINEAR_ROWS,
                kernel::LINEAR_TILED,
                kernel::LINEAR_VEC,
            ] {
                let key = if kernel == kernel::EMBED { "T0" } else { "W" };
                let known = kernel::permuted(&kernel, key);
                assert!(known.iter().any(|word| word == layout.word), "{} of {format}", kernel.name);
            }
            for blocks in [1, 2, 3, 5] {
                let mut row = vec![0; 3];
                let bytes = vec![0; blocks * format.block_bytes()];
                layout.pack_row(format, &bytes, &mut Row::default(), &mut row).unwrap();
                assert_eq!(row.len() - 3, layout.row_bytes(blocks * format.block()), "{format}");
            }
        }
    }

    #[test]
    fn formats_with_shaders_of_their_own_do_not_grow() {
        for format in [Format::Q8_0, Format::Q4_0, Format::Q4_1, Format::Q4K, Format::Q6K] {
            let (held, file) = (Layout::of(format).unwrap().row_bytes(2048), format.row_bytes(2048));
            assert!(held <= file + file / 32, "{format}: {held} for {file}");
        }
    }

    /// The row of one block of 256 in 6-bit integers, by hand.
    #[test]
    fn six_bits_are_split_as_shaders_expect() {
        let mut block = vec![0; 210];
        // Value 21: 6 bits 0b10_0110. Low nibbles of values 0..32 are in bytes 0..32, high pairs in 128..160.
        (block[21], block[128 + 21]) = (0b0110, 0b10);
        let mut row = Vec::new();
        Layout::of(Format::Q6K)
            .unwrap()
            .pack_row(Format::Q6K, &block, &mut Row::default(), &mut row)
            .unwrap();
        // 21 = 16 + 4·1 + 1.
        assert_eq!((row[5], row[128 + 5]), (0b0110 << 4, 0b10 << 2));
        assert_eq!(row.iter().filter(|b| **b != 0).count(), 2);
    }
}
