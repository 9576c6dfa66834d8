//! Ops that write what later runs read, and what they have in common with those that do not: store_kv, rope, short_conv.

use alloc::{format, vec, vec::Vec};

use super::{Binding, Dispatch, Lowering, bind, define, dispatch, flag, fold, one};
use crate::{
    Error, Result,
    gpu::kernel,
    op::{ConvRows, NormKind, NormParams, Rope, ShortConv, StoreKv},
    program::BufferId,
    tensor::{Format, Weight},
};

/// A weight that a kernel reads as f32 whatever the backend's formats are.
pub fn bind_f32(weight: &Weight) -> Result<Binding> {
    if weight.format() != Format::F32 {
        let why = format!("weight `{}` is {}, but is read as f32", weight.name(), weight.format());
        return Err(Error::Unsupported(why));
    }
    bind(weight)
}

/// The epsilon and the binding of a head's norm.
pub fn head_norm(params: Option<&NormParams>) -> Result<(u32, Option<Binding>)> {
    match params {
        None => Ok((0, None)),
        Some(NormParams { kind: NormKind::Rms, weight, eps }) => Ok((eps.to_bits(), Some(bind_f32(weight)?))),
        Some(_) => Err(Error::Unsupported("heads are normalised by RMS norms only".into())),
    }
}

/// Heads of rows that are normalised and rotated.
struct Heads<'a> {
    qkv: BufferId,
    tokens: BufferId,
    norms: [Option<&'a NormParams>; 2],
    rope: &'a Weight,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    /// Cache and pages, where keys and values go.
    cache: Option<[BufferId; 2]>,
}

pub fn store_kv(l: &Lowering<'_>, o: &StoreKv) -> Result<Vec<Dispatch>> {
    let heads = Heads {
        qkv: o.qkv,
        tokens: o.tokens,
        norms: [o.q_norm.as_ref(), o.k_norm.as_ref()],
        rope: &o.rope,
        heads: o.heads,
        kv_heads: o.kv_heads,
        head_dim: o.head_dim,
        cache: Some([o.cache, o.pages]),
    };
    heads.lower(l)
}

pub fn rope(l: &Lowering<'_>, o: &Rope) -> Result<Vec<Dispatch>> {
    let heads = Heads {
        qkv: o.x,
        tokens: o.tokens,
        norms: [o.q_norm.as_ref(), o.k_norm.as_ref()],
        rope: &o.table,
        heads: o.heads,
        kv_heads: o.kv_heads,
        head_dim: o.head_dim,
        cache: None,
    };
    heads.lower(l)
}

impl Heads<'_> {
    fn lower(&self, l: &Lowering<'_>) -> Result<Vec<Dispatch>> {
        let half4 = self.head_dim as u32 / 8;
        let (heads, kv_heads) = (self.heads as u32, self.kv_heads as u32);
        let [grid_y, grid_z, _] = fold(l.rows(self.qkv));
        let [q_norm, k_norm] = self.norms;
        let ((q_eps, q_norm), (k_eps, k_norm)) = (head_norm(q_norm)?, head_norm(k_norm)?);
        let definitions = define(&[
            ("X", l.word(self.qkv)),
            ("C", self.cache.map_or("none", |[cache, _]| l.word(cache))),
            ("Q_NORM", &flag(q_norm.is_some())),
            ("K_NORM", &flag(k_norm.is_some())),
            ("HALF4", &format!("{half4}")),
        ]);
        let (cache4, per_slot) =
            self.cache.map_or((0, 0), |[cache, pages]| (l.cols4(cache), l.program.spec(pages).cols as u32));
        let params = [
            heads,
            kv_heads,
            l.cols4(self.qkv),
            cache4,
            per_slot,
            self.rope.rows() as u32,
            q_eps,
            k_eps,
            l.count(self.qkv),
            grid_y,
        ];
        let mut bindings = vec![Binding::Buffer(self.qkv), Binding::Buffer(self.tokens)];
        bindings.extend(self.cache.map(|[_, pages]| Binding::Buffer(pages)));
        bindings.push(bind_f32(self.rope)?);
        bindings.extend(q_norm);
        bindings.extend(k_norm);
        bindings.extend(self.cache.map(|[cache, _]| Binding::Buffer(cache)));
        let values = if self.cache.is_some() { kv_heads } else { 0 };
        let grid = [(heads + kv_heads + values).div_ceil(64 / half4), grid_y, grid_z];
        one(dispatch(&kernel::STORE_KV, definitions, &params, bindings, grid))
    }
}

/// Rows of a span that one workgroup of `short_conv` takes.
const CONV_PART: u32 = 64;

pub fn short_conv(l: &Lowering<'_>, o: &ShortConv) -> Result<Vec<Dispatch>> {
    let rows_word = match o.rows {
        ConvRows::Slots { spans: None, .. } => "singles",
        ConvRows::Slots { .. } => "spans",
        ConvRows::Sequences { .. } => "tiles",
    };
    let definitions = define(&[
        ("X", l.word(o.bcx)),
        ("Y", l.word(o.out)),
        ("TAPS", &format!("{}", o.weight.rows())),
        ("BIAS", &flag(o.bias.is_some())),
        ("ROWS", rows_word),
    ]);
    let mut bindings = vec![Binding::Buffer(o.bcx)];
    bindings.extend(
        match o.rows {
            ConvRows::Slots { tokens, spans, .. } => [Some(tokens), spans],
            ConvRows::Sequences { tiles, .. } => [Some(tiles), None],
        }
        .into_iter()
        .flatten()
        .map(Binding::Buffer),
    );
    bindings.push(bind_f32(&o.weight)?);
    if let Some(bias) = &o.bias {
        bindings.push(bind_f32(bias)?);
    }
    // What bounds the workgroups, columns of one / 4, parts of each, and taps ahead.
    let (bounds, quads, parts, ahead) = match o.rows {
        ConvRows::Slots { spans, state, .. } => {
            bindings.push(Binding::Buffer(state));
            match spans {
                Some(spans) => (spans, 8, l.rows(o.out).div_ceil(CONV_PART).max(1), 0),
                None => (o.out, 64, 1, 0),
            }
        }
        ConvRows::Sequences { tiles, ahead } => (tiles, 8, 1, ahead as u32),
    };
    bindings.push(Binding::Buffer(o.out));
    let [grid_y, grid_z, _] = fold(l.rows(bounds) * parts);
    let cols4 = l.cols4(o.out);
    let params = [cols4, l.count(bounds), grid_y, parts, ahead];
    let grid = [cols4.div_ceil(quads), grid_y, grid_z];
    one(dispatch(&kernel::SHORT_CONV, definitions, &params, bindings, grid))
}
