//! Cases of the ops that write what later runs read: store_kv, short_conv.

use alloc::{format, vec, vec::Vec};

use super::{
    Case, Suite, Work,
    build::{Builder, Sizes, tiles},
    states::{After, Pages, Run, singles, spans, token_rows},
};
use crate::{
    Result,
    op::{ATTENTION_TILE, ConvRows, NormKind, NormParams, Normalize, Op, ShortConv, StoreKv},
    program::Count,
    tensor::{DType, Format, Weight, WeightUse},
};

const BOTH: [DType; 2] = [DType::F32, DType::F16];

#[derive(Debug, Clone)]
struct Store {
    runs: Vec<Run>,
    heads: (usize, usize),
    head_dim: usize,
    norms: (bool, bool),
    spare: usize,
}

pub fn store_kv(suite: &Suite, all: &mut Vec<Case>) {
    // Over a page's edge, to the end of another, in the middle of a third.
    let mixed = vec![
        Run { slot: 2, position: 60, rows: 7 },
        Run { slot: 0, position: 127, rows: 1 },
        Run { slot: 3, position: 0, rows: 3 },
    ];
    let base = Store { runs: mixed.clone(), heads: (4, 2), head_dim: 16, norms: (false, false), spare: 0 };
    let mut list = vec![base.clone()];
    for norms in [(true, true), (true, false), (false, true)] {
        list.push(Store { norms, spare: 3, ..base.clone() });
    }
    for (heads, head_dim) in
        [((1, 1), 8), ((3, 3), 24), ((6, 2), 64), ((2, 1), 80), ((2, 1), 128), ((1, 1), 256)]
    {
        list.push(Store { heads, head_dim, norms: (true, true), ..base.clone() });
    }
    list.push(Store { runs: singles(&[(4, 199)]), norms: (true, true), ..base.clone() });
    if suite.full {
        list.push(Store { heads: (32, 8), head_dim: 64, norms: (true, true), spare: 9, ..base.clone() });
        list.push(Store { heads: (14, 2), head_dim: 128, ..base });
    }
    for options in list {
        for cache in BOTH {
            let x = suite.preferred();
            let name = format!("store_kv {options:?} {x:?}, cache {cache:?}");
            let rows = options.runs.iter().map(|r| r.rows as usize).sum();
            let widest = if x == DType::F16 { x } else { cache };
            let tolerance = suite.tolerance(Work::Rows, x, widest);
            let options = options.clone();
            all.push(Case::new(name, Sizes::rows(rows, options.spare), tolerance, move |b| {
                store_graph(b, &options, x, cache)
            }));
        }
    }
}

/// Cosines and sines by position.
pub fn angles(b: &mut Builder, positions: usize, head_dim: usize) -> Result<Weight> {
    let half = head_dim / 2;
    let angle = |at: usize| {
        let (position, i) = (at / head_dim, at % head_dim);
        let angle = position as f32 * 0.7 / (1 + i % half) as f32;
        if i < half { libm::cosf(angle) } else { libm::sinf(angle) }
    };
    let values: Vec<f32> = (0..positions * head_dim).map(angle).collect();
    b.angles((positions, head_dim), &values)
}

fn store_graph(b: &mut Builder, o: &Store, x: DType, cache: DType) -> Result<()> {
    let ((heads, kv_heads), d) = (o.heads, o.head_dim);
    let pages = Pages::deal(&mut b.random, &o.runs, 5, 200);
    let before = b.random.values(pages.rows * 2 * kv_heads * d, 0.0, 1.0);
    let cache = b.state("cache", cache, 2 * kv_heads * d, &before, After::Compared)?;
    let table = b.integers("pages", pages.per_slot, pages.table, After::Ignored)?;
    let tokens = b.tokens(&token_rows(&o.runs));
    let qkv = b.uniform(x, Count::Tokens, (heads + 2 * kv_heads) * d, 1.5)?;
    let rope = angles(b, 200, d)?;
    let mut norm = |used: bool, eps: f32| -> Result<Option<NormParams>> {
        let weight = b.vector(1, d, 1.0)?;
        Ok(used.then_some(NormParams { kind: NormKind::Rms, weight, eps }))
    };
    let (q_norm, k_norm) = (norm(o.norms.0, 1e-6)?, norm(o.norms.1, 0.3)?);
    b.push(Op::StoreKv(StoreKv {
        qkv,
        tokens,
        q_norm,
        k_norm,
        rope,
        cache,
        pages: table,
        heads,
        kv_heads,
        head_dim: d,
    }))?;
    let out = b.output(Count::Tokens, heads * d, None);
    b.push(Op::Normalize(Normalize { x: qkv, unit: false, out }))
}

/// How a convolution's rows come.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Come {
    /// One of each slot.
    Singles,
    Spans,
    /// The runs are whole sequences, in tiles of at most so many rows; and taps ahead.
    Sequences {
        tile: usize,
        ahead: usize,
    },
}

#[derive(Debug, Clone)]
struct Conv {
    runs: Vec<Run>,
    come: Come,
    taps: usize,
    cols: usize,
    bias: bool,
    spare: usize,
}

impl Conv {
    /// Of whole sequences.
    fn tiles(&self) -> Vec<[u32; 4]> {
        let lens: Vec<usize> = self.runs.iter().map(|run| run.rows as usize).collect();
        match self.come {
            Come::Sequences { tile, .. } => tiles(&lens, tile),
            _ => Vec::new(),
        }
    }
}

pub fn short_conv(suite: &Suite, all: &mut Vec<Case>) {
    let run = |slot, position, rows| Run { slot, position, rows };
    // Shorter than what is kept, at the start and later; longer; a single row.
    let mixed = vec![run(3, 0, 1), run(1, 9, 2), run(4, 0, 7), run(0, 1, 5), run(5, 40, 1), run(2, 2, 1)];
    let decode = singles(&[(2, 0), (4, 1), (0, 2), (1, 77), (5, 3)]);
    let base = Conv { runs: mixed, come: Come::Spans, taps: 3, cols: 12, bias: false, spare: 0 };
    let mut list = Vec::new();
    for taps in [2, 3, 4, 8] {
        for bias in [false, true] {
            list.push(Conv { taps, bias, spare: 2, ..base.clone() });
            list.push(Conv { taps, bias, runs: decode.clone(), come: Come::Singles, ..base.clone() });
            let come = Come::Sequences { tile: 4, ahead: taps / 2 };
            list.push(Conv { taps, bias, come, spare: 2, ..base.clone() });
        }
    }
    for ahead in 0..3 {
        // Tiles that end before their sequence does.
        let come = Come::Sequences { tile: ATTENTION_TILE, ahead };
        list.push(Conv {
            cols: 36,
            come,
            runs: vec![run(0, 0, 3), run(0, 0, 70), run(0, 0, 2)],
            ..base.clone()
        });
    }
    let come = Come::Sequences { tile: ATTENTION_TILE, ahead: 1 };
    list.push(Conv { cols: 4, come, runs: vec![run(0, 0, 1)], ..base.clone() });
    list.push(Conv { cols: 96, come, spare: 3, ..base.clone() });
    list.push(Conv { cols: 4, runs: vec![run(0, 0, 1)], ..base.clone() });
    list.push(Conv { cols: 68, runs: vec![run(1, 5, 70)], spare: 1, ..base.clone() });
    list.push(Conv {
        cols: 260,
        runs: decode.clone(),
        come: Come::Singles,
        bias: true,
        spare: 7,
        ..base.clone()
    });
    list.push(Conv { cols: 96, spare: 2, ..base.clone() });
    list.push(Conv { cols: 320, runs: decode.clone(), come: Come::Singles, spare: 1, ..base.clone() });
    if suite.full {
        list.push(Conv { cols: 1024, runs: vec![run(0, 0, 130), run(3, 64, 65)], ..base.clone() });
        list.push(Conv { cols: 2048, runs: decode, come: Come::Singles, ..base.clone() });
        list.push(Conv { cols: 1024, come, runs: vec![run(0, 0, 130), run(0, 0, 65)], spare: 70, ..base });
    }
    for options in list {
        for (x, out) in suite.pairs_to_factors(options.cols) {
            let name = format!("short_conv {options:?} {x:?}->{out:?}");
            let tolerance = suite.tolerance(Work::Rows, x, out);
            let rows = options.runs.iter().map(|r| r.rows as usize).sum();
            let tiles = options.tiles().len().max(1);
            let real = [rows, options.runs.len(), tiles];
            let bucket = [rows + options.spare, real[1] + options.spare, tiles + options.spare];
            let sizes = Sizes { bucket, real };
            let options = options.clone();
            all.push(Case::new(name, sizes, tolerance, move |b| conv_graph(b, &options, x, out)));
        }
    }
}

fn conv_graph(b: &mut Builder, o: &Conv, x: DType, out: DType) -> Result<()> {
    let rows = if let Come::Sequences { tile, ahead } = o.come {
        ConvRows::Sequences { tiles: b.tile_rows(&o.tiles(), tile), ahead }
    } else {
        // A slot that no row is of keeps what it has.
        let slots = 7;
        let before = b.random.values(slots * (o.taps - 1) * o.cols, 0.0, 1.0);
        let state = b.state("conv", DType::F32, o.cols, &before, After::Compared)?;
        let tokens = b.tokens(&token_rows(&o.runs));
        let spans = (o.come == Come::Spans).then(|| b.ranges(&spans(&o.runs)));
        ConvRows::Slots { tokens, spans, state }
    };
    let bcx = b.uniform(x, Count::Tokens, 3 * o.cols, 1.5)?;
    let values = b.random.values(o.taps * o.cols, 0.0, 1.0);
    let weight = b.weight_from(Format::F32, WeightUse::Vector, (o.taps, o.cols), &values)?;
    let bias = if o.bias { Some(b.vector(1, o.cols, 0.5)?) } else { None };
    let result = b.result(out, Count::Tokens, o.cols);
    b.push(Op::ShortConv(ShortConv { bcx, rows, weight, bias, out: result }))?;
    b.read_back(out, Count::Tokens, o.cols, result)
}
