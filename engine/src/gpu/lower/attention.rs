//! Attention: which kernel walks the keys.

use alloc::{format, vec, vec::Vec};

use super::{Binding, Dispatch, Lowering, bind, define, dispatch, flag, one};
use crate::{Error, Result, gpu::kernel, op::Attention};

pub fn attention(l: &Lowering<'_>, o: &Attention) -> Result<Vec<Dispatch>> {
    let tiles = l.rows(o.tiles);
    if tiles > super::MAX_GRID {
        return Err(Error::Unsupported(format!("op attention: {tiles} query tiles in one batch")));
    }
    let d4 = o.head_dim as u32 / 4;
    // Cooperative matrices take whole fragments of f16 operands.
    let coop = l.features.cooperative_matrix
        && l.word(o.qkv) == "f16"
        && matches!(o.head_dim, 32 | 64 | 128)
        && o.window.is_none_or(|w| w < 1 << 31);
    let narrow = o.reach().iter().any(Option::is_some);
    // To the end of the sequence; with another limit, as far as that kernel can add to a row.
    let all = if coop { (1 << 31) - 1 } else { u32::MAX };
    let [before, after] = o.reach().map(|reach| reach.map_or(all, |w| w as u32));
    let coop_definitions = define(&[
        ("Y", l.word(o.out)),
        ("HEAD_DIM", &format!("{}", o.head_dim)),
        ("BIAS", &flag(o.bias.is_some())),
        ("WINDOW", &flag(narrow)),
    ]);
    let definitions = define(&[
        ("X", l.word(o.qkv)),
        ("Y", l.word(o.out)),
        ("D4", &format!("{d4}")),
        ("BIAS", &flag(o.bias.is_some())),
        ("STAGED", &flag(l.features.barriers)),
    ]);
    let (heads, kv_heads) = (o.heads as u32, o.kv_heads as u32);
    let params = [
        heads,
        heads / kv_heads,
        l.cols4(o.qkv),
        heads * d4,
        (heads + kv_heads) * d4,
        before,
        after,
        o.bias.as_ref().map_or(0, |b| b.cols() as u32 / 2),
        o.scale.to_bits(),
    ];
    let mut bindings = vec![Binding::Buffer(o.qkv), Binding::Buffer(o.tiles)];
    if let Some(bias) = &o.bias {
        bindings.push(bind(bias)?);
    }
    bindings.push(Binding::Buffer(o.out));
    if coop {
        let grid = [heads, tiles.max(1), 1];
        return one(dispatch(&kernel::ATTENTION_COOP, coop_definitions, &params, bindings, grid));
    }
    one(dispatch(&kernel::ATTENTION, definitions, &params, bindings, [tiles.max(1), heads, 1]))
}
