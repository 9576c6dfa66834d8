//! What is computed: an op with its shape and options, straight from the command line.

use clap::Subcommand;
use inferencelayer_engine::{
    op::{self, ATTENTION_TILE, NormParams, Op, TokenField},
    program::{BufferId, Count},
    tensor::{Weight, WeightUse},
    testing::Work,
};

use super::{
    args::{AttentionArgs, EmbedArgs, GatedArgs, LinearArgs, NormArgs, NormalizeArgs, PoolArgs, RopeArgs},
    words::Norm,
};
use crate::{Error, Result};

/// An op with its shape and options.
#[derive(Debug, Clone, Subcommand)]
pub enum Problem {
    /// Sum of table rows, then an optional norm
    Embed(EmbedArgs),
    /// Layer or RMS norm
    Norm(NormArgs),
    /// act(x Wᵀ + bias) + residual
    Linear(LinearArgs),
    /// act(x Wgᵀ + bg) ⊙ (x Wuᵀ + bu)
    GatedLinear(GatedArgs),
    /// Rotary position embedding, in place
    Rope(RopeArgs),
    /// Bidirectional attention over packed sequences
    Attention(AttentionArgs),
    /// One vector for each sequence
    Pool(PoolArgs),
    /// Truncation and L2 normalisation
    Normalize(NormalizeArgs),
}

/// Values that a weight is filled with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fill {
    /// Uniform in `center ± spread`.
    Uniform { center: f32, spread: f32 },
    /// Cosines, then sines, of each position's angles: always kept in f32.
    Angles,
}

/// One weight of the op.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Param {
    pub name: &'static str,
    pub usage: WeightUse,
    pub rows: usize,
    pub cols: usize,
    pub fill: Fill,
}

/// What an op's rows are made of.
#[derive(Debug, Clone)]
pub struct Operands {
    /// Rows of buffers by [`Count`]: tokens, sequences, tiles.
    pub rows: [usize; 3],
    /// Columns of the float input, if there is one.
    pub x: Option<usize>,
    pub residual: bool,
    /// Name, count and columns of the index input, if there is one.
    pub index: Option<(&'static str, Count, usize)>,
    pub params: Vec<Param>,
    /// Rows and columns of the result.
    pub out: (Count, usize),
    /// The result replaces `x`.
    pub in_place: bool,
    /// The result is f32 on every backend.
    pub f32_out: bool,
}

/// A program's buffers and weights for one occurrence of the op.
#[derive(Debug, Clone)]
pub struct Handles {
    pub x: Option<BufferId>,
    pub residual: Option<BufferId>,
    pub index: Option<BufferId>,
    /// In the order of [`Operands::params`].
    pub weights: Vec<Weight>,
    pub out: BufferId,
}

/// Name of the table that may come in blocks.
pub const FIRST_TABLE: &str = "ids";

const EPS: f32 = 1e-5;

fn matrix(rows: usize, cols: usize) -> Param {
    // Results about as large as operands.
    let spread = 1.7 / (cols.max(1) as f32).sqrt();
    Param {
        name: "matrix",
        usage: WeightUse::Matrix,
        rows,
        cols,
        fill: Fill::Uniform { center: 0.0, spread },
    }
}

fn vector(name: &'static str, rows: usize, cols: usize, center: f32) -> Param {
    Param { name, usage: WeightUse::Vector, rows, cols, fill: Fill::Uniform { center, spread: 0.5 } }
}

fn norm_param(kind: Norm, cols: usize) -> Param {
    vector("norm", if kind == Norm::Layer { 2 } else { 1 }, cols, 0.5)
}

fn table(name: &'static str, rows: usize, cols: usize) -> Param {
    let fill = Fill::Uniform { center: 0.0, spread: 1.0 };
    Param { name, usage: WeightUse::Table, rows, cols, fill }
}

impl Problem {
    /// The op's name in the engine.
    pub fn name(&self) -> &'static str {
        match self {
            Problem::Embed(_) => "embed",
            Problem::Norm(_) => "norm",
            Problem::Linear(_) => "linear",
            Problem::GatedLinear(_) => "gated_linear",
            Problem::Rope(_) => "rope",
            Problem::Attention(_) => "attention",
            Problem::Pool(_) => "pool",
            Problem::Normalize(_) => "normalize",
        }
    }

    /// How exact results can be.
    pub fn work(&self) -> Work {
        match self {
            Problem::Linear(_) | Problem::GatedLinear(_) => Work::Dot,
            Problem::Attention(_) => Work::Attention,
            Problem::Normalize(a) if a.no_unit => Work::Copy,
            _ => Work::Rows,
        }
    }

    /// Least magnitude that deviations are relative to: operands of a dot product are of that size, even where
    /// the result cancels.
    pub fn floor(&self) -> f32 {
        if self.work() == Work::Dot { 1.0 } else { 0.0 }
    }

    /// Lengths of the sequences; everything is one sequence where the op does not care.
    pub fn lens(&self) -> Vec<usize> {
        match self {
            Problem::Embed(a) => vec![a.rows],
            Problem::Norm(a) => vec![a.rows],
            Problem::Linear(a) => vec![a.rows],
            Problem::GatedLinear(a) => vec![a.rows],
            Problem::Rope(a) => vec![a.rows],
            Problem::Attention(a) => a.lens.0.clone(),
            Problem::Pool(a) => a.lens.0.clone(),
            Problem::Normalize(a) => vec![a.rows],
        }
    }

    pub fn operands(&self) -> Operands {
        let lens = self.lens();
        let tiles = lens.iter().map(|l| l.div_ceil(ATTENTION_TILE)).sum();
        let base = Operands {
            rows: [lens.iter().sum(), lens.len(), tiles],
            x: None,
            residual: false,
            index: None,
            params: Vec::new(),
            out: (Count::Tokens, 0),
            in_place: false,
            f32_out: false,
        };
        let tokens = Some(("tokens", Count::Tokens, 4));
        match self {
            Problem::Embed(a) => {
                let mut params = vec![
                    table(FIRST_TABLE, a.vocab, a.cols),
                    table("positions", a.positions, a.cols),
                    table("types", 2, a.cols),
                ];
                params.truncate(usize::from(a.tables));
                params.extend(a.norm.map(|kind| norm_param(kind, a.cols)));
                Operands { index: tokens, params, out: (Count::Tokens, a.cols), ..base }
            }
            Problem::Norm(a) => Operands {
                x: Some(a.cols),
                params: vec![norm_param(a.kind, a.cols)],
                out: (Count::Tokens, a.cols),
                ..base
            },
            Problem::Linear(a) => {
                let mut params = vec![matrix(a.outputs, a.inputs)];
                params.extend(a.bias.then(|| vector("bias", 1, a.outputs, 0.2)));
                Operands {
                    x: Some(a.inputs),
                    residual: a.residual,
                    params,
                    out: (Count::Tokens, a.outputs),
                    ..base
                }
            }
            Problem::GatedLinear(a) => {
                let mut params = vec![matrix(2 * a.outputs, a.inputs)];
                params.extend(a.bias.then(|| vector("bias", 1, 2 * a.outputs, 0.2)));
                Operands { x: Some(a.inputs), params, out: (Count::Tokens, a.outputs), ..base }
            }
            Problem::Rope(a) => {
                let angles = Param { fill: Fill::Angles, ..table("angles", a.positions, a.head_dim) };
                let cols = a.all_heads * a.head_dim;
                Operands {
                    x: Some(cols),
                    index: tokens,
                    params: vec![angles],
                    out: (Count::Tokens, cols),
                    in_place: true,
                    ..base
                }
            }
            Problem::Attention(a) => Operands {
                x: Some((a.heads + 2 * a.kv_heads()) * a.head_dim),
                index: Some(("tiles", Count::Tiles, 4)),
                params: a
                    .bias_radius
                    .map(|r| vector("bias", a.heads, 2 * usize::from(r) + 1, 0.0))
                    .into_iter()
                    .collect(),
                out: (Count::Tokens, a.heads * a.head_dim),
                ..base
            },
            Problem::Pool(a) => Operands {
                x: Some(a.cols),
                index: Some(("ranges", Count::Sequences, 2)),
                out: (Count::Sequences, a.modes.len() * a.cols),
                f32_out: true,
                ..base
            },
            Problem::Normalize(a) => Operands { x: Some(a.cols), out: (Count::Tokens, a.kept()), ..base },
        }
    }

    /// Refuses sizes that are zero or whose buffers would not be addressable; the engine checks the rest.
    ///
    /// # Errors
    /// `Input`, naming the operand.
    pub fn check(&self) -> Result<()> {
        const MOST: usize = 1 << 31;
        let o = self.operands();
        let fits = |what: &str, rows: usize, cols: usize| match rows.checked_mul(cols) {
            Some(1..=MOST) => Ok(()),
            _ => Err(Error::Input(format!(
                "{}: {what} of [{rows}, {cols}] values; from 1 to {MOST} are possible",
                self.name()
            ))),
        };
        for p in &o.params {
            fits(p.name, p.rows, p.cols)?;
        }
        fits("x", o.rows[0], o.x.unwrap_or(1))?;
        fits("the result", o.rows[o.out.0 as usize], o.out.1)
    }

    /// The op on these buffers and weights.
    pub fn op(&self, h: &Handles) -> Op {
        let mut weights = h.weights.iter().cloned();
        // The operands of `operands()` come back in the same order; an absent one would fail the op's check.
        let x = h.x.unwrap_or(h.out);
        let index = h.index.unwrap_or(h.out);
        let norm = |kind: Norm, weight: Weight| NormParams { kind: kind.into(), weight, eps: EPS };
        match self {
            Problem::Embed(a) => {
                let fields = [TokenField::Id, TokenField::Position, TokenField::Type];
                let tables = weights.by_ref().take(usize::from(a.tables)).zip(fields).collect();
                let norm = a.norm.and_then(|kind| weights.next().map(|w| norm(kind, w)));
                Op::Embed(op::Embed { tokens: index, tables, norm, out: h.out })
            }
            Problem::Norm(a) => {
                let params = norm(a.kind, h.weights[0].clone());
                Op::Norm(op::Norm { x, params, out: h.out })
            }
            Problem::Linear(a) => Op::Linear(op::Linear {
                x,
                weight: h.weights[0].clone(),
                bias: h.weights.get(1).cloned(),
                activation: a.act.into(),
                residual: h.residual,
                out: h.out,
            }),
            Problem::GatedLinear(a) => Op::GatedLinear(op::GatedLinear {
                x,
                weight: h.weights[0].clone(),
                bias: h.weights.get(1).cloned(),
                activation: a.act.into(),
                out: h.out,
            }),
            Problem::Rope(a) => Op::Rope(op::Rope {
                x,
                tokens: index,
                q_norm: None,
                k_norm: None,
                table: h.weights[0].clone(),
                heads: a.heads,
                kv_heads: 0,
                head_dim: a.head_dim,
            }),
            Problem::Attention(a) => Op::Attention(op::Attention {
                qkv: x,
                tiles: index,
                heads: a.heads,
                kv_heads: a.kv_heads(),
                head_dim: a.head_dim,
                scale: 1.0 / (a.head_dim as f32).sqrt(),
                window: a.window.map(|w| w as usize),
                causal: false,
                bias: h.weights.first().cloned(),
                out: h.out,
            }),
            Problem::Pool(a) => Op::Pool(op::Pool {
                x,
                ranges: index,
                modes: a.modes.iter().map(|m| (*m).into()).collect(),
                out: h.out,
            }),
            Problem::Normalize(a) => Op::Normalize(op::Normalize { x, unit: !a.no_unit, out: h.out }),
        }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let with = |on: bool, word: &'static str| if on { word } else { "" };
        write!(f, "{} ", self.name())?;
        match self {
            Problem::Embed(a) => {
                write!(f, "{}x{} of {} tables, vocabulary {}", a.rows, a.cols, a.tables, a.vocab)?;
                a.norm.map_or(Ok(()), |n| write!(f, ", {n:?} norm"))
            }
            Problem::Norm(a) => write!(f, "{}x{} {:?}", a.rows, a.cols, a.kind),
            Problem::Linear(a) => write!(
                f,
                "{}x{}->{} {:?}{}{}",
                a.rows,
                a.inputs,
                a.outputs,
                a.act,
                with(a.bias, " +bias"),
                with(a.residual, " +residual")
            ),
            Problem::GatedLinear(a) => {
                write!(f, "{}x{}->{} {:?}{}", a.rows, a.inputs, a.outputs, a.act, with(a.bias, " +bias"))
            }
            Problem::Rope(a) => {
                write!(f, "{} rows, {} of {} heads of {}", a.rows, a.heads, a.all_heads, a.head_dim)
            }
            Problem::Attention(a) => {
                write!(f, "{}, {} heads over {} of {}", a.lens, a.heads, a.kv_heads(), a.head_dim)?;
                a.window.map_or(Ok(()), |w| write!(f, ", window {w}"))?;
                a.bias_radius.map_or(Ok(()), |r| write!(f, ", bias radius {r}"))
            }
            Problem::Pool(a) => write!(f, "{} over {} columns, {:?}", a.lens, a.cols, a.modes),
            Problem::Normalize(a) => {
                write!(f, "{}x{} keeping {}{}", a.rows, a.cols, a.kept(), with(a.no_unit, ", copy only"))
            }
        }
    }
}
