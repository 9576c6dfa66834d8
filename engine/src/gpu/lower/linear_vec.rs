//! The shape of `linear_vec`: how a product with few rows is shared out among invocations.

use alloc::format;

use super::{Lowering, define, flag, norm_word};
use crate::{
    format::Format,
    gpu::{blocks::Layout, context::Features, pipelines::Definitions},
    op::Norm,
};

/// Most rows that share one pass over the weight.
const ROWS: u32 = 8;

/// Up to so many rows, this kernel is the one for floats. A software adapter gains nothing from loads in flight.
pub const fn most_rows(features: Features) -> u32 {
    if features.barriers { ROWS } else { 2 }
}

/// So many invocations with some loads on their way each occupy a large GPU's memory.
const ENOUGH_INVOCATIONS: u32 = 65_536;

/// 16-byte loads of a weight on their way in one invocation.
const LOADS: u32 = 8;

/// Products of units in the text of the kernel, at most: registers hold no more, and compilers take long.
const PRODUCTS: u32 = 32;

/// Up to so many rows, a product normalises its own input: they are normalised one after the other.
pub const HELD_ROWS: u32 = 4;

/// So many workgroups keep a large GPU busy. Where each normalises its input, more would only do so more often.
const RESIDENT: u32 = 1024;

/// A product.
#[derive(Debug, Clone, Copy)]
pub struct Task {
    pub format: Format,
    /// Matrices whose products make an output together: 2 of gated ops, 3 of convolutions.
    pub sides: u32,
    /// The outputs are 8-bit blocks.
    pub q8_out: bool,
    pub rows: u32,
    /// Output columns of all pieces of the weight.
    pub n: u32,
    pub k4: u32,
    /// Invocations that a workgroup may have.
    pub threads: u32,
}

impl Task {
    /// Groups of four values in a unit of `lib/units.wgsl`.
    fn unit4(&self) -> u32 {
        match self.format {
            Format::F32 => 1,
            Format::F16 => 2,
            _ => 8,
        }
    }

    /// Whether the kernel can do it.
    pub fn fits(&self) -> bool {
        self.k4.is_multiple_of(self.unit4())
    }
}

/// An input that workgroups normalise themselves, instead of reading it.
#[derive(Debug, Clone, Copy)]
pub struct Held<'a> {
    pub norm: &'a Norm,
    /// Pieces of 16 values of a row, and those of an invocation.
    halves: u32,
    each: u32,
    threads: u32,
}

impl<'a> Held<'a> {
    /// `None` if a workgroup of this shape cannot hold its rows beside `other_bytes` of workgroup memory.
    pub fn new(l: &Lowering<'_>, shape: &Shape, norm: &'a Norm, other_bytes: u32) -> Option<Held<'a>> {
        let threads = shape.threads();
        let halves = l.cols4(norm.out).div_ceil(4);
        let each = halves.div_ceil(threads);
        let row = match l.word(norm.out) {
            "q8" => halves * 22,
            "f16" => halves * 32,
            _ => halves * 64,
        };
        // What sums over the workgroup take, of a row and of the product.
        let sums = each * threads * 5 + shape.rows * shape.outputs * 8 + threads * 12;
        let fits = shape.rows * row + sums + other_bytes <= l.workgroup_bytes;
        (l.features.barriers && each <= 4 && fits).then_some(Held { norm, halves, each, threads })
    }

    pub fn definitions(&self, l: &Lowering<'_>) -> Definitions {
        let words = [("HELD", self.each), ("HALVES", self.halves)];
        let mut all: Definitions = words.map(|(key, n)| (key, format!("{n}"))).into();
        all.extend(define(&[("NORM", norm_word(Some(&self.norm.params))), ("SOURCE", l.word(self.norm.x))]));
        all
    }

    /// Fewer workgroups, each of which makes several times its outputs.
    pub fn grid(&self, [x, y, z]: [u32; 3]) -> [u32; 3] {
        let most = RESIDENT * 128 / self.threads;
        let rounds = (x * y).div_ceil(most);
        [(x * y).div_ceil(rounds), 1, z]
    }
}

/// The words of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    rows: u32,
    lanes: u32,
    outs: u32,
    unroll: u32,
    /// The next turn's loads are on their way while a turn multiplies.
    ahead: bool,
    subgroups: bool,
    /// Outputs of a workgroup.
    outputs: u32,
}

impl Shape {
    /// Everything but `rows`, `outs`, `unroll` and `ahead`, which never change a bit, follows from the weight alone.
    pub fn new(features: Features, task: &Task) -> Shape {
        let subgroups = features.subgroups && features.subgroup_size.0 >= 8;
        let widest = if subgroups { features.subgroup_size.0.min(32) } else { 8 };
        let sides = task.sides;
        let units = task.k4 / task.unit4();
        let more = |lanes: u32| {
            2 * lanes <= widest && task.n * sides * lanes < ENOUGH_INVOCATIONS && units >= 4 * lanes
        };
        let lanes = if !more(8) {
            8
        } else if !more(16) {
            16
        } else {
            32
        };
        let rows = task.rows.clamp(1, most_rows(features)).next_power_of_two();
        // Outputs that share the loads of x, which weigh more with every row.
        let shared = match rows {
            _ if !features.barriers => 1,
            1 => 1,
            2 => (2 / sides).max(1),
            _ => (4 / sides).max(1),
        };
        // 32 outputs of a workgroup, of 512 invocations at most.
        let most_threads = if task.threads >= 512 { 512 } else { 256 };
        let outs = if task.q8_out { shared.max(32 * lanes / most_threads) } else { shared };
        let wide = if Layout::of(task.format).is_some_and(Layout::whole_bytes) { 2 } else { 1 };
        let most = match features.barriers {
            true => (LOADS / wide).min(PRODUCTS / rows) / (outs * sides),
            false => 1,
        };
        let most = 1 << most.max(1).ilog2();
        let unroll = units.div_ceil(lanes).next_power_of_two().min(most);
        let outputs = if task.q8_out { 32 } else { 128 / lanes * outs };
        // Twice the registers: not for more invocations than a half of them would leave running.
        let ahead = features.barriers && !task.q8_out && units.div_ceil(lanes) > unroll;
        Shape { rows, lanes, outs, unroll, ahead, subgroups, outputs }
    }

    /// Invocations of a workgroup.
    const fn threads(&self) -> u32 {
        self.outputs / self.outs * self.lanes
    }

    pub fn definitions(&self) -> Definitions {
        let words =
            [("ROWS", self.rows), ("LANES", self.lanes), ("OUTS", self.outs), ("UNROLL", self.unroll)];
        let mut all: Definitions = words.map(|(key, n)| (key, format!("{n}"))).into();
        all.extend(define(&[("AHEAD", &flag(self.ahead)), ("SUBGROUPS", &flag(self.subgroups))]));
        all
    }

    /// The grid for `n` outputs; its first number is the kernel's `row_grid`.
    pub fn grid(&self, rows: u32, n: u32) -> [u32; 3] {
        let [x, y, _] = super::fold(n.div_ceil(self.outputs));
        [x, y, rows.div_ceil(self.rows)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::kernel::{self, permuted};

    fn features(subgroups: bool, size: u32) -> Features {
        Features {
            f16: true,
            subgroups,
            subgroup_size: (size, size),
            cooperative_matrix: false,
            timestamps: false,
            barriers: true,
        }
    }

    const TASK: Task =
        Task { format: Format::Q4_0, sides: 1, q8_out: false, rows: 1, n: 2048, k4: 512, threads: 512 };

    #[test]
    fn shapes_are_legal() {
        let mut known = alloc::collections::BTreeMap::new();
        for (subgroups, size) in [(false, 32), (true, 4), (true, 8), (true, 16), (true, 32), (true, 64)] {
            for format in Format::BLOCKS.into_iter().chain([Format::F32, Format::F16]) {
                for (sides, q8_out) in [(1, false), (2, false), (2, true), (3, false), (3, true)] {
                    let threads = if size == 32 { 512 } else { 256 };
                    for (rows, n, k4) in [(1, 64, 64), (3, 2048, 512), (8, 65536, 1024), (40, 1024, 64 * 9)] {
                        let task = Task { format, sides, q8_out, rows, n, k4, threads };
                        let shape = Shape::new(features(subgroups, size), &task);
                        let most = threads;
                        let threads = shape.threads();
                        assert!(threads.is_multiple_of(8) && threads >= shape.lanes, "{task:?} {shape:?}");
                        assert!(threads <= most && shape.outputs.is_multiple_of(4), "{task:?} {shape:?}");
                        assert!(shape.outputs / 4 * shape.rows <= threads, "{task:?} {shape:?}");
                        assert!(!shape.subgroups || shape.lanes <= size, "{task:?} {shape:?}");
                        for (key, word) in shape.definitions() {
                            let known =
                                known.entry(key).or_insert_with(|| permuted(&kernel::LINEAR_VEC, key));
                            assert!(known.contains(&word), "{key} {word}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_order_of_summation_does_not_depend_on_rows() {
        for n in [256, 2048, 8192, 100_000] {
            let of = |rows| Shape::new(features(true, 32), &Task { rows, n, ..TASK }).lanes;
            assert!((2..=40).all(|rows| of(rows) == of(1)));
        }
    }

    #[test]
    fn invocations_multiply_until_there_are_enough() {
        let lanes = |n, k4| Shape::new(features(true, 32), &Task { n, k4, ..TASK }).lanes;
        assert_eq!((lanes(1024, 512), lanes(4096, 512), lanes(8192, 512)), (32, 16, 8));
        // Not beyond two units each.
        assert_eq!((lanes(1024, 256), lanes(1024, 64)), (16, 8));
    }

    #[test]
    fn grids_are_folded() {
        let shape = Shape::new(features(true, 32), &Task { n: 4_000_000, ..TASK });
        let [x, y, z] = shape.grid(9, 4_000_000);
        assert!(x <= 65_535 && x * y * shape.outputs >= 4_000_000 && z == 9);
    }
}
