//! Linear and gated linear: which kernel multiplies, and how a split matrix becomes several dispatches.

use alloc::{format, vec, vec::Vec};

use super::{
    Binding, Dispatch, Lowering, activation_word, bind, define, dispatch, flag, linear_coop, linear_vec,
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
pub struct Choice {
    pub kernel: &'static Kernel,
    /// The kernel's own word for the tile, if it has several.
    pub word: Option<&'static str>,
    pub rows: u32,
    /// Output columns.
    pub columns: u32,
}

impl Choice {
    pub const fn new(kernel: &'static Kernel, word: Option<&'static str>, rows: u32, columns: u32) -> Self {
        Choice { kernel, word, rows, columns }
    }

    fn grid(&self, rows: u32, n: u32) -> [u32; 3] {
        [n.div_ceil(self.columns), rows.div_ceil(self.rows), 1]
    }
}

/// So many workgroups occupy a GPU well enough that smaller tiles, which read more, do not pay.
const ENOUGH_WORKGROUPS: u32 = 64;

/// The kernel for a product with `rows` rows and `n` output columns without cooperative matrices. Which tile is taken
/// never changes a bit of the result.
fn choose(features: Features, gated: bool, rows: u32, n: u32) -> Choice {
    if !features.barriers {
        return Choice::new(&kernel::LINEAR_DIRECT, None, 16, 64);
    }
    // Gate and up columns share a tile.
    let one = |kernel, tile: u32| Choice::new(kernel, None, tile, if gated { tile / 2 } else { tile });
    let tiled = one(&kernel::LINEAR_TILED, 64);
    match n.div_ceil(tiled.columns) * rows.div_ceil(tiled.rows) {
        ENOUGH_WORKGROUPS.. => tiled,
        _ => one(&kernel::LINEAR_ROWS, 16),
    }
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
    if l.word(p.out) == "q8" {
        return Err(Error::Unsupported(format!(
            "weight `{}`: 8-bit blocks come from up to {} rows or from 8-bit blocks, here from {rows} of {x}",
            p.weight.name(),
            linear_vec::most_rows(l.features)
        )));
    }
    let blocks = p.weight.format().is_block();
    let matrices = l.features.cooperative_matrix && x == "f16" && (blocks || weight == "f16");
    let coop = linear_coop::Task { blocks, gated: p.gated, rows, n: columns, k4 };
    let choice = match coop.choose(l.linear_tile).filter(|_| matrices) {
        Some(choice) => choice,
        None => choose(l.features, p.gated, rows, columns),
    };
    match choice.word {
        Some(tile) if choice.kernel.name == kernel::LINEAR_FEW.name => {
            let columns = if choice.columns == 16 && !p.gated { "16" } else { "32" };
            definitions.extend(define(&[("W", weight), ("TILE_M", tile), ("TILE_N", columns)]));
        }
        Some(tile) => {
            definitions.extend(define(&[("W", weight), ("TILE", tile), ("EXPERT_TILES", &flag(false))]));
        }
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

    fn features(barriers: bool) -> Features {
        Features {
            f16: true,
            subgroups: true,
            subgroup_size: (32, 32),
            cooperative_matrix: false,
            timestamps: false,
            barriers,
        }
    }

    #[test]
    fn the_device_and_the_work_decide_the_kernel() {
        let chosen = |barriers, rows| choose(features(barriers), false, rows, 768).kernel.name;
        assert_eq!(chosen(true, 16384), "linear_tiled");
        assert_eq!(chosen(true, 16), "linear_rows");
        assert_eq!(chosen(false, 16384), "linear_direct");
    }

    #[test]
    fn grids_cover_the_outputs() {
        for (gated, rows, n) in [(false, 1, 4), (false, 129, 132), (true, 17, 36), (true, 5000, 3072)] {
            let coop = |blocks| linear_coop::Task { blocks, gated, rows, n, k4: 32 }.choose(None);
            let others = [true, false].map(|barriers| Some(choose(features(barriers), gated, rows, n)));
            for choice in [coop(false), coop(true)].into_iter().chain(others).flatten() {
                let grid = choice.grid(rows, n);
                assert!(grid[0] * choice.columns >= n && grid[1] * choice.rows >= rows, "{choice:?}");
            }
        }
    }
}
