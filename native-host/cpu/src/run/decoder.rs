//! Tasks of the decoders' steps but sampling.

use core::ops::Range;

use inferencelayer_engine::tensor::{DType, Weight};

use super::{FEW_ROWS, Grid, Run, TASKS, cut};
use crate::{
    cached::{self, Cache, CachedRow, CachedTile, Heads},
    experts::{Choose, Dots, Experts, Then},
    step::{CachedStep, ChooseStep, ConvPlaces, ConvStep, ExpertKind, ExpertStep, Place, StoreStep},
    stored::{CacheMut, ConvRows, ShortConv, StoreKv},
    table::Values,
};

/// Columns of a task of a convolution, at least.
const FEW_COLUMNS: usize = 64;
/// Outputs of a task of experts, at least.
const FEW_OUTPUTS: usize = 64;

impl Run<'_> {
    /// By heads, which never share memory, whatever the rows are.
    pub(super) fn store_tasks(&self, step: &StoreStep) -> usize {
        let heads = step.heads + 2 * step.kv_heads;
        if self.count(step.qkv) < FEW_ROWS { 1 } else { heads.min(TASKS * self.workers) }
    }

    pub(super) fn store_kv(&self, step: &StoreStep, tasks: usize, task: usize) {
        let Values::F32(angles) = &self.table(&step.rope).values else { unreachable!("a RoPE table is f32") };
        self.kernel(StoreKv {
            qkv: self.floats(step.qkv),
            tokens: self.tokens(step.tokens, step.qkv),
            q_norm: step.q_norm.as_ref().map(|n| self.norm(n)),
            k_norm: step.k_norm.as_ref().map(|n| self.norm(n)),
            angles,
            cache: CacheMut {
                at: self.words(step.cache),
                half: step.cache.dtype == DType::F16,
                cols: step.cache.cols,
            },
            pages: self.integers(step.pages),
            per_slot: step.pages.cols,
            heads: step.heads,
            kv_heads: step.kv_heads,
            head_dim: step.head_dim,
            range: cut(step.heads + 2 * step.kv_heads, tasks, task),
        });
    }

    /// Rows by key heads, or tiles by heads.
    pub(super) fn cached_tasks(&self, step: &CachedStep) -> usize {
        match step.tiles {
            None => self.count(step.q) * step.kv_heads,
            Some(tiles) if self.tiles_apart => self.count(tiles) * step.heads,
            Some(_) => step.heads,
        }
    }

    pub(super) fn cached(&self, step: &CachedStep, worker: usize, task: usize) {
        match step.tiles {
            None => self.cached_row(step, worker, task / step.kv_heads, task % step.kv_heads),
            Some(_) if self.tiles_apart => {
                self.cached_tile(step, worker, task / step.heads, task % step.heads)
            }
            Some(tiles) => {
                for tile in 0..self.count(tiles) {
                    self.cached_tile(step, worker, tile, task);
                }
            }
        }
    }

    fn heads(&self, step: &CachedStep, slot: usize, kv_head: usize) -> Heads<'_> {
        let d = step.head_dim;
        Heads {
            cache: Cache {
                at: self.words(step.cache),
                half: step.cache.dtype == DType::F16,
                cols: step.cache.cols,
            },
            pages: &self.integers(step.pages)[slot * step.pages.cols..][..step.pages.cols],
            columns: [kv_head * d, (step.kv_heads + kv_head) * d],
            head_dim: d,
            scale: step.scale,
        }
    }

    fn cached_row(&self, step: &CachedStep, worker: usize, row: usize, kv_head: usize) {
        let token = &self.integers(step.tokens)[row * 4..][..4];
        let (d, queries) = (step.head_dim, step.heads / step.kv_heads);
        let first = kv_head * queries * d;
        // SAFETY: the row is one of the buffers'; each worker has its own scratch memory, of at least this size.
        let (q, out, scratch) = unsafe {
            let q = self.floats(step.q).add(row * step.q.cols + first);
            let scratch = core::slice::from_raw_parts_mut(self.scratch(worker), cached::scratch_len(d));
            (q, self.floats(step.out).add(row * step.out.cols + first), scratch)
        };
        self.kernel(CachedRow {
            heads: self.heads(step, token[3] as usize, kv_head),
            q,
            queries,
            position: token[1] as usize,
            out,
            scratch,
        });
    }

    fn cached_tile(&self, step: &CachedStep, worker: usize, tile: usize, head: usize) {
        let Some(tiles) = step.tiles else { return };
        let tile = &self.integers(tiles)[tile * 4..][..2];
        let (first, last) = (tile[0] as usize, tile[1] as usize);
        let tokens = &self.integers(step.tokens)[first * 4..last * 4];
        let Some(furthest) = tokens.as_chunks::<4>().0.iter().map(|t| t[1] as usize).max() else { return };
        let (d, kv_head) = (step.head_dim, head / (step.heads / step.kv_heads));
        // SAFETY: the rows are the buffers'; each worker has its own scratch memory, of at least this size.
        let (q, out, scratch) = unsafe {
            let q = self.floats(step.q).add(first * step.q.cols + head * d);
            let scratch = core::slice::from_raw_parts_mut(self.scratch(worker), cached::scratch_len(d));
            (q, self.floats(step.out).add(first * step.out.cols + head * d), scratch)
        };
        self.kernel(CachedTile {
            heads: self.heads(step, tokens[3] as usize, kv_head),
            q,
            ldq: step.q.cols,
            tokens,
            furthest,
            out,
            ldo: step.out.cols,
            scratch,
        });
    }

    /// By columns, which never share memory, whatever the spans are.
    pub(super) fn conv_tasks(&self, step: &ConvStep) -> usize {
        step.out.cols.div_ceil(FEW_COLUMNS).min(TASKS * self.workers)
    }

    pub(super) fn short_conv(&self, step: &ConvStep, tasks: usize, task: usize) {
        let columns = cut(step.out.cols / 4, tasks, task);
        self.kernel(ShortConv {
            bcx: self.floats(step.bcx),
            rows: match step.rows {
                ConvPlaces::Slots { tokens, spans, state } => ConvRows::Slots {
                    tokens: self.tokens(tokens, step.bcx),
                    spans: spans.map(|spans| self.integers(spans)),
                    state: self.floats(state),
                },
                ConvPlaces::Sequences { tiles, ahead } => {
                    ConvRows::Sequences { tiles: self.integers(tiles), ahead }
                }
            },
            weight: self.vector(&step.weight),
            taps: step.weight.rows(),
            bias: step.bias.as_ref().map(|b| self.vector(b)),
            out: self.floats(step.out),
            cols: step.out.cols,
            range: columns.start * 4..columns.end * 4,
        });
    }

    pub(super) fn dots(&self, x: Place, weight: &Weight, out: Place, rows: Range<usize>) {
        let (cols, outputs) = (x.cols, out.cols);
        let (x, weight, out) = (self.floats(x), self.vector(weight), self.floats(out));
        self.kernel(Dots { x, cols, weight, out, outputs, rows });
    }

    pub(super) fn choose(&self, step: &ChooseStep, rows: Range<usize>) {
        self.kernel(Choose {
            logits: self.floats(step.logits),
            experts: step.logits.cols,
            bias: step.bias.as_ref().map(|b| self.vector(b)),
            scoring: step.scoring,
            used: step.used,
            normalize: step.normalize,
            scale: step.scale,
            out: self.floats(step.out),
            cols: step.out.cols,
            rows,
        });
    }

    /// Rows, and parts of an expert's outputs.
    pub(super) fn expert_tasks(&self, step: &ExpertStep) -> Grid {
        let rows = self.count(step.out);
        let row_tasks = rows.min(TASKS * self.workers);
        let even = (TASKS * self.workers).div_ceil(row_tasks.max(1));
        let panel_tasks = even.min(step.width.div_ceil(FEW_OUTPUTS)).max(1);
        Grid { rows, row_tasks, panels: step.width / 4, panel_tasks }
    }

    pub(super) fn experts(&self, step: &ExpertStep, task: usize) {
        let (rows, fours) = self.expert_tasks(step).part(task);
        let per_expert = match step.kind {
            ExpertKind::Gated(_) => 2 * step.width,
            ExpertKind::Sum(_) => step.width,
        };
        let inputs = step.weight.cols();
        let (then, stride) = match step.kind {
            ExpertKind::Gated(activation) => (Then::Gated(activation), 0),
            ExpertKind::Sum(residual) => {
                (Then::Sum(residual.map_or(core::ptr::null(), |r| self.floats(r).cast_const())), inputs)
            }
        };
        // SAFETY: the place has so many rows, and this step does not write it.
        let routes = unsafe {
            core::slice::from_raw_parts(self.floats(step.routes), self.count(step.routes) * step.routes.cols)
        };
        self.kernel(Experts {
            product: |i| self.product(step.x, i * stride, &step.weight, None),
            routes,
            routes_cols: step.routes.cols,
            used: step.used,
            experts: step.weight.rows() / per_expert,
            width: step.width,
            then,
            out: self.floats(step.out),
            cols: step.out.cols,
            rows,
            range: fours.start * 4..fours.end * 4,
        });
    }
}
