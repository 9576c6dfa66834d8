//! Tables whose rows are looked up, kept as f32, f16 or bf16.

use half::{bf16, f16, slice::HalfFloatSliceExt};

/// Values converted at a time.
const PIECE: usize = 64;

/// Values of a table.
#[derive(Debug)]
pub enum Values {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
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
        }
    }

    pub fn bytes(&self) -> usize {
        let width = if matches!(self.values, Values::F32(_)) { 4 } else { 2 };
        self.rows * self.cols * width
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
