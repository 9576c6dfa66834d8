//! Cases of ops that read weights in blocks: every format, with every element type that multiplies it.

use alloc::{format, vec, vec::Vec};

use super::{
    Case, Random, Suite, Work,
    build::{Builder, Sizes},
    linear::Epilogue,
};
use crate::{
    Result,
    op::{Activation, Embed, GatedLinear, Linear, NormKind, NormParams, Op, TokenField},
    program::Count,
    tensor::{DType, Format, Weight, WeightSpec, WeightUse},
};

/// Blocks of random bits, but for their scales: those give values in about ±`size`.
pub fn random_blocks(random: &mut Random, format: Format, blocks: usize, size: f32) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..blocks * format.block_bytes()).map(|_| random.bits() as u8).collect();
    // Where the scale and the scale of minima lie, and the largest multiple of each.
    let (scale, min) = match format {
        Format::Q8_0 | Format::Iq4Nl => ((0, 127.0), None),
        Format::Q4_0 => ((0, 8.0), None),
        Format::Q4_1 => ((0, 8.0), Some((2, -1.0))),
        Format::Q5_0 => ((0, 16.0), None),
        Format::Q5_1 => ((0, 16.0), Some((2, -1.0))),
        Format::Q2K => ((80, 22.5), Some((82, 15.0))),
        Format::Q3K => ((108, 128.0), None),
        Format::Q4K => ((0, 472.5), Some((2, 63.0))),
        Format::Q5K => ((0, 976.5), Some((2, 63.0))),
        Format::Q6K => ((208, 4096.0), None),
        Format::Iq4Xs => ((0, 4064.0), None),
        Format::Mxfp4 => {
            // A power of two, times at most 12.
            let exponent = 128 + libm::floorf(libm::log2f(size / 12.0)) as i32;
            for block in bytes.chunks_mut(17) {
                block[0] = (exponent - random.below(3) as i32).clamp(2, 254) as u8;
            }
            return bytes;
        }
        Format::F32 | Format::F16 | Format::BF16 | Format::Int8 => return bytes,
    };
    for block in bytes.chunks_mut(format.block_bytes()) {
        for (at, most) in [Some(scale), min].into_iter().flatten() {
            // Within a factor of two, as those of a matrix are about alike.
            let value = size / most * (1.0 + random.unit() / 3.0);
            block[at..at + 2].copy_from_slice(&half::f16::from_f32(value).to_le_bytes());
        }
    }
    bytes
}

/// A weight of random blocks, pushed in pieces of uneven size.
fn weight(
    b: &mut Builder,
    format: Format,
    usage: WeightUse,
    (rows, cols): (usize, usize),
    size: f32,
) -> Result<Weight> {
    let bytes = random_blocks(&mut b.random, format, rows * cols / format.block(), size);
    let mut sink = b.sink(WeightSpec { name: "blocks".into(), rows, cols, format, usage })?;
    let (mut rest, mut piece) = (&bytes[..], 1);
    while !rest.is_empty() {
        let (now, later) = rest.split_at((piece * format.block_bytes()).min(rest.len()));
        sink.push(format, now)?;
        (rest, piece) = (later, piece * 3 + 2);
    }
    sink.finish()
}

pub fn matrix(b: &mut Builder, format: Format, rows: usize, cols: usize) -> Result<Weight> {
    weight(b, format, WeightUse::Matrix, (rows, cols), 3.0 / libm::sqrtf(cols as f32))
}

pub fn embed(suite: &Suite, all: &mut Vec<Case>) {
    for (at, &format) in suite.capabilities.blocks.iter().enumerate() {
        for (rows, blocks, spare, normed) in [(1, 1, 0, false), (5, 3, 2, true)] {
            if normed != (at % 2 == 0) && !suite.full {
                continue;
            }
            let cols = blocks * format.block();
            let out = suite.dtypes()[at % suite.dtypes().len()];
            let work = if normed { Work::Rows } else { Work::Copy };
            let tolerance = suite.tolerance(work, DType::F32, out);
            let name = format!("embed {rows}+{spare}x{cols} from {format} norm={normed} {out:?}");
            all.push(Case::new(name, Sizes::rows(rows, spare), tolerance, move |b| {
                let mut tokens: Vec<[u32; 4]> = (0..rows).map(|_| [b.random.below(37), 0, 0, 0]).collect();
                tokens[rows - 1][0] = 36;
                let tokens = b.tokens(&tokens);
                let table = weight(b, format, WeightUse::Table, (37, cols), 1.0)?;
                let norm = match normed {
                    true => {
                        Some(NormParams { kind: NormKind::Rms, weight: b.vector(1, cols, 1.0)?, eps: 1e-5 })
                    }
                    false => None,
                };
                let result = b.result(out, Count::Tokens, cols);
                let tables = vec![(table, TokenField::Id)];
                b.push(Op::Embed(Embed { tokens, tables, norm, out: result }))?;
                b.read_back(out, Count::Tokens, cols, result)
            }));
        }
    }
}

/// Rows, blocks of inputs (of formats of 32 values, of 256 values), outputs, spare rows.
type Shapes = Vec<(usize, (usize, usize), usize, usize)>;

/// Some shapes for each format.
fn shapes(suite: &Suite, f: usize) -> Shapes {
    let small = [(1, (1, 1), 36, 0), (2, (3, 2), 132, 1), (17, (5, 1), 12, 2)];
    if !suite.full {
        return vec![small[f % small.len()]];
    }
    let large = [
        (1, (66, 9), 260, 0),
        (2, (20, 3), 64, 0),
        (5, (9, 1), 520, 3),
        (8, (34, 5), 44, 0),
        (70, (2, 1), 132, 5),
        (130, (12, 2), 260, 0),
    ];
    small.into_iter().chain((0..3).map(|i| large[(f + 2 * i) % large.len()])).collect()
}

/// Shapes for every tile of kernels for many rows: columns for matrix units, odd rows and outputs.
fn tile_shapes() -> Shapes {
    vec![(9, (4, 1), 36, 8), (17, (2, 1), 132, 0), (40, (6, 1), 68, 3), (150, (4, 1), 260, 2)]
}

/// Products of floats and blocks in these shapes.
pub fn tiles(suite: &Suite, all: &mut Vec<Case>) {
    linear_in(suite, all, |_| true, |_| tile_shapes());
    gated_in(suite, all, |_| tile_shapes());
}

/// Those that a quick check has: 4-bit blocks by every element type.
pub fn quick(suite: &Suite, all: &mut Vec<Case>) {
    linear_in(suite, all, |format| format == Format::Q4_0, |f| shapes(suite, f));
}

pub fn linear(suite: &Suite, all: &mut Vec<Case>) {
    linear_in(suite, all, |_| true, |f| shapes(suite, f));
}

fn linear_in(
    suite: &Suite,
    all: &mut Vec<Case>,
    wanted: impl Fn(Format) -> bool,
    shapes: impl Fn(usize) -> Shapes,
) {
    for (f, &format) in suite.capabilities.blocks.iter().enumerate().filter(|(_, f)| wanted(**f)) {
        for (at, (rows, blocks, n, spare)) in shapes(f).into_iter().enumerate() {
            let k = format.block() * if format.block() == 32 { blocks.0 } else { blocks.1 };
            for (i, x) in suite.factors().into_iter().enumerate() {
                // Every option comes up beside others, but not with all of them.
                let turn = f + at + i;
                let epilogue = Epilogue {
                    bias: turn % 2 == 0,
                    activation: if turn % 3 == 0 { Activation::Silu } else { Activation::None },
                    residual: turn % 4 < 2,
                };
                let out = suite.dtypes()[turn / 2 % suite.dtypes().len()];
                let name = format!("linear {rows}+{spare}x{k}->{n} {format} {epilogue:?} {x:?}->{out:?}");
                let tolerance = suite.blocks_tolerance(x, out);
                all.push(Case::new(name, Sizes::rows(rows, spare), tolerance, move |b| {
                    let x = b.uniform(x, Count::Tokens, k, 1.0)?;
                    let residual =
                        if epilogue.residual { Some(b.uniform(out, Count::Tokens, n, 2.0)?) } else { None };
                    let weight = matrix(b, format, n, k)?;
                    let bias = if epilogue.bias { Some(b.vector(1, n, 0.2)?) } else { None };
                    let result = b.result(out, Count::Tokens, n);
                    b.scale_at_least(1.0);
                    let activation = epilogue.activation;
                    b.push(Op::Linear(Linear { x, weight, bias, activation, residual, out: result }))?;
                    b.read_back(out, Count::Tokens, n, result)
                }));
            }
        }
    }
}

pub fn gated(suite: &Suite, all: &mut Vec<Case>) {
    gated_in(suite, all, |f| shapes(suite, f));
}

fn gated_in(suite: &Suite, all: &mut Vec<Case>, shapes: impl Fn(usize) -> Shapes) {
    for (f, &format) in suite.capabilities.blocks.iter().enumerate() {
        for (at, (rows, blocks, n, spare)) in shapes(f).into_iter().enumerate() {
            let k = format.block() * if format.block() == 32 { blocks.0 } else { blocks.1 };
            for (i, x) in suite.factors().into_iter().enumerate() {
                let turn = f + at + i;
                let bias = turn % 3 == 0;
                let activation = [Activation::Silu, Activation::GeluTanh][turn % 2];
                // What goes on in 8-bit blocks comes in them too.
                let (out, n) = match x {
                    DType::Q8 => (DType::Q8, n.next_multiple_of(32)),
                    _ => (suite.dtypes()[turn / 2 % suite.dtypes().len()], n),
                };
                let name = format!(
                    "gated_linear {rows}+{spare}x{k}->{n} {format} {activation:?} bias={bias} {x:?}->{out:?}"
                );
                let tolerance = suite.blocks_tolerance(x, out);
                all.push(Case::new(name, Sizes::rows(rows, spare), tolerance, move |b| {
                    let x = b.uniform(x, Count::Tokens, k, 1.0)?;
                    let weight = matrix(b, format, 2 * n, k)?;
                    let bias = if bias { Some(b.vector(1, 2 * n, 0.2)?) } else { None };
                    let result = b.result(out, Count::Tokens, n);
                    b.scale_at_least(1.0);
                    b.push(Op::GatedLinear(GatedLinear { x, weight, bias, activation, out: result }))?;
                    b.read_back(out, Count::Tokens, n, result)
                }));
            }
        }
    }
}
