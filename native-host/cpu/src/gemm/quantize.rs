//! Activations in 8 bits: each row gets its own scale and zero point, from its range (which includes 0).

use super::super::{
    isa::Isa,
    simd::{Kernel, MAX_LANES, Simd},
};

/// Words (u32) that a quantized row of `inputs` values takes.
pub fn row_words(isa: Isa, inputs: usize) -> usize {
    inputs.next_multiple_of(MAX_LANES) / isa.geometry().dot
}

/// Quantizes rows: `q = round(x / scale) + zero` in 0..=255, stored as the instruction set's dot product reads
/// them (`zero` likewise).
pub struct Quantize {
    pub x: *const f32,
    pub ldx: usize,
    pub inputs: usize,
    pub rows: core::ops::Range<usize>,
    /// `[rows][row_words]`
    pub words: *mut u32,
    pub row_words: usize,
    /// Scale and stored zero point.
    pub scales: *mut (f32, i32),
}

impl Kernel for Quantize {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for row in self.rows {
            // SAFETY: whoever made this gave room for `rows.end` rows of each.
            let (x, out, scale) = unsafe {
                let x = core::slice::from_raw_parts(self.x.add(row * self.ldx), self.inputs);
                (x, self.words.add(row * self.row_words).cast::<u8>(), self.scales.add(row))
            };
            let (mut low, mut high) = (s.splat(0.0), s.splat(0.0));
            for part in x.chunks(S::LANES) {
                let v = s.load_part(part, 0.0);
                (low, high) = (s.min(low, v), s.max(high, v));
            }
            let (low, high) = (s.smallest(low), s.largest(high));
            let range = high - low;
            let per_unit = if range > 0.0 { 255.0 / range } else { 0.0 };
            let zero = (-low * per_unit).round();
            // SAFETY: as above.
            unsafe { scale.write((range / 255.0, zero as i32 - S::SHIFT)) };
            let (top, bottom) = (s.splat(255.0), s.splat(0.0));
            let (factor, offset) = (s.splat(per_unit), s.splat(zero));
            for (i, part) in x.chunks(S::LANES).enumerate() {
                let q = s.round(s.fma(s.load_part(part, 0.0), factor, offset));
                let q = s.min(top, s.max(bottom, q));
                // SAFETY: a row's words have room for its values rounded up to the longest vector.
                unsafe { s.store_activations(out.add(i * S::LANES * 4 / S::DOT), q) };
            }
        }
    }
}
