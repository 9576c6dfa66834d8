//! Register tiles: a few rows times one panel, summed over all of K without leaving the registers.
//!
//! Every output has its own accumulator and is summed in the order of K, so its value depends neither on how
//! many rows a tile has nor on which thread computes it.

use super::super::simd::Simd;

/// What a tile's accumulators begin with.
#[derive(Clone, Copy)]
pub enum Start {
    Zero,
    /// A row of biases, one for each output of the panel.
    Bias(*const f32),
    /// What the output holds.
    Output,
}

/// Operands of one tile: `c[m][n] = start + Σ_k a[m][k] · b[k][n]`.
#[derive(Clone, Copy)]
pub struct Tile {
    pub k: usize,
    pub a: *const f32,
    /// Distance between rows of `a`, or between its columns if it is column-major.
    pub lda: usize,
    pub b: *const f32,
    /// Distance between the panel's rows (one for each k).
    pub ldb: usize,
    pub start: Start,
    pub c: *mut f32,
    pub ldc: usize,
}

/// Evaluates `$body` with the constant `$mr` equal to a run-time number of rows.
macro_rules! for_rows {
    ($rows:expr, $max:expr, $mr:ident => $body:expr) => {
        for_rows!(@ $rows, $max, $mr, $body; 1 2 3 4 5 6 7 8 9 10 11 12 13 14)
    };
    (@ $rows:expr, $max:expr, $mr:ident, $body:expr; $($n:literal)*) => {
        match $rows {
            $($n if $n <= $max => {
                const $mr: usize = $n;
                $body
            })*
            _ => debug_assert!(false, "a tile has 1 to {} rows", $max),
        }
    };
}

/// How far ahead of their use weights are asked for, in bytes: what arrives in the time that memory takes.
const DISTANCE: usize = 4096;

/// Asks for the cache lines that hold `bytes` of weights [`DISTANCE`] further on. Processors do that by
/// themselves only within a page.
#[inline(always)]
fn ahead<S: Simd>(s: S, at: *const u8, bytes: usize) {
    let mut line = 0;
    while line < bytes {
        s.prefetch(at.wrapping_add(DISTANCE + line));
        line += 64;
    }
}

/// One tile of `rows` (1..=`S::MR`) by `NV` vectors. `COL`: `a` is column-major. `AHEAD`: `b` is
/// read for the first time, so ask for it early.
///
/// # Safety
/// All that the tile's operands describe must be readable, and the output writable.
#[inline(always)]
pub unsafe fn tile<S: Simd, const NV: usize, const COL: bool, const AHEAD: bool>(
    s: S,
    rows: usize,
    t: &Tile,
) {
    // SAFETY: the caller's promise.
    unsafe {
        for_rows!(rows, S::MR, MR => tile_of::<S, MR, NV, COL, AHEAD>(s, t));
    }
}

/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn tile_of<S: Simd, const MR: usize, const NV: usize, const COL: bool, const AHEAD: bool>(
    s: S,
    t: &Tile,
) {
    // SAFETY: every address lies in what the caller promised.
    unsafe {
        let mut acc = [[s.splat(0.0); NV]; MR];
        match t.start {
            Start::Zero => {}
            Start::Bias(bias) => {
                for v in 0..NV {
                    let bias = s.load(bias.add(v * S::LANES));
                    for row in &mut acc {
                        row[v] = bias;
                    }
                }
            }
            Start::Output => {
                for (m, row) in acc.iter_mut().enumerate() {
                    for (v, value) in row.iter_mut().enumerate() {
                        *value = s.load(t.c.add(m * t.ldc + v * S::LANES));
                    }
                }
            }
        }
        let (mut a, mut b, advance) = (t.a, t.b, if COL { t.lda } else { 1 });
        // One step a turn: unrolled, compilers load more ahead than registers hold.
        for _ in 0..t.k {
            step::<S, MR, NV, COL, AHEAD>(s, &mut acc, a, t.lda, b);
            a = a.wrapping_add(advance);
            b = b.wrapping_add(t.ldb);
        }
        for (m, row) in acc.iter().enumerate() {
            for (v, value) in row.iter().enumerate() {
                s.store(t.c.add(m * t.ldc + v * S::LANES), *value);
            }
        }
    }
}

/// One k of a tile.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn step<S: Simd, const MR: usize, const NV: usize, const COL: bool, const AHEAD: bool>(
    s: S,
    acc: &mut [[S::F; NV]; MR],
    a: *const f32,
    lda: usize,
    b: *const f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if AHEAD {
            ahead::<S>(s, b.cast(), NV * S::LANES * 4);
        }
        let mut weights = [s.splat(0.0); NV];
        for (v, w) in weights.iter_mut().enumerate() {
            *w = s.load(b.add(v * S::LANES));
        }
        for (m, row) in acc.iter_mut().enumerate() {
            let x = s.splat(*a.add(if COL { m } else { m * lda }));
            for (value, w) in row.iter_mut().zip(weights) {
                *value = s.fma(x, w, *value);
            }
        }
    }
}

/// Operands of one 8-bit tile.
#[derive(Clone, Copy)]
pub struct Int8Tile {
    /// Dot steps: words in a row of `a`.
    pub steps: usize,
    /// Quantized activations, `S::DOT` in a word.
    pub a: *const u32,
    pub lda: usize,
    /// Scale and stored zero point of each row.
    pub rows: *const (f32, i32),
    pub b: *const i8,
    /// Sum of the panel's weights, by output.
    pub sums: *const i32,
    /// Scale of the panel's weights, by output.
    pub scales: *const f32,
    /// Null if there is none.
    pub bias: *const f32,
    pub c: *mut f32,
    pub ldc: usize,
}

/// One 8-bit tile: `c = row scale · scale · (Σ a·w − zero point · Σ w) + bias`.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
pub unsafe fn int8_tile<S: Simd, const NV: usize>(s: S, rows: usize, t: &Int8Tile) {
    // SAFETY: the caller's promise.
    unsafe {
        for_rows!(rows, S::MR, MR => int8_tile_of::<S, MR, NV>(s, t));
    }
}

/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn int8_tile_of<S: Simd, const MR: usize, const NV: usize>(s: S, t: &Int8Tile) {
    // SAFETY: every address lies in what the caller promised.
    unsafe {
        let mut acc = [[s.zero_i(); NV]; MR];
        let (mut a, mut b, panel) = (t.a, t.b, NV * S::LANES * S::DOT);
        for _ in 0..t.steps {
            int8_step::<S, MR, NV>(s, &mut acc, a, t.lda, b);
            a = a.wrapping_add(1);
            b = b.wrapping_add(panel);
        }
        for (v, at) in (0..NV).map(|v| v * S::LANES).enumerate() {
            let (sums, scales) = (s.load_i(t.sums.add(at)), s.load(t.scales.add(at)));
            let bias = if t.bias.is_null() { s.splat(0.0) } else { s.load(t.bias.add(at)) };
            for (m, row) in acc.iter().enumerate() {
                let (scale, zero) = *t.rows.add(m);
                let exact = s.sub_i(row[v], s.mul_i(s.splat_word(zero as u32), sums));
                let y = s.fma(s.to_f(exact), s.mul(s.splat(scale), scales), bias);
                s.store(t.c.add(m * t.ldc + at), y);
            }
        }
    }
}

/// One dot step of an 8-bit tile.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn int8_step<S: Simd, const MR: usize, const NV: usize>(
    s: S,
    acc: &mut [[S::I; NV]; MR],
    a: *const u32,
    lda: usize,
    b: *const i8,
) {
    // SAFETY: the caller's promise.
    unsafe {
        ahead::<S>(s, b.cast(), NV * S::LANES * S::DOT);
        let mut weights = [s.zero_i(); NV];
        for (v, w) in weights.iter_mut().enumerate() {
            *w = s.load_weights(b.add(v * S::LANES * S::DOT));
        }
        for (m, row) in acc.iter_mut().enumerate() {
            let x = s.splat_word(*a.add(m * lda));
            for (value, w) in row.iter_mut().zip(weights) {
                *value = s.dot(*value, x, w);
            }
        }
    }
}
