//! Lowering: an op becomes one step, or two with 8-bit weights, each a set of tasks that may run in any order.

use inferencelayer_engine::{
    Error, Result,
    op::{Activation, NormKind, NormParams, Op, PoolMode},
    program::{BufferId, BufferSpec, Count, Program},
    tensor::{DType, Weight},
};

use super::{
    gemm::quantize::row_words,
    isa::Isa,
    table::{Table, Values},
    weight::{Kept, kept},
};

/// A buffer of the plan: where it is in the arena, in words, and its shape.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub at: usize,
    pub cols: usize,
    pub count: Count,
}

/// A norm's weights and kind.
#[derive(Debug)]
pub struct NormStep {
    pub kind: NormKind,
    /// `[1 or 2, cols]`
    pub weight: Weight,
    pub eps: f32,
}

/// A matrix product, 8-bit activations having been made before it.
#[derive(Debug)]
pub struct LinearStep {
    pub x: Place,
    pub weight: Weight,
    pub bias: Option<Weight>,
    pub activation: Activation,
    pub residual: Option<Place>,
    pub gated: bool,
    pub out: Place,
}

#[derive(Debug)]
pub struct AttentionStep {
    pub qkv: Place,
    pub tiles: Place,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub scale: f32,
    pub window: Option<usize>,
    pub bias: Option<Weight>,
    pub out: Place,
}

/// One step of a plan.
#[derive(Debug)]
pub enum Step {
    Embed {
        tokens: Place,
        tables: Vec<(Weight, usize)>,
        norm: Option<NormStep>,
        out: Place,
    },
    Norm {
        x: Place,
        norm: NormStep,
        out: Place,
    },
    /// Makes the 8-bit activations of the linear step after it.
    Quantize {
        x: Place,
    },
    Linear(LinearStep),
    Rope {
        x: Place,
        tokens: Place,
        table: Weight,
        heads: usize,
        head_dim: usize,
    },
    Attention(AttentionStep),
    Pool {
        x: Place,
        ranges: Place,
        modes: Vec<PoolMode>,
        out: Place,
    },
    Normalize {
        x: Place,
        unit: bool,
        out: Place,
    },
}

/// What a run's integers must satisfy before anything is computed from them.
#[derive(Debug)]
pub enum Check {
    /// Field `field` of `tokens` is a row of a table of `rows`.
    Entry { tokens: Place, field: usize, rows: usize, name: String },
    /// Tiles lie in their sequences, those in `qkv`.
    Tiles { tiles: Place, qkv: Place },
    /// Ranges lie in `x`.
    Ranges { ranges: Place, x: Place },
}

/// A lowered program.
#[derive(Debug, Default)]
pub struct Lowered {
    pub steps: Vec<Step>,
    pub checks: Vec<Check>,
    /// Words of quantized activations, at most.
    pub words: usize,
    /// Rows that are quantized, at most.
    pub quantized_rows: usize,
    /// Largest head dimension.
    pub head_dim: usize,
}

/// Lowers a program whose buffers are at `places`.
///
/// # Errors
/// `Unsupported` for buffers that are not kept in f32 and for weights of another backend.
pub fn lower(program: &Program, places: &[Place], isa: Isa) -> Result<Lowered> {
    if let Some(spec) = program.buffers.iter().find(|b| matches!(b.dtype, DType::F16 | DType::Q8)) {
        return Err(Error::Unsupported(format!(
            "buffer `{}` is {:?}; the CPU backend computes in f32, so record with its capabilities' activations",
            spec.name, spec.dtype
        )));
    }
    let mut lowering = Lowering { program, places, isa, lowered: Lowered::default() };
    for op in &program.ops {
        lowering.op(op)?;
    }
    Ok(lowering.lowered)
}

struct Lowering<'a> {
    program: &'a Program,
    places: &'a [Place],
    isa: Isa,
    lowered: Lowered,
}

impl Lowering<'_> {
    fn place(&self, id: BufferId) -> Place {
        self.places[id.index()]
    }

    fn spec(&self, id: BufferId) -> &BufferSpec {
        self.program.spec(id)
    }

    fn wrong(weight: &Weight, needed: &str) -> Error {
        Error::Unsupported(format!(
            "weight `{}` was uploaded as a {:?} of {:?} values, but the op needs a {needed}",
            weight.name(),
            weight.usage(),
            weight.format()
        ))
    }

    fn vector<'w>(&self, weight: &'w Weight) -> Result<&'w [f32]> {
        match kept(weight, self.isa)? {
            Kept::Vector(values) => Ok(values),
            _ => Err(Self::wrong(weight, "vector")),
        }
    }

    fn norm(&self, params: &NormParams) -> Result<NormStep> {
        self.vector(&params.weight)?;
        Ok(NormStep { kind: params.kind, weight: params.weight.clone(), eps: params.eps })
    }

    fn op(&mut self, op: &Op) -> Result<()> {
        let step = match op {
            Op::Embed(o) => {
                let mut tables = Vec::new();
                for (table, field) in &o.tables {
                    let Kept::Table(found) = kept(table, self.isa)? else {
                        return Err(Self::wrong(table, "table"));
                    };
                    let (rows, name) = (found.rows, table.name().to_owned());
                    let (tokens, field) = (self.place(o.tokens), *field as usize);
                    self.lowered.checks.push(Check::Entry { tokens, field, rows, name });
                    tables.push((table.clone(), field));
                }
                let norm = o.norm.as_ref().map(|n| self.norm(n)).transpose()?;
                Step::Embed { tokens: self.place(o.tokens), tables, norm, out: self.place(o.out) }
            }
            Op::Norm(o) => {
                Step::Norm { x: self.place(o.x), norm: self.norm(&o.params)?, out: self.place(o.out) }
            }
            Op::Linear(o) => {
                let residual = o.residual.map(|id| self.place(id));
                self.linear(o.x, &o.weight, o.bias.as_ref(), o.activation, residual, false, o.out)?
            }
            Op::GatedLinear(o) => {
                self.linear(o.x, &o.weight, o.bias.as_ref(), o.activation, None, true, o.out)?
            }
            Op::Rope(o) => {
                if !matches!(kept(&o.table, self.isa)?, Kept::Table(Table { values: Values::F32(_), .. })) {
                    return Err(Self::wrong(&o.table, "table of f32 values"));
                }
                let (table, name) = (o.table.clone(), o.table.name().to_owned());
                let (x, tokens, rows) = (self.place(o.x), self.place(o.tokens), o.table.rows());
                self.lowered.checks.push(Check::Entry { tokens, field: 1, rows, name });
                Step::Rope { x, tokens, table, heads: o.heads, head_dim: o.head_dim }
            }
            Op::Attention(o) => {
                if let Some(bias) = &o.bias {
                    self.vector(bias)?;
                }
                let (qkv, tiles) = (self.place(o.qkv), self.place(o.tiles));
                self.lowered.checks.push(Check::Tiles { tiles, qkv });
                self.lowered.head_dim = self.lowered.head_dim.max(o.head_dim);
                Step::Attention(AttentionStep {
                    qkv,
                    tiles,
                    heads: o.heads,
                    kv_heads: o.kv_heads,
                    head_dim: o.head_dim,
                    scale: o.scale,
                    window: o.window,
                    bias: o.bias.clone(),
                    out: self.place(o.out),
                })
            }
            Op::Pool(o) => {
                let (x, ranges) = (self.place(o.x), self.place(o.ranges));
                self.lowered.checks.push(Check::Ranges { ranges, x });
                Step::Pool { x, ranges, modes: o.modes.clone(), out: self.place(o.out) }
            }
            Op::Normalize(o) => Step::Normalize { x: self.place(o.x), unit: o.unit, out: self.place(o.out) },
            Op::StoreKv(_)
            | Op::CachedAttention(_)
            | Op::ShortConv(_)
            | Op::Route(_)
            | Op::ExpertGatedLinear(_)
            | Op::ExpertLinear(_)
            | Op::Sample(_) => {
                return Err(Error::Unsupported(format!(
                    "op {}: the CPU backend runs encoders only",
                    op.name()
                )));
            }
        };
        self.lowered.steps.push(step);
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the operands of two ops")]
    fn linear(
        &mut self,
        x: BufferId,
        weight: &Weight,
        bias: Option<&Weight>,
        activation: Activation,
        residual: Option<Place>,
        gated: bool,
        out: BufferId,
    ) -> Result<Step> {
        let (rows, x) = (self.spec(x).rows, self.place(x));
        match kept(weight, self.isa)? {
            Kept::F32(_) => {}
            Kept::Int8(_) => {
                let words = rows * row_words(self.isa, weight.cols());
                self.lowered.words = self.lowered.words.max(words);
                self.lowered.quantized_rows = self.lowered.quantized_rows.max(rows);
                self.lowered.steps.push(Step::Quantize { x });
            }
            _ => return Err(Self::wrong(weight, "matrix")),
        }
        if let Some(bias) = bias {
            self.vector(bias)?;
        }
        let (weight, bias, out) = (weight.clone(), bias.cloned(), self.place(out));
        Ok(Step::Linear(LinearStep { x, weight, bias, activation, residual, gated, out }))
    }
}
