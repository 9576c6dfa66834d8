//! Tiles of products with blocks: some rows times one panel.
//!
//! Every output is summed in the order of its inputs whatever the number of rows, as in [`crate::gemm::tile`].

use super::pack::{BLOCK, PackedBlocks, Panel};
use crate::{
    gemm::tile::{Start, Tile, tile},
    simd::{MAX_LANES, Simd},
};

/// Inputs whose scales are made f32 at a time.
const SEGMENT: usize = 1024;
/// Inputs that are made f32 at a time.
const EXACT_SEGMENT: usize = 128;
/// Outputs of the widest panel.
const WIDEST: usize = 2 * MAX_LANES;
/// Groups of a segment, at most.
const GROUPS: usize = SEGMENT / 16;

/// The left operand of a product with blocks.
#[derive(Clone, Copy)]
pub enum Factor {
    /// f32 rows, this many values apart.
    F32(*const f32, usize),
    /// Rows of 8-bit blocks, this many words apart: their integers, and their scales and sums.
    Q8(*const u32, *const u32, usize),
}

/// Rows that a panel's scales are made ready for, at most, as a multiple of a register tile's.
pub const TILES: usize = 4;

/// `c[rows][panel] = x[row..row + rows] · panel + bias`.
///
/// # Safety
/// The rows must exist, at most [`TILES`] times `S::MR`, and `c` must have room for as many rows of a whole panel.
#[inline(always)]
pub unsafe fn blocks_tile<S: Simd>(
    s: S,
    (x, row, rows): (Factor, usize, usize),
    weight: &PackedBlocks,
    panel: usize,
    bias: Option<&[f32]>,
    (c, ldc): (*mut f32, usize),
) {
    let panel = weight.panel(panel);
    let mut scales = core::mem::MaybeUninit::<[f32; GROUPS * WIDEST]>::uninit();
    let mut mins = core::mem::MaybeUninit::<[f32; GROUPS * WIDEST]>::uninit();
    // SAFETY: the planes' values are written before they are read: a segment's by `Panel::scales`, minima only
    // where they are used.
    let (scales, mins) = unsafe { (&mut *scales.as_mut_ptr(), &mut *mins.as_mut_ptr()) };
    let bias = bias.map_or(Start::Zero, |bias| Start::Bias(bias.as_ptr()));
    let width = S::NV * S::LANES;
    // SAFETY: the caller's promise; a panel's planes have the size of all its inputs.
    unsafe {
        match x {
            Factor::Q8(x, sides, ld) => {
                for first in (0..weight.inputs).step_by(SEGMENT) {
                    let inputs = SEGMENT.min(weight.inputs - first);
                    let per = panel.layout.group;
                    panel.scales(s, first / per, inputs / per, scales, mins);
                    let mut done = 0;
                    while done < rows {
                        let t = IntegerTile {
                            blocks: inputs / BLOCK,
                            a: x.add((row + done) * ld + first / 4),
                            sides: sides.add((row + done) * ld + 2 * (first / BLOCK)),
                            lda: ld,
                            b: panel.integers[panel.layout.integer_bytes(first) * width..].as_ptr(),
                            offset: weight.offset(),
                            scales: scales.as_ptr(),
                            mins: if panel.layout.has_min() { mins.as_ptr() } else { core::ptr::null() },
                            start: if first == 0 { bias } else { Start::Output },
                            c: c.add(done * ldc),
                            ldc,
                        };
                        done += t.some_rows(s, &panel, rows - done);
                    }
                }
            }
            Factor::F32(x, ld) => {
                let mut values = core::mem::MaybeUninit::<[f32; EXACT_SEGMENT * WIDEST]>::uninit();
                let values = values.as_mut_ptr().cast::<f32>();
                for first in (0..weight.inputs).step_by(EXACT_SEGMENT) {
                    let inputs = EXACT_SEGMENT.min(weight.inputs - first);
                    let per = panel.layout.group;
                    panel.scales(s, first / per, inputs / per, scales, mins);
                    exact(s, &panel, weight.offset(), first..first + inputs, scales, mins, values);
                    let tiles = rows.div_ceil(S::MR);
                    for i in 0..tiles {
                        let (from, to) = (rows * i / tiles, rows * (i + 1) / tiles);
                        let t = Tile {
                            k: inputs,
                            a: x.add((row + from) * ld + first),
                            lda: ld,
                            b: values,
                            ldb: width,
                            start: if first == 0 { bias } else { Start::Output },
                            c: c.add(from * ldc),
                            ldc,
                        };
                        match S::NV {
                            1 => tile::<S, 1, false, false>(s, to - from, &t),
                            2 => tile::<S, 2, false, false>(s, to - from, &t),
                            _ => tile::<S, 4, false, false>(s, to - from, &t),
                        }
                    }
                }
            }
        }
    }
}

/// The values of some inputs of a panel, `[inputs][width]`.
///
/// # Safety
/// `values` must have room for them.
#[inline(always)]
unsafe fn exact<S: Simd>(
    s: S,
    panel: &Panel<'_>,
    offset: i32,
    inputs: core::ops::Range<usize>,
    scales: &[f32],
    mins: &[f32],
    values: *mut f32,
) {
    let (layout, width) = (panel.layout, S::NV * S::LANES);
    let per_vector = if layout.bytes { 4 } else { 8 };
    // Signed bytes become unsigned, and every integer's offset is known.
    let flip = s.splat_word(if layout.bytes && S::BYTE_OFFSET == 0 { 0x8080_8080 } else { 0 });
    let offset = s.splat_word(if layout.bytes { 128 } else { offset as u32 });
    let mask = s.splat_word(if layout.bytes { 0xff } else { 15 });
    for (step, input) in inputs.clone().step_by(per_vector).enumerate() {
        let group = step * per_vector / layout.group;
        for v in 0..S::NV {
            let lane = v * S::LANES;
            // SAFETY: the planes have the panel's size.
            unsafe {
                let at = (input / per_vector * width + lane) * 4;
                let mut bits = s.xor_i(s.load_i(panel.integers[at..][..4 * S::LANES].as_ptr().cast()), flip);
                let scale = s.load_part(&scales[group * width + lane..][..S::LANES], 0.0);
                let min =
                    layout.has_min().then(|| s.load_part(&mins[group * width + lane..][..S::LANES], 0.0));
                for byte in 0..4 {
                    let value = |bits| {
                        let q = s.to_f(s.sub_i(s.and_i(bits, mask), offset));
                        let value = s.mul(scale, q);
                        min.map_or(value, |min| s.add(value, min))
                    };
                    let to = values.add((step * per_vector + byte) * width + lane);
                    s.store(to, value(bits));
                    if !layout.bytes {
                        s.store(to.add(4 * width), value(s.shift4(bits)));
                    }
                    bits = s.shift8(bits);
                }
            }
        }
    }
}

/// Operands of one tile of integer dot products.
struct IntegerTile {
    /// Blocks of 32 inputs.
    blocks: usize,
    /// Integers of 8-bit blocks, four in a word.
    a: *const u32,
    /// Scale and sums of each block of a row, two words.
    sides: *const u32,
    /// Words between rows of both.
    lda: usize,
    b: *const u8,
    /// What was added to the integers of the weight.
    offset: i32,
    /// `[groups][width]`
    scales: *const f32,
    /// Null if there are none.
    mins: *const f32,
    start: Start,
    c: *mut f32,
    ldc: usize,
}

impl IntegerTile {
    /// A tile of at most `rows` rows; returns how many it did.
    ///
    /// # Safety
    /// All that the operands describe must be readable, and the output writable.
    #[inline(always)]
    unsafe fn some_rows<S: Simd>(&self, s: S, panel: &Panel<'_>, rows: usize) -> usize {
        // SAFETY: the caller's promise.
        unsafe {
            macro_rules! run {
                ($mr:literal, $nv:literal) => {
                    match (panel.layout.bytes, panel.layout.group) {
                        (false, 32) => self.run::<S, $mr, $nv, false, 1>(s),
                        (false, _) => self.run::<S, $mr, $nv, false, 2>(s),
                        (true, 32) => self.run::<S, $mr, $nv, true, 1>(s),
                        (true, _) => self.run::<S, $mr, $nv, true, 2>(s),
                    }
                };
            }
            macro_rules! panels {
                ($mr:literal) => {
                    match S::NV {
                        1 => run!($mr, 1),
                        2 => run!($mr, 2),
                        _ => run!($mr, 4),
                    }
                };
            }
            match rows {
                1 => {
                    panels!(1);
                    1
                }
                2 | 3 => {
                    panels!(2);
                    2
                }
                // As many sums of integers and of floats as there are registers for.
                6.. if S::MR == 12 => {
                    panels!(6);
                    6
                }
                _ => {
                    panels!(4);
                    4
                }
            }
        }
    }

    /// # Safety
    /// As [`Self::some_rows`].
    #[inline(always)]
    unsafe fn run<S: Simd, const MR: usize, const NV: usize, const BYTES: bool, const PARTS: usize>(
        &self,
        s: S,
    ) {
        // SAFETY: every address lies in what the caller promised.
        unsafe {
            let mut y = [[s.splat(0.0); NV]; MR];
            match self.start {
                Start::Zero => {}
                Start::Bias(bias) => {
                    for v in 0..NV {
                        let bias = s.load(bias.add(v * S::LANES));
                        y.iter_mut().for_each(|row| row[v] = bias);
                    }
                }
                Start::Output => {
                    for (m, row) in y.iter_mut().enumerate() {
                        for (v, value) in row.iter_mut().enumerate() {
                            *value = s.load(self.c.add(m * self.ldc + v * S::LANES));
                        }
                    }
                }
            }
            let (mut a, mut b) = (self.a, self.b);
            // Not known to the compiler: it would unroll the steps, and turn their loops inside out.
            let steps = core::hint::black_box(if BYTES { 8 / PARTS } else { 4 / PARTS });
            let (mut sides, mut scales, mut mins) = (self.sides, self.scales, self.mins);
            for _ in 0..self.blocks {
                for part in 0..PARTS {
                    let mut acc = [[s.zero_i(); NV]; MR];
                    let mut sums = [0i32; MR];
                    for m in 0..MR {
                        let both = sides.add(m * self.lda + 1).read();
                        let (low, high) = (i32::from(both as u16 as i16), both as i32 >> 16);
                        sums[m] = if PARTS == 1 {
                            low + high
                        } else if part == 0 {
                            low
                        } else {
                            high
                        };
                        acc[m] = [s.splat_word((-self.offset * sums[m]) as u32); NV];
                    }
                    if BYTES {
                        for _ in 0..steps {
                            bytes_step::<S, MR, NV>(s, &mut acc, a, self.lda, b);
                            a = a.wrapping_add(1);
                            b = b.wrapping_add(NV * S::LANES * 4);
                        }
                    } else {
                        for _ in 0..steps {
                            low_step::<S, MR, NV>(s, &mut acc, a, self.lda, b);
                            a = a.wrapping_add(2);
                            b = b.wrapping_add(NV * S::LANES * 4);
                        }
                    }
                    for (m, (y, acc)) in y.iter_mut().zip(acc).enumerate() {
                        let scale = f32::from_bits(sides.add(m * self.lda).read());
                        for (v, (y, acc)) in y.iter_mut().zip(acc).enumerate() {
                            let both = s.mul(s.load(scales.add(v * S::LANES)), s.splat(scale));
                            *y = s.fma(s.to_f(acc), both, *y);
                        }
                        if !mins.is_null() {
                            let sum = s.splat(scale * sums[m] as f32);
                            for (v, y) in y.iter_mut().enumerate() {
                                *y = s.fma(s.load(mins.add(v * S::LANES)), sum, *y);
                            }
                        }
                    }
                    scales = scales.wrapping_add(NV * S::LANES);
                    if !mins.is_null() {
                        mins = mins.wrapping_add(NV * S::LANES);
                    }
                }
                sides = sides.wrapping_add(2);
            }
            for (m, row) in y.iter().enumerate() {
                for (v, value) in row.iter().enumerate() {
                    s.store(self.c.add(m * self.ldc + v * S::LANES), *value);
                }
            }
        }
    }
}

/// How far ahead of their use weights are asked for, in bytes.
const DISTANCE: usize = 4096;

/// Four inputs of 8 bits.
///
/// # Safety
/// As [`IntegerTile::some_rows`].
#[inline(always)]
unsafe fn bytes_step<S: Simd, const MR: usize, const NV: usize>(
    s: S,
    acc: &mut [[S::I; NV]; MR],
    a: *const u32,
    lda: usize,
    b: *const u8,
) {
    for v in 0..NV {
        // SAFETY: the caller's promise.
        unsafe {
            let at = b.add(v * S::LANES * 4);
            if S::LANES == MAX_LANES || v % (MAX_LANES / S::LANES) == 0 {
                s.prefetch(at.wrapping_add(DISTANCE));
            }
            let weights = s.load_i(at.cast());
            for (m, acc) in acc.iter_mut().enumerate() {
                acc[v] = s.dot_bytes(acc[v], weights, s.splat_word(a.add(m * lda).read()));
            }
        }
    }
}

/// Eight inputs of 4 bits.
///
/// # Safety
/// As [`IntegerTile::some_rows`].
#[inline(always)]
unsafe fn low_step<S: Simd, const MR: usize, const NV: usize>(
    s: S,
    acc: &mut [[S::I; NV]; MR],
    a: *const u32,
    lda: usize,
    b: *const u8,
) {
    let mask = s.splat_word(0x0f0f_0f0f);
    for v in 0..NV {
        // SAFETY: the caller's promise.
        unsafe {
            let at = b.add(v * S::LANES * 4);
            if S::LANES == MAX_LANES || v % (MAX_LANES / S::LANES) == 0 {
                s.prefetch(at.wrapping_add(DISTANCE));
            }
            let bits = s.load_i(at.cast());
            let (low, high) = (s.and_i(bits, mask), s.and_i(s.shift4(bits), mask));
            for (m, acc) in acc.iter_mut().enumerate() {
                let x = a.add(m * lda);
                acc[v] = s.dot_low(acc[v], low, s.splat_word(x.read()));
                acc[v] = s.dot_low(acc[v], high, s.splat_word(x.add(1).read()));
            }
        }
    }
}
