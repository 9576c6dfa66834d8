//! Tables whose rows are looked up, kept as f32, f16, bf16 or GGUF's blocks as they come.

use half::{bf16, f16, slice::HalfFloatSliceExt};
use inferencelayer_engine::{
    format::Format,
    quant::{self, Unpacked},
};

/// Values converted at a time.
const PIECE: usize = 64;

/// Values of a table.
#[derive(Debug)]
pub enum Values {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
    /// Whole blocks.
    Blocks(Format, Vec<u8>),
}

/// A table `[rows, cols]`.
#[derive(Debug)]
pub struct Table {
    pub rows: usize,
    pub cols: usize,
    pub values: Values,
}

impl Table {
    /// Adds one row to `out`, which has `cols` values. The row must exist.
    #[inline(always)]
    pub fn add_row(&self, row: usize, out: &mut [f32]) {
        let at = row * self.cols..(row + 1) * self.cols;
        match &self.values {
            Values::F32(values) => {
                for (to, from) in out.iter_mut().zip(&values[at]) {
                    *to += from;
                }
            }
            Values::F16(values) => add_half(&values[at], out),
            Values::Bf16(values) => add_half(&values[at], out),
            Values::Blocks(format, bytes) => {
                let (mut unpacked, row_bytes) = (Unpacked::default(), format.row_bytes(self.cols));
                let blocks = bytes[row * row_bytes..][..row_bytes].chunks_exact(format.block_bytes());
                for (block, out) in blocks.zip(out.chunks_mut(format.block())) {
                    // A block of its format's size always unpacks.
                    if quant::unpack(*format, block, &mut unpacked).is_ok() {
                        add_blocks(&unpacked, out);
                    }
                }
            }
        }
    }

    pub fn bytes(&self) -> usize {
        match &self.values {
            Values::F32(values) => values.len() * 4,
            Values::F16(values) => values.len() * 2,
            Values::Bf16(values) => values.len() * 2,
            Values::Blocks(_, bytes) => bytes.len(),
        }
    }
}

fn add_blocks(block: &Unpacked, out: &mut [f32]) {
    let groups = block.q[..block.len].chunks(block.group).zip(out.chunks_mut(block.group));
    for ((q, out), (scale, min)) in groups.zip(block.scale.iter().zip(&block.min)) {
        for (out, q) in out.iter_mut().zip(q) {
            *out += scale * f32::from(*q) + min;
        }
    }
}

#[inline(always)]
fn add_half<T>(values: &[T], out: &mut [f32])
where
    [T]: HalfFloatSliceExt,
{
    let mut wide = [0f32; PIECE];
    for (out, values) in out.chunks_mut(PIECE).zip(values.chunks(PIECE)) {
        let wide = &mut wide[..values.len()];
        values.convert_to_f32_slice(wide);
        for (to, from) in out.iter_mut().zip(wide) {
            *to += *from;
        }
    }
}
