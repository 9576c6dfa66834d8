//! Mixtures of experts: choosing them, and the products of those chosen.

use core::ops::Range;

use inferencelayer_engine::op::{Activation, Scoring};

use super::{
    gemm::linear::{At, Epilogue, Product},
    math::activate,
    simd::{Kernel, MAX_LANES, Simd},
};

/// Products of rows with the rows of a small matrix.
pub struct Dots<'a> {
    /// `[rows, cols]`
    pub x: *const f32,
    pub cols: usize,
    /// `[outputs, cols]`, or more.
    pub weight: &'a [f32],
    /// `[rows, outputs]`
    pub out: *mut f32,
    pub outputs: usize,
    pub rows: Range<usize>,
}

impl Kernel for Dots<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for row in self.rows {
            // SAFETY: whoever made this promises the rows.
            let (x, out) = unsafe {
                let x = core::slice::from_raw_parts(self.x.add(row * self.cols), self.cols);
                (x, core::slice::from_raw_parts_mut(self.out.add(row * self.outputs), self.outputs))
            };
            for (out, weight) in out.iter_mut().zip(self.weight.chunks_exact(self.cols)) {
                let mut sum = s.splat(0.0);
                for (x, w) in x.chunks(S::LANES).zip(weight.chunks(S::LANES)) {
                    sum = s.fma(s.load_part(x, 0.0), s.load_part(w, 0.0), sum);
                }
                *out = s.sum(sum);
            }
        }
    }
}

/// Experts and their weights, from logits.
pub struct Choose<'a> {
    /// `[rows, experts]`; scores are made of them in place.
    pub logits: *mut f32,
    pub experts: usize,
    /// For the choice alone.
    pub bias: Option<&'a [f32]>,
    pub scoring: Scoring,
    pub used: usize,
    pub normalize: Option<f32>,
    pub scale: f32,
    /// `[rows, cols]`
    pub out: *mut f32,
    pub cols: usize,
    pub rows: Range<usize>,
}

impl Kernel for Choose<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for row in self.rows {
            // SAFETY: whoever made this promises the rows.
            let (scores, out) = unsafe {
                let scores =
                    core::slice::from_raw_parts_mut(self.logits.add(row * self.experts), self.experts);
                (scores, core::slice::from_raw_parts_mut(self.out.add(row * self.cols), self.cols))
            };
            match self.scoring {
                Scoring::Softmax => {
                    let largest = scores.iter().fold(f32::MIN, |m, v| m.max(*v));
                    let mut total = 0.0;
                    for v in scores.iter_mut() {
                        *v = libm::expf(*v - largest);
                        total += *v;
                    }
                    scores.iter_mut().for_each(|v| *v /= total);
                }
                Scoring::Sigmoid => {
                    for part in scores.chunks_mut(S::LANES) {
                        let v = activate(s, Activation::Sigmoid, s.load_part(part, 0.0));
                        s.store_part(part, v);
                    }
                }
            }
            out.fill(0.0);
            let (chosen, weights) = out.split_at_mut(self.used);
            let mut sum = 0.0;
            for i in 0..self.used {
                let mut best: Option<(usize, f32)> = None;
                for (e, score) in scores.iter().enumerate() {
                    let rank = score + self.bias.map_or(0.0, |bias| bias[e]);
                    let taken = chosen[..i].contains(&(e as f32));
                    if !taken && best.is_none_or(|(_, most)| rank.total_cmp(&most).is_gt()) {
                        best = Some((e, rank));
                    }
                }
                // There are at least as many experts as are used.
                let e = best.map_or(0, |(e, _)| e);
                (chosen[i], weights[i]) = (e as f32, scores[e]);
                sum += scores[e];
            }
            let scale = self.scale / self.normalize.map_or(1.0, |eps| sum + eps);
            weights[..self.used].iter_mut().for_each(|w| *w *= scale);
        }
    }
}

/// What an expert's products become.
#[derive(Clone, Copy)]
pub enum Then {
    /// `out[row][i·width + n] = act(gate) · up`.
    Gated(Activation),
    /// `out[row][n] = Σ weight_i · y_i + residual`; null if there is none.
    Sum(*const f32),
}

/// Some columns of some rows, of all experts that the rows use.
pub struct Experts<'a, P> {
    /// What is multiplied: of the `i`-th expert of a row.
    pub product: P,
    /// `[rows, routes_cols]`
    pub routes: &'a [f32],
    pub routes_cols: usize,
    pub used: usize,
    /// Experts that there are.
    pub experts: usize,
    /// Outputs of one expert, after gating.
    pub width: usize,
    pub then: Then,
    /// `[rows, cols]`
    pub out: *mut f32,
    pub cols: usize,
    pub rows: Range<usize>,
    /// Outputs of an expert.
    pub range: Range<usize>,
}

/// Gate and up columns that are made at a time, each up to two panels wide.
const SCRATCH: usize = 2 * 2 * 2 * MAX_LANES;

impl<'a, P: Fn(usize) -> Product<'a>> Kernel for Experts<'a, P> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let panel = S::NV * S::LANES;
        let mut scratch = core::mem::MaybeUninit::<[f32; SCRATCH]>::uninit();
        let scratch = scratch.as_mut_ptr().cast::<f32>();
        for row in self.rows.clone() {
            let routes = &self.routes[row * self.routes_cols..][..2 * self.used];
            // SAFETY: whoever made this promises the rows, and these columns to this task. The scratch memory has two
            // panels for each part.
            unsafe {
                let out = self.out.add(row * self.cols);
                if let Then::Sum(residual) = self.then {
                    for n in self.range.clone() {
                        let start = if residual.is_null() { 0.0 } else { *residual.add(row * self.cols + n) };
                        out.add(n).write(start);
                    }
                }
                for i in 0..self.used {
                    // Routes that were computed are whole numbers in range, those that came in were checked.
                    let expert = (routes[i] as usize).min(self.experts - 1);
                    let product = (self.product)(i);
                    let mut first = self.range.start;
                    while first < self.range.end {
                        let cols = panel.min(self.range.end - first);
                        match self.then {
                            Then::Gated(activation) => {
                                let gate = expert * 2 * self.width + first;
                                let from = columns(s, &product, row, gate, cols, scratch);
                                let up = columns(
                                    s,
                                    &product,
                                    row,
                                    gate + self.width,
                                    cols,
                                    scratch.add(2 * panel),
                                );
                                let out = out.add(i * self.width + first);
                                let e = Epilogue {
                                    rows: 1,
                                    cols,
                                    from,
                                    ld: 0,
                                    up,
                                    out,
                                    residual: core::ptr::null(),
                                    ldo: 0,
                                };
                                e.run(s, activation);
                            }
                            Then::Sum(_) => {
                                let from =
                                    columns(s, &product, row, expert * self.width + first, cols, scratch);
                                let from = core::slice::from_raw_parts(from, cols);
                                let out = core::slice::from_raw_parts_mut(out.add(first), cols);
                                let share = s.splat(routes[self.used + i]);
                                for (out, y) in out.chunks_mut(S::LANES).zip(from.chunks(S::LANES)) {
                                    let sum = s.fma(share, s.load_part(y, 0.0), s.load_part(out, 0.0));
                                    s.store_part(out, sum);
                                }
                            }
                        }
                        first += cols;
                    }
                }
            }
        }
    }
}

/// `cols` outputs of a row from output `first` of the weight on, at most a panel; they lie where this points, in
/// `scratch`.
///
/// # Safety
/// The row and outputs must exist, and `scratch` must have room for two panels.
#[inline(always)]
unsafe fn columns<S: Simd>(
    s: S,
    product: &Product<'_>,
    row: usize,
    first: usize,
    cols: usize,
    scratch: *mut f32,
) -> *const f32 {
    let width = S::NV * S::LANES;
    let (panel, skip) = (first / width, first % width);
    // SAFETY: the caller's promise.
    unsafe {
        for i in 0..(skip + cols).div_ceil(width) {
            let panel = panel + i;
            product.all(s, At { row, rows: 1, panel, block: 0 }, scratch.add(i * width), 2 * width);
        }
        scratch.add(skip)
    }
}
