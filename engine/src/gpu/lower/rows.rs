//! Ops that work row by row: embed, norm, pool, normalize.

use alloc::{format, vec, vec::Vec};

use super::{
    Binding, Dispatch, Lowering, bind, define, dispatch, flag, fold, has_bias, norm_word, one, storage,
    weight_word,
};
use crate::{
    Error, Result,
    gpu::kernel,
    op::{Embed, Norm, Normalize, Pool, PoolMode},
    program::BufferId,
    tensor::DType,
};

pub fn embed(l: &Lowering<'_>, o: &Embed) -> Result<Vec<Dispatch>> {
    let mut words = ["f32"; 3];
    let mut fields = 0;
    for (i, (table, field)) in o.tables.iter().enumerate() {
        words[i] = weight_word(table)?;
        if i > 0 && table.format().is_block() {
            return Err(Error::Unsupported(format!(
                "op embed: table `{}` in {}; only the first table may be in blocks",
                table.name(),
                table.format()
            )));
        }
        fields |= (*field as u32) << (8 * i);
    }
    let definitions = define(&[
        ("TABLES", &format!("{}", o.tables.len())),
        ("T0", words[0]),
        ("T1", words[1]),
        ("T2", words[2]),
        ("Y", l.word(o.out)),
        ("NORM", norm_word(o.norm.as_ref())),
    ]);
    let grid = fold(l.rows(o.out));
    let pieces = &storage(&o.tables[0].0)?.pieces;
    let mut dispatches = Vec::new();
    for piece in pieces {
        let mut bindings = vec![Binding::Buffer(o.tokens), Binding::Weight(piece.buffer.clone())];
        for (table, _) in &o.tables[1..] {
            bindings.push(bind(table)?);
        }
        let (mut norm_bias, mut eps) = (0, 0f32);
        if let Some(norm) = &o.norm {
            bindings.push(bind(&norm.weight)?);
            (norm_bias, eps) = (has_bias(norm), norm.eps);
        }
        bindings.push(Binding::Buffer(o.out));
        let params = [
            l.cols4(o.out),
            piece.first_row as u32,
            piece.rows as u32,
            fields,
            norm_bias,
            eps.to_bits(),
            grid[0],
        ];
        dispatches.push(dispatch(&kernel::EMBED, definitions.clone(), &params, bindings, grid));
    }
    Ok(dispatches)
}

pub fn norm(l: &Lowering<'_>, o: &Norm) -> Result<Vec<Dispatch>> {
    let grid = fold(l.rows(o.x));
    // Few rows cannot fill a GPU, and wait for one thread's loop.
    let pieces = l.cols4(o.x).div_ceil(4 * 256);
    let wide = l.features.barriers && l.rows(o.x) <= 16 && pieces <= 4;
    let definitions = define(&[
        ("X", l.word(o.x)),
        ("Y", l.word(o.out)),
        ("NORM", norm_word(Some(&o.params))),
        ("WIDE", &flag(wide)),
        ("HELD", &format!("{pieces}")),
    ]);
    let params = [l.cols4(o.x), has_bias(&o.params), o.params.eps.to_bits(), l.count(o.x), grid[0]];
    let bindings = vec![Binding::Buffer(o.x), bind(&o.params.weight)?, Binding::Buffer(o.out)];
    one(dispatch(&kernel::NORM, definitions, &params, bindings, grid))
}

pub fn pool(l: &Lowering<'_>, o: &Pool) -> Result<Vec<Dispatch>> {
    if l.program.spec(o.out).dtype != DType::F32 {
        return Err(Error::Unsupported("op pool: out must be f32".into()));
    }
    let cols4 = l.cols4(o.x);
    let [grid_y, grid_z, _] = fold(l.rows(o.out));
    let one_mode = |(i, mode): (usize, &PoolMode)| {
        let word = match mode {
            PoolMode::Cls => "cls",
            PoolMode::Max => "max",
            PoolMode::Mean => "mean",
            PoolMode::MeanSqrtLen => "mean_sqrt_len",
            PoolMode::WeightedMean => "weighted_mean",
            PoolMode::LastToken => "last_token",
        };
        let params = [cols4, l.cols4(o.out), i as u32 * cols4, grid_y];
        let bindings = vec![Binding::Buffer(o.x), Binding::Buffer(o.ranges), Binding::Buffer(o.out)];
        let definitions = define(&[("X", l.word(o.x)), ("MODE", word)]);
        dispatch(&kernel::POOL, definitions, &params, bindings, [cols4.div_ceil(16), grid_y, grid_z])
    };
    Ok(o.modes.iter().enumerate().map(one_mode).collect())
}

pub fn normalize(l: &Lowering<'_>, o: &Normalize) -> Result<Vec<Dispatch>> {
    let grid = fold(l.rows(o.x));
    let unit = flag(o.unit);
    let definitions = define(&[("X", l.word(o.x)), ("Y", l.word(o.out)), ("UNIT", &unit)]);
    let params = [l.cols4(o.x), l.cols4(o.out), l.count(o.x), grid[0]];
    let bindings = vec![Binding::Buffer(o.x), Binding::Buffer(o.out)];
    one(dispatch(&kernel::NORMALIZE, definitions, &params, bindings, grid))
}

/// Rounds rows of f32 in scratch memory to the 8-bit blocks of `out`, for kernels that cannot write them.
pub fn to_q8(l: &Lowering<'_>, scratch: Binding, out: BufferId) -> Dispatch {
    let grid = fold(l.rows(out));
    let definitions = define(&[("X", "f32"), ("Y", l.word(out)), ("UNIT", &flag(false))]);
    let params = [l.cols4(out), l.cols4(out), l.count(out), grid[0]];
    dispatch(&kernel::NORMALIZE, definitions, &params, vec![scratch, Binding::Buffer(out)], grid)
}
