//! Cases of routing and of linear ops by experts.

use alloc::{format, vec, vec::Vec};

use super::{
    Case, Suite, Work,
    blocks::matrix,
    build::{Builder, Sizes},
};
use crate::{
    Result,
    op::{Activation, ExpertGatedLinear, ExpertLinear, Op, Route, Scoring},
    program::Count,
    tensor::{DType, Format, WeightUse},
};

#[derive(Debug, Clone)]
pub struct Router {
    pub rows: usize,
    pub cols: usize,
    pub experts: usize,
    pub used: usize,
    pub scoring: Scoring,
    pub bias: bool,
    pub normalize: Option<f32>,
    pub scale: f32,
    /// Pairs of experts that score the same.
    pub ties: bool,
    pub usage: WeightUse,
    pub spare: usize,
}

pub fn route(suite: &Suite, all: &mut Vec<Case>) {
    let base = Router {
        rows: 3,
        cols: 36,
        experts: 8,
        used: 2,
        scoring: Scoring::Softmax,
        bias: false,
        normalize: None,
        scale: 1.0,
        ties: false,
        // Models keep it in f32.
        usage: WeightUse::Vector,
        spare: 2,
    };
    let mut list = Vec::new();
    for scoring in [Scoring::Softmax, Scoring::Sigmoid] {
        for bias in [false, true] {
            list.push(Router { scoring, bias, ..base.clone() });
            list.push(Router { scoring, bias, normalize: Some(0.0), scale: 2.5, ..base.clone() });
        }
        list.push(Router { scoring, normalize: Some(0.25), ..base.clone() });
        list.push(Router { scoring, ties: true, used: 3, ..base.clone() });
    }
    list.push(Router { usage: WeightUse::Matrix, ..base.clone() });
    for (experts, used) in [(1, 1), (4, 4), (5, 3), (32, 4), (60, 6)] {
        list.push(Router { experts, used, spare: 0, ..base.clone() });
    }
    list.push(Router { rows: 1, cols: 4, ..base.clone() });
    if suite.full {
        list.push(Router { rows: 17, cols: 2048, experts: 128, used: 8, ..base.clone() });
        list.push(Router { rows: 5, cols: 516, experts: 260, used: 10, bias: true, ..base });
    }
    for options in list {
        let x = suite.preferred();
        let name = format!("route {options:?} {x:?}");
        let tolerance = suite.tolerance(Work::Dot, x, DType::F32);
        // Scores closer than this may change places.
        let apart = if suite.capabilities.matrices == Format::Int8 { 0.02 } else { 1e-3 };
        let sizes = Sizes::rows(options.rows, options.spare);
        all.push(Case::new(name, sizes, tolerance, move |b| route_graph(b, &options, x, apart)));
    }
}

fn route_graph(b: &mut Builder, o: &Router, x: DType, apart: f32) -> Result<()> {
    let (experts, cols) = (o.experts, o.cols);
    let mut weight = b.random.values(experts * cols, 0.0, 1.7 / libm::sqrtf(cols as f32));
    if o.ties {
        for pair in weight.chunks_exact_mut(2 * cols) {
            let (first, second) = pair.split_at_mut(cols);
            second.copy_from_slice(first);
        }
    }
    let bias = if o.bias { b.random.values(experts, 0.0, 0.3) } else { vec![0.0; experts] };
    let mut values = Vec::new();
    for _ in 0..o.rows {
        // Random rows until one's chosen experts are far enough apart.
        let mut row = b.random.values(cols, 0.0, 2.0);
        for _ in 0..500 {
            if o.ties || gap(o, &row, &weight, &bias) >= apart {
                break;
            }
            row = b.random.values(cols, 0.0, 2.0);
        }
        values.extend(row);
    }
    let x = b.given(x, Count::Tokens, cols, &values)?;
    let weight = b.weight_from(Format::F32, o.usage, (experts, cols), &weight)?;
    let bias = match o.bias {
        true => Some(b.weight_from(Format::F32, WeightUse::Vector, (1, experts), &bias)?),
        false => None,
    };
    let out = b.output(Count::Tokens, (2 * o.used).next_multiple_of(4), None);
    let Router { scoring, used, normalize, scale, .. } = *o;
    b.push(Op::Route(Route { x, weight, bias, scoring, used, normalize, scale, out }))
}

/// The least difference between neighbours among a row's best experts and the best of the others, relative to the
/// largest score.
pub fn gap(o: &Router, row: &[f32], weight: &[f32], bias: &[f32]) -> f32 {
    let logit = |w: &[f32]| w.iter().zip(row).map(|(w, x)| w * x).sum::<f32>();
    let logits: Vec<f32> = weight.chunks(o.cols).map(logit).collect();
    let total: f32 = logits.iter().map(|l| libm::expf(*l)).sum();
    let mut scores: Vec<f32> = logits
        .iter()
        .zip(bias)
        .map(|(l, b)| match o.scoring {
            Scoring::Softmax => libm::expf(*l) / total + b,
            Scoring::Sigmoid => 1.0 / (1.0 + libm::expf(-l)) + b,
        })
        .collect();
    scores.sort_unstable_by(|a, b| b.total_cmp(a));
    scores.truncate(o.used + 1);
    let least = scores.windows(2).map(|pair| pair[0] - pair[1]).fold(f32::MAX, f32::min);
    least / scores[0].abs().max(1e-6)
}

#[derive(Debug, Clone)]
struct Shape {
    rows: usize,
    /// Columns that go in, of each expert's output, experts there are and those used.
    cols: usize,
    width: usize,
    experts: usize,
    used: usize,
    spare: usize,
}

fn shapes(suite: &Suite) -> Vec<Shape> {
    let shape = |rows, cols, width, experts, used, spare| Shape { rows, cols, width, experts, used, spare };
    let mut list = vec![
        shape(1, 4, 4, 1, 1, 0),
        shape(3, 36, 12, 5, 2, 2),
        shape(2, 64, 20, 8, 4, 0),
        shape(3, 8, 48, 6, 2, 1),
        shape(1, 132, 68, 3, 3, 1),
        // Enough rows to be sorted by expert, with columns for matrix units.
        shape(20, 64, 36, 5, 2, 3),
    ];
    if suite.full {
        list.extend([
            shape(9, 512, 192, 32, 4, 1),
            shape(1, 1028, 260, 16, 8, 0),
            shape(150, 192, 132, 3, 2, 5),
        ]);
    }
    list
}

/// Experts with weights in blocks: formats, what is multiplied by them, and shapes.
fn blocks(suite: &Suite) -> Vec<(Format, DType, Shape)> {
    let mut all = Vec::new();
    for (f, &format) in suite.capabilities.blocks.iter().enumerate() {
        let cols = format.block() * (1 + f % 3);
        for (i, x) in suite.factors().into_iter().enumerate() {
            if suite.full || (f + i) % 3 == 0 {
                all.push((format, x, Shape { rows: 2, cols, width: 36, experts: 5, used: 2, spare: f % 2 }));
            }
            if x == suite.preferred() {
                let cols = 2 * format.block();
                all.push((format, x, Shape { rows: 18, cols, width: 36, experts: 5, used: 2, spare: f % 2 }));
            }
        }
    }
    all
}

/// Routes to experts drawn without repetition, with weights of their own.
fn routes(b: &mut Builder, s: &Shape) -> crate::program::BufferId {
    let cols = (2 * s.used).next_multiple_of(4);
    let mut values = vec![0.0; s.rows * cols];
    for row in values.chunks_mut(cols) {
        let mut left: Vec<usize> = (0..s.experts).collect();
        for i in 0..s.used {
            let at = b.random.below(left.len()) as usize;
            row[i] = left.swap_remove(at) as f32;
            row[s.used + i] = 0.5 + 0.4 * b.random.unit();
        }
    }
    b.routes(cols, &values)
}

pub fn expert_gated_linear(suite: &Suite, all: &mut Vec<Case>) {
    gated_by_blocks(suite, all);
    for shape in shapes(suite) {
        for activation in [Activation::Silu, Activation::Gelu, Activation::None] {
            if activation != Activation::Silu && shape.cols > 64 {
                continue;
            }
            for (x, out) in suite.pairs_to_factors(shape.used * shape.width) {
                let name = format!("expert_gated_linear {shape:?} {activation:?} {x:?}->{out:?}");
                let (tolerance, s) = (suite.tolerance(Work::Dot, x, out), shape.clone());
                all.push(Case::new(name, Sizes::rows(s.rows, s.spare), tolerance, move |b| {
                    let routes = routes(b, &s);
                    let x = b.uniform(x, Count::Tokens, s.cols, 1.5)?;
                    let weight = b.matrix(s.experts * 2 * s.width, s.cols)?;
                    let result = b.result(out, Count::Tokens, s.used * s.width);
                    b.push(Op::ExpertGatedLinear(ExpertGatedLinear {
                        x,
                        routes,
                        used: s.used,
                        weight,
                        activation,
                        out: result,
                    }))?;
                    b.read_back(out, Count::Tokens, s.used * s.width, result)
                }));
            }
        }
    }
}

fn gated_by_blocks(suite: &Suite, all: &mut Vec<Case>) {
    for (format, x, s) in blocks(suite) {
        // What goes on in 8-bit blocks comes in them too.
        let s = if x == DType::Q8 { Shape { width: 64, ..s } } else { s };
        let name = format!("expert_gated_linear {s:?} {format} {x:?}->{x:?}");
        let tolerance = suite.blocks_tolerance(x, x);
        all.push(Case::new(name, Sizes::rows(s.rows, s.spare), tolerance, move |b| {
            let routes = routes(b, &s);
            let x_buffer = b.uniform(x, Count::Tokens, s.cols, 1.0)?;
            let weight = matrix(b, format, s.experts * 2 * s.width, s.cols)?;
            let result = b.result(x, Count::Tokens, s.used * s.width);
            b.scale_at_least(1.0);
            b.push(Op::ExpertGatedLinear(ExpertGatedLinear {
                x: x_buffer,
                routes,
                used: s.used,
                weight,
                activation: Activation::Silu,
                out: result,
            }))?;
            b.read_back(x, Count::Tokens, s.used * s.width, result)
        }));
    }
}

fn linear_by_blocks(suite: &Suite, all: &mut Vec<Case>) {
    for (format, x, s) in blocks(suite) {
        let name = format!("expert_linear {s:?} {format} {x:?}");
        let tolerance = suite.blocks_tolerance(x, DType::F32);
        all.push(Case::new(name, Sizes::rows(s.rows, s.spare), tolerance, move |b| {
            let routes = routes(b, &s);
            let x = b.uniform(x, Count::Tokens, s.used * s.cols, 1.0)?;
            let weight = matrix(b, format, s.experts * s.width, s.cols)?;
            let out = b.output(Count::Tokens, s.width, None);
            b.scale_at_least(1.0);
            let residual = None;
            b.push(Op::ExpertLinear(ExpertLinear { x, routes, used: s.used, weight, residual, out }))
        }));
    }
}

pub fn expert_linear(suite: &Suite, all: &mut Vec<Case>) {
    linear_by_blocks(suite, all);
    for shape in shapes(suite) {
        for residual in [None].into_iter().chain(suite.dtypes().iter().map(|r| Some(*r))) {
            for (x, out) in suite.pairs() {
                let name = format!("expert_linear {shape:?} residual={residual:?} {x:?}->{out:?}");
                let (tolerance, s) = (suite.tolerance(Work::Dot, x, out), shape.clone());
                all.push(Case::new(name, Sizes::rows(s.rows, s.spare), tolerance, move |b| {
                    let routes = routes(b, &s);
                    let x = b.uniform(x, Count::Tokens, s.used * s.cols, 1.5)?;
                    let weight = b.matrix(s.experts * s.width, s.cols)?;
                    let residual = match residual {
                        Some(dtype) => Some(b.uniform(dtype, Count::Tokens, s.width, 1.0)?),
                        None => None,
                    };
                    let result = b.result(out, Count::Tokens, s.width);
                    b.push(Op::ExpertLinear(ExpertLinear {
                        x,
                        routes,
                        used: s.used,
                        weight,
                        residual,
                        out: result,
                    }))?;
                    b.read_back(out, Count::Tokens, s.width, result)
                }));
            }
        }
    }
}
