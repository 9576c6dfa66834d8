//! The closed list of operations, each at the grain of one fused kernel.
//!
//! Operands are buffers of a [`Program`](crate::program::Program) (`[rows, cols]`, row-major) and weights.
//! [`Op::check`] holds every shape rule; backends may rely on it.

use alloc::{format, string::String, vec::Vec};

use crate::{
    Error, Result,
    program::{BufferId, BufferSpec},
    tensor::{DType, Weight},
};

/// Query rows in one attention tile, at most.
pub const ATTENTION_TILE: usize = 64;

/// Elementwise function of a linear op's epilogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Activation {
    #[default]
    None,
    /// `x/2 · (1 + erf(x/√2))`
    Gelu,
    /// `x/2 · (1 + tanh(√(2/π)(x + 0.044715x³)))`
    GeluTanh,
    Relu,
    /// `x · σ(x)`
    Silu,
    Tanh,
    Sigmoid,
}

impl Activation {
    pub const ALL: [Activation; 7] = [
        Activation::None,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Relu,
        Activation::Silu,
        Activation::Tanh,
        Activation::Sigmoid,
    ];
}

/// How the vectors of a sequence become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PoolMode {
    /// First row.
    Cls,
    /// Elementwise maximum.
    Max,
    /// Arithmetic mean.
    Mean,
    /// Sum over the square root of the length.
    MeanSqrtLen,
    /// Mean weighted by the 1-based position in the pooled range.
    WeightedMean,
    /// Last row.
    LastToken,
}

impl PoolMode {
    pub const ALL: [PoolMode; 6] = [
        PoolMode::Cls,
        PoolMode::Max,
        PoolMode::Mean,
        PoolMode::MeanSqrtLen,
        PoolMode::WeightedMean,
        PoolMode::LastToken,
    ];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NormKind {
    /// `(x − mean)/√(var + eps) · w + b`
    Layer,
    /// `x/√(mean(x²) + eps) · w`
    Rms,
}

/// Parameters of a norm: `[2, cols]` weight and bias, or `[1, cols]` weight alone.
#[derive(Debug, Clone)]
pub struct NormParams {
    pub kind: NormKind,
    pub weight: Weight,
    pub eps: f32,
}

/// Which column of the `tokens` buffer indexes a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum TokenField {
    Id = 0,
    Position = 1,
    Type = 2,
}

/// Sum of table rows, then an optional norm: `out[t] = norm(Σ table[tokens[t][field]])`.
#[derive(Debug, Clone)]
pub struct Embed {
    /// u32 `[T, 4]`: id, position, type, 0.
    pub tokens: BufferId,
    /// One to three tables `[entries, cols]`.
    pub tables: Vec<(Weight, TokenField)>,
    pub norm: Option<NormParams>,
    pub out: BufferId,
}

/// `out = norm(x)`, row by row.
#[derive(Debug, Clone)]
pub struct Norm {
    pub x: BufferId,
    pub params: NormParams,
    pub out: BufferId,
}

/// `out = act(x Wᵀ + bias) + residual`, with `W` `[out, in]`.
///
/// The order of summation over `in` never depends on the number of rows.
#[derive(Debug, Clone)]
pub struct Linear {
    pub x: BufferId,
    pub weight: Weight,
    /// `[1, out]`
    pub bias: Option<Weight>,
    pub activation: Activation,
    pub residual: Option<BufferId>,
    pub out: BufferId,
}

/// `out = act(x Wgᵀ + bg) ⊙ (x Wuᵀ + bu)`; `weight` holds the rows of `Wg`, then those of `Wu`.
#[derive(Debug, Clone)]
pub struct GatedLinear {
    pub x: BufferId,
    /// `[2·F, in]`
    pub weight: Weight,
    /// `[1, 2·F]`
    pub bias: Option<Weight>,
    pub activation: Activation,
    /// `[rows, F]`
    pub out: BufferId,
}

/// Rotary position embedding in place on the first `heads · head_dim` columns; NeoX pairs `(i, i + d/2)`.
#[derive(Debug, Clone)]
pub struct Rope {
    /// `[T, ≥ heads·head_dim]`, changed in place.
    pub x: BufferId,
    /// Positions are its field 1.
    pub tokens: BufferId,
    /// f32 `[positions, head_dim]`: cosines of the d/2 angles, then sines.
    pub table: Weight,
    pub heads: usize,
    pub head_dim: usize,
}

/// Bidirectional attention over packed sequences.
#[derive(Debug, Clone)]
pub struct Attention {
    /// `[T, (heads + 2·kv_heads)·head_dim]`: query heads, key heads, value heads.
    pub qkv: BufferId,
    /// u32 `[N, 4]`: first and past-the-end query row (at most [`ATTENTION_TILE`] rows), then the first and
    /// past-the-end row of the sequence they belong to.
    pub tiles: BufferId,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Multiplies `q·k`.
    pub scale: f32,
    /// Attend to keys with `|i − j| ≤ window` only.
    pub window: Option<usize>,
    /// f32 `[heads, 2R+1]`, added to the scaled score at `clamp(j − i, −R, R) + R`.
    pub bias: Option<Weight>,
    /// `[T, heads·head_dim]`
    pub out: BufferId,
}

/// Pools row ranges: `out[s]` is the concatenation of `modes` over rows `ranges[s]`. Empty ranges give 0.
#[derive(Debug, Clone)]
pub struct Pool {
    pub x: BufferId,
    /// u32 `[S, 2]`: first and past-the-end row.
    pub ranges: BufferId,
    pub modes: Vec<PoolMode>,
    /// `[S, modes·cols]`
    pub out: BufferId,
}

/// `out = x/max(‖x‖₂, 1e-12)` over the first `out.cols` columns of each row (Matryoshka truncation).
#[derive(Debug, Clone)]
pub struct Normalize {
    pub x: BufferId,
    /// False truncates only.
    pub unit: bool,
    pub out: BufferId,
}

/// One operation of a program.
#[derive(Debug, Clone)]
pub enum Op {
    Embed(Embed),
    Norm(Norm),
    Linear(Linear),
    GatedLinear(GatedLinear),
    Rope(Rope),
    Attention(Attention),
    Pool(Pool),
    Normalize(Normalize),
}

impl Op {
    pub const fn name(&self) -> &'static str {
        match self {
            Op::Embed(_) => "embed",
            Op::Norm(_) => "norm",
            Op::Linear(_) => "linear",
            Op::GatedLinear(_) => "gated_linear",
            Op::Rope(_) => "rope",
            Op::Attention(_) => "attention",
            Op::Pool(_) => "pool",
            Op::Normalize(_) => "normalize",
        }
    }

    /// Buffers read and buffers written (a buffer changed in place is in both).
    pub fn operands(&self) -> (Vec<BufferId>, Vec<BufferId>) {
        let mut reads = Vec::new();
        let out = match self {
            Op::Embed(o) => {
                reads.push(o.tokens);
                o.out
            }
            Op::Norm(o) => {
                reads.push(o.x);
                o.out
            }
            Op::Linear(o) => {
                reads.push(o.x);
                reads.extend(o.residual);
                o.out
            }
            Op::GatedLinear(o) => {
                reads.push(o.x);
                o.out
            }
            Op::Rope(o) => {
                reads.extend([o.x, o.tokens]);
                o.x
            }
            Op::Attention(o) => {
                reads.extend([o.qkv, o.tiles]);
                o.out
            }
            Op::Pool(o) => {
                reads.extend([o.x, o.ranges]);
                o.out
            }
            Op::Normalize(o) => {
                reads.push(o.x);
                o.out
            }
        };
        (reads, alloc::vec![out])
    }

    /// Checks operand shapes and element types against `buffers`.
    ///
    /// # Errors
    /// `Shape` or `Unsupported`, naming the op and the operand.
    pub fn check(&self, buffers: &[BufferSpec]) -> Result<()> {
        let check = Check { op: self.name(), buffers };
        match self {
            Op::Embed(o) => check.embed(o),
            Op::Norm(o) => {
                check.norm_params(&o.params, check.float(o.x, "x")?.cols)?;
                check.float_like(o.out, "out", o.x)
            }
            Op::Linear(o) => {
                let (x, out) = (check.float(o.x, "x")?, check.float(o.out, "out")?);
                check.weight(&o.weight, out.cols, x.cols)?;
                check.vector(o.bias.as_ref(), out.cols)?;
                check.same_rows(x, out)?;
                if let Some(residual) = o.residual {
                    check.float_like(residual, "residual", o.out)?;
                }
                check.distinct(o.x, o.out)
            }
            Op::GatedLinear(o) => {
                let (x, out) = (check.float(o.x, "x")?, check.float(o.out, "out")?);
                check.weight(&o.weight, 2 * out.cols, x.cols)?;
                check.vector(o.bias.as_ref(), 2 * out.cols)?;
                check.same_rows(x, out)?;
                check.distinct(o.x, o.out)
            }
            Op::Rope(o) => check.rope(o),
            Op::Attention(o) => check.attention(o),
            Op::Pool(o) => {
                check.index(o.ranges, "ranges", 2)?;
                let (x, out) = (check.float(o.x, "x")?, check.float(o.out, "out")?);
                check.cols("out", out.cols, o.modes.len() * x.cols)?;
                check.distinct(o.x, o.out)
            }
            Op::Normalize(o) => {
                let (x, out) = (check.float(o.x, "x")?, check.float(o.out, "out")?);
                if out.cols > x.cols {
                    return check.cols("out", out.cols, x.cols);
                }
                check.same_rows(x, out)?;
                check.distinct(o.x, o.out)
            }
        }
    }
}

struct Check<'a> {
    op: &'static str,
    buffers: &'a [BufferSpec],
}

impl<'a> Check<'a> {
    fn spec(&self, id: BufferId, what: &str) -> Result<&'a BufferSpec> {
        self.buffers
            .get(id.index())
            .ok_or_else(|| Error::Unsupported(format!("op {}: {what} names no buffer", self.op)))
    }

    fn shape(&self, what: &str, expected: String, found: String) -> Error {
        Error::Shape { what: format!("op {}: {what}", self.op), expected, found }
    }

    fn cols(&self, what: &str, found: usize, expected: usize) -> Result<()> {
        if found == expected {
            return Ok(());
        }
        Err(self.shape(what, format!("[rows, {expected}]"), format!("[rows, {found}]")))
    }

    fn float(&self, id: BufferId, what: &str) -> Result<&'a BufferSpec> {
        let spec = self.spec(id, what)?;
        if spec.dtype == DType::U32 {
            return Err(Error::Unsupported(format!("op {}: {what} must be f32 or f16", self.op)));
        }
        if !spec.cols.is_multiple_of(4) {
            let found = format!("{} columns", spec.cols);
            return Err(self.shape(what, "a multiple of 4 columns".into(), found));
        }
        Ok(spec)
    }

    fn float_like(&self, id: BufferId, what: &str, other: BufferId) -> Result<()> {
        let (spec, other) = (self.float(id, what)?, self.spec(other, what)?);
        self.cols(what, spec.cols, other.cols)?;
        self.same_rows(spec, other)
    }

    fn index(&self, id: BufferId, what: &str, cols: usize) -> Result<&'a BufferSpec> {
        let spec = self.spec(id, what)?;
        if spec.dtype != DType::U32 {
            return Err(Error::Unsupported(format!("op {}: {what} must be u32", self.op)));
        }
        self.cols(what, spec.cols, cols)?;
        Ok(spec)
    }

    fn same_rows(&self, a: &BufferSpec, b: &BufferSpec) -> Result<()> {
        if a.rows == b.rows && a.count == b.count {
            return Ok(());
        }
        Err(self.shape(b.name, format!("{} rows", a.rows), format!("{} rows", b.rows)))
    }

    fn distinct(&self, x: BufferId, out: BufferId) -> Result<()> {
        if x != out {
            return Ok(());
        }
        Err(Error::Unsupported(format!("op {}: cannot run in place", self.op)))
    }

    fn weight(&self, w: &Weight, rows: usize, cols: usize) -> Result<()> {
        if (w.rows(), w.cols()) == (rows, cols) {
            return Ok(());
        }
        Err(self.shape(w.name(), format!("[{rows}, {cols}]"), format!("[{}, {}]", w.rows(), w.cols())))
    }

    fn vector(&self, w: Option<&Weight>, cols: usize) -> Result<()> {
        w.map_or(Ok(()), |w| self.weight(w, 1, cols))
    }

    fn norm_params(&self, p: &NormParams, cols: usize) -> Result<()> {
        let rows = if p.kind == NormKind::Layer { p.weight.rows().clamp(1, 2) } else { 1 };
        self.weight(&p.weight, rows, cols)
    }

    fn embed(&self, o: &Embed) -> Result<()> {
        let tokens = self.index(o.tokens, "tokens", 4)?;
        let out = self.float(o.out, "out")?;
        self.same_rows(tokens, out)?;
        if o.tables.is_empty() || o.tables.len() > 3 {
            return Err(Error::Unsupported(format!(
                "op embed: {} tables, 1 to 3 are possible",
                o.tables.len()
            )));
        }
        for (table, _) in &o.tables {
            self.weight(table, table.rows(), out.cols)?;
        }
        o.norm.as_ref().map_or(Ok(()), |p| self.norm_params(p, out.cols))
    }

    fn rope(&self, o: &Rope) -> Result<()> {
        let tokens = self.index(o.tokens, "tokens", 4)?;
        let x = self.float(o.x, "x")?;
        self.same_rows(tokens, x)?;
        self.weight(&o.table, o.table.rows(), o.head_dim)?;
        if !o.head_dim.is_multiple_of(8) || o.heads * o.head_dim > x.cols {
            let found = format!("{} heads of {} in {} columns", o.heads, o.head_dim, x.cols);
            return Err(self.shape("heads", "heads of a multiple of 8 that fit the columns".into(), found));
        }
        Ok(())
    }

    fn attention(&self, o: &Attention) -> Result<()> {
        let (qkv, out) = (self.float(o.qkv, "qkv")?, self.float(o.out, "out")?);
        self.index(o.tiles, "tiles", 4)?;
        if o.kv_heads == 0
            || !o.heads.is_multiple_of(o.kv_heads)
            || !o.head_dim.is_multiple_of(4)
            || o.head_dim > 256
        {
            return Err(Error::Unsupported(format!(
                "op attention: {} heads over {} key heads of {} dimensions",
                o.heads, o.kv_heads, o.head_dim
            )));
        }
        self.cols("qkv", qkv.cols, (o.heads + 2 * o.kv_heads) * o.head_dim)?;
        self.cols("out", out.cols, o.heads * o.head_dim)?;
        self.same_rows(qkv, out)?;
        if let Some(bias) = &o.bias {
            self.weight(bias, o.heads, bias.cols() | 1)?;
        }
        Ok(())
    }
}
