//! Cases of attention: mixed lengths, grouped heads, windows, causality, relative biases, small tiles.

use alloc::{format, vec, vec::Vec};

use super::{
    Case, Suite, Work,
    build::{Builder, Sizes, tiles},
};
use crate::{
    Result,
    op::{ATTENTION_TILE, Attention, Op},
    program::Count,
    tensor::{DType, Format, WeightUse},
};

#[derive(Debug, Clone)]
struct Options {
    lens: Vec<usize>,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    window: Option<usize>,
    causal: bool,
    /// R of a `[heads, 2R + 1]` table.
    radius: Option<usize>,
    tile: usize,
    /// Magnitude of queries and keys.
    spread: f32,
    spare: usize,
}

impl Options {
    fn new(lens: &[usize], heads: usize, kv_heads: usize, head_dim: usize) -> Self {
        Options {
            lens: lens.to_vec(),
            heads,
            kv_heads,
            head_dim,
            window: None,
            causal: false,
            radius: None,
            tile: ATTENTION_TILE,
            spread: 1.0,
            spare: 0,
        }
    }

    fn sizes(&self) -> Sizes {
        let real = [self.lens.iter().sum(), 1, tiles(&self.lens, self.tile).len()];
        Sizes { bucket: [real[0] + self.spare, 1, real[2] + self.spare], real }
    }
}

/// The one that a quick check has.
pub fn quick(suite: &Suite, all: &mut Vec<Case>) {
    add(suite, all, Options { spare: 5, ..Options::new(&[1, 7, 3, 12], 2, 2, 32) });
}

pub fn attention(suite: &Suite, all: &mut Vec<Case>) {
    for options in options(suite.full) {
        add(suite, all, options);
    }
    neighbours(suite, all);
}

fn options(full: bool) -> Vec<Options> {
    let mut list = Vec::new();
    for head_dim in [8, 16, 32, 64, 128] {
        list.push(Options { spare: 5, ..Options::new(&[1, 7, 3, 12], 2, 2, head_dim) });
    }
    let mixed = Options::new(&[5, 1, 18], 4, 2, 16);
    for window in [0, 1, 4, 64] {
        list.push(Options { window: Some(window), spare: 2, ..mixed.clone() });
    }
    for radius in [0, 3, 128] {
        list.push(Options { radius: Some(radius), ..mixed.clone() });
    }
    list.push(Options { window: Some(3), radius: Some(2), ..mixed.clone() });
    list.push(Options { causal: true, spare: 2, ..mixed.clone() });
    list.push(Options { causal: true, window: Some(3), radius: Some(2), tile: 4, ..mixed.clone() });
    // Tiles may be smaller than the largest.
    list.push(Options { tile: 4, ..mixed.clone() });
    list.push(Options { kv_heads: 1, ..mixed.clone() });
    // Scores in the hundreds: the maximum must be subtracted before the exponential.
    list.push(Options { spread: 12.0, ..mixed });
    list.push(Options::new(&[1], 1, 1, 4));
    list.push(Options::new(&[1, 1, 1], 3, 3, 12));
    list.push(Options { spare: 1, ..Options::new(&[65, 2], 1, 1, 16) });
    if full {
        for (lens, heads, kv_heads, head_dim) in [
            (vec![64], 2, 2, 32),
            (vec![130, 1, 63, 66], 3, 3, 16),
            (vec![150, 17], 2, 2, 64),
            (vec![129, 5], 4, 2, 128),
            (vec![300], 1, 1, 64),
        ] {
            let base = Options::new(&lens, heads, kv_heads, head_dim);
            list.push(Options { spare: 67, ..base.clone() });
            list.push(Options { window: Some(64), ..base.clone() });
            list.push(Options { window: Some(8), spare: 3, ..base.clone() });
            list.push(Options { causal: true, ..base.clone() });
            list.push(Options { causal: true, window: Some(64), spare: 3, ..base.clone() });
            list.push(Options { radius: Some(128), ..base });
        }
        list.push(Options::new(&[3; 40], 12, 12, 32));
        list.push(Options::new(&[70, 9], 2, 1, 256));
    }
    list
}

fn add(suite: &Suite, all: &mut Vec<Case>, options: Options) {
    let x = suite.preferred();
    let name = format!("attention {options:?} {x:?}");
    // Large scores amplify: an error of 1e-7 of the score is 1e-7 · |score| of its exponential.
    let amplified = options.spread.max(1.0) * options.spread.max(1.0);
    let mut tolerance = suite.tolerance(Work::Attention, x, x);
    if amplified > 1.0 {
        tolerance += 1e-6 * amplified;
    }
    all.push(Case::new(name, options.sizes(), tolerance, move |b| {
        let rows: usize = options.lens.iter().sum();
        let (q_cols, kv_cols) = (options.heads * options.head_dim, options.kv_heads * options.head_dim);
        let mut values = Vec::new();
        for _ in 0..rows {
            values.extend(b.random.values(q_cols + kv_cols, 0.0, options.spread));
            values.extend(b.random.values(kv_cols, 0.5, 1.0));
        }
        graph(b, &options, x, &values, None)
    }));
}

/// Huge values in two of three sequences must not reach the third, which lies between them.
fn neighbours(suite: &Suite, all: &mut Vec<Case>) {
    let x = suite.preferred();
    for lens in [[5, 18, 9], [70, 3, 66]] {
        if lens[0] > 64 && !suite.full {
            continue;
        }
        let options = Options::new(&lens, 2, 2, 16);
        let name = format!("attention beside huge neighbours {lens:?} {x:?}");
        let tolerance = suite.tolerance(Work::Attention, x, x);
        all.push(Case::new(name, options.sizes(), tolerance, move |b| {
            let (cols, own) = (6 * 16, lens[0]..lens[0] + lens[1]);
            let mut values = Vec::new();
            for row in 0..lens.iter().sum::<usize>() {
                values.extend(b.random.values(cols, 0.5, 1.0));
                if !own.contains(&row) {
                    let start = row * cols;
                    // Keys stay small, so that the neighbours' own rows stay finite.
                    values[start + 64..].fill(if row % 2 == 0 { 6e4 } else { -6e4 });
                }
            }
            graph(b, &options, x, &values, Some(own))
        }));
    }
}

fn graph(
    b: &mut Builder,
    o: &Options,
    x: DType,
    values: &[f32],
    compared: Option<core::ops::Range<usize>>,
) -> Result<()> {
    let cols = (o.heads + 2 * o.kv_heads) * o.head_dim;
    let qkv = b.given(x, Count::Tokens, cols, values)?;
    let tiles = b.tiles(&o.lens, o.tile);
    let bias = match o.radius {
        Some(radius) => {
            let shape = (o.heads, 2 * radius + 1);
            let values = b.random.values(shape.0 * shape.1, 0.0, 2.0);
            Some(b.weight_from(Format::F32, WeightUse::Vector, shape, &values)?)
        }
        None => None,
    };
    let out = b.internal("attended", x, Count::Tokens, o.heads * o.head_dim);
    b.push(Op::Attention(Attention {
        qkv,
        tiles,
        heads: o.heads,
        kv_heads: o.kv_heads,
        head_dim: o.head_dim,
        scale: 1.0 / libm::sqrtf(o.head_dim as f32),
        window: o.window,
        causal: o.causal,
        bias,
        out,
    }))?;
    let read = b.output(Count::Tokens, o.heads * o.head_dim, compared);
    b.push(Op::Normalize(crate::op::Normalize { x: out, unit: false, out: read }))
}
