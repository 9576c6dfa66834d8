//! Linear and gated linear: which kernel multiplies, and how a split matrix becomes several dispatches.

use alloc::{vec, vec::Vec};

use super::{
    Binding, Dispatch, Lowering, activation_word, bind, define, dispatch, flag, storage, weight_word, whole,
};
use crate::{
    Result,
    gpu::kernel,
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

fn lower(l: &Lowering<'_>, p: &Product<'_>) -> Result<Vec<Dispatch>> {
    let definitions = define(&[
        ("X", l.word(p.x)),
        ("W", weight_word(p.weight)?),
        ("Y", l.word(p.out)),
        ("BIAS", &flag(p.bias.is_some())),
        ("RESIDUAL", p.residual.map_or("none", |r| l.word(r))),
        ("ACT", activation_word(p.activation)),
        ("GATED", &flag(p.gated)),
    ]);
    let mut dispatches = Vec::new();
    for piece in &storage(p.weight)?.pieces {
        let n = if p.gated { piece.rows / 2 } else { piece.rows } as u32;
        let mut bindings = vec![Binding::Buffer(p.x), Binding::Weight(piece.buffer.clone())];
        if let Some(bias) = p.bias {
            bindings.push(bind(bias)?);
        }
        bindings.extend(p.residual.map(Binding::Buffer));
        bindings.push(Binding::Buffer(p.out));
        let row_grid = l.rows(p.out).div_ceil(16);
        let params = [l.cols4(p.x), n, piece.first_row as u32, l.cols4(p.out), l.count(p.out), n, row_grid];
        let grid = [n.div_ceil(64), row_grid, 1];
        dispatches.push(dispatch(&kernel::LINEAR_DIRECT, definitions.clone(), &params, bindings, grid));
    }
    Ok(dispatches)
}
