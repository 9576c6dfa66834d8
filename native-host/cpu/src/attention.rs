//! Fused bidirectional attention: one head of one tile of queries, without ever holding all its scores.
//!
//! Scores are kept transposed, `[key][query]`, so that keys are read where they lie (their values are broadcast
//! against a vector of queries), maxima and sums over keys need nothing across lanes, and the product with the
//! values finds its left operand in column-major order. Keys go by in blocks with a running maximum and sum;
//! blocks begin at the first key of the tile, so a result does not depend on where in a batch its sequence lies.

use inferencelayer_engine::op::ATTENTION_TILE;

use super::{
    gemm::tile::{Start, Tile, tile},
    math::exp2,
    simd::{Kernel, MAX_LANES, Simd},
};

/// Keys in a block.
pub const BLOCK: usize = 64;
/// Score of a masked key: far below any real one, and finite.
pub const MASKED: f32 = -1e30;

/// Additive bias of one head, indexed by clamped distance.
#[derive(Debug, Clone, Copy)]
pub struct Bias<'a> {
    /// `2 · radius + 1` values, the middle one for distance 0 (key − query).
    pub table: &'a [f32],
}

/// One head of one tile.
pub struct Attention<'a> {
    /// `[rows, ld]`: query heads, key heads, value heads.
    pub qkv: *const f32,
    pub ld: usize,
    /// First column of this head's queries, keys and values.
    pub columns: [usize; 3],
    pub head_dim: usize,
    pub scale: f32,
    /// How far keys before and after a query are seen; `None`: to the end of the sequence.
    pub reach: [Option<usize>; 2],
    pub bias: Option<Bias<'a>>,
    /// First and past-the-end query row, then those of the sequence.
    pub tile: [usize; 4],
    /// This head's first output column in row 0.
    pub out: *mut f32,
    pub ldo: usize,
    /// At least [`scratch_len`] values.
    pub scratch: &'a mut [f32],
}

/// f32 values of scratch memory for heads of `head_dim`.
pub const fn scratch_len(head_dim: usize) -> usize {
    let wide = head_dim.next_multiple_of(MAX_LANES);
    ATTENTION_TILE * head_dim
        + BLOCK * ATTENTION_TILE
        + BLOCK * wide
        + ATTENTION_TILE * wide
        + 3 * ATTENTION_TILE
        + BLOCK
        + 2 * ATTENTION_TILE
}

/// Scratch memory by use.
pub struct Parts<'a> {
    /// `[head_dim][width]`: the queries, scaled.
    pub queries: &'a mut [f32],
    /// `[BLOCK][width]`: scores, then probabilities, of a block of keys.
    pub scores: &'a mut [f32],
    /// `[BLOCK][wide]`: the values of a block of keys.
    pub values: &'a mut [f32],
    /// `[ATTENTION_TILE][wide]`: the output before its division.
    pub sums: &'a mut [f32],
    /// Largest score so far, by query.
    pub largest: &'a mut [f32],
    /// Sum of probabilities so far, by query.
    pub total: &'a mut [f32],
    /// What earlier sums are worth under the new maximum.
    pub rescale: &'a mut [f32],
    /// Bias by query − key, from the least.
    diagonal: &'a mut [f32],
}

impl<'a> Parts<'a> {
    pub fn of(scratch: &'a mut [f32], head_dim: usize, wide: usize) -> Self {
        let mut rest = scratch;
        let mut take = |n: usize| {
            let (part, later) = core::mem::take(&mut rest).split_at_mut(n);
            rest = later;
            part
        };
        Parts {
            queries: take(head_dim * ATTENTION_TILE),
            scores: take(BLOCK * ATTENTION_TILE),
            values: take(BLOCK * wide),
            sums: take(ATTENTION_TILE * wide),
            largest: take(ATTENTION_TILE),
            total: take(ATTENTION_TILE),
            rescale: take(ATTENTION_TILE),
            diagonal: take(BLOCK + 2 * ATTENTION_TILE),
        }
    }
}

impl Kernel for Attention<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let [first, last, start, end] = self.tile;
        let [before, after] = self.reach;
        let from = before.map_or(start, |before| start.max(first.saturating_sub(before)));
        let to = after.map_or(end, |after| end.min(last.saturating_add(after)));
        let shape = Shape {
            queries: last - first,
            width: (last - first).next_multiple_of(S::LANES),
            wide: self.head_dim.next_multiple_of(S::LANES),
        };
        let scratch = core::mem::take(&mut self.scratch);
        let mut parts = Parts::of(scratch, self.head_dim, shape.wide);
        self.pack_queries(&mut parts, &shape);
        let mut key = from;
        while key < to {
            let keys = BLOCK.min(to - key);
            let begins = key == from;
            self.scores(s, &mut parts, &shape, key, keys);
            self.mask(&mut parts, &shape, key, keys);
            softmax(s, &mut parts, &shape, keys, begins);
            self.pack_values(s, &mut parts, &shape, key, keys);
            weigh(s, &mut parts, &shape, keys, begins);
            key += keys;
        }
        // SAFETY: whoever made this promises the output's rows.
        unsafe {
            let out = self.out.add(self.tile[0] * self.ldo);
            finish(s, &mut parts, &shape, (out, self.ldo), self.head_dim);
        }
    }
}

/// Sizes of a tile.
pub struct Shape {
    pub queries: usize,
    /// Queries rounded up to vectors.
    pub width: usize,
    /// Head dimension rounded up to vectors.
    pub wide: usize,
}

impl Attention<'_> {
    /// One row of this head's queries (0), keys (1) or values (2).
    #[inline(always)]
    fn row(&self, what: usize, row: usize) -> &[f32] {
        // SAFETY: whoever made this promises the rows of the tile and its sequence.
        unsafe {
            core::slice::from_raw_parts(self.qkv.add(row * self.ld + self.columns[what]), self.head_dim)
        }
    }

    #[inline(always)]
    fn pack_queries(&self, parts: &mut Parts<'_>, shape: &Shape) {
        // Scores are kept in base 2.
        let scale = self.scale * core::f32::consts::LOG2_E;
        for query in 0..shape.width {
            let column = parts.queries.iter_mut().skip(query).step_by(shape.width);
            if query < shape.queries {
                for (to, from) in column.zip(self.row(0, self.tile[0] + query)) {
                    *to = from * scale;
                }
            } else {
                column.take(self.head_dim).for_each(|to| *to = 0.0);
            }
        }
    }

    /// Scores of a block of keys, bias included.
    #[inline(always)]
    fn scores<S: Simd>(&self, s: S, parts: &mut Parts<'_>, shape: &Shape, key: usize, keys: usize) {
        let product = Product {
            k: self.head_dim,
            a: self.row(1, key).as_ptr(),
            lda: self.ld,
            b: parts.queries.as_ptr(),
            ldb: shape.width,
            c: parts.scores.as_mut_ptr(),
            ldc: shape.width,
            rows: keys,
            vectors: shape.width / S::LANES,
            start: Start::Zero,
        };
        // SAFETY: the keys exist, and the scratch parts have these sizes.
        unsafe { product.run::<S, false>(s) };
        let Some(bias) = self.bias else { return };
        let radius = (bias.table.len() / 2) as isize;
        let least = self.tile[0] as isize - (key + keys - 1) as isize;
        for (i, to) in parts.diagonal[..keys + shape.width].iter_mut().enumerate() {
            let distance = (-(least + i as isize)).clamp(-radius, radius);
            *to = bias.table[(distance + radius) as usize] * core::f32::consts::LOG2_E;
        }
        for row in 0..keys {
            let scores = &mut parts.scores[row * shape.width..][..shape.width];
            let diagonal = &parts.diagonal[keys - 1 - row..][..shape.width];
            for (score, bias) in scores.chunks_exact_mut(S::LANES).zip(diagonal.chunks_exact(S::LANES)) {
                let sum = s.add(s.load_part(score, 0.0), s.load_part(bias, 0.0));
                s.store_part(score, sum);
            }
        }
    }

    /// Masks the scores of keys outside the queries' reach.
    #[inline(always)]
    fn mask(&self, parts: &mut Parts<'_>, shape: &Shape, key: usize, keys: usize) {
        if self.reach == [None, None] {
            return;
        }
        let [before, after] = self.reach.map(|reach| reach.unwrap_or(usize::MAX));
        let first = self.tile[0];
        for row in 0..keys {
            let scores = &mut parts.scores[row * shape.width..][..shape.width];
            let seen_from = (key + row).saturating_sub(after).saturating_sub(first).min(shape.width);
            let seen_to = (key + row).saturating_add(before).saturating_add(1).saturating_sub(first);
            scores[..seen_from].fill(MASKED);
            scores[seen_to.min(shape.width)..].fill(MASKED);
        }
    }

    #[inline(always)]
    fn pack_values<S: Simd>(&self, s: S, parts: &mut Parts<'_>, shape: &Shape, key: usize, keys: usize) {
        for row in 0..keys {
            let to = parts.values[row * shape.wide..][..shape.wide].chunks_exact_mut(S::LANES);
            for (to, from) in to.zip(self.row(2, key + row).chunks(S::LANES)) {
                s.store_part(to, s.load_part(from, 0.0));
            }
        }
    }
}

/// Divides the sums and writes them: queries' rows from `out` on, `ldo` apart, `head_dim` columns each.
///
/// # Safety
/// The rows must be writable, and nobody else's.
#[inline(always)]
pub unsafe fn finish<S: Simd>(
    s: S,
    parts: &mut Parts<'_>,
    shape: &Shape,
    (out, ldo): (*mut f32, usize),
    head_dim: usize,
) {
    for total in parts.total[..shape.width].chunks_exact_mut(S::LANES) {
        let inverse = s.div(s.splat(1.0), s.load_part(total, 0.0));
        s.store_part(total, inverse);
    }
    for query in 0..shape.queries {
        // SAFETY: the caller's promise.
        let out = unsafe { core::slice::from_raw_parts_mut(out.add(query * ldo), head_dim) };
        let sums = &parts.sums[query * shape.wide..][..shape.wide];
        let inverse = s.splat(parts.total[query]);
        for (out, sum) in out.chunks_mut(S::LANES).zip(sums.chunks_exact(S::LANES)) {
            let y = s.mul(s.load_part(sum, 0.0), inverse);
            s.store_part(out, y);
        }
    }
}

/// Scores of a block become probabilities relative to the running maximum.
#[inline(always)]
pub fn softmax<S: Simd>(s: S, parts: &mut Parts<'_>, shape: &Shape, keys: usize, begins: bool) {
    let vectors = shape.width / S::LANES;
    let mut vector = 0;
    while vector < vectors {
        let at = vector * S::LANES;
        if vectors - vector >= 4 {
            softmax_columns::<S, 4>(s, parts, shape.width, at, keys, begins);
            vector += 4;
        } else {
            softmax_columns::<S, 1>(s, parts, shape.width, at, keys, begins);
            vector += 1;
        }
    }
}

/// [`softmax`] of `N` vectors of queries from `at`; several, so that none waits for the sum before.
#[inline(always)]
fn softmax_columns<S: Simd, const N: usize>(
    s: S,
    parts: &mut Parts<'_>,
    width: usize,
    at: usize,
    keys: usize,
    begins: bool,
) {
    let mut before = [s.splat(MASKED); N];
    if !begins {
        for (i, before) in before.iter_mut().enumerate() {
            *before = s.load_part(&parts.largest[at + i * S::LANES..][..S::LANES], 0.0);
        }
    }
    let mut largest = before;
    for row in 0..keys {
        let scores = &parts.scores[row * width + at..][..N * S::LANES];
        for (largest, score) in largest.iter_mut().zip(scores.chunks_exact(S::LANES)) {
            *largest = s.max(*largest, s.load_part(score, 0.0));
        }
    }
    let mut total = [s.splat(0.0); N];
    for row in 0..keys {
        let scores = &mut parts.scores[row * width + at..][..N * S::LANES];
        for (i, score) in scores.chunks_exact_mut(S::LANES).enumerate() {
            let p = exp2(s, s.sub(s.load_part(score, 0.0), largest[i]));
            total[i] = s.add(total[i], p);
            s.store_part(score, p);
        }
    }
    for i in 0..N {
        let lanes = at + i * S::LANES..at + (i + 1) * S::LANES;
        if !begins {
            let rescale = exp2(s, s.sub(before[i], largest[i]));
            total[i] = s.fma(s.load_part(&parts.total[lanes.clone()], 0.0), rescale, total[i]);
            s.store_part(&mut parts.rescale[lanes.clone()], rescale);
        }
        s.store_part(&mut parts.largest[lanes.clone()], largest[i]);
        s.store_part(&mut parts.total[lanes], total[i]);
    }
}

/// Adds a block's values, weighted by its probabilities, to the sums.
#[inline(always)]
pub fn weigh<S: Simd>(s: S, parts: &mut Parts<'_>, shape: &Shape, keys: usize, begins: bool) {
    if !begins {
        for query in 0..shape.queries {
            let rescale = s.splat(parts.rescale[query]);
            for sum in parts.sums[query * shape.wide..][..shape.wide].chunks_exact_mut(S::LANES) {
                let v = s.mul(s.load_part(sum, 0.0), rescale);
                s.store_part(sum, v);
            }
        }
    }
    let product = Product {
        k: keys,
        a: parts.scores.as_ptr(),
        lda: shape.width,
        b: parts.values.as_ptr(),
        ldb: shape.wide,
        c: parts.sums.as_mut_ptr(),
        ldc: shape.wide,
        rows: shape.queries,
        vectors: shape.wide / S::LANES,
        start: if begins { Start::Zero } else { Start::Output },
    };
    // SAFETY: the scratch parts have these sizes.
    unsafe { product.run::<S, true>(s) };
}

/// A small product, `[rows, k] · [k, vectors · LANES]`.
pub struct Product {
    pub k: usize,
    pub a: *const f32,
    pub lda: usize,
    pub b: *const f32,
    pub ldb: usize,
    pub c: *mut f32,
    pub ldc: usize,
    pub rows: usize,
    pub vectors: usize,
    pub start: Start,
}

impl Product {
    /// # Safety
    /// As [`tile`].
    #[inline(always)]
    pub unsafe fn run<S: Simd, const COL: bool>(&self, s: S) {
        s.call(Called::<COL>(self));
    }

    /// # Safety
    /// As [`tile`].
    #[inline(always)]
    unsafe fn run_here<S: Simd, const COL: bool>(&self, s: S) {
        let blocks = self.rows.div_ceil(S::MR);
        let mut vector = 0;
        while vector < self.vectors {
            let whole = self.vectors - vector >= S::NV;
            let mut row = 0;
            for block in 0..blocks {
                let rows = (self.rows - row).div_ceil(blocks - block);
                // SAFETY: the caller's promise.
                unsafe {
                    let t = Tile {
                        k: self.k,
                        a: self.a.add(if COL { row } else { row * self.lda }),
                        lda: self.lda,
                        b: self.b.add(vector * S::LANES),
                        ldb: self.ldb,
                        start: self.start,
                        c: self.c.add(row * self.ldc + vector * S::LANES),
                        ldc: self.ldc,
                    };
                    match (whole, S::NV) {
                        (true, 2) => tile::<S, 2, COL, false>(s, rows, &t),
                        (true, 4) => tile::<S, 4, COL, false>(s, rows, &t),
                        _ => tile::<S, 1, COL, false>(s, rows, &t),
                    }
                }
                row += rows;
            }
            vector += if whole { S::NV } else { 1 };
        }
    }
}

/// A product by a call. Whoever makes one keeps the promises of [`Product::run`].
struct Called<'a, const COL: bool>(&'a Product);

impl<const COL: bool> Kernel for Called<'_, COL> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: the maker's promise.
        unsafe { self.0.run_here::<S, COL>(s) };
    }
}
