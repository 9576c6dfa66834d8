//! How weights are encoded: plain element types, and GGUF's formats of blocks with scales of their own.

use core::fmt;

/// How a weight's bytes are encoded, in a checkpoint or in a backend's memory.
///
/// A block format encodes [`Format::block`] values of a row at a time in [`Format::block_bytes`] bytes; a row has
/// whole blocks. `crate::quant` has the block layouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Format {
    F32,
    F16,
    BF16,
    /// 8-bit symmetric integers with one f32 scale for each row (output channel).
    Int8,
    /// 32 8-bit integers, an f16 scale.
    Q8_0,
    /// 32 4-bit integers less 8, an f16 scale.
    Q4_0,
    /// 32 4-bit integers, f16 scale and minimum.
    Q4_1,
    /// 32 5-bit integers less 16, an f16 scale.
    Q5_0,
    /// 32 5-bit integers, f16 scale and minimum.
    Q5_1,
    /// 256 2-bit integers, 4-bit scales and minima for each 16, an f16 scale of each.
    Q2K,
    /// 256 3-bit integers less 4, 6-bit scales for each 16, an f16 scale of theirs.
    Q3K,
    /// 256 4-bit integers, 6-bit scales and minima for each 32, an f16 scale of each.
    Q4K,
    /// 256 5-bit integers, 6-bit scales and minima for each 32, an f16 scale of each.
    Q5K,
    /// 256 6-bit integers less 32, 8-bit scales for each 16, an f16 scale of theirs.
    Q6K,
    /// 32 4-bit indices of a table of unevenly spaced 8-bit values, an f16 scale.
    Iq4Nl,
    /// 256 indices as in [`Format::Iq4Nl`], 6-bit scales for each 32, an f16 scale of theirs.
    Iq4Xs,
    /// 32 4-bit floats (e2m1), a power of two as scale.
    Mxfp4,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 17] = [
        Format::F32,
        Format::F16,
        Format::BF16,
        Format::Int8,
        Format::Q8_0,
        Format::Q4_0,
        Format::Q4_1,
        Format::Q5_0,
        Format::Q5_1,
        Format::Q2K,
        Format::Q3K,
        Format::Q4K,
        Format::Q5K,
        Format::Q6K,
        Format::Iq4Nl,
        Format::Iq4Xs,
        Format::Mxfp4,
    ];

    /// The formats of blocks.
    pub const BLOCKS: [Format; 13] = [
        Format::Q8_0,
        Format::Q4_0,
        Format::Q4_1,
        Format::Q5_0,
        Format::Q5_1,
        Format::Q2K,
        Format::Q3K,
        Format::Q4K,
        Format::Q5K,
        Format::Q6K,
        Format::Iq4Nl,
        Format::Iq4Xs,
        Format::Mxfp4,
    ];

    /// Values of one block; 1 for formats without blocks.
    pub const fn block(self) -> usize {
        match self {
            Format::F32 | Format::F16 | Format::BF16 | Format::Int8 => 1,
            Format::Q8_0
            | Format::Q4_0
            | Format::Q4_1
            | Format::Q5_0
            | Format::Q5_1
            | Format::Iq4Nl
            | Format::Mxfp4 => 32,
            Format::Q2K | Format::Q3K | Format::Q4K | Format::Q5K | Format::Q6K | Format::Iq4Xs => 256,
        }
    }

    /// Bytes of one block; of one element for formats without blocks (and without [`Format::Int8`]'s scales).
    pub const fn block_bytes(self) -> usize {
        match self {
            Format::F32 => 4,
            Format::F16 | Format::BF16 => 2,
            Format::Int8 => 1,
            Format::Q8_0 => 34,
            Format::Q4_0 | Format::Iq4Nl => 18,
            Format::Q4_1 => 20,
            Format::Q5_0 => 22,
            Format::Q5_1 => 24,
            Format::Q2K => 84,
            Format::Q3K => 110,
            Format::Q4K => 144,
            Format::Q5K => 176,
            Format::Q6K => 210,
            Format::Iq4Xs => 136,
            Format::Mxfp4 => 17,
        }
    }

    /// Bytes of one row of `cols` values. A block format's row has whole blocks: `cols` is rounded up.
    pub const fn row_bytes(self, cols: usize) -> usize {
        match self {
            Format::Int8 => cols + 4,
            _ => cols.div_ceil(self.block()) * self.block_bytes(),
        }
    }

    /// Whether values share scales in blocks.
    pub const fn is_block(self) -> bool {
        self.block() > 1
    }

    /// For people, as GGUF and safetensors write it: `Q4_K`, `BF16`.
    pub const fn name(self) -> &'static str {
        match self {
            Format::F32 => "F32",
            Format::F16 => "F16",
            Format::BF16 => "BF16",
            Format::Int8 => "Int8",
            Format::Q8_0 => "Q8_0",
            Format::Q4_0 => "Q4_0",
            Format::Q4_1 => "Q4_1",
            Format::Q5_0 => "Q5_0",
            Format::Q5_1 => "Q5_1",
            Format::Q2K => "Q2_K",
            Format::Q3K => "Q3_K",
            Format::Q4K => "Q4_K",
            Format::Q5K => "Q5_K",
            Format::Q6K => "Q6_K",
            Format::Iq4Nl => "IQ4_NL",
            Format::Iq4Xs => "IQ4_XS",
            Format::Mxfp4 => "MXFP4",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Format;

    #[test]
    fn sizes() {
        let rows = Format::ALL.map(|f| f.row_bytes(512));
        assert_eq!(
            rows,
            [2048, 1024, 1024, 516, 544, 288, 320, 352, 384, 168, 220, 288, 352, 420, 288, 272, 272]
        );
        assert_eq!(
            (Format::Q4K.row_bytes(1), Format::Q4_0.row_bytes(33), Format::Mxfp4.row_bytes(0)),
            (144, 36, 0)
        );
        for (at, format) in Format::ALL.into_iter().enumerate() {
            assert!(Format::ALL[..at].iter().all(|f| *f < format && f.name() != format.name()), "{format}");
        }
    }
}
