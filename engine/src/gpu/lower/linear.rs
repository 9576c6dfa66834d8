//! Linear and gated linear: which kernel multiplies, and how a split matrix becomes several dispatches.

use alloc::{format, vec, vec::Vec};

use super::{
    Binding, Dispatch, Lowering, activation_word, bind, define, dispatch, flag, has_bias,
    linear_vec::{self, Held, Shape, Task},
    storage,
    stored::bind_f32,
    weight_word, whole,
};
use crate::{
    Error, Result,
    gpu::{
        context::Features,
        fuse::Call,
        kernel::{self, Kernel},
        pipelines::Definitions,
    },
    op::{Activation, GatedLinear, Linear, Norm, Op, ShortConv},
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
    /// What makes of the thirds of the outputs what is written to `out`.
    conv: Option<&'a ShortConv>,
}

impl<'a> Product<'a> {
    fn of(o: &'a Linear, conv: Option<&'a ShortConv>) -> Self {
        Product {
            x: o.x,
            weight: &o.weight,
            bias: o.bias.as_ref(),
            activation: o.activation,
            residual: o.residual,
            out: conv.map_or(o.out, |conv| conv.out),
            gated: false,
            conv,
        }
    }

    fn gated(o: &'a GatedLinear) -> Self {
        Product {
            x: o.x,
            weight: &o.weight,
            bias: o.bias.as_ref(),
            activation: o.activation,
            residual: None,
            out: o.out,
            gated: true,
            conv: None,
        }
    }

    fn task(&self, l: &Lowering<'_>) -> Task {
        Task {
            format: self.weight.format(),
            sides: self.sides(),
            q8_out: l.word(self.out) == "q8",
            rows: l.rows(self.out),
            n: self.weight.rows() as u32 / self.sides(),
            k4: l.cols4(self.x),
        }
    }

    fn sides(&self) -> u32 {
        match (self.gated, self.conv) {
            (_, Some(_)) => 3,
            (true, None) => 2,
            (false, None) => 1,
        }
    }

    /// Whether it is one for `linear_vec`.
    fn is_vec(&self, l: &Lowering<'_>, task: &Task) -> bool {
        l.word(self.x) == "q8" || (task.rows <= linear_vec::most_rows(l.features) && task.fits())
    }
}

/// The product of a call, if its op is one.
fn product<'a>(call: &Call<'a>) -> Option<Product<'a>> {
    match call.op {
        Op::Linear(o) => Some(Product::of(o, call.conv)),
        Op::GatedLinear(o) => Some(Product::gated(o)),
        _ => None,
    }
}

/// Linear and gated linear, with what is done before and after.
pub fn linear(l: &Lowering<'_>, call: &Call<'_>) -> Result<Vec<Dispatch>> {
    let product = product(call).ok_or_else(|| Error::Gpu("this op is no product".into()))?;
    if product.sides() > 1 {
        // Rows of all sides are read through one binding.
        whole(product.weight)?;
    }
    lower(l, &product, call.norm)
}

/// Whether the dispatch of a product can make its input from what `norm` reads.
pub fn takes_norm(l: &Lowering<'_>, call: &Call<'_>, norm: &Norm) -> bool {
    let Some(product) = product(call) else { return false };
    let task = product.task(l);
    product.x == norm.out
        && product.residual != Some(norm.out)
        && product.is_vec(l, &task)
        && Held::new(l, &Shape::new(l.features, &task), norm).is_some()
}

/// Whether the dispatch of a product can make the outputs of `conv`, which reads its own.
pub fn takes_conv(l: &Lowering<'_>, o: &Linear, conv: &ShortConv) -> bool {
    let product = Product::of(o, Some(conv));
    let plain = o.bias.is_none()
        && o.residual.is_none()
        && conv.bias.is_none()
        && o.activation == Activation::None;
    plain
        && conv.bcx == o.out
        && conv.spans.is_none()
        && l.word(o.out) == "f32"
        && l.features.barriers
        && whole(&o.weight).is_ok()
        && product.is_vec(l, &product.task(l))
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

/// The kernel for a product with `rows` rows, `n` output columns and `4·k4` terms, if `x` and the weight are f16
/// or not. Which tile is taken never changes a bit of the result.
fn choose(features: Features, halves: bool, gated: bool, rows: u32, n: u32, k4: u32) -> Choice {
    let one = |kernel, word, tile, columns: u32| {
        // Gate and up columns share a tile.
        Choice::new(kernel, word, tile, if gated { columns / 2 } else { columns })
    };
    let coop = |word, tile| one(&kernel::LINEAR_COOP, Some(word), tile, tile);
    let largest = |tiles: &[Choice], smallest: Choice| {
        let fits = |c: &&Choice| n.div_ceil(c.columns) * rows.div_ceil(c.rows) >= ENOUGH_WORKGROUPS;
        tiles.iter().find(fits).copied().unwrap_or(smallest)
    };
    if features.cooperative_matrix && halves && k4.is_multiple_of(16) {
        let even = k4.is_multiple_of(32);
        let big = if n <= FEW_COLUMNS { "128n" } else { "128" };
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

fn lower(l: &Lowering<'_>, p: &Product<'_>, norm: Option<&Norm>) -> Result<Vec<Dispatch>> {
    let (x, weight) = (l.word(p.x), weight_word(p.weight)?);
    let mut definitions = define(&[
        ("Y", l.word(p.out)),
        ("BIAS", &flag(p.bias.is_some())),
        ("RESIDUAL", p.residual.map_or("none", |r| l.word(r))),
        ("ACT", activation_word(p.activation)),
        ("GATED", &flag(p.gated)),
    ]);
    let task = p.task(l);
    let Task { rows, k4, n: columns, .. } = task;
    if p.is_vec(l, &task) {
        let shape = Shape::new(l.features, &task);
        definitions.extend(shape.definitions());
        definitions.extend(define(&[("X", x), ("W", weight)]));
        let held = match norm {
            Some(norm) => Some(Held::new(l, &shape, norm).ok_or_else(|| untaken(p))?),
            None => None,
        };
        let taps = p.conv.map_or(0, |conv| conv.weight.rows());
        definitions.extend(define(&[("TAPS", &format!("{taps}"))]));
        definitions.extend(held.map_or_else(|| define(&[("NORM", "none")]), |held| held.definitions(l)));
        return dispatches(l, p, held.map(|held| held.norm), &kernel::LINEAR_VEC, &definitions, |n| {
            let grid = shape.grid(rows, n);
            let grid = held.map_or(grid, |held| held.grid(grid));
            (grid, grid[0])
        });
    }
    if norm.is_some() || p.conv.is_some() {
        return Err(untaken(p));
    }
    if task.q8_out {
        return Err(Error::Unsupported(format!(
            "weight `{}`: 8-bit blocks come from up to {} rows or from 8-bit blocks, here from {rows} of {x}",
            p.weight.name(),
            linear_vec::most_rows(l.features)
        )));
    }
    let choice = choose(l.features, (x, weight) == ("f16", "f16"), p.gated, rows, columns, k4);
    match choice.word {
        Some(tile) => definitions.extend(define(&[("TILE", tile)])),
        None => definitions.extend(define(&[("X", x), ("W", weight)])),
    }
    dispatches(l, p, None, choice.kernel, &definitions, |n| {
        let grid = choice.grid(rows, n);
        (grid, grid[1])
    })
}

fn untaken(p: &Product<'_>) -> Error {
    Error::Gpu(format!("the product with weight `{}` was to do more than its kernel can", p.weight.name()))
}

/// A dispatch for each piece of the weight; `grid` gives that for so many outputs, and the kernel's `row_grid`.
fn dispatches(
    l: &Lowering<'_>,
    p: &Product<'_>,
    norm: Option<&Norm>,
    kernel: &'static Kernel,
    definitions: &Definitions,
    grid: impl Fn(u32) -> ([u32; 3], u32),
) -> Result<Vec<Dispatch>> {
    let mut dispatches = Vec::new();
    for piece in &storage(p.weight)?.pieces {
        let n = piece.rows as u32 / p.sides();
        let mut bindings = match norm {
            None => vec![Binding::Buffer(p.x)],
            Some(norm) => vec![Binding::Buffer(norm.x), bind(&norm.params.weight)?],
        };
        bindings.push(Binding::Weight(piece.buffer.clone()));
        if let Some(bias) = p.bias {
            bindings.push(bind(bias)?);
        }
        bindings.extend(p.residual.map(Binding::Buffer));
        bindings.push(Binding::Buffer(p.out));
        if let Some(conv) = p.conv {
            let taps = bind_f32(&conv.weight)?;
            bindings.extend([Binding::Buffer(conv.tokens), taps, Binding::Buffer(conv.state)]);
        }
        let (grid, row_grid) = grid(n);
        let (k4, out4) = (l.cols4(p.x), l.cols4(p.out));
        let mut params = vec![k4, n, piece.first_row as u32, out4, l.count(p.out), n, row_grid];
        if let Some(norm) = norm {
            params.extend([norm.params.eps.to_bits(), has_bias(&norm.params)]);
        }
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
        choose(features(true, true), true, false, rows, n, k4).word
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
        let chosen = |coop, barriers, halves, rows, k4| {
            choose(features(coop, barriers), halves, false, rows, 768, k4).kernel.name
        };
        assert_eq!(chosen(true, true, true, 64, 192), "linear_coop");
        assert_eq!(chosen(true, true, false, 16384, 192), "linear_tiled");
        assert_eq!(chosen(true, true, true, 16, 190), "linear_rows");
        assert_eq!(chosen(false, true, true, 16384, 192), "linear_tiled");
        assert_eq!(chosen(false, false, true, 16384, 192), "linear_direct");
    }

    #[test]
    fn grids_cover_the_outputs() {
        for (gated, rows, n) in [(false, 1, 4), (false, 129, 132), (true, 17, 36), (true, 5000, 3072)] {
            for (coop, barriers) in [(true, true), (false, true), (false, false)] {
                let choice = choose(features(coop, barriers), true, gated, rows, n, 32);
                let grid = choice.grid(rows, n);
                assert!(grid[0] * choice.columns >= n && grid[1] * choice.rows >= rows, "{choice:?}");
            }
        }
    }
}
