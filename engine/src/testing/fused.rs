//! Cases of neighbouring ops that a backend may do together. The reference does them one by one.

use alloc::{format, vec::Vec};

use super::{
    Case, Suite, Work, blocks,
    build::{Builder, Sizes},
};
use crate::{
    Result,
    op::{Activation, GatedLinear, Linear, Norm, NormKind, NormParams, Op},
    program::{BufferId, Count},
    quant::q8,
    tensor::{DType, Format},
};

/// What reads the normalised rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Users {
    /// With bias and residual, the rows that were normalised.
    Linear,
    Gated,
    /// Both, of one norm.
    Two,
}

#[derive(Debug, Clone)]
struct Normed {
    rows: usize,
    spare: usize,
    k: usize,
    n: usize,
    kind: NormKind,
    users: Users,
    /// Element types before and after the norm; of gated results.
    types: [DType; 3],
    /// Of the matrices; `None`: floats.
    blocks: Option<Format>,
}

/// Norms whose results only products read.
pub fn norms(suite: &Suite, all: &mut Vec<Case>) {
    let half = suite.preferred();
    let floats = |rows, spare, k, n, kind, users, source| {
        let types = [source, half, half];
        Normed { rows, spare, k, n, kind, users, types, blocks: None }
    };
    use NormKind::{Layer, Rms};
    let mut list = Vec::from([
        floats(1, 0, 4, 4, Rms, Users::Linear, DType::F32),
        floats(1, 3, 64, 48, Layer, Users::Two, half),
        floats(2, 0, 36, 20, Rms, Users::Gated, DType::F32),
        floats(3, 1, 100, 36, Layer, Users::Linear, DType::F32),
        floats(4, 0, 132, 68, Rms, Users::Two, DType::F32),
        floats(8, 0, 48, 12, Rms, Users::Linear, half),
        floats(1, 0, 520, 260, Layer, Users::Gated, DType::F32),
    ]);
    if suite.full {
        for rows in 1..=8 {
            list.push(floats(rows, rows % 3, 1536, 36, Rms, Users::Two, DType::F32));
        }
        list.push(floats(1, 0, 2560, 2052, Rms, Users::Linear, DType::F32));
        list.push(floats(2, 0, 2052, 100, Layer, Users::Gated, DType::F32));
    }
    for (f, &blocks) in suite.capabilities.blocks.iter().enumerate() {
        for (i, x) in suite.factors().into_iter().enumerate() {
            let out = if x == DType::Q8 { x } else { half };
            let kind = if f % 4 == 3 { Layer } else { Rms };
            let users = [Users::Two, Users::Linear, Users::Gated][(f + i) % 3];
            let (rows, spare, k) = (1 + f % 4, (f + i) % 2, blocks.block() * (1 + f % 3));
            let types = [DType::F32, x, out];
            let base = Normed { rows, spare, k, n: 96, kind, users, types, blocks: Some(blocks) };
            list.push(base.clone());
            if suite.full {
                let k = blocks.block() * (2048 / blocks.block() + f % 2);
                list.push(Normed { rows: 1 + (f + i) % 8, k, n: 544, users: Users::Two, ..base });
            }
        }
    }
    if suite.full {
        // More outputs than workgroups that stay.
        let types = [DType::F32, suite.factors().pop().unwrap_or(half), half];
        let blocks = suite.capabilities.blocks.first().copied();
        let (users, kind) = (Users::Linear, Rms);
        list.push(Normed { rows: 1, spare: 0, k: 256, n: 40_000, kind, users, types, blocks });
    }
    for o in list {
        let [source, x, out] = o.types;
        let mut tolerance = match o.blocks {
            Some(_) => suite.blocks_tolerance(x, out),
            None => suite.tolerance(Work::Dot, x, out),
        };
        tolerance += match x {
            // Where the statistics' last bits decide a rounding, a factor is one unit in the last place off.
            DType::F16 => 1e-3,
            DType::Q8 => 2.0 / 127.0,
            _ => 0.0,
        };
        let name = format!("fused norm {o:?} {source:?}");
        all.push(Case::new(name, Sizes::rows(o.rows, o.spare), tolerance, move |b| normed(b, &o)));
    }
}

fn normed(b: &mut Builder, o: &Normed) -> Result<()> {
    let Normed { k, n, users, types: [source, x, out], .. } = *o;
    let source = b.uniform(source, Count::Tokens, k, 3.0)?;
    let params_rows = if o.kind == NormKind::Layer { 2 } else { 1 };
    let params = NormParams { kind: o.kind, weight: b.vector(params_rows, k, 1.0)?, eps: 1e-5 };
    let normed = b.internal("normed", x, Count::Tokens, k);
    b.push(Op::Norm(Norm { x: source, params, out: normed }))?;
    b.scale_at_least(1.0);
    let matrix = |b: &mut Builder, rows| match o.blocks {
        Some(format) => blocks::matrix(b, format, rows, k),
        None => b.matrix(rows, k),
    };
    if users != Users::Gated {
        let (weight, bias) = (matrix(b, n)?, Some(b.vector(1, n, 0.2)?));
        let residual = Some(b.uniform(DType::F32, Count::Tokens, n, 2.0)?);
        let out = b.output(Count::Tokens, n, None);
        let activation = Activation::None;
        b.push(Op::Linear(Linear { x: normed, weight, bias, activation, residual, out }))?;
    }
    if users != Users::Linear {
        let weight = matrix(b, 2 * n)?;
        gated(b, normed, weight, n, out)?;
    }
    Ok(())
}

fn gated(b: &mut Builder, x: BufferId, weight: crate::tensor::Weight, n: usize, out: DType) -> Result<()> {
    let out = if n.is_multiple_of(q8::BLOCK) || out != DType::Q8 { out } else { DType::F32 };
    let result = b.result(out, Count::Tokens, n);
    let activation = Activation::Silu;
    b.push(Op::GatedLinear(GatedLinear { x, weight, bias: None, activation, out: result }))?;
    b.read_back(out, Count::Tokens, n, result)
}
