//! Shape rules of the decoders' ops.

use alloc::format;

use super::{
    CachedAttention, ConvRows, ExpertGatedLinear, ExpertLinear, PAGE, Route, SETTING_WORDS, Sample,
    ShortConv, StoreKv, check::Check,
};
use crate::{
    Error, Result,
    program::{BufferId, BufferSpec, Role},
    tensor::DType,
};

/// Most experts that a token may use.
const MOST_USED: usize = 64;

impl<'a> Check<'a> {
    fn state(&self, id: BufferId, what: &str) -> Result<&'a BufferSpec> {
        let spec = self.spec(id, what)?;
        if spec.role == Role::State {
            return Ok(spec);
        }
        Err(Error::Unsupported(format!("op {}: {what} must be a state", self.op)))
    }

    fn heads(&self, heads: usize, kv_heads: usize, head_dim: usize) -> Result<()> {
        if kv_heads == 0
            || heads == 0
            || !heads.is_multiple_of(kv_heads)
            || !head_dim.is_multiple_of(8)
            || head_dim == 0
            || head_dim > 256
        {
            return Err(Error::Unsupported(format!(
                "op {}: {heads} heads over {kv_heads} key heads of {head_dim} dimensions",
                self.op
            )));
        }
        Ok(())
    }

    /// A cache and its page table.
    fn cache(&self, cache: BufferId, pages: BufferId, cols: usize) -> Result<()> {
        let cache = self.state(cache, "cache")?;
        self.cols("cache", cache.cols, cols)?;
        if !cache.rows.is_multiple_of(PAGE) || cache.dtype == DType::U32 {
            let found = format!("[{}, {cols}] of {:?}", cache.rows, cache.dtype);
            return Err(self.shape("cache", format!("f32 or f16 pages of {PAGE} rows"), found));
        }
        let pages = self.state(pages, "pages")?;
        self.index_type(pages, "pages")
    }

    fn index_type(&self, spec: &BufferSpec, what: &str) -> Result<()> {
        if spec.dtype == DType::U32 {
            return Ok(());
        }
        Err(Error::Unsupported(format!("op {}: {what} must be u32", self.op)))
    }

    pub(super) fn store_kv(&self, o: &StoreKv) -> Result<()> {
        self.heads(o.heads, o.kv_heads, o.head_dim)?;
        let (qkv, tokens) = (self.float(o.qkv, "qkv")?, self.index(o.tokens, "tokens", 4)?);
        self.cols("qkv", qkv.cols, (o.heads + 2 * o.kv_heads) * o.head_dim)?;
        self.same_rows(tokens, qkv)?;
        self.head_norms([&o.q_norm, &o.k_norm], o.head_dim)?;
        self.weight(&o.rope, o.rope.rows(), o.head_dim)?;
        self.cache(o.cache, o.pages, 2 * o.kv_heads * o.head_dim)
    }

    pub(super) fn cached_attention(&self, o: &CachedAttention) -> Result<()> {
        self.heads(o.heads, o.kv_heads, o.head_dim)?;
        let (q, out) = (self.float(o.q, "q")?, self.float_or_q8(o.out, "out")?);
        if q.cols < o.heads * o.head_dim {
            return self.cols("q", q.cols, o.heads * o.head_dim);
        }
        self.cols("out", out.cols, o.heads * o.head_dim)?;
        self.same_rows(q, out)?;
        self.same_rows(self.index(o.tokens, "tokens", 4)?, q)?;
        if let Some(tiles) = o.tiles {
            self.index(tiles, "tiles", 4)?;
        }
        self.distinct(o.q, o.out)?;
        self.cache(o.cache, o.pages, 2 * o.kv_heads * o.head_dim)?;
        let limit = self.spec(o.pages, "pages")?.cols * PAGE;
        if o.context == 0 || o.context > limit {
            let found = format!("{} positions", o.context);
            return Err(self.shape("context", format!("1 to {limit} positions"), found));
        }
        Ok(())
    }

    pub(super) fn short_conv(&self, o: &ShortConv) -> Result<()> {
        let (bcx, out) = (self.float(o.bcx, "bcx")?, self.float_or_q8(o.out, "out")?);
        self.cols("bcx", bcx.cols, 3 * out.cols)?;
        self.same_rows(bcx, out)?;
        let taps = o.weight.rows();
        if !(2..=8).contains(&taps) {
            return Err(self.shape("weight", "2 to 8 taps".into(), format!("{taps}")));
        }
        self.weight(&o.weight, taps, out.cols)?;
        self.vector(o.bias.as_ref(), out.cols)?;
        let (tokens, spans, state) = match o.rows {
            ConvRows::Slots { tokens, spans, state } => (tokens, spans, state),
            ConvRows::Sequences { tiles, ahead } => {
                if ahead >= taps {
                    let found = format!("{ahead} of {taps}");
                    return Err(self.shape("ahead", "fewer taps ahead than there are".into(), found));
                }
                // Neighbouring rows are other tasks' input.
                self.distinct(o.bcx, o.out)?;
                return self.index(tiles, "tiles", 4).map(|_| ());
            }
        };
        self.same_rows(self.index(tokens, "tokens", 4)?, bcx)?;
        if let Some(spans) = spans {
            self.index(spans, "spans", 2)?;
        }
        let state = self.state(state, "state")?;
        self.cols("state", state.cols, out.cols)?;
        if !state.rows.is_multiple_of(taps - 1) || state.dtype != DType::F32 {
            let found = format!("{} rows of {:?}", state.rows, state.dtype);
            return Err(self.shape("state", format!("f32, {} rows a slot", taps - 1), found));
        }
        Ok(())
    }

    fn routes(&self, id: BufferId, used: usize) -> Result<&'a BufferSpec> {
        let routes = self.float(id, "routes")?;
        if used == 0 || used > MOST_USED || routes.dtype != DType::F32 {
            return Err(Error::Unsupported(format!("op {}: {used} experts of {MOST_USED} at most", self.op)));
        }
        self.cols("routes", routes.cols, (2 * used).next_multiple_of(4))?;
        Ok(routes)
    }

    pub(super) fn route(&self, o: &Route) -> Result<()> {
        let (x, out) = (self.float(o.x, "x")?, self.routes(o.out, o.used)?);
        self.same_rows(x, out)?;
        self.weight(&o.weight, o.weight.rows(), x.cols)?;
        self.vector(o.bias.as_ref(), o.weight.rows())?;
        if o.used > o.weight.rows() {
            let found = format!("{} of {}", o.used, o.weight.rows());
            return Err(self.shape("used", "as many experts as there are".into(), found));
        }
        Ok(())
    }

    pub(super) fn expert_gated_linear(&self, o: &ExpertGatedLinear) -> Result<()> {
        let (x, out) = (self.factor(o.x, "x", &o.weight)?, self.float_or_q8(o.out, "out")?);
        let routes = self.routes(o.routes, o.used)?;
        self.same_rows(x, routes)?;
        self.same_rows(x, out)?;
        let width = out.cols / o.used;
        if !out.cols.is_multiple_of(o.used * 4) || !o.weight.rows().is_multiple_of(2 * width.max(1)) {
            let found = format!("{} rows for {} columns", o.weight.rows(), out.cols);
            return Err(self.shape(o.weight.name(), "experts of twice the width each".into(), found));
        }
        self.weight(&o.weight, o.weight.rows(), x.cols)?;
        self.distinct(o.x, o.out)
    }

    pub(super) fn expert_linear(&self, o: &ExpertLinear) -> Result<()> {
        let (x, out) = (self.factor(o.x, "x", &o.weight)?, self.float(o.out, "out")?);
        let routes = self.routes(o.routes, o.used)?;
        self.same_rows(x, routes)?;
        self.same_rows(x, out)?;
        if !x.cols.is_multiple_of(o.used * 4) || !o.weight.rows().is_multiple_of(out.cols.max(1)) {
            let found = format!("{} rows for {} columns", o.weight.rows(), out.cols);
            return Err(self.shape(o.weight.name(), "whole experts".into(), found));
        }
        self.weight(&o.weight, o.weight.rows(), x.cols / o.used)?;
        if let Some(residual) = o.residual {
            self.float_like(residual, "residual", o.out)?;
        }
        self.distinct(o.x, o.out)
    }

    pub(super) fn sample(&self, o: &Sample) -> Result<()> {
        let (logits, out) = (self.float(o.logits, "logits")?, self.float(o.out, "out")?);
        if o.vocab == 0 || logits.cols < o.vocab || logits.dtype != DType::F32 {
            let found = format!("{} columns of {:?}", logits.cols, logits.dtype);
            return Err(self.shape("logits", format!("f32, at least {} columns", o.vocab), found));
        }
        self.cols("out", out.cols, 4)?;
        self.same_rows(logits, out)?;
        let tokens = self.state(o.tokens, "tokens")?;
        self.index(o.tokens, "tokens", 4)?;
        match o.targets {
            Some(targets) => self.same_rows(self.index(targets, "targets", 4)?, logits)?,
            None => self.same_rows(tokens, logits)?,
        }
        self.state(o.settings, "settings")?;
        self.index(o.settings, "settings", SETTING_WORDS)?;
        let cols = o.vocab.next_multiple_of(4);
        self.state(o.counts, "counts")?;
        self.index(o.counts, "counts", cols)?;
        if let Some(bias) = o.bias {
            self.cols("bias", self.state(bias, "bias")?.cols, cols)?;
        }
        if let Some(mask) = o.mask {
            self.state(mask, "mask")?;
            self.index(mask, "mask", o.vocab.div_ceil(32).next_multiple_of(4))?;
        }
        Ok(())
    }
}
