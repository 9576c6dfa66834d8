//! Cases of the ops with a matrix: shapes around tile edges, every epilogue.

use alloc::{format, vec, vec::Vec};

use super::{Case, Suite, Work, build::Builder, build::Sizes};
use crate::{
    Result,
    op::{Activation, GatedLinear, Linear, Op},
    program::Count,
    tensor::{DType, Format, WeightUse},
};

/// Rows, inputs, outputs, spare rows.
fn shapes(suite: &Suite) -> Vec<(usize, usize, usize, usize)> {
    let mut all = vec![
        (1, 4, 4, 0),
        (1, 64, 48, 3),
        (3, 12, 36, 0),
        (17, 36, 12, 15),
        (16, 32, 64, 0),
        (5, 128, 8, 0),
        (33, 48, 68, 1),
    ];
    if suite.full {
        all.extend([
            (64, 64, 64, 0),
            (65, 384, 132, 63),
            (130, 96, 260, 0),
            (130, 1536, 36, 62),
            (3, 1536, 384, 0),
            (64, 384, 1152, 0),
            (1, 1536, 100, 0),
            (257, 68, 128, 0),
            // Enough rows and columns for the larger tiles of GPU kernels.
            (70, 64, 700, 1),
            (70, 128, 700, 0),
            (260, 192, 836, 3),
            (1030, 64, 900, 5),
            (1700, 64, 516, 0),
        ]);
    }
    all
}

#[derive(Debug, Clone, Copy)]
pub struct Epilogue {
    pub bias: bool,
    pub activation: Activation,
    pub residual: bool,
}

/// Those that a quick check has.
pub fn quick(suite: &Suite, all: &mut Vec<Case>) {
    let types = (suite.preferred(), suite.preferred());
    let few = Epilogue { bias: false, activation: Activation::Gelu, residual: false };
    add_linear(suite, all, (1, 64, 48, 3), few, types);
    let every = Epilogue { bias: true, activation: Activation::Gelu, residual: true };
    add_linear(suite, all, (17, 36, 12, 15), every, types);
}

fn add_linear(
    suite: &Suite,
    all: &mut Vec<Case>,
    (rows, k, n, spare): (usize, usize, usize, usize),
    epilogue: Epilogue,
    (x, out): (DType, DType),
) {
    let name = format!("linear {rows}+{spare}x{k}->{n} {epilogue:?} {x:?}->{out:?}");
    let tolerance = suite.tolerance(Work::Dot, x, out);
    all.push(Case::new(name, Sizes::rows(rows, spare), tolerance, move |b| {
        linear_graph(b, k, n, epilogue, (x, out), Format::F32)
    }));
}

pub fn linear(suite: &Suite, all: &mut Vec<Case>) {
    let types: Vec<(DType, DType)> =
        suite.dtypes().iter().flat_map(|x| suite.dtypes().iter().map(|out| (*x, *out))).collect();
    for (at, (rows, k, n, spare)) in shapes(suite).into_iter().enumerate() {
        for bits in 0..4 {
            let activation = if at % 2 == 0 { Activation::None } else { Activation::Gelu };
            let epilogue = Epilogue { bias: bits & 1 != 0, activation, residual: bits & 2 != 0 };
            for &(x, out) in &types {
                // The largest shapes are there for their edges; the options vary on the others.
                if rows * k * n > 1 << 20 && (bits != 3 || x != suite.preferred()) {
                    continue;
                }
                add_linear(suite, all, (rows, k, n, spare), epilogue, (x, out));
            }
        }
    }
    // The weight's pieces arrive in the formats of checkpoints.
    for source in [Format::F16, Format::BF16] {
        let (x, epilogue) =
            (suite.preferred(), Epilogue { bias: true, activation: Activation::None, residual: false });
        let name = format!("linear 3x48->36 pushed as {source:?}");
        all.push(Case::new(name, Sizes::rows(3, 0), suite.tolerance(Work::Dot, x, x), move |b| {
            linear_graph(b, 48, 36, epilogue, (x, x), source)
        }));
    }
}

fn linear_graph(
    b: &mut Builder,
    k: usize,
    n: usize,
    epilogue: Epilogue,
    (x, out): (DType, DType),
    source: Format,
) -> Result<()> {
    let x = b.uniform(x, Count::Tokens, k, 1.0)?;
    let residual = if epilogue.residual { Some(b.uniform(out, Count::Tokens, n, 2.0)?) } else { None };
    let values = b.random.values(n * k, 0.0, 1.7 / libm::sqrtf(k as f32));
    let weight = b.weight_from(source, WeightUse::Matrix, (n, k), &values)?;
    let bias = if epilogue.bias { Some(b.vector(1, n, 0.2)?) } else { None };
    let result = b.result(out, Count::Tokens, n);
    b.scale_at_least(1.0);
    b.push(Op::Linear(Linear { x, weight, bias, activation: epilogue.activation, residual, out: result }))?;
    b.read_back(out, Count::Tokens, n, result)
}

/// Arguments at which activations saturate, overflow inside or change sign.
const EXTREMES: [f32; 32] = [
    0.0, -0.0, 1e-4, -1e-4, 0.01, -0.01, 0.1, -0.1, 0.5, -0.5, 0.75, -0.75, 1.0, -1.0, 1.5, -1.5, 2.0, -2.0,
    3.0, -3.0, 4.0, -4.0, 5.5, -5.5, 8.0, -8.0, 12.0, -12.0, 50.0, -50.0, 200.0, -200.0,
];

/// Every activation at extreme arguments, in both ops that have one. The matrix is the identity, so arguments
/// are exact (but for 8-bit activations).
pub fn activations(suite: &Suite, all: &mut Vec<Case>) {
    let n = EXTREMES.len();
    for activation in Activation::ALL {
        for gated in [false, true] {
            let x = suite.preferred();
            let op = if gated { "gated_linear" } else { "linear" };
            let name = format!("{op} {activation:?} at extremes {x:?}");
            let tolerance = suite.tolerance(Work::Dot, x, x);
            all.push(Case::new(name, Sizes::rows(2, 1), tolerance, move |b| {
                // Small arguments in one row, large ones in the other: each row has its own scale in int8.
                let split = |large: bool| EXTREMES.map(|v| if (v.abs() > 4.0) == large { v } else { 0.0 });
                let x_buffer = b.given(x, Count::Tokens, n, &[split(false), split(true)].concat())?;
                let mut identity = vec![0.0; n * n];
                (0..n).for_each(|i| identity[i * n + i] = 1.0);
                let result = b.result(x, Count::Tokens, n);
                if gated {
                    // The upper half is the identity reversed: every factor differs from its argument.
                    let reversed: Vec<f32> = identity.chunks(n).rev().flatten().copied().collect();
                    identity.extend(reversed);
                    let weight = b.weight_from(Format::F32, WeightUse::Matrix, (2 * n, n), &identity)?;
                    let bias = [vec![0.0; n], vec![1.0; n]].concat();
                    let bias = Some(b.weight_from(Format::F32, WeightUse::Vector, (1, 2 * n), &bias)?);
                    b.push(Op::GatedLinear(GatedLinear {
                        x: x_buffer,
                        weight,
                        bias,
                        activation,
                        out: result,
                    }))?;
                } else {
                    let weight = b.weight_from(Format::F32, WeightUse::Matrix, (n, n), &identity)?;
                    b.push(Op::Linear(Linear {
                        x: x_buffer,
                        weight,
                        bias: None,
                        activation,
                        residual: None,
                        out: result,
                    }))?;
                }
                b.read_back(x, Count::Tokens, n, result)
            }));
        }
    }
}

pub fn gated(suite: &Suite, all: &mut Vec<Case>) {
    for (at, (rows, k, n, spare)) in shapes(suite).into_iter().enumerate() {
        for bias in [false, true] {
            let x = suite.preferred();
            let activation = [Activation::Gelu, Activation::Silu, Activation::GeluTanh][at % 3];
            let name = format!("gated_linear {rows}+{spare}x{k}->{n} {activation:?} bias={bias} {x:?}");
            let tolerance = suite.tolerance(Work::Dot, x, x);
            all.push(Case::new(name, Sizes::rows(rows, spare), tolerance, move |b| {
                let x_buffer = b.uniform(x, Count::Tokens, k, 1.0)?;
                let weight = b.matrix(2 * n, k)?;
                let bias = if bias { Some(b.vector(1, 2 * n, 0.2)?) } else { None };
                let result = b.result(x, Count::Tokens, n);
                b.scale_at_least(1.0);
                b.push(Op::GatedLinear(GatedLinear { x: x_buffer, weight, bias, activation, out: result }))?;
                b.read_back(x, Count::Tokens, n, result)
            }));
        }
    }
}
