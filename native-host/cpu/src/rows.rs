//! Kernels that go row by row: norms, embedding, rotary embedding, pooling, normalisation.

use core::ops::Range;

use inferencelayer_engine::{
    op::{NormKind, PoolMode},
    quant::q8,
};

use super::{
    blocks::{pack::PackedBlocks, q8::quantize_row, q8::read_row},
    gemm::pack::PackedF32,
    simd::{Kernel, Simd},
    table::Table,
};

/// Parameters of a norm over `weight.len()` columns.
#[derive(Debug, Clone, Copy)]
pub struct NormRef<'a> {
    pub kind: NormKind,
    pub weight: &'a [f32],
    pub bias: Option<&'a [f32]>,
    pub eps: f32,
}

impl NormRef<'_> {
    /// Normalises a row in place.
    #[inline(always)]
    pub fn apply<S: Simd>(&self, s: S, row: &mut [f32]) {
        let n = row.len() as f32;
        let mean = match self.kind {
            NormKind::Layer => sum(s, row) / n,
            NormKind::Rms => 0.0,
        };
        let shift = s.splat(mean);
        let factor = s.splat(1.0 / (squares(s, row, mean) / n + self.eps).sqrt());
        for (i, part) in row.chunks_mut(S::LANES).enumerate() {
            let at = i * S::LANES;
            let v = s.mul(s.sub(s.load_part(part, 0.0), shift), factor);
            let weight = s.load_part(&self.weight[at..], 0.0);
            let v = match self.bias {
                Some(bias) => s.fma(v, weight, s.load_part(&bias[at..], 0.0)),
                None => s.mul(v, weight),
            };
            s.store_part(part, v);
        }
    }
}

/// Accumulators of a sum over a row: enough that none waits for the one before.
const ACCUMULATORS: usize = 4;

/// Sum of the values.
#[inline(always)]
fn sum<S: Simd>(s: S, values: &[f32]) -> f32 {
    let mut totals = [s.splat(0.0); ACCUMULATORS];
    let (whole, rest) = values.split_at(values.len() / (ACCUMULATORS * S::LANES) * ACCUMULATORS * S::LANES);
    for parts in whole.chunks_exact(ACCUMULATORS * S::LANES) {
        for (i, total) in totals.iter_mut().enumerate() {
            // SAFETY: so many vectors are in a part.
            *total = s.add(*total, unsafe { s.load(parts.as_ptr().add(i * S::LANES)) });
        }
    }
    for (i, part) in rest.chunks(S::LANES).enumerate() {
        totals[i] = s.add(totals[i], s.load_part(part, 0.0));
    }
    s.sum(s.add(s.add(totals[0], totals[1]), s.add(totals[2], totals[3])))
}

/// Sum of the squares of the values' differences from `mean`.
#[inline(always)]
fn squares<S: Simd>(s: S, values: &[f32], mean: f32) -> f32 {
    let (mut totals, shift) = ([s.splat(0.0); ACCUMULATORS], s.splat(mean));
    let (whole, rest) = values.split_at(values.len() / (ACCUMULATORS * S::LANES) * ACCUMULATORS * S::LANES);
    for parts in whole.chunks_exact(ACCUMULATORS * S::LANES) {
        for (i, total) in totals.iter_mut().enumerate() {
            // SAFETY: so many vectors are in a part.
            let v = s.sub(unsafe { s.load(parts.as_ptr().add(i * S::LANES)) }, shift);
            *total = s.fma(v, v, *total);
        }
    }
    for (i, part) in rest.chunks(S::LANES).enumerate() {
        let v = s.sub(s.load_part(part, mean), shift);
        totals[i] = s.fma(v, v, totals[i]);
    }
    s.sum(s.add(s.add(totals[0], totals[1]), s.add(totals[2], totals[3])))
}

/// A row of a matrix, as a slice.
///
/// # Safety
/// The row must exist, and nothing else may use it meanwhile.
#[inline(always)]
unsafe fn row_mut<'a>(p: *mut f32, row: usize, cols: usize) -> &'a mut [f32] {
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts_mut(p.add(row * cols), cols) }
}

/// Where rows go.
#[derive(Clone, Copy)]
pub enum Target {
    F32(*mut f32),
    /// 8-bit blocks; each row is made in the second, which has room for one, first.
    Q8(*mut u32, *mut f32),
}

/// `out = norm(x)`; `x` may be `out`.
pub struct Norm<'a> {
    /// `[rows, cols]`
    pub x: *const f32,
    pub out: Target,
    pub cols: usize,
    pub params: NormRef<'a>,
    pub rows: Range<usize>,
}

impl Kernel for Norm<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for row in self.rows {
            // SAFETY: whoever made this promises the rows; `copy` allows both to be the same memory.
            unsafe {
                let (p, at) = match self.out {
                    Target::F32(p) => (p, row),
                    Target::Q8(_, p) => (p, 0),
                };
                core::ptr::copy(self.x.add(row * self.cols), p.add(at * self.cols), self.cols);
                self.params.apply(s, row_mut(p, at, self.cols));
                if let Target::Q8(words, _) = self.out {
                    quantize_row(s, p, self.cols, words.add(row * q8::row_words(self.cols)));
                }
            }
        }
    }
}

/// A weight whose rows can be looked up.
#[derive(Clone, Copy)]
pub enum Lookup<'a> {
    Table(&'a Table),
    F32(&'a PackedF32),
    Blocks(&'a PackedBlocks),
}

impl Lookup<'_> {
    /// Adds a row, which must exist.
    #[inline(always)]
    fn add_row(&self, row: usize, out: &mut [f32]) {
        match self {
            Lookup::Table(table) => table.add_row(row, out),
            Lookup::F32(matrix) => matrix.add_row(row, out),
            Lookup::Blocks(matrix) => matrix.add_row(row, out),
        }
    }
}

/// `out[t] = norm(Σ table[tokens[t][field]])`; the entries must exist.
pub struct Embed<'a> {
    /// `[rows, 4]`
    pub tokens: &'a [u32],
    /// Tables and the token field that indexes each.
    pub tables: &'a [(Lookup<'a>, usize)],
    pub norm: Option<NormRef<'a>>,
    pub out: *mut f32,
    pub cols: usize,
    pub rows: Range<usize>,
}

impl Kernel for Embed<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for row in self.rows {
            // SAFETY: whoever made this promises the rows.
            let values = unsafe { row_mut(self.out, row, self.cols) };
            values.fill(0.0);
            for (table, field) in self.tables {
                table.add_row(self.tokens[row * 4 + field] as usize, values);
            }
            if let Some(norm) = &self.norm {
                norm.apply(s, values);
            }
        }
    }
}

/// Normalises the first heads and rotates their pairs `(i, i + d/2)`, in place.
pub struct Rope<'a> {
    /// `[rows, cols]`
    pub x: *mut f32,
    pub cols: usize,
    /// `[rows, 4]`, the position in field 1.
    pub tokens: &'a [u32],
    pub q_norm: Option<NormRef<'a>>,
    pub k_norm: Option<NormRef<'a>>,
    /// `[positions, head_dim]`: cosines, then sines.
    pub table: &'a [f32],
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub rows: Range<usize>,
}

impl Kernel for Rope<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for row in self.rows {
            // SAFETY: whoever made this promises the rows.
            let values = unsafe { row_mut(self.x, row, self.cols) };
            let position = self.tokens[row * 4 + 1] as usize;
            let angles = &self.table[position * self.head_dim..][..self.head_dim];
            let turned = &mut values[..(self.heads + self.kv_heads) * self.head_dim];
            for (at, head) in turned.chunks_exact_mut(self.head_dim).enumerate() {
                let norm = if at < self.heads { &self.q_norm } else { &self.k_norm };
                if let Some(norm) = norm {
                    norm.apply(s, head);
                }
                rotate(s, head, angles);
            }
        }
    }
}

/// Rotates one head by `angles`: cosines, then sines.
#[inline(always)]
pub fn rotate<S: Simd>(s: S, head: &mut [f32], angles: &[f32]) {
    let half = head.len() / 2;
    let (first, second) = head.split_at_mut(half);
    let mut at = 0;
    while at < half {
        let end = half.min(at + S::LANES);
        let (x, y) = (s.load_part(&first[at..end], 0.0), s.load_part(&second[at..end], 0.0));
        let cos = s.load_part(&angles[at..end], 0.0);
        let sin = s.load_part(&angles[half + at..half + end], 0.0);
        let x_new = s.sub(s.mul(x, cos), s.mul(y, sin));
        let y_new = s.fma(x, sin, s.mul(y, cos));
        s.store_part(&mut first[at..end], x_new);
        s.store_part(&mut second[at..end], y_new);
        at = end;
    }
}

/// Rows summed before their sum joins the total, so that long sums keep their precision.
const POOL_BLOCK: usize = 64;

/// `out[s] = concat(mode(x[ranges[s]]))`; empty ranges give 0.
pub struct Pool<'a> {
    /// `[tokens, cols]`
    pub x: *const f32,
    pub cols: usize,
    /// `[sequences, 2]`
    pub ranges: &'a [u32],
    pub modes: &'a [PoolMode],
    /// `[sequences, modes · cols]`
    pub out: *mut f32,
    pub sequences: Range<usize>,
}

impl Kernel for Pool<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for sequence in self.sequences.clone() {
            // SAFETY: whoever made this promises the rows.
            let out = unsafe { row_mut(self.out, sequence, self.modes.len() * self.cols) };
            let range = self.ranges[sequence * 2] as usize..self.ranges[sequence * 2 + 1] as usize;
            for (mode, out) in self.modes.iter().zip(out.chunks_exact_mut(self.cols)) {
                if range.is_empty() {
                    out.fill(0.0);
                    continue;
                }
                for (i, part) in out.chunks_mut(S::LANES).enumerate() {
                    let v = self.column(s, *mode, &range, i * S::LANES, part.len());
                    s.store_part(part, v);
                }
            }
        }
    }
}

impl Pool<'_> {
    /// `n` pooled columns from `at`.
    #[inline(always)]
    fn column<S: Simd>(&self, s: S, mode: PoolMode, rows: &Range<usize>, at: usize, n: usize) -> S::F {
        // SAFETY: whoever made this promises the ranges' rows; `at + n` is within the columns.
        let load = |row: usize| unsafe { core::slice::from_raw_parts(self.x.add(row * self.cols + at), n) };
        let count = rows.len() as f32;
        match mode {
            PoolMode::Cls => s.load_part(load(rows.start), 0.0),
            PoolMode::LastToken => s.load_part(load(rows.end - 1), 0.0),
            PoolMode::Max => {
                let mut most = s.load_part(load(rows.start), 0.0);
                for row in rows.clone() {
                    most = s.max(most, s.load_part(load(row), 0.0));
                }
                most
            }
            PoolMode::Mean | PoolMode::MeanSqrtLen | PoolMode::WeightedMean => {
                let weighted = mode == PoolMode::WeightedMean;
                let mut total = s.splat(0.0);
                for block in rows.clone().step_by(POOL_BLOCK) {
                    let mut sum = s.splat(0.0);
                    for row in block..rows.end.min(block + POOL_BLOCK) {
                        let weight = if weighted { (row - rows.start + 1) as f32 } else { 1.0 };
                        sum = s.fma(s.load_part(load(row), 0.0), s.splat(weight), sum);
                    }
                    total = s.add(total, sum);
                }
                let divisor = match mode {
                    PoolMode::Mean => count,
                    PoolMode::MeanSqrtLen => count.sqrt(),
                    _ => count * (count + 1.0) / 2.0,
                };
                s.div(total, s.splat(divisor))
            }
        }
    }
}

/// Rows that are read.
#[derive(Clone, Copy)]
pub enum Source {
    F32(*const f32),
    /// 8-bit blocks; each row is read into the second, which has room for one.
    Q8(*const u32, *mut f32),
}

/// `out = x/max(‖x‖₂, 1e-12)` over the first `out_cols` columns, or those columns as they are.
pub struct Normalize {
    /// `[rows, cols]`
    pub x: Source,
    pub cols: usize,
    /// `[rows, out_cols]`
    pub out: Target,
    pub out_cols: usize,
    pub unit: bool,
    pub rows: Range<usize>,
}

impl Kernel for Normalize {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for row in self.rows {
            // SAFETY: whoever made this promises the rows of two different matrices.
            let (x, out) = unsafe {
                let x = match self.x {
                    Source::F32(x) => core::slice::from_raw_parts(x.add(row * self.cols), self.out_cols),
                    Source::Q8(words, values) => {
                        let values = row_mut(values, 0, self.cols);
                        read_row(words.add(row * q8::row_words(self.cols)), values);
                        &values[..self.out_cols]
                    }
                };
                let out = match self.out {
                    Target::F32(out) => row_mut(out, row, self.out_cols),
                    Target::Q8(_, values) => row_mut(values, 0, self.out_cols),
                };
                (x, out)
            };
            out.copy_from_slice(x);
            if self.unit {
                let norm = s.splat(squares(s, x, 0.0).sqrt().max(1e-12));
                for part in out.chunks_mut(S::LANES) {
                    let v = s.div(s.load_part(part, 0.0), norm);
                    s.store_part(part, v);
                }
            }
            if let Target::Q8(words, _) = self.out {
                // SAFETY: as above.
                unsafe {
                    let words = words.add(row * q8::row_words(self.out_cols));
                    quantize_row(s, out.as_ptr(), self.out_cols, words);
                }
            }
        }
    }
}
