//! Shape rules of every op.

use alloc::{format, string::String};

use super::{Attention, Embed, NormKind, NormParams, Op, Rope};
use crate::{
    Error, Result,
    program::{BufferId, BufferSpec, Role},
    quant::q8,
    tensor::{DType, Weight},
};

impl Op {
    /// Checks operand shapes and element types against `buffers`.
    ///
    /// # Errors
    /// `Shape` or `Unsupported`, naming the op and the operand.
    pub fn check(&self, buffers: &[BufferSpec]) -> Result<()> {
        let check = Check { op: self.name(), buffers };
        match self {
            Op::Embed(o) => check.embed(o),
            Op::Norm(o) => {
                let (x, out) = (check.float(o.x, "x")?, check.float_or_q8(o.out, "out")?);
                check.norm_params(&o.params, x.cols)?;
                check.cols("out", out.cols, x.cols)?;
                check.same_rows(x, out)
            }
            Op::Linear(o) => {
                let (x, out) = (check.factor(o.x, "x", &o.weight)?, check.float(o.out, "out")?);
                check.weight(&o.weight, out.cols, x.cols)?;
                check.vector(o.bias.as_ref(), out.cols)?;
                check.same_rows(x, out)?;
                if let Some(residual) = o.residual {
                    check.float_like(residual, "residual", o.out)?;
                }
                check.distinct(o.x, o.out)
            }
            Op::GatedLinear(o) => {
                let (x, out) = (check.factor(o.x, "x", &o.weight)?, check.float_or_q8(o.out, "out")?);
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
                let (x, out) = (check.float_or_q8(o.x, "x")?, check.float_or_q8(o.out, "out")?);
                if out.cols > x.cols {
                    return check.cols("out", out.cols, x.cols);
                }
                check.same_rows(x, out)?;
                check.distinct(o.x, o.out)
            }
            Op::StoreKv(o) => check.store_kv(o),
            Op::CachedAttention(o) => check.cached_attention(o),
            Op::ShortConv(o) => check.short_conv(o),
            Op::Route(o) => check.route(o),
            Op::ExpertGatedLinear(o) => check.expert_gated_linear(o),
            Op::ExpertLinear(o) => check.expert_linear(o),
            Op::Sample(o) => check.sample(o),
        }
    }
}

pub(super) struct Check<'a> {
    pub(super) op: &'static str,
    buffers: &'a [BufferSpec],
}

impl<'a> Check<'a> {
    pub(super) fn spec(&self, id: BufferId, what: &str) -> Result<&'a BufferSpec> {
        self.buffers
            .get(id.index())
            .ok_or_else(|| Error::Unsupported(format!("op {}: {what} names no buffer", self.op)))
    }

    pub(super) fn shape(&self, what: &str, expected: String, found: String) -> Error {
        Error::Shape { what: format!("op {}: {what}", self.op), expected, found }
    }

    pub(super) fn cols(&self, what: &str, found: usize, expected: usize) -> Result<()> {
        if found == expected {
            return Ok(());
        }
        Err(self.shape(what, format!("[rows, {expected}]"), format!("[rows, {found}]")))
    }

    pub(super) fn float(&self, id: BufferId, what: &str) -> Result<&'a BufferSpec> {
        let spec = self.spec(id, what)?;
        if matches!(spec.dtype, DType::U32 | DType::Q8) {
            return Err(Error::Unsupported(format!("op {}: {what} must be f32 or f16", self.op)));
        }
        if !spec.cols.is_multiple_of(4) {
            let found = format!("{} columns", spec.cols);
            return Err(self.shape(what, "a multiple of 4 columns".into(), found));
        }
        Ok(spec)
    }

    /// A float buffer, or an internal one of 8-bit blocks.
    pub(super) fn float_or_q8(&self, id: BufferId, what: &str) -> Result<&'a BufferSpec> {
        let spec = self.spec(id, what)?;
        if spec.dtype != DType::Q8 {
            return self.float(id, what);
        }
        if spec.role != Role::Internal {
            let why = format!("op {}: {what} is of 8-bit blocks, which live between two ops only", self.op);
            return Err(Error::Unsupported(why));
        }
        if !spec.cols.is_multiple_of(q8::BLOCK) {
            let expected = format!("a multiple of {} columns", q8::BLOCK);
            return Err(self.shape(what, expected, format!("{} columns", spec.cols)));
        }
        Ok(spec)
    }

    /// What is multiplied by a weight: 8-bit blocks go with blocks.
    pub(super) fn factor(&self, id: BufferId, what: &str, weight: &Weight) -> Result<&'a BufferSpec> {
        let spec = self.float_or_q8(id, what)?;
        if spec.dtype == DType::Q8 && !weight.format().is_block() {
            return Err(Error::Unsupported(format!(
                "op {}: {what} is of 8-bit blocks, but `{}` is {}: only block formats take them",
                self.op,
                weight.name(),
                weight.format()
            )));
        }
        Ok(spec)
    }

    pub(super) fn float_like(&self, id: BufferId, what: &str, other: BufferId) -> Result<()> {
        let (spec, other) = (self.float(id, what)?, self.spec(other, what)?);
        self.cols(what, spec.cols, other.cols)?;
        self.same_rows(spec, other)
    }

    pub(super) fn index(&self, id: BufferId, what: &str, cols: usize) -> Result<&'a BufferSpec> {
        let spec = self.spec(id, what)?;
        if spec.dtype != DType::U32 {
            return Err(Error::Unsupported(format!("op {}: {what} must be u32", self.op)));
        }
        self.cols(what, spec.cols, cols)?;
        Ok(spec)
    }

    /// Buffers of one count; of a state, some rows are used.
    pub(super) fn same_rows(&self, a: &BufferSpec, b: &BufferSpec) -> Result<()> {
        let state = |s: &BufferSpec, other: &BufferSpec| s.role == Role::State && s.rows >= other.rows;
        if (a.rows == b.rows && a.count == b.count) || state(a, b) || state(b, a) {
            return Ok(());
        }
        Err(self.shape(b.name, format!("{} rows", a.rows), format!("{} rows", b.rows)))
    }

    pub(super) fn distinct(&self, x: BufferId, out: BufferId) -> Result<()> {
        if x != out {
            return Ok(());
        }
        Err(Error::Unsupported(format!("op {}: cannot run in place", self.op)))
    }

    pub(super) fn weight(&self, w: &Weight, rows: usize, cols: usize) -> Result<()> {
        if (w.rows(), w.cols()) == (rows, cols) {
            return Ok(());
        }
        Err(self.shape(w.name(), format!("[{rows}, {cols}]"), format!("[{}, {}]", w.rows(), w.cols())))
    }

    pub(super) fn vector(&self, w: Option<&Weight>, cols: usize) -> Result<()> {
        w.map_or(Ok(()), |w| self.weight(w, 1, cols))
    }

    pub(super) fn norm_params(&self, p: &NormParams, cols: usize) -> Result<()> {
        let rows = if p.kind == NormKind::Layer { p.weight.rows().clamp(1, 2) } else { 1 };
        self.weight(&p.weight, rows, cols)
    }

    pub(super) fn embed(&self, o: &Embed) -> Result<()> {
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

    pub(super) fn rope(&self, o: &Rope) -> Result<()> {
        let tokens = self.index(o.tokens, "tokens", 4)?;
        let x = self.float(o.x, "x")?;
        self.same_rows(tokens, x)?;
        self.weight(&o.table, o.table.rows(), o.head_dim)?;
        let heads = o.heads + o.kv_heads;
        if !o.head_dim.is_multiple_of(8) || o.head_dim > 256 || heads * o.head_dim > x.cols {
            let found = format!("{heads} heads of {} in {} columns", o.head_dim, x.cols);
            let expected = "heads of a multiple of 8, at most 256, that fit the columns";
            return Err(self.shape("heads", expected.into(), found));
        }
        self.head_norms([&o.q_norm, &o.k_norm], o.head_dim)
    }

    /// RMS norms of query and key heads.
    pub(super) fn head_norms(&self, norms: [&Option<NormParams>; 2], head_dim: usize) -> Result<()> {
        for params in norms.into_iter().flatten() {
            if params.kind != NormKind::Rms {
                let why = format!("op {}: heads are normalised by RMS norms only", self.op);
                return Err(Error::Unsupported(why));
            }
            self.norm_params(params, head_dim)?;
        }
        Ok(())
    }

    pub(super) fn attention(&self, o: &Attention) -> Result<()> {
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
