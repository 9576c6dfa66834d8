//! Kernels that write what later runs read: keys and values, convolutions' last inputs.

use core::ops::Range;

use half::{f16, slice::HalfFloatSliceExt};
use inferencelayer_engine::op::PAGE;

use super::{
    rows::{NormRef, rotate},
    simd::{Kernel, Simd},
};

/// A key-value cache that is written.
#[derive(Clone, Copy)]
pub struct CacheMut {
    pub at: *mut u32,
    /// f16, else f32.
    pub half: bool,
    /// Values of a row.
    pub cols: usize,
}

/// Some heads of all rows: normalised and rotated queries, which stay where they are, and keys and values, which go
/// to the cache.
pub struct StoreKv<'a> {
    /// `[rows, (heads + 2·kv_heads)·head_dim]`
    pub qkv: *mut f32,
    /// `[rows, 4]`: the position in field 1, the slot in field 3.
    pub tokens: &'a [u32],
    pub q_norm: Option<NormRef<'a>>,
    pub k_norm: Option<NormRef<'a>>,
    /// `[positions, head_dim]`
    pub angles: &'a [f32],
    pub cache: CacheMut,
    /// `[slots, per_slot]`
    pub pages: &'a [u32],
    pub per_slot: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Of all heads: those of queries, keys, values.
    pub range: Range<usize>,
}

impl Kernel for StoreKv<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let d = self.head_dim;
        let cols = (self.heads + 2 * self.kv_heads) * d;
        for (row, token) in self.tokens.as_chunks::<4>().0.iter().enumerate() {
            let (position, slot) = (token[1] as usize, token[3] as usize);
            let page = self.pages[slot * self.per_slot + position / PAGE] as usize;
            let angles = &self.angles[position * d..][..d];
            for head in self.range.clone() {
                // SAFETY: whoever made this promises the rows, and these heads to this task.
                let values =
                    unsafe { core::slice::from_raw_parts_mut(self.qkv.add(row * cols + head * d), d) };
                if head < self.heads + self.kv_heads {
                    let norm = if head < self.heads { &self.q_norm } else { &self.k_norm };
                    if let Some(norm) = norm {
                        norm.apply(s, values);
                    }
                    rotate(s, values, angles);
                }
                if head >= self.heads {
                    let at = (page * PAGE + position % PAGE) * self.cache.cols + (head - self.heads) * d;
                    // SAFETY: the position has a page in the cache, which was checked, and this head is the task's.
                    unsafe {
                        if self.cache.half {
                            let to = core::slice::from_raw_parts_mut(self.cache.at.cast::<f16>().add(at), d);
                            to.convert_from_f32_slice(values);
                        } else {
                            let to = self.cache.at.cast::<f32>().add(at);
                            core::ptr::copy_nonoverlapping(values.as_ptr(), to, d);
                        }
                    }
                }
            }
        }
    }
}

/// Most taps of a convolution, less the current one.
pub const MOST_KEPT: usize = 7;

/// Some columns of a gated short convolution, of all rows.
pub struct ShortConv<'a> {
    /// `[rows, 3·cols]`
    pub bcx: *const f32,
    /// `[rows, 4]`: the position in field 1, the slot in field 3.
    pub tokens: &'a [u32],
    /// `[spans, 2]`: rows of one slot. `None`: each row is a span.
    pub spans: Option<&'a [u32]>,
    /// `[taps, cols]`
    pub weight: &'a [f32],
    pub taps: usize,
    pub bias: Option<&'a [f32]>,
    /// `[slots·(taps − 1), cols]`
    pub state: *mut f32,
    /// `[rows, cols]`
    pub out: *mut f32,
    pub cols: usize,
    pub range: Range<usize>,
}

impl Kernel for ShortConv<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut col = self.range.start;
        while col < self.range.end {
            let n = S::LANES.min(self.range.end - col);
            match self.spans {
                Some(spans) => {
                    for span in spans.as_chunks::<2>().0 {
                        self.span(s, span[0] as usize..span[1] as usize, col, n);
                    }
                }
                None => (0..self.tokens.len() / 4).for_each(|row| self.span(s, row..row + 1, col, n)),
            }
            col += n;
        }
    }
}

impl ShortConv<'_> {
    /// One span of `n` columns from `col`.
    #[inline(always)]
    fn span<S: Simd>(&self, s: S, rows: Range<usize>, col: usize, n: usize) {
        if rows.is_empty() {
            return;
        }
        let (kept, cols) = (self.taps - 1, self.cols);
        let token = &self.tokens[rows.start * 4..][..4];
        let (position, slot) = (token[1] as usize, token[3] as usize);
        let row = |p: *const f32, at: usize| {
            // SAFETY: whoever made this promises rows and slots, and these columns to this task.
            s.load_part(unsafe { core::slice::from_raw_parts(p.add(at), n) }, 0.0)
        };
        // The oldest first.
        let mut last = [s.splat(0.0); MOST_KEPT + 1];
        for (j, u) in last.iter_mut().enumerate().take(kept) {
            // It lies kept − j positions back; before position 0 there is nothing.
            if position + j >= kept {
                *u = row(self.state, (slot * kept + j) * cols + col);
            }
        }
        let weight = |j: usize| s.load_part(&self.weight[j * cols + col..][..n], 0.0);
        for at in rows {
            let first = at * 3 * cols + col;
            last[kept] = s.mul(row(self.bcx, first), row(self.bcx, first + 2 * cols));
            let mut y = match self.bias {
                Some(bias) => s.load_part(&bias[col..][..n], 0.0),
                None => s.splat(0.0),
            };
            for (j, u) in last.iter().enumerate().take(kept + 1) {
                y = s.fma(weight(j), *u, y);
            }
            let y = s.mul(row(self.bcx, first + cols), y);
            // SAFETY: as above.
            s.store_part(unsafe { core::slice::from_raw_parts_mut(self.out.add(at * cols + col), n) }, y);
            for j in 0..kept {
                last[j] = last[j + 1];
            }
        }
        for (j, u) in last.iter().enumerate().take(kept) {
            // SAFETY: as above.
            let to = unsafe { self.state.add((slot * kept + j) * cols + col) };
            // SAFETY: as above.
            s.store_part(unsafe { core::slice::from_raw_parts_mut(to, n) }, *u);
        }
    }
}
