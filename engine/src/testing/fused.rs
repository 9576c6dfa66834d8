//! Cases of neighbouring ops that a backend may do together. The reference does them one by one.

use alloc::{format, vec, vec::Vec};

use super::{
    Case, Suite, Work, blocks,
    build::{Builder, Sizes},
    experts::{Router, gap},
    states::{After, Pages, Run, singles, token_rows},
    stored::angles,
};
use crate::{
    Result,
    op::{
        Activation, CachedAttention, ConvRows, ExpertGatedLinear, ExpertLinear, GatedLinear, Linear, Norm,
        NormKind, NormParams, Normalize, Op, Route, Scoring, ShortConv, StoreKv,
    },
    program::{BufferId, Count},
    quant::q8,
    tensor::{DType, Format, WeightUse},
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
            if !suite.full && (f + i) % 3 != 0 {
                continue;
            }
            let out = if x == DType::Q8 { x } else { half };
            let kind = if f % 4 == 3 { Layer } else { Rms };
            let users = [Users::Two, Users::Linear, Users::Gated][(f + i) % 3];
            let (rows, spare, k) = (1 + f % 4, (f + i) % 2, blocks.block() * (1 + f % 3));
            let types = [DType::F32, x, out];
            let base = Normed { rows, spare, k, n: 96, kind, users, types, blocks: Some(blocks) };
            list.push(base.clone());
            if suite.full && (f + i) % 3 == 1 {
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

#[derive(Debug, Clone)]
struct Attend {
    /// Slots and positions.
    rows: Vec<(u32, u32)>,
    heads: (usize, usize),
    head_dim: usize,
    context: usize,
    norms: (bool, bool),
    /// Element types of what was projected, of the cache and of the result.
    types: [DType; 3],
}

/// Attention of rows whose keys and values are stored just before.
pub fn attention(suite: &Suite, all: &mut Vec<Case>) {
    let x = suite.preferred();
    let several = Vec::from([(3, 0), (1, 70), (4, 17), (0, 63), (2, 64), (5, 130)]);
    let base = Attend {
        rows: several.clone(),
        heads: (4, 2),
        head_dim: 16,
        context: 256,
        norms: (true, true),
        types: [x, DType::F16, x],
    };
    let mut list = Vec::from([base.clone(), Attend { types: [x, DType::F32, x], ..base.clone() }]);
    for norms in [(false, false), (true, false), (false, true)] {
        list.push(Attend { norms, rows: Vec::from([(2, 77)]), ..base.clone() });
    }
    for (i, (heads, head_dim)) in
        [((1, 1), 8), ((9, 3), 64), ((7, 1), 32), ((4, 2), 128), ((3, 3), 24), ((2, 1), 80), ((5, 1), 256)]
            .into_iter()
            .enumerate()
    {
        if i > 3 && !suite.full {
            continue;
        }
        let rows = if i % 2 == 0 { several.clone() } else { Vec::from([(1, 64)]) };
        let cache = if i % 3 == 0 { DType::F32 } else { DType::F16 };
        list.push(Attend { rows, heads, head_dim, types: [x, cache, x], ..base.clone() });
    }
    for position in [0, 255, 256, 511] {
        list.push(Attend { rows: Vec::from([(0, position)]), context: 512, ..base.clone() });
    }
    // Several workgroups have keys of a row, and only the last has the new one.
    let far = Vec::from([(0, 1300), (1, 3), (2, 1024), (3, 1599), (4, 255), (5, 256)]);
    list.push(Attend { rows: far.clone(), context: 1600, ..base.clone() });
    if suite.full {
        list.push(Attend { rows: far, context: 5000, heads: (6, 2), head_dim: 64, ..base.clone() });
        for (heads, head_dim) in [((32, 8), 64), ((16, 8), 128)] {
            let rows = Vec::from([(1, 640)]);
            list.push(Attend { rows, heads, head_dim, context: 1024, ..base.clone() });
            let rows = (0..24).map(|slot| (slot, slot * 37 % 250)).collect();
            list.push(Attend { rows, heads, head_dim, ..base.clone() });
        }
    }
    if suite.factors().contains(&DType::Q8) {
        let q8: Vec<Attend> = list.iter().filter(|o| o.head_dim.is_multiple_of(q8::BLOCK)).cloned().collect();
        let step = if suite.full { 1 } else { 2 };
        list.extend(q8.into_iter().step_by(step).map(|o| Attend { types: [x, o.types[1], DType::Q8], ..o }));
    }
    for o in list {
        let mut tolerance = suite.tolerance(Work::Attention, x, o.types[2]);
        if o.types[..2].contains(&DType::F16) {
            // Queries or keys may be rounded to the neighbouring value.
            tolerance += 1e-3;
        }
        let name = format!("fused attention {o:?}");
        all.push(Case::new(name, Sizes::rows(o.rows.len(), 0), tolerance, move |b| attend(b, &o)));
    }
}

fn attend(b: &mut Builder, o: &Attend) -> Result<()> {
    let ((heads, kv_heads), d, [x, cache, to]) = (o.heads, o.head_dim, o.types);
    let runs: Vec<Run> = singles(&o.rows);
    let slots = o.rows.iter().map(|(slot, _)| *slot as usize + 1).max().unwrap_or(1);
    let pages = Pages::deal(&mut b.random, &runs, slots, o.context);
    let before = b.random.values(pages.rows * 2 * kv_heads * d, 0.2, 1.0);
    let cache = b.state("cache", cache, 2 * kv_heads * d, &before, After::Compared)?;
    let table = b.integers("pages", pages.per_slot, pages.table, After::Ignored)?;
    let tokens = b.integers("tokens", 4, token_rows(&runs).concat(), After::Compared)?;
    let qkv = b.uniform(x, Count::Tokens, (heads + 2 * kv_heads) * d, 1.5)?;
    let rope = angles(b, o.context, d)?;
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
    let out = b.internal("attended", to, Count::Tokens, heads * d);
    b.push(Op::CachedAttention(CachedAttention {
        q: qkv,
        tokens,
        tiles: None,
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

#[derive(Debug, Clone)]
struct Convolve {
    rows: Vec<(u32, u32)>,
    k: usize,
    cols: usize,
    taps: usize,
    /// Normalised before.
    normed: bool,
    /// Element types of what is multiplied and of the result.
    types: [DType; 2],
    blocks: Option<Format>,
}

/// Convolutions of what a product made just before, of single rows.
pub fn convolution(suite: &Suite, all: &mut Vec<Case>) {
    let x = suite.preferred();
    let several = Vec::from([(2, 0), (4, 1), (0, 2), (1, 77)]);
    let base = Convolve {
        rows: several.clone(),
        k: 64,
        cols: 32,
        taps: 3,
        normed: true,
        types: [x, x],
        blocks: None,
    };
    let mut list = Vec::new();
    for (i, taps) in [2, 3, 4, 8].into_iter().enumerate() {
        let rows = if i % 2 == 0 { several.clone() } else { Vec::from([(1, i as u32)]) };
        list.push(Convolve { taps, rows, cols: 20 + 48 * i, ..base.clone() });
    }
    list.push(Convolve { normed: false, ..base.clone() });
    list.push(Convolve { rows: (0..8).map(|slot| (7 - slot, slot)).collect(), ..base.clone() });
    for (f, &format) in suite.capabilities.blocks.iter().enumerate() {
        let x = suite.factors()[f % suite.factors().len()];
        if !suite.full && f % 2 == 1 {
            continue;
        }
        let rows = several[..1 + f % 3].to_vec();
        let k = format.block() * (1 + f % 2);
        list.push(Convolve {
            rows,
            k,
            types: [x, x],
            blocks: Some(format),
            normed: f % 4 != 3,
            ..base.clone()
        });
        if suite.full && f % 3 == 0 {
            let types = [*suite.factors().last().unwrap_or(&x); 2];
            let rows = several[..1].to_vec();
            list.push(Convolve { rows, k: 2048, cols: 256, types, blocks: Some(format), ..base.clone() });
        }
    }
    for o in list {
        let mut tolerance = suite.blocks_tolerance(o.types[0], o.types[1]);
        if o.normed {
            tolerance += if o.types[0] == DType::Q8 { 4.0 / 127.0 } else { 3e-3 };
        }
        let name = format!("fused convolution {o:?}");
        all.push(Case::new(name, Sizes::rows(o.rows.len(), 0), tolerance, move |b| convolve(b, &o)));
    }
}

fn convolve(b: &mut Builder, o: &Convolve) -> Result<()> {
    let (k, cols, [x, out]) = (o.k, o.cols, o.types);
    let before = b.random.values(9 * (o.taps - 1) * cols, 0.0, 1.0);
    let state = b.state("conv", DType::F32, cols, &before, After::Compared)?;
    let tokens = b.tokens(&token_rows(&singles(&o.rows)));
    let given = b.uniform(if o.normed { DType::F32 } else { x }, Count::Tokens, k, 1.0)?;
    let x = match o.normed {
        true => {
            let params = NormParams { kind: NormKind::Rms, weight: b.vector(1, k, 1.0)?, eps: 1e-5 };
            let out = b.internal("normed", x, Count::Tokens, k);
            b.push(Op::Norm(Norm { x: given, params, out }))?;
            out
        }
        false => given,
    };
    let weight = match o.blocks {
        Some(format) => blocks::matrix(b, format, 3 * cols, k)?,
        None => b.matrix(3 * cols, k)?,
    };
    let bcx = b.internal("bcx", DType::F32, Count::Tokens, 3 * cols);
    let activation = Activation::None;
    b.push(Op::Linear(Linear { x, weight, bias: None, activation, residual: None, out: bcx }))?;
    let values = b.random.values(o.taps * cols, 0.0, 1.0);
    let weight = b.weight_from(Format::F32, WeightUse::Vector, (o.taps, cols), &values)?;
    let result = b.result(out, Count::Tokens, cols);
    b.scale_at_least(1.0);
    let rows = ConvRows::Slots { tokens, spans: None, state };
    b.push(Op::ShortConv(ShortConv { bcx, rows, weight, bias: None, out: result }))?;
    b.read_back(out, Count::Tokens, cols, result)
}

#[derive(Debug, Clone)]
struct Mixture {
    router: Router,
    /// Outputs of an expert's gate.
    width: usize,
    /// Element type of what experts multiply; the router's is the backend's own.
    x: DType,
    blocks: Option<Format>,
}

/// A feed-forward of experts: norm, router, gates, sum.
pub fn mixture(suite: &Suite, all: &mut Vec<Case>) {
    let half = suite.preferred();
    let router = Router {
        rows: 2,
        cols: 64,
        experts: 8,
        used: 2,
        scoring: Scoring::Softmax,
        bias: false,
        normalize: None,
        scale: 1.0,
        ties: false,
        usage: WeightUse::Vector,
        spare: 1,
    };
    let base = Mixture { router, width: 32, x: half, blocks: None };
    let mut list = Vec::from([base.clone()]);
    for (scoring, bias, normalize, rows) in [
        (Scoring::Softmax, false, Some(0.0), 1),
        (Scoring::Sigmoid, true, Some(1e-6), 1),
        (Scoring::Sigmoid, false, None, 4),
    ] {
        let router = Router {
            scoring,
            bias,
            normalize,
            rows,
            experts: 13,
            used: 3,
            scale: 1.5,
            ..base.router.clone()
        };
        list.push(Mixture { router, width: 20, ..base.clone() });
    }
    list.push(Mixture {
        router: Router { rows: 7, usage: WeightUse::Matrix, ..base.router.clone() },
        ..base.clone()
    });
    for (f, &format) in suite.capabilities.blocks.iter().enumerate() {
        let x = suite.factors()[f % suite.factors().len()];
        let cols = format.block() * (1 + f % 2);
        let router = Router { rows: 1 + f % 2, cols, used: 1 + f % 3, ..base.router.clone() };
        if suite.full || f % 3 == 0 {
            list.push(Mixture { router, width: format.block(), x, blocks: Some(format) });
        }
    }
    if suite.full {
        for (experts, used, scoring) in [(32, 4, Scoring::Sigmoid), (128, 8, Scoring::Softmax)] {
            let router = Router {
                rows: 1,
                cols: 2048,
                experts,
                used,
                scoring,
                normalize: Some(0.0),
                ..base.router.clone()
            };
            let x = *suite.factors().last().unwrap_or(&half);
            let blocks = suite.capabilities.blocks.first().copied();
            list.push(Mixture { router, width: 96, x, blocks });
        }
    }
    for o in list {
        let mut tolerance = suite.blocks_tolerance(o.x, half);
        tolerance += if o.x == DType::Q8 { 4.0 / 127.0 } else { 3e-3 };
        let name = format!("fused mixture {o:?}");
        let sizes = Sizes::rows(o.router.rows, o.router.spare);
        all.push(Case::new(name, sizes, tolerance, move |b| mix(b, half, &o)));
    }
}

fn mix(b: &mut Builder, half: DType, o: &Mixture) -> Result<()> {
    let Router { rows, cols, experts, used, scoring, normalize, scale, .. } = o.router;
    let router = b.random.values(experts * cols, 0.0, 1.7 / libm::sqrtf(cols as f32));
    let bias = if o.router.bias { b.random.values(experts, 0.0, 0.3) } else { vec![0.0; experts] };
    let mut values = Vec::new();
    for _ in 0..rows {
        // Rows whose choice no rounding changes; those of length √cols are their own norm.
        let mut row = vec![0.0; cols];
        for _ in 0..2000 {
            row = b.random.values(cols, 0.0, 2.0);
            let square: f32 = row.iter().map(|v| v * v).sum();
            let to_one = libm::sqrtf(cols as f32 / square);
            row.iter_mut().for_each(|v| *v *= to_one);
            if gap(&o.router, &row, &router, &bias) >= 5e-3 {
                break;
            }
        }
        values.extend(row);
    }
    let x = b.given(DType::F32, Count::Tokens, cols, &values)?;
    let ones = b.weight_from(Format::F32, WeightUse::Vector, (1, cols), &vec![1.0; cols])?;
    let norm = |b: &mut Builder, dtype: DType| -> Result<BufferId> {
        let params = NormParams { kind: NormKind::Rms, weight: ones.clone(), eps: 1e-6 };
        let out = b.internal("normed", dtype, Count::Tokens, cols);
        b.push(Op::Norm(Norm { x, params, out }))?;
        Ok(out)
    };
    let normed = norm(b, half)?;
    let routes = b.internal("routes", DType::F32, Count::Tokens, (2 * used).next_multiple_of(4));
    let weight = b.weight_from(Format::F32, o.router.usage, (experts, cols), &router)?;
    let bias = match o.router.bias {
        true => Some(b.weight_from(Format::F32, WeightUse::Vector, (1, experts), &bias)?),
        false => None,
    };
    b.push(Op::Route(Route { x: normed, weight, bias, scoring, used, normalize, scale, out: routes }))?;
    let factor = if o.x == half { normed } else { norm(b, o.x)? };
    let matrix = |b: &mut Builder, rows, cols| match o.blocks {
        Some(format) => blocks::matrix(b, format, rows, cols),
        None => b.matrix(rows, cols),
    };
    let weight = matrix(b, experts * 2 * o.width, cols)?;
    let wide = b.internal("wide", o.x, Count::Tokens, used * o.width);
    let activation = Activation::Silu;
    b.push(Op::ExpertGatedLinear(ExpertGatedLinear {
        x: factor,
        routes,
        used,
        weight,
        activation,
        out: wide,
    }))?;
    let weight = matrix(b, experts * cols, o.width)?;
    let out = b.output(Count::Tokens, cols, None);
    b.scale_at_least(1.0);
    b.push(Op::ExpertLinear(ExpertLinear { x: wide, routes, used, weight, residual: Some(x), out }))
}
