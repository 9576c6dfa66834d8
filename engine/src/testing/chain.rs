//! Cases of several ops in a row: buffers that share memory, and several runs in flight.

use alloc::{format, string::String, vec, vec::Vec};

use super::{
    Case, Suite,
    build::{Builder, Graph, Sizes, tiles},
    run::Deviation,
};
use crate::{
    Error, Result,
    backend::{self, Backend},
    op::{
        Activation, Attention, Embed, GatedLinear, Linear, Norm, NormKind, NormParams, Normalize, Op, Pool,
        PoolMode, Rope, TokenField,
    },
    program::{BufferId, Count},
    tensor::{DType, Format},
};

const CHAIN_LENS: [usize; 3] = [9, 1, 13];

/// Two layers of each kind of encoder, to the pooled vectors.
pub fn chain(suite: &Suite, all: &mut Vec<Case>) {
    let x = suite.preferred();
    let tile_count = tiles(&CHAIN_LENS, 64).len();
    let rows: usize = CHAIN_LENS.iter().sum();
    for pre_norm in [false, true] {
        let real = [rows, CHAIN_LENS.len(), tile_count];
        let sizes = Sizes { bucket: [rows + 9, CHAIN_LENS.len() + 1, tile_count + 2], real };
        let tolerance = match (x, suite.capabilities.matrices) {
            (_, Format::Int8) => 0.15,
            (DType::F16, _) => 1e-2,
            _ => 1e-4,
        };
        let name = format!("chain of two layers, pre_norm={pre_norm} {x:?}");
        all.push(Case::new(name, sizes, tolerance, move |b| layers(b, x, pre_norm)));
    }
}

fn norm(b: &mut Builder, cols: usize) -> Result<NormParams> {
    Ok(NormParams { kind: NormKind::Layer, weight: b.vector(2, cols, 1.0)?, eps: 1e-5 })
}

fn layers(b: &mut Builder, act: DType, pre_norm: bool) -> Result<()> {
    let (h, heads, d) = (32, 2, 16);
    let rows: usize = CHAIN_LENS.iter().sum();
    let stream = if pre_norm { DType::F32 } else { act };
    let ids: Vec<[u32; 4]> = (0..rows).map(|row| [b.random.below(50), row as u32, 0, 0]).collect();
    let (tokens, tiles) = (b.tokens(&ids), b.tiles(&CHAIN_LENS, 64));
    let ends = CHAIN_LENS.iter().scan(0, |end, len| {
        let start = *end;
        *end += *len as u32;
        Some([start, *end])
    });
    let ranges = b.ranges(&ends.collect::<Vec<_>>());
    let angles: Vec<f32> = (0..32 * d)
        .map(|i| {
            let angle = (i / d) as f32 / (1 + i % (d / 2)) as f32;
            if i % d < d / 2 { libm::cosf(angle) } else { libm::sinf(angle) }
        })
        .collect();
    let rope = b.angles((32, d), &angles)?;

    let tables = vec![(b.table(50, h)?, TokenField::Id), (b.table(32, h)?, TokenField::Position)];
    let mut x = b.internal("stream", stream, Count::Tokens, h);
    let params = norm(b, h)?;
    b.push(Op::Embed(Embed { tokens, tables, norm: Some(params), out: x }))?;
    for _ in 0..2 {
        let source = if pre_norm { normed(b, x, act, h)? } else { x };
        let qkv = b.internal("qkv", act, Count::Tokens, 3 * h);
        linear(b, source, qkv, (h, 3 * h), Activation::None, None)?;
        b.push(Op::Rope(Rope {
            x: qkv,
            tokens,
            q_norm: None,
            k_norm: None,
            table: rope.clone(),
            heads,
            kv_heads: heads,
            head_dim: d,
        }))?;
        let attended = b.internal("attended", act, Count::Tokens, h);
        let scale = 0.25;
        b.push(Op::Attention(Attention {
            qkv,
            tiles,
            heads,
            kv_heads: heads,
            head_dim: d,
            scale,
            window: None,
            causal: false,
            bias: None,
            out: attended,
        }))?;
        let mut sum = b.internal("sum", stream, Count::Tokens, h);
        linear(b, attended, sum, (h, h), Activation::None, Some(x))?;
        if !pre_norm {
            sum = normed(b, sum, act, h)?;
        }
        let source = if pre_norm { normed(b, sum, act, h)? } else { sum };
        let wide = b.internal("wide", act, Count::Tokens, 2 * h);
        if pre_norm {
            let (weight, bias) = (b.matrix(4 * h, h)?, None);
            b.push(Op::GatedLinear(GatedLinear {
                x: source,
                weight,
                bias,
                activation: Activation::Gelu,
                out: wide,
            }))?;
        } else {
            linear(b, source, wide, (h, 2 * h), Activation::Gelu, None)?;
        }
        let down = b.internal("down", stream, Count::Tokens, h);
        linear(b, wide, down, (2 * h, h), Activation::None, Some(sum))?;
        x = if pre_norm { down } else { normed(b, down, act, h)? };
    }
    if pre_norm {
        x = normed(b, x, act, h)?;
    }
    let pooled = b.internal("pooled", DType::F32, Count::Sequences, 2 * h);
    b.push(Op::Pool(Pool { x, ranges, modes: vec![PoolMode::Cls, PoolMode::Mean], out: pooled }))?;
    let out = b.output(Count::Sequences, 2 * h, None);
    b.push(Op::Normalize(Normalize { x: pooled, unit: true, out }))
}

fn normed(b: &mut Builder, x: BufferId, out: DType, cols: usize) -> Result<BufferId> {
    let params = norm(b, cols)?;
    let out = b.internal("normed", out, Count::Tokens, cols);
    b.push(Op::Norm(Norm { x, params, out }))?;
    Ok(out)
}

fn linear(
    b: &mut Builder,
    x: BufferId,
    out: BufferId,
    (k, n): (usize, usize),
    activation: Activation,
    residual: Option<BufferId>,
) -> Result<()> {
    let (weight, bias) = (b.matrix(n, k)?, Some(b.vector(1, n, 0.0)?));
    b.push(Op::Linear(Linear { x, weight, bias, activation, residual, out }))
}

/// As many runs as a plan allows before the first is read, with different inputs and counts, read backwards;
/// one run more is refused; each result is right and can be read once.
pub async fn in_flight(backend: &dyn Backend) -> Result<Deviation> {
    const ROWS: usize = 6;
    const COLS: usize = 8;
    let mut builder = Builder::new(backend, backend.capabilities(), Sizes::rows(ROWS, 0), "runs in flight");
    let x = builder.raw(Count::Tokens, COLS, &[]);
    let out = builder.output(Count::Tokens, COLS, None);
    builder.push(Op::Normalize(Normalize { x, unit: false, out }))?;
    let Graph { program, .. } = builder.finish()?;
    let mut plan = backend.prepare(&program)?;
    let depth = plan.depth();
    let rows = |run: usize| 1 + run % ROWS;
    let value = |run: usize, i: usize| (run * 100 + i) as f32;
    let mut tickets = Vec::new();
    for run in 0..=depth {
        let bits: Vec<u32> = (0..rows(run) * COLS).map(|i| value(run, i).to_bits()).collect();
        let submitted = plan.submit([rows(run) as u32, 1, 1, 0], &[(x, &bits)], &[(out, rows(run))]);
        match submitted {
            Ok(ticket) if run < depth => tickets.push(ticket),
            Ok(_) => return Err(failed(format!("accepted {} unread runs, its depth is {depth}", depth + 1))),
            Err(error) if run < depth => return Err(error),
            Err(_) => {}
        }
    }
    let mut worst = Deviation { expected: 0.0, found: 0.0, allowed: 1e-6, row: 0, col: 0 };
    for (run, ticket) in tickets.iter().enumerate().rev() {
        let mut found = vec![0.0; rows(run) * COLS];
        plan.wait(*ticket)?;
        backend::read(&mut *plan, *ticket, &mut found).await?;
        for (i, found) in found.into_iter().enumerate() {
            let here = Deviation { expected: value(run, i), found, row: i / COLS, col: i % COLS, ..worst };
            if here.ratio() > worst.ratio() {
                worst = here;
            }
        }
    }
    let mut again = vec![0.0; rows(0) * COLS];
    match backend::read(&mut *plan, tickets[0], &mut again).await {
        Ok(()) => Err(failed("gave the same run's values twice".into())),
        Err(_) => Ok(worst),
    }
}

fn failed(why: String) -> Error {
    Error::Unsupported(why)
}
