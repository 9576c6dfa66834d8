//! Routing and the linear ops of experts.

use alloc::{format, vec, vec::Vec};

use super::{
    Binding, Dispatch, Lowering, activation_word, bind, define, dispatch, expert_tiles::Experts, flag, fold,
    one, rows::to_q8, weight_word,
};
use crate::{
    Error, Result,
    gpu::kernel,
    op::{ExpertGatedLinear, ExpertLinear, Route, Scoring},
    quant::q8,
};

/// Experts whose scores a workgroup holds.
const MOST_EXPERTS: usize = 512;

pub fn route(l: &Lowering<'_>, o: &Route) -> Result<Vec<Dispatch>> {
    let experts = o.weight.rows();
    if experts > MOST_EXPERTS {
        let why = format!("op route: {experts} experts; the GPU backend can choose from {MOST_EXPERTS}");
        return Err(Error::Unsupported(why));
    }
    if o.weight.format().is_block() {
        let why = format!("op route: weight `{}` in blocks of {}", o.weight.name(), o.weight.format());
        return Err(Error::Unsupported(why));
    }
    let scoring = match o.scoring {
        Scoring::Softmax => "softmax",
        Scoring::Sigmoid => "sigmoid",
    };
    let definitions = define(&[
        ("X", l.word(o.x)),
        ("W", weight_word(&o.weight)?),
        ("BIAS", &flag(o.bias.is_some())),
        ("SCORING", scoring),
        ("NORMALIZE", &flag(o.normalize.is_some())),
    ]);
    let grid = fold(l.rows(o.x));
    let params = [
        l.cols4(o.x),
        experts as u32,
        o.used as u32,
        o.scale.to_bits(),
        o.normalize.unwrap_or(0.0).to_bits(),
        l.count(o.x),
        grid[0],
    ];
    let mut bindings = vec![Binding::Buffer(o.x), bind(&o.weight)?];
    if let Some(bias) = &o.bias {
        bindings.push(bind(bias)?);
    }
    bindings.push(Binding::Buffer(o.out));
    one(dispatch(&kernel::ROUTE, definitions, &params, bindings, grid))
}

pub fn expert_gated_linear(l: &Lowering<'_>, o: &ExpertGatedLinear) -> Result<Vec<Dispatch>> {
    let used = o.used as u32;
    let n = l.program.spec(o.out).cols / o.used;
    let tiled = Experts {
        x: o.x,
        routes: o.routes,
        used,
        weight: &o.weight,
        k4: l.cols4(o.x),
        n: n as u32,
        gated: Some(o.activation),
    };
    if l.word(o.out) != "q8"
        && let Some(all) = tiled.products(l, Binding::Buffer(o.out), l.word(o.out))?
    {
        return Ok(all);
    }
    // Whole 8-bit blocks, or few columns so that there are many workgroups.
    let direct = l.word(o.out) != "q8" || n.is_multiple_of(q8::BLOCK);
    let (y, cols) = match l.word(o.out) {
        "q8" if direct => ("q8", 32),
        "q8" => ("f32", 4),
        word => (word, 4),
    };
    let definitions = define(&[
        ("X", l.word(o.x)),
        ("W", weight_word(&o.weight)?),
        ("Y", y),
        ("ACT", activation_word(o.activation)),
        ("COLS", &format!("{cols}")),
    ]);
    let [grid_y, grid_z, _] = fold(l.rows(o.x) * used);
    let experts = o.weight.rows() / (2 * n);
    let params = [l.cols4(o.x), n as u32, used, experts as u32, l.count(o.x), grid_y];
    let out = match direct {
        true => Binding::Buffer(o.out),
        false => Binding::Scratch(u64::from(l.rows(o.out) * l.cols4(o.out)) * 16),
    };
    let bindings = vec![Binding::Buffer(o.x), Binding::Buffer(o.routes), bind(&o.weight)?, out.clone()];
    let grid = [(n as u32).div_ceil(cols), grid_y, grid_z];
    let mut all = vec![dispatch(&kernel::EXPERT_GATED_LINEAR, definitions, &params, bindings, grid)];
    if !direct {
        all.push(to_q8(l, out, o.out));
    }
    Ok(all)
}

pub fn expert_linear(l: &Lowering<'_>, o: &ExpertLinear) -> Result<Vec<Dispatch>> {
    let (used, n) = (o.used as u32, l.program.spec(o.out).cols);
    let tiled = Experts {
        x: o.x,
        routes: o.routes,
        used,
        weight: &o.weight,
        k4: l.cols4(o.x) / used,
        n: n as u32,
        gated: None,
    };
    if let Some(all) = tiled.sums(l, o.residual, o.out)? {
        return Ok(all);
    }
    let definitions = define(&[
        ("X", l.word(o.x)),
        ("W", weight_word(&o.weight)?),
        ("Y", l.word(o.out)),
        ("RESIDUAL", o.residual.map_or("none", |r| l.word(r))),
    ]);
    let [grid_y, grid_z, _] = fold(l.rows(o.x));
    let experts = o.weight.rows() / n;
    let params = [l.cols4(o.x) / used, n as u32, used, experts as u32, l.count(o.x), grid_y];
    let mut bindings = vec![Binding::Buffer(o.x), Binding::Buffer(o.routes), bind(&o.weight)?];
    bindings.extend(o.residual.map(Binding::Buffer));
    bindings.push(Binding::Buffer(o.out));
    let grid = [(n as u32).div_ceil(4), grid_y, grid_z];
    one(dispatch(&kernel::EXPERT_LINEAR, definitions, &params, bindings, grid))
}
