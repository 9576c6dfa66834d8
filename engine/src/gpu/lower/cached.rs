//! Attention by a paged cache: which kernel walks the keys, and in how many parts.

use alloc::{format, vec, vec::Vec};

use super::{
    Binding, Dispatch, Lowering, define, dispatch, flag, fold,
    rows::to_q8,
    stored::{bind_f32, head_norm},
};
use crate::{
    Error, Result,
    gpu::{
        context::Features,
        kernel::{self, Kernel},
    },
    op::{CachedAttention, StoreKv},
    program::{BufferId, Role},
};

/// Contexts up to this are walked by one workgroup for each row and few heads, on adapters without subgroups.
const WHOLE: u32 = 1024;

/// Query heads that one workgroup takes, at most: what their queries and sums need of registers.
const MOST_HEADS: u32 = 4;

/// So many workgroups are enough that those which share a key head had better be one, and read it once.
const ENOUGH_WORKGROUPS: u32 = 64;

/// Scores are kept as powers of two.
const LOG2_E: f32 = core::f32::consts::LOG2_E;

/// Keys of one part. Fixed by context and heads alone, so that a row's result does not depend on its neighbours. Up to
/// 8,192 positions, as many as a workgroup takes at a time: on one streaming multiprocessor after another they would
/// only wait.
fn split_of(context: u32, head_dim: u32, teams: bool) -> u32 {
    let at_a_time = 256 / head_dim.div_ceil(64).next_power_of_two();
    match (context, teams) {
        (0..=WHOLE, false) => WHOLE,
        (0..=8192, true) => at_a_time,
        (0..=8192, false) => 256,
        (0..=32_768, _) => 512,
        _ => 1024,
    }
}

/// Neighbouring teams of eight that a subgroup certainly holds; none if it may be smaller than a team.
fn joined_teams(features: Features) -> Option<&'static str> {
    match features.subgroup_size.0 {
        _ if !features.subgroups => None,
        0..8 => None,
        8..16 => Some("1"),
        16..32 => Some("2"),
        _ => Some("4"),
    }
}

/// `store` comes first if the op before left that to it.
pub fn cached_attention(
    l: &Lowering<'_>,
    o: &CachedAttention,
    store: Option<&StoreKv>,
) -> Result<Vec<Dispatch>> {
    match o.tiles {
        None => rows(l, o, store),
        Some(tiles) => prefill(l, o, tiles),
    }
}

/// Whether the dispatch of attention can do what `store` does before. Rows must be of different slots: a state of tokens
/// has one row of each.
pub fn takes_store(l: &Lowering<'_>, o: &CachedAttention, store: &StoreKv) -> bool {
    let same = (store.qkv, store.tokens, store.cache, store.pages) == (o.q, o.tokens, o.cache, o.pages)
        && (store.heads, store.kv_heads, store.head_dim) == (o.heads, o.kv_heads, o.head_dim);
    let apart = l.rows(o.q) == 1 || l.program.spec(o.tokens).role == Role::State;
    same && apart && o.tiles.is_none() && l.features.barriers && joined_teams(l.features).is_some()
}

/// Query heads of a workgroup, of `group` that share a key head: which has no influence on a result's bits.
fn heads_of_workgroup(group: u32, key_heads: u32) -> u32 {
    let most = (1..=MOST_HEADS).rev().map(|heads| group.div_ceil(group.div_ceil(heads)));
    let mut fitting = most.filter(|heads| key_heads * group.div_ceil(*heads) >= ENOUGH_WORKGROUPS);
    fitting.next().unwrap_or(1)
}

/// Each row by itself.
fn rows(l: &Lowering<'_>, o: &CachedAttention, store: Option<&StoreKv>) -> Result<Vec<Dispatch>> {
    let (heads, kv_heads, d4) = (o.heads as u32, o.kv_heads as u32, o.head_dim as u32 / 4);
    let rows = l.rows(o.q);
    if rows > super::MAX_GRID {
        return Err(Error::Unsupported(format!("op cached_attention: {rows} rows without tiles")));
    }
    let group = heads / kv_heads;
    let joined = joined_teams(l.features);
    let split = split_of(o.context as u32, o.head_dim as u32, joined.is_some() && l.features.barriers);
    let splits = (o.context as u32).div_ceil(split);
    let pieces = o.head_dim.div_ceil(64);
    let part_heads = match joined {
        None => group.div_ceil(group.div_ceil(MOST_HEADS)).max(2),
        Some(_) => heads_of_workgroup(group, kv_heads * splits * rows),
    };
    let parts = group.div_ceil(part_heads);
    // A workgroup must have whole 8-bit blocks.
    let direct = l.word(o.out) != "q8" || (joined.is_some() && o.head_dim.is_multiple_of(32));
    let y = match (splits, direct) {
        (2.., _) => "split",
        (_, true) => l.word(o.out),
        (_, false) => "f32",
    };
    let mut definitions =
        define(&[("X", l.word(o.q)), ("C", l.word(o.cache)), ("Y", y), ("GROUP", &format!("{part_heads}"))]);
    let kernel: &'static Kernel = match joined {
        Some(joined) => {
            let norms = store.map_or((false, false), |s| (s.q_norm.is_some(), s.k_norm.is_some()));
            definitions.extend(define(&[
                ("PIECES", &format!("{pieces}")),
                ("JOIN", joined),
                ("STORE", &flag(store.is_some())),
                ("Q_NORM", &flag(norms.0)),
                ("K_NORM", &flag(norms.1)),
            ]));
            &kernel::ATTENTION_PAGED
        }
        None => &kernel::ATTENTION_PAGED_PLAIN,
    };
    let sums = rows * splits * heads * d4;
    let count = l.count(o.out);
    let mut params = vec![
        heads,
        group,
        parts,
        d4,
        l.cols4(o.q),
        l.cols4(o.cache),
        kv_heads * d4,
        l.program.spec(o.pages).cols as u32,
        split,
        splits,
        sums,
        count,
        (o.scale * LOG2_E).to_bits(),
    ];
    let out = match y {
        // Sums, then a maximum and a total for each head.
        "split" => Binding::Scratch(u64::from(rows * splits * heads) * u64::from(d4 + 1) * 16),
        _ if direct => Binding::Buffer(o.out),
        _ => Binding::Scratch(u64::from(rows * heads * d4) * 16),
    };
    let mut bindings: Vec<Binding> = [o.q, o.tokens, o.pages].map(Binding::Buffer).into();
    if let Some(store) = store {
        let (q, k) = (head_norm(store.q_norm.as_ref())?, head_norm(store.k_norm.as_ref())?);
        params.extend([store.rope.rows() as u32, q.0, k.0]);
        bindings.push(bind_f32(&store.rope)?);
        bindings.extend(q.1.into_iter().chain(k.1));
    }
    bindings.extend([Binding::Buffer(o.cache), out.clone()]);
    let grid = [kv_heads * parts, splits, rows.max(1)];
    let mut all = vec![dispatch(kernel, definitions, &params, bindings, grid)];
    if splits > 1 {
        let [grid_y, grid_z, _] = fold(rows);
        let params = [heads, d4, split, splits, sums, count, grid_y];
        let bindings = vec![Binding::Buffer(o.tokens), out, Binding::Buffer(o.out)];
        let grid = [(heads * d4).div_ceil(8), grid_y, grid_z];
        let definitions = define(&[("Y", l.word(o.out))]);
        all.push(dispatch(&kernel::ATTENTION_COMBINE, definitions, &params, bindings, grid));
    } else if !direct {
        all.push(to_q8(l, out, o.out));
    }
    Ok(all)
}

/// Tiles of rows of one slot.
fn prefill(l: &Lowering<'_>, o: &CachedAttention, tiles: BufferId) -> Result<Vec<Dispatch>> {
    let (heads, kv_heads, d4) = (o.heads as u32, o.kv_heads as u32, o.head_dim as u32 / 4);
    let count = l.rows(tiles);
    if count > super::MAX_GRID {
        return Err(Error::Unsupported(format!("op cached_attention: {count} query tiles in one batch")));
    }
    let direct = l.word(o.out) != "q8";
    let y = if direct { l.word(o.out) } else { "f32" };
    // Cooperative matrices take whole fragments of f16 operands.
    let coop = l.features.cooperative_matrix
        && (l.word(o.q), l.word(o.cache)) == ("f16", "f16")
        && matches!(o.head_dim, 32 | 64 | 128)
        && l.cols4(o.q).is_multiple_of(2);
    // 16 KiB for keys and values together.
    let stage = match d4 {
        0..=16 => "32",
        17..=32 => "16",
        _ => "8",
    };
    let definitions = define(&[
        ("X", l.word(o.q)),
        ("C", l.word(o.cache)),
        ("Y", y),
        ("D4", &format!("{d4}")),
        ("STAGE", stage),
        ("STAGED", &flag(l.features.barriers)),
    ]);
    let params = [
        heads,
        heads / kv_heads,
        l.cols4(o.q),
        l.cols4(o.cache),
        kv_heads * d4,
        l.program.spec(o.pages).cols as u32,
        (o.scale * LOG2_E).to_bits(),
    ];
    let out = match direct {
        true => Binding::Buffer(o.out),
        false => Binding::Scratch(u64::from(l.rows(o.out) * heads * d4) * 16),
    };
    let buffers = [o.q, o.tokens, tiles, o.pages, o.cache];
    let mut bindings: Vec<Binding> = buffers.into_iter().map(Binding::Buffer).collect();
    bindings.push(out.clone());
    let mut all = if coop {
        let definitions = define(&[("Y", y), ("HEAD_DIM", &format!("{}", o.head_dim))]);
        let grid = [heads, count.max(1), 1];
        vec![dispatch(&kernel::ATTENTION_PREFILL_COOP, definitions, &params, bindings, grid)]
    } else {
        let grid = [count.max(1), heads, 1];
        vec![dispatch(&kernel::ATTENTION_PREFILL, definitions, &params, bindings, grid)]
    };
    if !direct {
        all.push(to_q8(l, out, o.out));
    }
    Ok(all)
}
