//! Activations in 8-bit blocks: rows as [`inferencelayer_engine::quant::q8`] lays them out.

use inferencelayer_engine::quant::q8::{self, BLOCK};

use crate::simd::{Kernel, Simd};

/// Blocks without a value of this magnitude become zero, as in the engine.
const LEAST: f32 = 1e-30;

/// Rounds a row of `cols` values, whole blocks, into `words`.
///
/// # Safety
/// `x` must have `cols` values, `words` the row's words.
#[inline(always)]
pub unsafe fn quantize_row<S: Simd>(s: S, x: *const f32, cols: usize, words: *mut u32) {
    let zero = s.splat(0.0);
    for block in 0..cols / BLOCK {
        // SAFETY: the caller's promise.
        unsafe {
            let (x, q) = (x.add(block * BLOCK), words.add(block * BLOCK / 4).cast::<i8>());
            let mut largest = zero;
            let mut at = 0;
            while at < BLOCK {
                let v = s.load(x.add(at));
                largest = s.max(largest, s.max(v, s.sub(zero, v)));
                at += S::LANES;
            }
            let largest = s.largest(largest);
            let (scale, inverse) =
                if largest < LEAST { (0.0, 0.0) } else { (largest / 127.0, 1.0 / (largest / 127.0)) };
            let factor = s.splat(inverse);
            // Sums of the first half and of all.
            let (mut first, mut sum, mut at) = (zero, zero, 0);
            while at < BLOCK {
                if at == BLOCK / 2 {
                    first = sum;
                }
                let v = s.round(s.mul(s.load(x.add(at)), factor));
                s.store_bytes(q.add(at), v);
                sum = s.add(sum, v);
                at += S::LANES;
            }
            let low = s.sum(first) as i32;
            let high = s.sum(sum) as i32 - low;
            let side = words.add(cols / 4 + 2 * block);
            side.write(scale.to_bits());
            side.add(1).write(low as u32 & 0xffff | (high as u32) << 16);
        }
    }
}

/// The values of a row, into `out`.
///
/// # Safety
/// `words` must be a row of `out.len()` values, whole blocks.
#[inline(always)]
pub unsafe fn read_row(words: *const u32, out: &mut [f32]) {
    let cols = out.len();
    for (block, out) in out.chunks_mut(BLOCK).enumerate() {
        // SAFETY: the caller's promise.
        let (scale, q) = unsafe {
            let scale = f32::from_bits(*words.add(cols / 4 + 2 * block));
            (scale, core::slice::from_raw_parts(words.cast::<i8>().add(block * BLOCK), out.len()))
        };
        for (out, q) in out.iter_mut().zip(q) {
            *out = scale * f32::from(*q);
        }
    }
}

/// Rounds rows to 8-bit blocks.
pub struct ToQ8 {
    /// `[rows, cols]`
    pub x: *const f32,
    pub cols: usize,
    pub rows: core::ops::Range<usize>,
    pub out: *mut u32,
}

impl Kernel for ToQ8 {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let row_words = q8::row_words(self.cols);
        for row in self.rows {
            // SAFETY: whoever made this promises the rows.
            unsafe {
                quantize_row(s, self.x.add(row * self.cols), self.cols, self.out.add(row * row_words));
            }
        }
    }
}
