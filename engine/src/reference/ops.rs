//! Every op as plain loops. Sums are kept in f64 so that the reference's own rounding does not matter.

use alloc::{format, vec, vec::Vec};

use super::{Values, weight::ReferenceWeight};
use crate::{
    Error, Result,
    op::{Activation, Attention, Embed, GatedLinear, Linear, NormKind, NormParams, Op, Pool, PoolMode, Rope},
    program::{BufferId, Counts, Program},
    quant::q8,
    tensor::{DType, Weight},
};

/// Applies an activation.
pub fn activate(activation: Activation, x: f32) -> f32 {
    match activation {
        Activation::None => x,
        Activation::Gelu => 0.5 * x * (1.0 + libm::erff(x * core::f32::consts::FRAC_1_SQRT_2)),
        Activation::GeluTanh => {
            let inner = 0.797_884_6 * (x + 0.044_715 * x * x * x);
            0.5 * x * (1.0 + libm::tanhf(inner))
        }
        Activation::Relu => x.max(0.0),
        Activation::Silu => x / (1.0 + libm::expf(-x)),
        Activation::Tanh => libm::tanhf(x),
        Activation::Sigmoid => 1.0 / (1.0 + libm::expf(-x)),
    }
}

/// Runs an op that [`run`] does not by itself.
pub type Others = fn(&mut Scope<'_>, &Op) -> Result<()>;

/// Runs one op on the real rows: those of a quick check here, the others by `others`.
pub fn run(
    op: &Op,
    program: &Program,
    counts: &Counts,
    floats: &mut [Values],
    integers: &mut [Vec<u32>],
    others: Others,
) -> Result<()> {
    let mut scope = Scope { program, counts, floats, integers };
    match op {
        Op::Norm(o) => {
            let (rows, cols) = scope.shape(o.x);
            for row in 0..rows {
                let mut values = scope.floats[o.x.index()][row * cols..][..cols].to_vec();
                norm_row(&mut values, &o.params)?;
                scope.store_row(o.out, row, &values);
            }
            Ok(())
        }
        Op::Normalize(o) => {
            let ((rows, cols), kept) = (scope.shape(o.x), scope.program.spec(o.out).cols);
            for row in 0..rows {
                let mut values = scope.floats[o.x.index()][row * cols..][..kept].to_vec();
                if o.unit {
                    let norm =
                        libm::sqrt(values.iter().map(|v| f64::from(*v) * f64::from(*v)).sum()).max(1e-12);
                    values.iter_mut().for_each(|v| *v = (f64::from(*v) / norm) as f32);
                }
                scope.store_row(o.out, row, &values);
            }
            Ok(())
        }
        Op::Linear(o) => scope.linear(o),
        Op::Attention(o) => scope.attention(o),
        Op::CachedAttention(o) => scope.cached_attention(o),
        op => others(&mut scope, op),
    }?;
    // Whole blocks are rounded at a time, so after the op.
    op.operands().1.into_iter().for_each(|id| scope.round_q8(id));
    Ok(())
}

/// Every other op.
pub fn every_other(scope: &mut Scope<'_>, op: &Op) -> Result<()> {
    match op {
        Op::Embed(o) => scope.embed(o),
        Op::GatedLinear(o) => scope.gated_linear(o),
        Op::Rope(o) => scope.rope(o),
        Op::Pool(o) => scope.pool(o),
        Op::StoreKv(o) => scope.store_kv(o),
        Op::ShortConv(o) => scope.short_conv(o),
        Op::Route(o) => scope.route(o),
        Op::ExpertGatedLinear(o) => scope.expert_gated_linear(o),
        Op::ExpertLinear(o) => scope.expert_linear(o),
        Op::Sample(o) => scope.sample(o),
        Op::Norm(_) | Op::Normalize(_) | Op::Linear(_) | Op::Attention(_) | Op::CachedAttention(_) => {
            no_other(scope, op)
        }
    }
}

/// # Errors
/// `Unsupported`, naming the op.
pub fn no_other(_: &mut Scope<'_>, op: &Op) -> Result<()> {
    Err(Error::Unsupported(format!("op {} in a quick check", op.name())))
}

/// The f32 values of a weight of this backend.
pub(super) fn values(weight: &Weight) -> Result<&[f32]> {
    weight
        .storage::<ReferenceWeight>()
        .map(|w| w.values.as_slice())
        .ok_or_else(|| Error::Unsupported(format!("weight `{}` belongs to another backend", weight.name())))
}

pub(super) fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// `x Wᵀ + bias` for one output row of the weight.
pub(super) fn project(x: &[f32], weight: &[f32], bias: Option<&[f32]>, n: usize) -> f32 {
    let k = x.len();
    (dot(x, &weight[n * k..][..k]) + bias.map_or(0.0, |b| f64::from(b[n]))) as f32
}

/// Normalises a head and rotates it by `angles`: cosines, then sines.
pub(super) fn turn_head(head: &mut [f32], norm: &Option<NormParams>, angles: &[f32]) -> Result<()> {
    if let Some(params) = norm {
        norm_row(head, params)?;
    }
    let half = head.len() / 2;
    for i in 0..half {
        let (a, b, cos, sin) = (head[i], head[half + i], angles[i], angles[half + i]);
        head[i] = a * cos - b * sin;
        head[half + i] = b * cos + a * sin;
    }
    Ok(())
}

fn norm_row(row: &mut [f32], params: &NormParams) -> Result<()> {
    let (weight, n) = (values(&params.weight)?, row.len() as f64);
    let mean = match params.kind {
        NormKind::Layer => row.iter().map(|v| f64::from(*v)).sum::<f64>() / n,
        NormKind::Rms => 0.0,
    };
    let variance = row.iter().map(|v| (f64::from(*v) - mean) * (f64::from(*v) - mean)).sum::<f64>() / n;
    let inverse = 1.0 / libm::sqrt(variance + f64::from(params.eps));
    let cols = row.len();
    for (i, v) in row.iter_mut().enumerate() {
        let bias = weight.get(cols + i).map_or(0.0, |b| f64::from(*b));
        *v = ((f64::from(*v) - mean) * inverse * f64::from(weight[i]) + bias) as f32;
    }
    Ok(())
}

/// What an op works on.
pub struct Scope<'a> {
    pub(super) program: &'a Program,
    counts: &'a Counts,
    floats: &'a mut [Values],
    pub(super) integers: &'a mut [Vec<u32>],
}

impl Scope<'_> {
    /// Real rows, and columns, of a buffer.
    pub(super) fn shape(&self, id: BufferId) -> (usize, usize) {
        let spec = self.program.spec(id);
        (self.counts[spec.count as usize] as usize, spec.cols)
    }

    pub(super) fn row(&self, id: BufferId, row: usize) -> &[f32] {
        let cols = self.program.spec(id).cols;
        &self.floats[id.index()][row * cols..][..cols]
    }

    pub(super) fn store(&mut self, id: BufferId, row: usize, col: usize, value: f32) {
        let spec = self.program.spec(id);
        let rounded = if spec.dtype == DType::F16 { half::f16::from_f32(value).to_f32() } else { value };
        self.floats[id.index()][row * spec.cols + col] = rounded;
    }

    pub(super) fn store_row(&mut self, id: BufferId, row: usize, values: &[f32]) {
        values.iter().enumerate().for_each(|(col, v)| self.store(id, row, col, *v));
    }

    fn round_q8(&mut self, id: BufferId) {
        let ((rows, cols), spec) = (self.shape(id), self.program.spec(id));
        if spec.dtype == DType::Q8 {
            self.floats[id.index()].chunks_mut(cols).take(rows).for_each(q8::round);
        }
    }

    fn embed(&mut self, o: &Embed) -> Result<()> {
        let (rows, cols) = self.shape(o.out);
        for row in 0..rows {
            let mut sum = vec![0f32; cols];
            for (table, field) in &o.tables {
                let entry = self.integers[o.tokens.index()][row * 4 + *field as usize] as usize;
                let Some(found) = values(table)?.get(entry * cols..(entry + 1) * cols) else {
                    let (name, entries) = (table.name(), table.rows());
                    return Err(Error::Input(format!("row {entry} of table `{name}`, which has {entries}")));
                };
                sum.iter_mut().zip(found).for_each(|(s, v)| *s += v);
            }
            if let Some(params) = &o.norm {
                norm_row(&mut sum, params)?;
            }
            self.store_row(o.out, row, &sum);
        }
        Ok(())
    }

    fn linear(&mut self, o: &Linear) -> Result<()> {
        let (rows, cols) = self.shape(o.out);
        let (weight, bias) = (values(&o.weight)?, o.bias.as_ref().map(values).transpose()?);
        for row in 0..rows {
            for n in 0..cols {
                let y = activate(o.activation, project(self.row(o.x, row), weight, bias, n));
                let residual = o.residual.map_or(0.0, |r| self.row(r, row)[n]);
                self.store(o.out, row, n, y + residual);
            }
        }
        Ok(())
    }

    fn gated_linear(&mut self, o: &GatedLinear) -> Result<()> {
        let (rows, cols) = self.shape(o.out);
        let (weight, bias) = (values(&o.weight)?, o.bias.as_ref().map(values).transpose()?);
        for row in 0..rows {
            for n in 0..cols {
                let gate = activate(o.activation, project(self.row(o.x, row), weight, bias, n));
                let up = project(self.row(o.x, row), weight, bias, cols + n);
                self.store(o.out, row, n, gate * up);
            }
        }
        Ok(())
    }

    fn rope(&mut self, o: &Rope) -> Result<()> {
        let ((rows, _), d, table) = (self.shape(o.x), o.head_dim, values(&o.table)?);
        for row in 0..rows {
            let position = self.integers[o.tokens.index()][row * 4 + 1] as usize;
            let Some(angles) = table.get(position * d..(position + 1) * d) else {
                let limit = o.table.rows();
                return Err(Error::Input(format!("position {position} in a RoPE table of {limit}")));
            };
            for head in 0..o.heads + o.kv_heads {
                let mut v = self.row(o.x, row)[head * d..][..d].to_vec();
                turn_head(&mut v, if head < o.heads { &o.q_norm } else { &o.k_norm }, angles)?;
                for (i, v) in v.into_iter().enumerate() {
                    self.store(o.x, row, head * d + i, v);
                }
            }
        }
        Ok(())
    }

    fn attention(&mut self, o: &Attention) -> Result<()> {
        let (tiles, d) = (self.counts[self.program.spec(o.tiles).count as usize] as usize, o.head_dim);
        let bias = o.bias.as_ref().map(values).transpose()?;
        for tile in 0..tiles {
            let at: [usize; 4] =
                core::array::from_fn(|i| self.integers[o.tiles.index()][tile * 4 + i] as usize);
            let [q_start, q_end, start, end] = at;
            for (i, head) in (q_start..q_end).flat_map(|i| (0..o.heads).map(move |h| (i, h))) {
                let kv_head = head / (o.heads / o.kv_heads);
                let (k_col, v_col) = ((o.heads + kv_head) * d, (o.heads + o.kv_heads + kv_head) * d);
                let q = self.row(o.qkv, i)[head * d..][..d].to_vec();
                let seen = (start..end).filter(|j| {
                    let [before, after] = o.reach();
                    (if *j > i { after } else { before }).is_none_or(|w| i.abs_diff(*j) <= w)
                });
                let mut scores: Vec<(usize, f64)> = Vec::new();
                for j in seen {
                    let mut score = dot(&q, &self.row(o.qkv, j)[k_col..][..d]) * f64::from(o.scale);
                    if let (Some(table), Some(weight)) = (bias, &o.bias) {
                        let radius = (weight.cols() / 2) as isize;
                        let offset = (j as isize - i as isize).clamp(-radius, radius) + radius;
                        score += f64::from(table[head * weight.cols() + offset as usize]);
                    }
                    scores.push((j, score));
                }
                let largest = scores.iter().fold(f64::MIN, |m, (_, s)| m.max(*s));
                let total: f64 = scores.iter().map(|(_, s)| libm::exp(s - largest)).sum();
                for c in 0..d {
                    let weighted = |(j, s): &(usize, f64)| {
                        libm::exp(s - largest) * f64::from(self.row(o.qkv, *j)[v_col + c])
                    };
                    let sum: f64 = scores.iter().map(weighted).sum();
                    let y = if total > 0.0 { sum / total } else { 0.0 };
                    self.store(o.out, i, head * d + c, y as f32);
                }
            }
        }
        Ok(())
    }

    fn pool(&mut self, o: &Pool) -> Result<()> {
        let ((sequences, _), cols) = (self.shape(o.out), self.program.spec(o.x).cols);
        for s in 0..sequences {
            let range = &self.integers[o.ranges.index()][s * 2..][..2];
            let (start, end) = (range[0] as usize, range[1] as usize);
            for (at, mode) in o.modes.iter().enumerate() {
                for c in 0..cols {
                    let column = (start..end).map(|row| self.row(o.x, row)[c]);
                    let y = if start < end { pool_column(*mode, column) } else { 0.0 };
                    self.store(o.out, s, at * cols + c, y);
                }
            }
        }
        Ok(())
    }
}

fn pool_column(mode: PoolMode, column: impl ExactSizeIterator<Item = f32> + Clone) -> f32 {
    let n = column.len() as f64;
    let sum = || column.clone().map(f64::from).sum::<f64>();
    let y = match mode {
        PoolMode::Cls => return column.clone().next().unwrap_or(0.0),
        PoolMode::LastToken => return column.last().unwrap_or(0.0),
        PoolMode::Max => return column.fold(f32::MIN, f32::max),
        PoolMode::Mean => sum() / n,
        PoolMode::MeanSqrtLen => sum() / libm::sqrt(n),
        PoolMode::WeightedMean => {
            let weighted = column.enumerate().map(|(i, v)| (i + 1) as f64 * f64::from(v)).sum::<f64>();
            weighted / (n * (n + 1.0) / 2.0)
        }
    };
    y as f32
}
