//! Attention by a paged cache: a single row by itself, and tiles of a prompt.
//!
//! Keys go by in pages at absolute positions with a running maximum and sum, so a row's result depends neither on
//! how a prompt was cut nor on what is in the cache after it.

use inferencelayer_engine::op::{ATTENTION_TILE, PAGE};

use super::{
    attention::{BLOCK, MASKED, Parts, Product, Shape, finish, softmax, weigh},
    gemm::tile::Start,
    math::exp2,
    simd::{Kernel, MAX_LANES, Simd},
};

const _: () = assert!(PAGE == BLOCK);

/// A key-value cache: rows of key heads, then value heads.
#[derive(Clone, Copy)]
pub struct Cache {
    pub at: *const u32,
    /// f16, else f32.
    pub half: bool,
    /// Values of a row.
    pub cols: usize,
}

impl Cache {
    /// `LANES` values or fewer, `n`, of a row from a column on, then zeros. `HALF`: as [`Self::half`].
    ///
    /// # Safety
    /// They must be there.
    #[inline(always)]
    unsafe fn vector<S: Simd, const HALF: bool>(&self, s: S, row: usize, col: usize, n: usize) -> S::F {
        let at = row * self.cols + col;
        // SAFETY: the caller's promise; short ends are copied.
        unsafe {
            if HALF {
                let p = self.at.cast::<u16>().add(at);
                if n >= S::LANES {
                    return s.load_half(p);
                }
                let mut values = [0u16; MAX_LANES];
                core::ptr::copy_nonoverlapping(p, values.as_mut_ptr(), n);
                s.load_half(values.as_ptr())
            } else {
                let p = self.at.cast::<f32>().add(at);
                if n >= S::LANES {
                    return s.load(p);
                }
                s.load_part(core::slice::from_raw_parts(p, n), 0.0)
            }
        }
    }

    /// Copies `n` values of each of some rows, as f32, `ld` apart; what follows a row's up to whole vectors is zero.
    ///
    /// # Safety
    /// They must be there, and room for whole vectors.
    #[inline(always)]
    unsafe fn copy<S: Simd>(
        &self,
        s: S,
        (row, rows): (usize, usize),
        col: usize,
        n: usize,
        (to, ld): (*mut f32, usize),
    ) {
        for i in 0..rows {
            let mut at = 0;
            while at < n {
                // SAFETY: the caller's promise.
                unsafe {
                    let count = S::LANES.min(n - at);
                    let v = if self.half {
                        self.vector::<S, true>(s, row + i, col + at, count)
                    } else {
                        self.vector::<S, false>(s, row + i, col + at, count)
                    };
                    s.store(to.add(i * ld + at), v);
                }
                at += S::LANES;
            }
        }
    }
}

/// What single rows and tiles share.
#[derive(Clone, Copy)]
pub struct Heads<'a> {
    pub cache: Cache,
    /// Pages of the slot, of every position that is looked at.
    pub pages: &'a [u32],
    /// First columns of keys and values of the key head.
    pub columns: [usize; 2],
    pub head_dim: usize,
    pub scale: f32,
}

impl Heads<'_> {
    /// First row of the cache of a page.
    #[inline(always)]
    fn row(&self, page: usize) -> usize {
        self.pages[page] as usize * PAGE
    }

    /// Scores are kept in base 2.
    #[inline(always)]
    fn factor(&self) -> f32 {
        self.scale * core::f32::consts::LOG2_E
    }
}

/// f32 values of scratch memory for heads of `head_dim`.
pub const fn scratch_len(head_dim: usize) -> usize {
    let wide = head_dim.next_multiple_of(MAX_LANES);
    // The parts of a tile, and a page of keys.
    super::attention::scratch_len(head_dim) + PAGE * wide
}

/// The queries of one row that share a key head.
pub struct CachedRow<'a> {
    pub heads: Heads<'a>,
    /// `[queries][head_dim]`, of which the position is this.
    pub q: *const f32,
    pub queries: usize,
    pub position: usize,
    /// `[queries][head_dim]`
    pub out: *mut f32,
    pub scratch: &'a mut [f32],
}

impl Kernel for CachedRow<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if self.heads.cache.half {
            self.queries::<S, true>(s);
        } else {
            self.queries::<S, false>(s);
        }
    }
}

impl CachedRow<'_> {
    #[inline(always)]
    fn queries<S: Simd, const HALF: bool>(self, s: S) {
        let (heads, d) = (&self.heads, self.heads.head_dim);
        let wide = d.next_multiple_of(S::LANES);
        let (query, rest) = self.scratch.split_at_mut(wide);
        let (scores, rest) = rest.split_at_mut(PAGE);
        let sums = &mut rest[..wide];
        for at in 0..self.queries {
            // SAFETY: whoever made this promises the row.
            let q = unsafe { core::slice::from_raw_parts(self.q.add(at * d), d) };
            query[d..].fill(0.0);
            query.iter_mut().zip(q).for_each(|(to, from)| *to = from * heads.factor());
            sums.fill(0.0);
            let (mut largest, mut total) = (MASKED, 0.0f32);
            for page in 0..=self.position / PAGE {
                let keys = PAGE.min(self.position + 1 - page * PAGE);
                let row = heads.row(page);
                // SAFETY: whoever made this promises the pages' rows.
                unsafe { dots::<S, HALF>(s, heads, (row, keys), query, scores) };
                let mut most = s.splat(largest);
                for part in scores[..keys].chunks(S::LANES) {
                    most = s.max(most, s.load_part(part, MASKED));
                }
                let most = s.largest(most);
                let rescale = (largest - most).exp2();
                let shift = s.splat(most);
                let mut sum = s.splat(0.0);
                for part in scores[..keys].chunks_mut(S::LANES) {
                    let p = exp2(s, s.sub(s.load_part(part, MASKED), shift));
                    sum = s.add(sum, p);
                    s.store_part(part, p);
                }
                total = total * rescale + s.sum(sum);
                largest = most;
                // SAFETY: as above.
                unsafe { add_values::<S, HALF>(s, heads, row, &scores[..keys], rescale, sums) };
            }
            let inverse = s.splat(1.0 / total);
            // SAFETY: whoever made this promises the output's row.
            let out = unsafe { core::slice::from_raw_parts_mut(self.out.add(at * d), d) };
            for (out, sum) in out.chunks_mut(S::LANES).zip(sums.chunks_exact(S::LANES)) {
                let y = s.mul(s.load_part(sum, 0.0), inverse);
                s.store_part(out, y);
            }
        }
    }
}

/// Keys whose products are summed at a time, so that none waits for another.
const KEYS: usize = 4;

/// The query's products with some keys.
///
/// # Safety
/// The rows must be there, and `query` must be filled up to whole vectors.
#[inline(always)]
unsafe fn dots<S: Simd, const HALF: bool>(
    s: S,
    heads: &Heads<'_>,
    (row, keys): (usize, usize),
    query: &[f32],
    scores: &mut [f32],
) {
    let (d, cache) = (heads.head_dim, &heads.cache);
    for (i, scores) in scores[..keys].chunks_mut(KEYS).enumerate() {
        let first = row + i * KEYS;
        let mut sums = [s.splat(0.0); KEYS];
        let mut at = 0;
        while at < d {
            let q = s.load_part(&query[at..at + S::LANES], 0.0);
            let n = S::LANES.min(d - at);
            for (key, sum) in sums.iter_mut().enumerate() {
                // The last keys again where there are not as many.
                let row = first + key.min(scores.len() - 1);
                // SAFETY: the caller's promise.
                let k = unsafe { cache.vector::<S, HALF>(s, row, heads.columns[0] + at, n) };
                *sum = s.fma(k, q, *sum);
            }
            at += S::LANES;
        }
        for (score, sum) in scores.iter_mut().zip(sums) {
            *score = s.sum(sum);
        }
    }
}

/// Vectors of columns that are summed at a time.
const COLUMNS: usize = 4;

/// `sums = sums · rescale + weights · values` over some keys.
///
/// # Safety
/// The rows must be there.
#[inline(always)]
unsafe fn add_values<S: Simd, const HALF: bool>(
    s: S,
    heads: &Heads<'_>,
    row: usize,
    weights: &[f32],
    rescale: f32,
    sums: &mut [f32],
) {
    let (d, rescale) = (heads.head_dim, s.splat(rescale));
    for (i, sums) in sums.chunks_mut(COLUMNS * S::LANES).enumerate() {
        let first = i * COLUMNS * S::LANES;
        let col = heads.columns[1] + first;
        let mut acc = [s.splat(0.0); COLUMNS];
        for (acc, sum) in acc.iter_mut().zip(sums.chunks_exact(S::LANES)) {
            *acc = s.mul(s.load_part(sum, 0.0), rescale);
        }
        if d - first >= COLUMNS * S::LANES {
            for (key, p) in weights.iter().enumerate() {
                let p = s.splat(*p);
                for (v, acc) in acc.iter_mut().enumerate() {
                    let at = col + v * S::LANES;
                    // SAFETY: the caller's promise.
                    let value = unsafe { heads.cache.vector::<S, HALF>(s, row + key, at, S::LANES) };
                    *acc = s.fma(p, value, *acc);
                }
            }
        } else {
            for (v, acc) in acc.iter_mut().enumerate().take((d - first).div_ceil(S::LANES)) {
                let n = S::LANES.min(d - first - v * S::LANES);
                for (key, p) in weights.iter().enumerate() {
                    let at = col + v * S::LANES;
                    // SAFETY: the caller's promise.
                    let value = unsafe { heads.cache.vector::<S, HALF>(s, row + key, at, n) };
                    *acc = s.fma(s.splat(*p), value, *acc);
                }
            }
        }
        for (acc, sum) in acc.iter().zip(sums.chunks_exact_mut(S::LANES)) {
            s.store_part(sum, *acc);
        }
    }
}

/// One head of some rows of one slot.
pub struct CachedTile<'a> {
    pub heads: Heads<'a>,
    /// The first row's queries; rows are this many values apart.
    pub q: *const f32,
    pub ldq: usize,
    /// `[rows, 4]`, the position in field 1.
    pub tokens: &'a [u32],
    /// The largest of the positions.
    pub furthest: usize,
    pub out: *mut f32,
    pub ldo: usize,
    pub scratch: &'a mut [f32],
}

impl Kernel for CachedTile<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let (heads, d) = (&self.heads, self.heads.head_dim);
        let queries = self.tokens.len() / 4;
        debug_assert!(queries <= ATTENTION_TILE);
        let (width, wide) = (queries.next_multiple_of(S::LANES), d.next_multiple_of(S::LANES));
        let shape = Shape { queries, width, wide };
        let scratch = core::mem::take(&mut self.scratch);
        let (keys, scratch) = scratch.split_at_mut(PAGE * wide);
        let mut parts = Parts::of(scratch, d, wide);
        self.pack_queries(&mut parts, &shape);
        for page in 0..=self.furthest / PAGE {
            let (row, count) = (heads.row(page), PAGE.min(self.furthest + 1 - page * PAGE));
            // SAFETY: whoever made this promises the pages' rows; the scratch parts have these sizes.
            unsafe {
                let (a, lda) = if heads.cache.half {
                    heads.cache.copy(s, (row, count), heads.columns[0], d, (keys.as_mut_ptr(), wide));
                    (keys.as_ptr(), wide)
                } else {
                    let at = row * heads.cache.cols + heads.columns[0];
                    (heads.cache.at.cast::<f32>().add(at), heads.cache.cols)
                };
                let product = Product {
                    k: d,
                    a,
                    lda,
                    b: parts.queries.as_ptr(),
                    ldb: width,
                    c: parts.scores.as_mut_ptr(),
                    ldc: width,
                    rows: count,
                    vectors: width / S::LANES,
                    start: Start::Zero,
                };
                product.run::<S, false>(s);
                self.mask(&mut parts, &shape, page * PAGE, count);
                softmax(s, &mut parts, &shape, count, page == 0);
                heads.cache.copy(s, (row, count), heads.columns[1], d, (parts.values.as_mut_ptr(), wide));
                weigh(s, &mut parts, &shape, count, page == 0);
            }
        }
        // SAFETY: whoever made this promises the output's rows.
        unsafe { finish(s, &mut parts, &shape, (self.out, self.ldo), d) };
    }
}

impl CachedTile<'_> {
    #[inline(always)]
    fn pack_queries(&self, parts: &mut Parts<'_>, shape: &Shape) {
        let (d, factor) = (self.heads.head_dim, self.heads.factor());
        for query in 0..shape.width {
            if query < shape.queries {
                // SAFETY: whoever made this promises the rows.
                let q = unsafe { core::slice::from_raw_parts(self.q.add(query * self.ldq), d) };
                for (row, q) in parts.queries.chunks_exact_mut(shape.width).zip(q) {
                    row[query] = q * factor;
                }
            } else {
                parts.queries.chunks_exact_mut(shape.width).take(d).for_each(|row| row[query] = 0.0);
            }
        }
    }

    /// Masks the scores of keys after their query.
    #[inline(always)]
    fn mask(&self, parts: &mut Parts<'_>, shape: &Shape, first: usize, keys: usize) {
        for (query, token) in self.tokens.as_chunks::<4>().0.iter().enumerate() {
            let seen = (token[1] as usize + 1).saturating_sub(first).min(keys);
            for key in seen..keys {
                parts.scores[key * shape.width + query] = MASKED;
            }
        }
    }
}
