//! Every instruction set that this machine has, against plain loops, over odd shapes.

use inferencelayer_engine::{op::Activation, reference::activate};

use super::{
    linear::{F32Product, Int8Product, Linear, Output, Product},
    pack::{PackedF32, PackedInt8},
    quantize::{Quantize, row_words},
};
use crate::{isa::Isa, testing::Random};

/// (rows, inputs, outputs)
const SHAPES: [(usize, usize, usize); 10] = [
    (1, 4, 4),
    (2, 36, 20),
    (3, 5, 33),
    (5, 64, 32),
    (14, 33, 100),
    (15, 132, 48),
    (16, 384, 64),
    (29, 20, 36),
    (43, 7, 31),
    (70, 100, 132),
];

fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.available())
}

struct Case {
    rows: usize,
    inputs: usize,
    outputs: usize,
    x: Vec<f32>,
    weight: Vec<f32>,
    bias: Vec<f32>,
    residual: Vec<f32>,
    activation: Activation,
    gated: bool,
    with_residual: bool,
}

impl Case {
    fn new((rows, inputs, outputs): (usize, usize, usize), activation: Activation, gated: bool) -> Self {
        let mut random = Random::new((rows * 1000 + inputs * 10 + outputs) as u64);
        let weights = if gated { 2 * outputs } else { outputs };
        Case {
            rows,
            inputs,
            outputs,
            x: random.values(rows * inputs, 1.5),
            weight: random.values(weights * inputs, 1.0),
            bias: random.values(weights, 1.0),
            residual: random.values(rows * outputs, 1.0),
            activation,
            gated,
            with_residual: !gated && rows % 2 == 1,
        }
    }

    /// Plain loops in f64 over the given operands; the second result is Σ|x·w|, which bounds rounding.
    fn expected(&self, x: &[f32], weight: &[f32]) -> Vec<(f32, f32)> {
        let project = |row: usize, n: usize| {
            let terms = (0..self.inputs)
                .map(|k| f64::from(x[row * self.inputs + k]) * f64::from(weight[n * self.inputs + k]));
            let sum: f64 = terms.clone().sum();
            ((sum + f64::from(self.bias[n])) as f32, terms.map(f64::abs).sum::<f64>() as f32)
        };
        let mut out = Vec::new();
        for row in 0..self.rows {
            for n in 0..self.outputs {
                let (y, mut size) = project(row, n);
                let mut y = activate(self.activation, y);
                if self.gated {
                    let (up, up_size) = project(row, self.outputs + n);
                    size = size * up.abs() + up_size * y.abs();
                    y *= up;
                }
                if self.with_residual {
                    y += self.residual[row * self.outputs + n];
                }
                out.push((y, size + 1.0));
            }
        }
        out
    }

    fn run(&self, isa: Isa, product: Product<'_>) -> Vec<f32> {
        let panel = isa.geometry().panel;
        let mut out = vec![f32::NAN; self.rows * self.outputs];
        let residual = if self.with_residual { self.residual.as_ptr() } else { core::ptr::null() };
        let output = Output {
            out: out.as_mut_ptr(),
            cols: self.outputs,
            activation: self.activation,
            residual,
            gated: self.gated,
        };
        let linear = Linear { product, output, rows: 0..self.rows, panels: 0..self.outputs.div_ceil(panel) };
        // SAFETY: the instruction set is available and every operand has its whole size.
        unsafe { isa.run(linear) };
        out
    }

    fn padded_bias(&self, isa: Isa) -> Vec<f32> {
        let mut bias = self.bias.clone();
        bias.resize(bias.len().next_multiple_of(isa.geometry().panel), 0.0);
        bias
    }

    fn run_f32(&self, isa: Isa) -> Vec<f32> {
        let mut weight = PackedF32::zeroed(isa, self.bias.len(), self.inputs);
        // In pieces that end anywhere.
        for (i, piece) in self.weight.chunks(7).enumerate() {
            weight.set(i * 7, piece);
        }
        let bias = self.padded_bias(isa);
        let (x, ldx) = (self.x.as_ptr(), self.inputs);
        self.run(isa, Product::F32(F32Product { x, ldx, weight: &weight, bias: Some(&bias) }))
    }

    fn run_int8(&self, isa: Isa) -> Vec<f32> {
        let mut weight = PackedInt8::zeroed(isa, self.bias.len(), self.inputs);
        for (row, values) in self.weight.chunks(self.inputs).enumerate() {
            weight.set_row(row, values);
        }
        let (bias, row_words) = (self.padded_bias(isa), row_words(isa, self.inputs));
        let mut words = vec![0u32; self.rows * row_words];
        let mut scales = vec![(0f32, 0i32); self.rows];
        let quantize = Quantize {
            x: self.x.as_ptr(),
            ldx: self.inputs,
            inputs: self.inputs,
            rows: 0..self.rows,
            words: words.as_mut_ptr(),
            row_words,
            scales: scales.as_mut_ptr(),
        };
        // SAFETY: the instruction set is available and every operand has its whole size.
        unsafe { isa.run(quantize) };
        let (words, scales) = (words.as_ptr(), scales.as_ptr());
        self.run(
            isa,
            Product::Int8(Int8Product { words, row_words, scales, weight: &weight, bias: Some(&bias) }),
        )
    }
}

fn cases() -> impl Iterator<Item = Case> {
    SHAPES.into_iter().enumerate().flat_map(|(i, shape)| {
        let activation = Activation::ALL[i % Activation::ALL.len()];
        [Case::new(shape, activation, false), Case::new(shape, Activation::Gelu, true)]
    })
}

#[test]
fn f32_tiles_match_loops() {
    for case in cases() {
        let expected = case.expected(&case.x, &case.weight);
        for isa in isas() {
            for (i, (y, (want, size))) in case.run_f32(isa).iter().zip(&expected).enumerate() {
                let bound = size * 1e-6;
                assert!(
                    (y - want).abs() <= bound,
                    "{isa} {}x{}x{} at {i}: {y} for {want}",
                    case.rows,
                    case.inputs,
                    case.outputs
                );
            }
        }
    }
}

/// What quantization makes of the operands, by the definition.
fn rounded(case: &Case) -> (Vec<f32>, Vec<f32>) {
    let mut x = Vec::new();
    for row in case.x.chunks(case.inputs) {
        let (low, high) = row.iter().fold((0f32, 0f32), |(l, h), v| (l.min(*v), h.max(*v)));
        let scale = (high - low) / 255.0;
        let zero = (-low * (255.0 / (high - low))).round();
        x.extend(row.iter().map(|v| {
            let q = (v.mul_add(255.0 / (high - low), zero)).round_ties_even().clamp(0.0, 255.0);
            (q - zero) * scale
        }));
    }
    let mut weight = Vec::new();
    for row in case.weight.chunks(case.inputs) {
        let scale = row.iter().fold(0f32, |m, v| m.max(v.abs())) / 127.0;
        weight.extend(row.iter().map(|v| (v / scale).round() * scale));
    }
    (x, weight)
}

#[test]
fn int8_tiles_match_loops_over_rounded_operands() {
    for case in cases() {
        let (x, weight) = rounded(&case);
        let expected = case.expected(&x, &weight);
        for isa in isas() {
            let got = case.run_int8(isa);
            for (i, (y, (want, size))) in got.iter().zip(&expected).enumerate() {
                // Without fused multiply-add an activation on a tie may round the other way: one step of one.
                let step = if isa == Isa::Scalar { 3.0 / 255.0 * 3.0 } else { 0.0 };
                assert!(
                    (y - want).abs() <= size * 2e-6 + step,
                    "{isa} {}x{}x{} at {i}: {y} for {want}",
                    case.rows,
                    case.inputs,
                    case.outputs
                );
            }
        }
    }
}

#[test]
fn extreme_int8_operands_do_not_saturate() {
    let (rows, inputs, outputs) = (3, 512, 40);
    let mut case = Case::new((rows, inputs, outputs), Activation::None, false);
    case.with_residual = false;
    for (i, x) in case.x.iter_mut().enumerate() {
        *x = if i % inputs == 0 { 0.0 } else { 2.0 };
    }
    for (i, w) in case.weight.iter_mut().enumerate() {
        *w = if i / inputs % 2 == 0 { 3.0 } else { -3.0 };
    }
    let expected = case.expected(&case.x, &case.weight);
    for isa in isas() {
        for (y, (want, size)) in case.run_int8(isa).iter().zip(&expected) {
            assert!((y - want).abs() <= size * 1e-6, "{isa}: {y} for {want}");
        }
    }
}

#[test]
fn a_row_does_not_depend_on_how_many_there_are() {
    for isa in isas() {
        let all = Case::new((70, 132, 52), Activation::Gelu, false);
        let (whole, whole_int8) = (all.run_f32(isa), all.run_int8(isa));
        for rows in 1..70 {
            let mut some = Case::new((70, 132, 52), Activation::Gelu, false);
            some.rows = rows;
            assert_eq!(some.run_f32(isa), whole[..rows * 52], "{isa}, {rows} rows");
            assert_eq!(some.run_int8(isa), whole_int8[..rows * 52], "{isa}, {rows} rows in 8 bits");
        }
    }
}

#[test]
fn rows_of_zeros_give_the_bias() {
    for isa in isas() {
        let mut case = Case::new((5, 36, 20), Activation::None, false);
        case.with_residual = false;
        case.x.fill(0.0);
        for row in case.run_int8(isa).chunks(20) {
            assert_eq!(row, case.bias, "{isa}");
        }
    }
}
