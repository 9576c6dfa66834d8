//! Ops that write what later runs read: store_kv, short_conv.

use alloc::{format, vec, vec::Vec};

use super::{Binding, Dispatch, Lowering, bind, define, dispatch, flag, fold, one};
use crate::{
    Error, Result,
    gpu::kernel,
    op::{NormKind, NormParams, ShortConv, StoreKv},
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
        Some(_) => Err(Error::Unsupported("op store_kv: heads are normalised by RMS norms only".into())),
    }
}

pub fn store_kv(l: &Lowering<'_>, o: &StoreKv) -> Result<Vec<Dispatch>> {
    let half4 = o.head_dim as u32 / 8;
    let (heads, kv_heads) = (o.heads as u32, o.kv_heads as u32);
    let [grid_y, grid_z, _] = fold(l.rows(o.qkv));
    let ((q_eps, q_norm), (k_eps, k_norm)) = (head_norm(o.q_norm.as_ref())?, head_norm(o.k_norm.as_ref())?);
    let definitions = define(&[
        ("X", l.word(o.qkv)),
        ("C", l.word(o.cache)),
        ("Q_NORM", &flag(q_norm.is_some())),
        ("K_NORM", &flag(k_norm.is_some())),
        ("HALF4", &format!("{half4}")),
    ]);
    let params = [
        heads,
        kv_heads,
        l.cols4(o.qkv),
        l.cols4(o.cache),
        l.program.spec(o.pages).cols as u32,
        o.rope.rows() as u32,
        q_eps,
        k_eps,
        l.count(o.qkv),
        grid_y,
    ];
    let mut bindings = vec![Binding::Buffer(o.qkv), Binding::Buffer(o.tokens), Binding::Buffer(o.pages)];
    bindings.push(bind_f32(&o.rope)?);
    bindings.extend(q_norm);
    bindings.extend(k_norm);
    bindings.push(Binding::Buffer(o.cache));
    let grid = [(heads + 2 * kv_heads).div_ceil(64 / half4), grid_y, grid_z];
    one(dispatch(&kernel::STORE_KV, definitions, &params, bindings, grid))
}

/// Rows of a span that one workgroup of `short_conv` takes.
const CONV_PART: u32 = 64;

pub fn short_conv(l: &Lowering<'_>, o: &ShortConv) -> Result<Vec<Dispatch>> {
    let definitions = define(&[
        ("X", l.word(o.bcx)),
        ("Y", l.word(o.out)),
        ("TAPS", &format!("{}", o.weight.rows())),
        ("BIAS", &flag(o.bias.is_some())),
        ("SPANS", &flag(o.spans.is_some())),
    ]);
    let mut bindings = vec![Binding::Buffer(o.bcx), Binding::Buffer(o.tokens)];
    bindings.extend(o.spans.map(Binding::Buffer));
    bindings.push(bind_f32(&o.weight)?);
    if let Some(bias) = &o.bias {
        bindings.push(bind_f32(bias)?);
    }
    bindings.extend([Binding::Buffer(o.state), Binding::Buffer(o.out)]);
    let (bounds, quads, parts) = match o.spans {
        Some(spans) => (spans, 8, l.rows(o.out).div_ceil(CONV_PART).max(1)),
        None => (o.out, 64, 1),
    };
    let [grid_y, grid_z, _] = fold(l.rows(bounds) * parts);
    let cols4 = l.cols4(o.out);
    let params = [cols4, l.count(bounds), grid_y, parts];
    let grid = [cols4.div_ceil(quads), grid_y, grid_z];
    one(dispatch(&kernel::SHORT_CONV, definitions, &params, bindings, grid))
}
