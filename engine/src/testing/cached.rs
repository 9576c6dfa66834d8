//! Cases of attention by a paged cache: single rows, tiles, grouped heads, long contexts.

use alloc::{format, vec, vec::Vec};

use super::{
    Case, Suite, Work,
    build::{Builder, Sizes},
    states::{After, Pages, Run, singles, token_rows},
};
use crate::{
    Result,
    op::{ATTENTION_TILE, CachedAttention, Normalize, Op},
    program::Count,
    tensor::DType,
};

#[derive(Debug, Clone)]
struct Options {
    runs: Vec<Run>,
    /// Rows of a tile at most; 0: without tiles.
    tile: usize,
    heads: (usize, usize),
    head_dim: usize,
    context: usize,
    /// Columns of q beyond the queries.
    extra: usize,
    /// Magnitude of queries.
    spread: f32,
    spare: usize,
}

impl Options {
    /// Rows of several slots.
    fn single_rows() -> Self {
        Options {
            runs: singles(&[(3, 0), (1, 70), (4, 17), (0, 63), (2, 64), (5, 130)]),
            tile: 0,
            heads: (4, 2),
            head_dim: 16,
            context: 256,
            extra: 0,
            spread: 1.0,
            spare: 0,
        }
    }
}

/// Element types of queries, cache and result.
fn types(suite: &Suite, cols: usize) -> Vec<[DType; 3]> {
    let x = suite.preferred();
    let mut all = vec![[x, DType::F32, x], [x, DType::F16, x]];
    if suite.pairs_to_factors(cols).contains(&(x, DType::Q8)) {
        all.push([x, DType::F16, DType::Q8]);
    }
    all
}

/// The ones that a quick check has: more keys than kernels take at a time, and a prompt.
pub fn quick(suite: &Suite, all: &mut Vec<Case>) {
    let x = suite.preferred();
    let single = Options { heads: (4, 2), head_dim: 128, ..Options::single_rows() };
    let prompt = Options {
        runs: vec![Run { slot: 1, position: 30, rows: 20 }],
        tile: ATTENTION_TILE,
        ..single.clone()
    };
    for options in [single, prompt] {
        add(suite, all, &options, [x, DType::F16, x]);
    }
}

pub fn cached_attention(suite: &Suite, all: &mut Vec<Case>) {
    for options in options(suite.full) {
        for types in types(suite, options.heads.0 * options.head_dim) {
            add(suite, all, &options, types);
        }
    }
}

fn add(suite: &Suite, all: &mut Vec<Case>, options: &Options, types: [DType; 3]) {
    let [x, cache, out] = types;
    let name = format!("cached_attention {options:?} {x:?}->{out:?}, cache {cache:?}");
    let mut tolerance = suite.tolerance(Work::Attention, x, out);
    if options.spread > 1.0 {
        // Large scores amplify: an error of 1e-7 of the score is 1e-7 · |score| of its exponential.
        tolerance += 1e-6 * options.spread;
    }
    let rows = options.runs.iter().map(|r| r.rows as usize).sum();
    let tiles = tiles(&options.runs, options.tile.max(1)).len();
    let real = [rows, 1, tiles];
    let sizes = Sizes { bucket: [rows + options.spare, 1, tiles + options.spare], real };
    let options = options.clone();
    all.push(Case::new(name, sizes, tolerance, move |b| graph(b, &options, types)));
}

fn options(full: bool) -> Vec<Options> {
    let run = |slot, position, rows| Run { slot, position, rows };
    let base = Options::single_rows();
    let mut list = vec![base.clone(), Options { spare: 3, extra: 64, ..base.clone() }];
    for (heads, head_dim) in
        [((1, 1), 8), ((3, 3), 24), ((9, 3), 64), ((7, 1), 32), ((2, 1), 80), ((8, 2), 128), ((5, 1), 256)]
    {
        list.push(Options { heads, head_dim, ..base.clone() });
    }
    // Scores in the hundreds: the maximum must be subtracted before the exponential.
    list.push(Options { spread: 100.0, ..base.clone() });
    list.push(Options { runs: singles(&[(0, 0)]), context: 1, ..base.clone() });
    list.push(Options { runs: singles(&[(0, 300), (1, 511), (2, 31)]), context: 512, ..base.clone() });
    // More than one workgroup walks; of some rows the keys end early.
    let far = singles(&[(0, 1300), (1, 3), (2, 1024), (3, 1599), (4, 255), (5, 256)]);
    list.push(Options { runs: far.clone(), context: 1600, spare: 1, ..base.clone() });
    list.push(Options { runs: far, context: 5000, heads: (6, 2), head_dim: 64, ..base.clone() });

    let prompt = vec![run(2, 0, 5), run(0, 61, 9), run(4, 128, 1), run(3, 7, 40)];
    let tiled = Options { runs: prompt, tile: ATTENTION_TILE, ..base };
    list.push(Options { spare: 3, ..tiled.clone() });
    list.push(Options { tile: 4, extra: 8, ..tiled.clone() });
    list.push(Options { spread: 100.0, ..tiled.clone() });
    for (heads, head_dim) in [((1, 1), 8), ((6, 2), 64), ((4, 1), 128)] {
        list.push(Options { heads, head_dim, ..tiled.clone() });
    }
    list.push(Options { runs: vec![run(1, 30, 70)], head_dim: 64, ..tiled.clone() });
    if full {
        let long = vec![run(1, 0, 130), run(0, 200, 67)];
        list.push(Options { runs: long.clone(), context: 300, heads: (4, 2), head_dim: 64, ..tiled.clone() });
        list.push(Options {
            runs: long,
            context: 300,
            heads: (2, 1),
            head_dim: 128,
            spare: 5,
            ..tiled.clone()
        });
        list.push(Options { runs: vec![run(0, 1100, 20)], context: 1200, head_dim: 64, ..tiled.clone() });
        let many: Vec<(u32, u32)> = (0..40).map(|slot| (slot, slot * 37 % 250)).collect();
        list.push(Options { runs: singles(&many), tile: 0, heads: (32, 8), head_dim: 64, ..tiled.clone() });
        let deep = singles(&[(0, 4095), (1, 2049)]);
        list.push(Options { runs: deep, tile: 0, context: 4096, heads: (16, 8), head_dim: 128, ..tiled });
    }
    list
}

/// Tiles of at most `tile` rows of one run.
fn tiles(runs: &[Run], tile: usize) -> Vec<[u32; 4]> {
    let (mut all, mut start) = (Vec::new(), 0);
    for run in runs {
        let end = start + run.rows;
        all.extend((start..end).step_by(tile).map(|first| [first, end.min(first + tile as u32), 0, 0]));
        start = end;
    }
    all
}

fn graph(b: &mut Builder, o: &Options, [x, cache, to]: [DType; 3]) -> Result<()> {
    let ((heads, kv_heads), d) = (o.heads, o.head_dim);
    let slots = o.runs.iter().map(|r| r.slot as usize + 1).max().unwrap_or(1);
    let pages = Pages::deal(&mut b.random, &o.runs, slots, o.context);
    let mut values = Vec::new();
    for held in &pages.held {
        if *held {
            values.extend(b.random.values(kv_heads * d, 0.0, 1.0));
            values.extend(b.random.values(kv_heads * d, 0.5, 1.0));
        } else {
            // What was left there: it must not reach a result.
            values.extend([3e4, -3e4].repeat(kv_heads * d));
        }
    }
    let cache = b.state("cache", cache, 2 * kv_heads * d, &values, After::Ignored)?;
    let table = b.integers("pages", pages.per_slot, pages.table, After::Ignored)?;
    let tokens = b.tokens(&token_rows(&o.runs));
    let tiles = match o.tile {
        0 => None,
        tile => Some(b.tile_rows(&tiles(&o.runs, tile), tile)),
    };
    let q = b.uniform(x, Count::Tokens, heads * d + o.extra, o.spread)?;
    let out = b.internal("attended", to, Count::Tokens, heads * d);
    b.push(Op::CachedAttention(CachedAttention {
        q,
        tokens,
        tiles,
        cache,
        pages: table,
        context: o.context,
        heads,
        kv_heads,
        head_dim: d,
        scale: 1.0 / libm::sqrtf(d as f32),
        out,
    }))?;
    let read = b.output(Count::Tokens, heads * d, None);
    b.push(Op::Normalize(Normalize { x: out, unit: false, out: read }))
}
