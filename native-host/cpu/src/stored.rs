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

/// Most taps of a convolution, less one.
pub const MOST_KEPT: usize = 7;

/// What the rows of a convolution are.
pub enum ConvRows<'a> {
    Slots {
        /// `[rows, 4]`: the position in field 1, the slot in field 3.
        tokens: &'a [u32],
        /// `[spans, 2]`: rows of one slot. `None`: each row is a span.
        spans: Option<&'a [u32]>,
        /// `[slots·(taps − 1), cols]`
        state: *mut f32,
    },
    Sequences {
        /// `[tiles, 4]`: rows, and those of their sequence.
        tiles: &'a [u32],
        /// Taps after the current row.
        ahead: usize,
    },
}

/// Some columns of a gated short convolution, of all rows.
pub struct ShortConv<'a> {
    /// `[rows, 3·cols]`
    pub bcx: *const f32,
    pub rows: ConvRows<'a>,
    /// `[taps, cols]`
    pub weight: &'a [f32],
    pub taps: usize,
    pub bias: Option<&'a [f32]>,
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
            match self.rows {
                ConvRows::Slots { tokens, spans: Some(spans), state } => {
                    for span in spans.as_chunks::<2>().0 {
                        self.span(s, (tokens, state), span[0] as usize..span[1] as usize, col, n);
                    }
                }
                ConvRows::Slots { tokens, spans: None, state } => {
                    (0..tokens.len() / 4).for_each(|row| self.span(s, (tokens, state), row..row + 1, col, n));
                }
                ConvRows::Sequences { tiles, ahead } => {
                    for tile in tiles.as_chunks::<4>().0 {
                        let [first, last, start, end] = tile.map(|row| row as usize);
                        self.tile(s, first..last, start..end, ahead, col, n);
                    }
                }
            }
            col += n;
        }
    }
}

impl ShortConv<'_> {
    /// One span of `n` columns from `col`, with the rows' tokens and the slots' state.
    #[inline(always)]
    fn span<S: Simd>(
        &self,
        s: S,
        (tokens, state): (&[u32], *mut f32),
        rows: Range<usize>,
        col: usize,
        n: usize,
    ) {
        if rows.is_empty() {
            return;
        }
        let (kept, cols) = (self.taps - 1, self.cols);
        let token = &tokens[rows.start * 4..][..4];
        let (position, slot) = (token[1] as usize, token[3] as usize);
        // The oldest first.
        let mut last = [s.splat(0.0); MOST_KEPT + 1];
        for (j, u) in last.iter_mut().enumerate().take(kept) {
            // It lies kept − j positions back; before position 0 there is nothing.
            if position + j >= kept {
                // SAFETY: whoever made this promises the slots, and these columns to this task.
                *u = unsafe { part(s, state, (slot * kept + j) * cols + col, n) };
            }
        }
        for at in rows {
            last[kept] = self.input(s, at, col, n);
            self.finish(s, &last, at, col, n);
            last.copy_within(1..=kept, 0);
        }
        for (j, u) in last.iter().enumerate().take(kept) {
            // SAFETY: as above.
            let to = unsafe { core::slice::from_raw_parts_mut(state.add((slot * kept + j) * cols + col), n) };
            s.store_part(to, *u);
        }
    }

    /// Rows `rows` of the sequence `whole`, with `ahead` taps after the current row.
    #[inline(always)]
    fn tile<S: Simd>(
        &self,
        s: S,
        rows: Range<usize>,
        whole: Range<usize>,
        ahead: usize,
        col: usize,
        n: usize,
    ) {
        let kept = self.taps - 1;
        // The u of a row that may lie outside the sequence, its index plus `kept`.
        let input = |at: usize| match at.checked_sub(kept) {
            Some(row) if whole.contains(&row) => self.input(s, row, col, n),
            _ => s.splat(0.0),
        };
        let mut under = [s.splat(0.0); MOST_KEPT + 1];
        for (j, u) in under.iter_mut().enumerate().take(kept) {
            *u = input(rows.start + ahead + j);
        }
        for at in rows {
            under[kept] = input(at + ahead + kept);
            self.finish(s, &under, at, col, n);
            under.copy_within(1..=kept, 0);
        }
    }

    /// `n` columns of a row's u.
    #[inline(always)]
    fn input<S: Simd>(&self, s: S, row: usize, col: usize, n: usize) -> S::F {
        let first = row * 3 * self.cols + col;
        // SAFETY: whoever made this promises the rows.
        unsafe { s.mul(part(s, self.bcx, first, n), part(s, self.bcx, first + 2 * self.cols, n)) }
    }

    /// `n` columns of a row's output, by the u under the taps.
    #[inline(always)]
    fn finish<S: Simd>(&self, s: S, under: &[S::F; MOST_KEPT + 1], row: usize, col: usize, n: usize) {
        let cols = self.cols;
        let mut y = match self.bias {
            Some(bias) => s.load_part(&bias[col..][..n], 0.0),
            None => s.splat(0.0),
        };
        for (j, u) in under.iter().enumerate().take(self.taps) {
            y = s.fma(s.load_part(&self.weight[j * cols + col..][..n], 0.0), *u, y);
        }
        // SAFETY: whoever made this promises the rows, and these columns to this task.
        unsafe {
            let y = s.mul(part(s, self.bcx, (3 * row + 1) * cols + col, n), y);
            s.store_part(core::slice::from_raw_parts_mut(self.out.add(row * cols + col), n), y);
        }
    }
}

/// `n` values from `at` on, the other lanes 0.
///
/// # Safety
/// They must be readable.
#[inline(always)]
unsafe fn part<S: Simd>(s: S, p: *const f32, at: usize, n: usize) -> S::F {
    // SAFETY: the caller's promise.
    s.load_part(unsafe { core::slice::from_raw_parts(p.add(at), n) }, 0.0)
}
