//! The loops over rows and panels of a linear or gated-linear op, and their epilogues.

use core::ops::Range;

use inferencelayer_engine::op::Activation;

use super::{
    pack::{PackedF32, PackedInt8},
    tile::{Int8Tile, Start, Tile, int8_tile, tile},
};
use crate::{
    blocks::{
        pack::PackedBlocks,
        tile::{Factor, TILES, blocks_tile},
    },
    math::activate,
    simd::{Kernel, MAX_LANES, Simd},
};

/// Largest tile of any instruction set: rows × (gate panel, and two panels of up).
const SCRATCH: usize = TILES * 14 * 3 * 2 * MAX_LANES;

/// Inputs that are summed before the next tile's turn, at most: a panel of so many stays in a core's caches
/// while rows go by.
const BLOCK_INPUTS: usize = 512;

/// Up to so many tiles of rows, each weight panel is read for all of them before the next.
const FEW_TILES: usize = 3;

/// How many blocks of inputs a product of f32 is summed in.
pub const fn input_blocks(inputs: usize) -> usize {
    inputs.div_ceil(BLOCK_INPUTS)
}

/// Inputs of one block.
fn input_block(inputs: usize, block: usize) -> Range<usize> {
    let blocks = input_blocks(inputs);
    let edge = |at: usize| (inputs * at / blocks).next_multiple_of(4).min(inputs);
    edge(block)..edge(block + 1)
}

/// Where a tile is.
#[derive(Clone, Copy)]
pub struct At {
    pub row: usize,
    pub rows: usize,
    pub panel: usize,
    /// Of inputs.
    pub block: usize,
}

/// A product whose tiles can be computed one by one.
#[derive(Clone, Copy)]
pub enum Product<'a> {
    F32(F32Product<'a>),
    Int8(Int8Product<'a>),
    Blocks(BlocksProduct<'a>),
}

impl Product<'_> {
    /// Blocks of inputs; those of a tile are added up in their order.
    #[inline(always)]
    fn blocks(&self) -> usize {
        match self {
            Product::F32(product) => input_blocks(product.weight.inputs),
            Product::Int8(_) | Product::Blocks(_) => 1,
        }
    }

    /// Most rows of a tile.
    #[inline(always)]
    fn most_rows<S: Simd>(&self) -> usize {
        match self {
            Product::F32(_) | Product::Int8(_) => S::MR,
            // What is made ready of a panel serves several register tiles.
            Product::Blocks(_) => TILES * S::MR,
        }
    }

    /// `c[rows][panel] = x[row..row + rows] · panel + bias` for the first block of inputs, and what the others
    /// add to it.
    ///
    /// # Safety
    /// The rows must exist, `most_rows` at most, and `c` must have room for as many of a whole panel.
    #[inline(always)]
    pub unsafe fn tile<S: Simd>(&self, s: S, at: At, c: *mut f32, ldc: usize) {
        s.call(ProductTile { product: self, at, c, ldc });
    }

    /// # Safety
    /// As [`Self::tile`].
    #[inline(always)]
    unsafe fn tile_here<S: Simd>(&self, s: S, at: At, c: *mut f32, ldc: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Product::F32(product) => product.tile(s, at, c, ldc),
                Product::Int8(product) => product.tile(s, at, c, ldc),
                Product::Blocks(BlocksProduct { x, weight, bias }) => {
                    let width = S::NV * S::LANES;
                    let bias = bias.map(|bias| &bias[at.panel * width..][..width]);
                    blocks_tile(s, (*x, at.row, at.rows), weight, at.panel, bias, (c, ldc));
                }
            }
        }
    }
}

impl Product<'_> {
    /// A tile of all blocks of inputs.
    ///
    /// # Safety
    /// As [`Self::tile`].
    #[inline(always)]
    pub unsafe fn all<S: Simd>(&self, s: S, at: At, c: *mut f32, ldc: usize) {
        for block in 0..self.blocks() {
            // SAFETY: the caller's promise.
            unsafe { self.tile(s, At { block, ..at }, c, ldc) };
        }
    }
}

/// A tile by a call. Whoever makes one keeps the promises of [`Product::tile`].
struct ProductTile<'a> {
    product: &'a Product<'a>,
    at: At,
    c: *mut f32,
    ldc: usize,
}

impl Kernel for ProductTile<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: the maker's promise.
        unsafe { self.product.tile_here(s, self.at, self.c, self.ldc) };
    }
}

/// Activations times a weight in blocks.
#[derive(Clone, Copy)]
pub struct BlocksProduct<'a> {
    pub x: Factor,
    pub weight: &'a PackedBlocks,
    /// Filled up to whole panels.
    pub bias: Option<&'a [f32]>,
}

/// f32 activations `[rows, inputs]` times an f32 weight.
#[derive(Clone, Copy)]
pub struct F32Product<'a> {
    pub x: *const f32,
    pub ldx: usize,
    pub weight: &'a PackedF32,
    /// Filled up to whole panels.
    pub bias: Option<&'a [f32]>,
}

impl F32Product<'_> {
    /// # Safety
    /// As [`Product::tile`].
    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, s: S, at: At, c: *mut f32, ldc: usize) {
        let At { row, rows, panel, block } = at;
        let (width, inputs) = (S::NV * S::LANES, input_block(self.weight.inputs, block));
        // SAFETY: rows and output are the caller's promise; the panel is a slice of its whole size, and the bias
        // is checked to hold the panel's.
        unsafe {
            let start = match self.bias {
                _ if block > 0 => Start::Output,
                Some(bias) => Start::Bias(bias[panel * width..][..width].as_ptr()),
                None => Start::Zero,
            };
            let t = Tile {
                k: inputs.len(),
                a: self.x.add(row * self.ldx + inputs.start),
                lda: self.ldx,
                b: self.weight.panel(panel)[inputs.start * width..].as_ptr(),
                ldb: width,
                start,
                c,
                ldc,
            };
            match S::NV {
                1 => tile::<S, 1, false, true>(s, rows, &t),
                2 => tile::<S, 2, false, true>(s, rows, &t),
                _ => tile::<S, 4, false, true>(s, rows, &t),
            }
        }
    }
}

/// Quantized activations times an 8-bit weight.
#[derive(Clone, Copy)]
pub struct Int8Product<'a> {
    /// `[rows][row_words]`
    pub words: *const u32,
    pub row_words: usize,
    /// Scale and stored zero point of each row.
    pub scales: *const (f32, i32),
    pub weight: &'a PackedInt8,
    /// Filled up to whole panels.
    pub bias: Option<&'a [f32]>,
}

impl Int8Product<'_> {
    /// # Safety
    /// As [`Product::tile`].
    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, s: S, at: At, c: *mut f32, ldc: usize) {
        let At { row, rows, panel, .. } = at;
        let width = S::NV * S::LANES;
        let (values, scales, sums) = self.weight.panel(panel);
        let bias = self.bias.map(|bias| &bias[panel * width..][..width]);
        // SAFETY: rows and output are the caller's promise; the panel's slices have its whole size.
        unsafe {
            let t = Int8Tile {
                steps: self.weight.steps(),
                a: self.words.add(row * self.row_words),
                lda: self.row_words,
                rows: self.scales.add(row),
                b: values.as_ptr(),
                sums: sums.as_ptr(),
                scales: scales.as_ptr(),
                bias: bias.map_or(core::ptr::null(), <[f32]>::as_ptr),
                c,
                ldc,
            };
            match S::NV {
                1 => int8_tile::<S, 1>(s, rows, &t),
                2 => int8_tile::<S, 2>(s, rows, &t),
                _ => int8_tile::<S, 4>(s, rows, &t),
            }
        }
    }
}

/// Where results go and what happens to them on the way.
#[derive(Clone, Copy)]
pub struct Output {
    /// `[rows, cols]`
    pub out: *mut f32,
    pub cols: usize,
    pub activation: Activation,
    /// `[rows, cols]`, added last; null if there is none. May be `out`.
    pub residual: *const f32,
    /// The weight holds `cols` gate rows, then `cols` up rows: `out = act(gate) · up`.
    pub gated: bool,
}

/// Some rows by some panels of an op.
pub struct Linear<'a> {
    pub product: Product<'a>,
    pub output: Output,
    pub rows: Range<usize>,
    /// Panels of the output's columns.
    pub panels: Range<usize>,
}

impl Kernel for Linear<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut scratch = core::mem::MaybeUninit::<[f32; SCRATCH]>::uninit();
        let scratch = scratch.as_mut_ptr().cast::<f32>();
        let tiles = self.rows.len().div_ceil(self.product.most_rows::<S>());
        // Even tiles: a last one of a row or two would leave the arithmetic units idle.
        let tile = |i: usize| {
            let edge = |i: usize| self.rows.start + self.rows.len() * i / tiles;
            edge(i)..edge(i + 1)
        };
        for block in 0..self.product.blocks() {
            if tiles <= FEW_TILES {
                // Weights are read once.
                for panel in self.panels.clone() {
                    for i in 0..tiles {
                        self.tile(s, scratch, block, tile(i), panel);
                    }
                }
            } else {
                // Rows stay in the first cache while panels, one after the other, come from the second.
                for i in 0..tiles {
                    for panel in self.panels.clone() {
                        self.tile(s, scratch, block, tile(i), panel);
                    }
                }
            }
        }
    }
}

impl Linear<'_> {
    /// What a block of inputs adds to one tile, and the epilogue if it is the last block.
    #[inline(always)]
    fn tile<S: Simd>(&self, s: S, scratch: *mut f32, block: usize, rows: Range<usize>, panel: usize) {
        let (o, blocks, width) = (&self.output, self.product.blocks(), S::NV * S::LANES);
        let (col, last) = (panel * width, block + 1 == blocks);
        let cols = width.min(o.cols - col);
        // Sums of some inputs only can wait in the output if they have it for themselves.
        let direct = !o.gated && cols == width && o.residual != o.out.cast_const();
        if !direct && !last {
            return;
        }
        let (row, rows) = (rows.start, rows.len());
        // SAFETY: whoever made this promises `rows` of the inputs and of the output; tiles that are not a whole
        // panel of the output go to the scratch memory, which holds the most rows of three panels.
        unsafe {
            let out = o.out.add(row * o.cols + col);
            let (up, skip) = ((o.cols + col) / width, (o.cols + col) % width);
            let (to, ld) = if direct { (out, o.cols) } else { (scratch, 3 * width) };
            let tiles = [(panel, to), (up, scratch.add(width)), (up + 1, scratch.add(2 * width))];
            let used = match (o.gated, skip + cols <= width) {
                (false, _) => 1,
                (true, true) => 2,
                (true, false) => 3,
            };
            for block in if direct { block..block + 1 } else { 0..blocks } {
                for (panel, to) in &tiles[..used] {
                    self.product.tile(s, At { row, rows, panel: *panel, block }, *to, ld);
                }
            }
            if last {
                let residual =
                    if o.residual.is_null() { o.residual } else { o.residual.add(row * o.cols + col) };
                let up = if o.gated { scratch.add(width + skip).cast_const() } else { core::ptr::null() };
                let e = Epilogue { rows, cols, from: to, ld, up, out, residual, ldo: o.cols };
                e.run(s, o.activation);
            }
        }
    }
}

/// One tile on its way to the output.
pub struct Epilogue {
    pub rows: usize,
    pub cols: usize,
    pub from: *const f32,
    pub ld: usize,
    /// Multiplied in; as far apart as `from`. Null if there is none.
    pub up: *const f32,
    pub out: *mut f32,
    pub residual: *const f32,
    pub ldo: usize,
}

impl Epilogue {
    /// # Safety
    /// `rows` by `cols` values of every operand must exist.
    #[inline(always)]
    pub unsafe fn run<S: Simd>(&self, s: S, activation: Activation) {
        if self.from == self.out.cast_const() && self.residual.is_null() && activation == Activation::None {
            return;
        }
        s.call(EpilogueLoops(self, activation));
    }

    /// # Safety
    /// As [`Self::run`].
    #[inline(always)]
    unsafe fn loops<S: Simd>(&self, s: S, activation: Activation) {
        /// A loop for each activation, so that none is chosen inside.
        macro_rules! each {
            ($($name:ident)*) => {
                match activation {
                    $(Activation::$name => unsafe {
                        // SAFETY: the caller's promise.
                        self.rows(s, Activation::$name)
                    })*
                }
            };
        }
        each!(None Gelu GeluTanh Relu Silu Tanh Sigmoid);
    }

    /// # Safety
    /// As [`Self::run`].
    #[inline(always)]
    unsafe fn rows<S: Simd>(&self, s: S, activation: Activation) {
        // SAFETY: the caller's promise.
        unsafe {
            match (self.up.is_null(), self.residual.is_null()) {
                (true, true) => self.each::<S, false, false>(s, activation),
                (true, false) => self.each::<S, false, true>(s, activation),
                (false, true) => self.each::<S, true, false>(s, activation),
                (false, false) => self.each::<S, true, true>(s, activation),
            }
        }
    }

    /// # Safety
    /// As [`Self::run`].
    #[inline(always)]
    unsafe fn each<S: Simd, const UP: bool, const RESIDUAL: bool>(&self, s: S, activation: Activation) {
        // SAFETY: the caller's promise. Where `from`, `residual` and `out` are the same memory, each value is
        // read before it is written.
        unsafe {
            for m in 0..self.rows {
                let (from, up) = (self.from.add(m * self.ld), self.up.wrapping_add(m * self.ld));
                let residual = self.residual.wrapping_add(m * self.ldo);
                let out = self.out.add(m * self.ldo);
                let mut at = 0;
                while at + S::LANES <= self.cols {
                    let mut v = activate(s, activation, s.load(from.add(at)));
                    if UP {
                        v = s.mul(v, s.load(up.add(at)));
                    }
                    if RESIDUAL {
                        v = s.add(v, s.load(residual.add(at)));
                    }
                    s.store(out.add(at), v);
                    at += S::LANES;
                }
                let n = self.cols - at;
                if n > 0 {
                    let mut v = activate(s, activation, part(s, from.add(at), n));
                    if UP {
                        v = s.mul(v, part(s, up.add(at), n));
                    }
                    if RESIDUAL {
                        v = s.add(v, part(s, residual.add(at), n));
                    }
                    s.store_part(core::slice::from_raw_parts_mut(out.add(at), n), v);
                }
            }
        }
    }
}

/// An epilogue by a call. Whoever makes one keeps the promises of [`Epilogue::run`].
struct EpilogueLoops<'a>(&'a Epilogue, Activation);

impl Kernel for EpilogueLoops<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: the maker's promise.
        unsafe { self.0.loops(s, self.1) };
    }
}

/// # Safety
/// `n` values must be readable at `p`.
#[inline(always)]
unsafe fn part<S: Simd>(s: S, p: *const f32, n: usize) -> S::F {
    // SAFETY: the caller's promise.
    s.load_part(unsafe { core::slice::from_raw_parts(p, n) }, 0.0)
}
