//! Linear and gated linear: which kernel multiplies, and how a split matrix becomes several dispatches.

use alloc::{format, vec, vec::Vec};

use super::{
    Binding, Dispatch, Lowering, activation_word, bind, define, dispatch, flag,
    linear_vec::{self, Shape, Task},
    storage, weight_word, whole,
};
use crate::{
    Error, Result,
    gpu::{
        context::Features,
        kernel::{self, Kernel},
        pipelines::Definitions,
    },
    op::{Activation, GatedLinear, Linear},
    program::BufferId,
    tensor::Weight,
};

/// What the kernels of both ops share.
struct Product<'a> {
    x: BufferId,
    weight: &'a Weight,
    bias: Option<&'a Weight>,
    activation: Activation,
    residual: Option<BufferId>,
    out: BufferId,
    gated: bool,
}

pub fn linear(l: &Lowering<'_>, o: &Linear) -> Result<Vec<Dispatch>> {
    let product = Product {
        x: o.x,
        weight: &o.weight,
        bias: o.bias.as_ref(),
        activation: o.activation,
        residual: o.residual,
        out: o.out,
        gated: false,
    };
    lower(l, &product)
}

pub fn gated_linear(l: &Lowering<'_>, o: &GatedLinear) -> Result<Vec<Dispatch>> {
    // Gate and up rows are read through one binding.
    whole(&o.weight)?;
    let product = Product {
        x: o.x,
        weight: &o.weight,
        bias: o.bias.as_ref(),
        activation: o.activation,
        residual: None,
        out: o.out,
        gated: true,
    };
    lower(l, &product)
}

/// A kernel with its tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Choice {
    kernel: &'static Kernel,
    /// The kernel's own word for the tile, if it has several.
    word: Option<&'static str>,
    rows: u32,
    columns: u32,
}

impl Choice {
    const fn new(kernel: &'static Kernel, word: Option<&'static str>, rows: u32, columns: u32) -> Self {
        Choice { kernel, word, rows, columns }
    }

    fn grid(&self, rows: u32, n: u32) -> [u32; 3] {
        [n.div_ceil(self.columns), rows.div_ceil(self.rows), 1]
    }
}

/// So many workgroups occupy a GPU well enough that smaller tiles, which read more, do not pay.
const ENOUGH_WORKGROUPS: u32 = 64;

/// Up to so many output columns, the tile with the finer grain.
const FEW_COLUMNS: u32 = 640;

/// From 16 rows, the least that a fragment has, up to so many, `linear_few` multiplies blocks.
const FEW_ROWS: u32 = 64;

/// The tile of `linear_few`. Its columns, which the order of summation follows from, do not depend on `rows`.
fn few(gated: bool, rows: u32, n: u32) -> Choice {
    let (word, tile) = match rows {
        0..=16 => ("16", 16),
        17..=32 => ("32", 32),
        _ => ("64", 64),
    };
    // Half of the 32 columns are gate rows. Few columns are cut finer, so that there are enough workgroups.
    let columns = if gated || n <= 4096 { 16 } else { 32 };
    Choice::new(&kernel::LINEAR_FEW, Some(word), tile, columns)
}

/// What is multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operands {
    /// f16 by f16.
    Halves,
    /// f16 by blocks.
    Blocks,
    Other,
}

/// The kernel for a product with `rows` rows, `n` output columns and `4·k4` terms. Which tile is taken never changes a
/// bit of the result.
fn choose(features: Features, operands: Operands, gated: bool, rows: u32, n: u32, k4: u32) -> Choice {
    let one = |kernel, word, tile, columns: u32| {
        // Gate and up columns share a tile.
        Choice::new(kernel, word, tile, if gated { columns / 2 } else { columns })
    };
    let coop = |word, tile| one(&kernel::LINEAR_COOP, Some(word), tile, tile);
    let largest = |tiles: &[Choice], smallest: Choice| {
        let fits = |c: &&Choice| n.div_ceil(c.columns) * rows.div_ceil(c.rows) >= ENOUGH_WORKGROUPS;
        tiles.iter().find(fits).copied().unwrap_or(smallest)
    };
    if features.cooperative_matrix && operands != Operands::Other && k4.is_multiple_of(16) {
        let even = k4.is_multiple_of(32);
        let big = if n <= FEW_COLUMNS { "128n" } else { "128" };
        if operands == Operands::Blocks {
            return match rows {
                16..=FEW_ROWS => few(gated, rows, n),
                _ => largest(&[coop(big, 128)], coop("64", 64)),
            };
        }
        let tiles = [coop(big, 128), coop("64", 64), coop(if even { "32" } else { "32s" }, 32)];
        // The gated form of the smallest tile is twice as wide.
        let columns = if gated { 32 } else { 16 };
        let smallest = one(&kernel::LINEAR_COOP, Some(if even { "16" } else { "16s" }), 16, columns);
        return largest(&tiles, smallest);
    }
    if features.barriers {
        return largest(&[one(&kernel::LINEAR_TILED, None, 64, 64)], one(&kernel::LINEAR_ROWS, None, 16, 16));
    }
    Choice::new(&kernel::LINEAR_DIRECT, None, 16, 64)
}

fn lower(l: &Lowering<'_>, p: &Product<'_>) -> Result<Vec<Dispatch>> {
    let (x, weight) = (l.word(p.x), weight_word(p.weight)?);
    let mut definitions = define(&[
        ("Y", l.word(p.out)),
        ("BIAS", &flag(p.bias.is_some())),
        ("RESIDUAL", p.residual.map_or("none", |r| l.word(r))),
        ("ACT", activation_word(p.activation)),
        ("GATED", &flag(p.gated)),
    ]);
    let (rows, k4) = (l.rows(p.out), l.cols4(p.x));
    let columns = if p.gated { p.weight.rows() / 2 } else { p.weight.rows() } as u32;
    let task = Task {
        format: p.weight.format(),
        gated: p.gated,
        q8_out: l.word(p.out) == "q8",
        rows,
        n: columns,
        k4,
    };
    if x == "q8" || (rows <= linear_vec::most_rows(l.features) && task.fits()) {
        let shape = Shape::new(l.features, &task);
        definitions.extend(shape.definitions());
        definitions.extend(define(&[("X", x), ("W", weight)]));
        return dispatches(l, p, &kernel::LINEAR_VEC, &definitions, |n| {
            let grid = shape.grid(rows, n);
            (grid, grid[0])
        });
    }
    if task.q8_out {
        return Err(Error::Unsupported(format!(
            "weight `{}`: 8-bit blocks come from up to {} rows or from 8-bit blocks, here from {rows} of {x}",
            p.weight.name(),
            linear_vec::most_rows(l.features)
        )));
    }
    let operands = match (x, weight) {
        ("f16", "f16") => Operands::Halves,
        ("f16", _) if p.weight.format().is_block() => Operands::Blocks,
        _ => Operands::Other,
    };
    let choice = choose(l.features, operands, p.gated, rows, columns, k4);
    match choice.word {
        Some(tile) if choice.kernel.name == kernel::LINEAR_FEW.name => {
            let columns = if choice.columns == 16 && !p.gated { "16" } else { "32" };
            definitions.extend(define(&[("W", weight), ("TILE_M", tile), ("TILE_N", columns)]));
        }
        Some(tile) => definitions.extend(define(&[("W", weight), ("TILE", tile)])),
        None => definitions.extend(define(&[("X", x), ("W", weight)])),
    }
    dispatches(l, p, choice.kernel, &definitions, |n| {
        let grid = choice.grid(rows, n);
        (grid, grid[1])
    })
}

/// A dispatch for each piece of the weight; `grid` gives that for so many outputs, and the kernel's `row_grid`.
fn dispatches(
    l: &Lowering<'_>,
    p: &Product<'_>,
    kernel: &'static Kernel,
    definitions: &Definitions,
    grid: impl Fn(u32) -> ([u32; 3], u32),
) -> Result<Vec<Dispatch>> {
    let mut dispatches = Vec::new();
    for piece in &storage(p.weight)?.pieces {
        let n = if p.gated { piece.rows / 2 } else { piece.rows } as u32;
        let mut bindings = vec![Binding::Buffer(p.x), Binding::Weight(piece.buffer.clone())];
        if let Some(bias) = p.bias {
            bindings.push(bind(bias)?);
        }
        bindings.extend(p.residual.map(Binding::Buffer));
        bindings.push(Binding::Buffer(p.out));
        let (grid, row_grid) = grid(n);
        let (k4, out4) = (l.cols4(p.x), l.cols4(p.out));
        let params = [k4, n, piece.first_row as u32, out4, l.count(p.out), n, row_grid];
        dispatches.push(dispatch(kernel, definitions.clone(), &params, bindings, grid));
    }
    Ok(dispatches)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(cooperative_matrix: bool, barriers: bool) -> Features {
        Features {
            f16: true,
            subgroups: true,
            subgroup_size: (32, 32),
            cooperative_matrix,
            timestamps: false,
            barriers,
        }
    }

    fn word(rows: u32, n: u32, k4: u32) -> Option<&'static str> {
        choose(features(true, true), Operands::Halves, false, rows, n, k4).word
    }

    #[test]
    fn tiles_shrink_with_the_work() {
        assert_eq!(word(16384, 768, 192), Some("128"));
        assert_eq!(word(16384, 384, 384), Some("128n"));
        assert_eq!(word(512, 768, 192), Some("64"));
        assert_eq!(word(128, 768, 192), Some("32"));
        assert_eq!(word(16, 1152, 96), Some("16"));
        assert_eq!(word(16, 1152, 16), Some("16s"));
    }

    #[test]
    fn operands_and_device_decide_the_kernel() {
        let chosen = |coop, barriers, operands, rows, k4| {
            choose(features(coop, barriers), operands, false, rows, 768, k4).kernel.name
        };
        use Operands::{Blocks, Halves, Other};
        assert_eq!(chosen(true, true, Halves, 64, 192), "linear_coop");
        assert_eq!(chosen(true, true, Blocks, 65, 192), "linear_coop");
        assert_eq!(chosen(true, true, Blocks, 64, 192), "linear_few");
        assert_eq!(chosen(true, true, Blocks, 16, 192), "linear_few");
        assert_eq!(chosen(true, true, Blocks, 15, 192), "linear_coop");
        assert_eq!(chosen(true, true, Other, 16384, 192), "linear_tiled");
        assert_eq!(chosen(true, true, Halves, 16, 190), "linear_rows");
        assert_eq!(chosen(false, true, Halves, 16384, 192), "linear_tiled");
        assert_eq!(chosen(false, false, Blocks, 16384, 192), "linear_direct");
    }

    #[test]
    fn grids_cover_the_outputs() {
        for (gated, rows, n) in [(false, 1, 4), (false, 129, 132), (true, 17, 36), (true, 5000, 3072)] {
            for (coop, barriers) in [(true, true), (false, true), (false, false)] {
                for operands in [Operands::Halves, Operands::Blocks, Operands::Other] {
                    let choice = choose(features(coop, barriers), operands, gated, rows, n, 32);
                    let grid = choice.grid(rows, n);
                    assert!(grid[0] * choice.columns >= n && grid[1] * choice.rows >= rows, "{choice:?}");
                }
            }
        }
    }
}
