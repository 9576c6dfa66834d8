//! One run: what each task of each step computes, given the run's counts.

use core::ops::Range;

use inferencelayer_engine::{program::Counts, tensor::Weight};

use super::{
    attention::{self, Attention, Bias},
    gemm::{
        linear::{F32Product, Int8Product, Linear, Output, input_blocks},
        quantize::{Quantize, row_words},
    },
    isa::Isa,
    rows::{Embed, Norm, NormRef, Normalize, Pool, Rope},
    simd::Kernel,
    step::{AttentionStep, LinearStep, Lowered, NormStep, Place, Step},
    table::{Table, Values},
    weight::{Kept, kept},
};

/// Bytes of left operand that a linear task works on, so that they stay in a core's second-level cache.
const LEFT_BYTES: usize = 512 << 10;
/// Bytes of weights that a linear task works on, likewise (8-bit ones are fewer than counted here).
const RIGHT_BYTES: usize = 768 << 10;
/// Tasks per worker that a step is split into, if it is large enough: what is lost at its end is a fraction.
const TASKS: usize = 16;
/// Rows of a task of a row-wise step, at least.
const FEW_ROWS: usize = 8;
/// Sequences of a pooling task.
const POOLED: usize = 4;

/// Where things are in the arena, in words.
#[derive(Debug, Clone, Copy, Default)]
pub struct Layout {
    /// Quantized activations.
    pub words: usize,
    /// Scale and zero point of quantized rows, two words each.
    pub scales: usize,
    /// Scratch memory of the first worker.
    pub scratch: usize,
    /// Words of scratch memory of one worker.
    pub scratch_len: usize,
}

/// A run of a lowered program.
pub struct Run<'a> {
    pub isa: Isa,
    pub lowered: &'a Lowered,
    pub layout: Layout,
    pub counts: Counts,
    /// The arena, which every place and the layout lie in.
    pub base: *mut u32,
    pub workers: usize,
    /// Whether no two tiles share a query row; otherwise one task has all of a head's.
    pub tiles_apart: bool,
}

// SAFETY: tasks of one step write different parts of the arena, and read none that another one writes; the steps
// follow each other.
unsafe impl Sync for Run<'_> {}

/// A step's rows and panels, cut into tasks.
struct Grid {
    rows: usize,
    row_tasks: usize,
    panels: usize,
    panel_tasks: usize,
}

impl Grid {
    fn tasks(&self) -> usize {
        self.row_tasks * self.panel_tasks
    }

    /// Rows and panels of a task; those that share rows follow each other.
    fn part(&self, task: usize) -> (Range<usize>, Range<usize>) {
        let (row, panel) = (task / self.panel_tasks, task % self.panel_tasks);
        (cut(self.rows, self.row_tasks, row), cut(self.panels, self.panel_tasks, panel))
    }
}

/// Part `at` of `0..n` in `parts` even parts.
fn cut(n: usize, parts: usize, at: usize) -> Range<usize> {
    n * at / parts..n * (at + 1) / parts
}

impl Run<'_> {
    fn count(&self, place: Place) -> usize {
        self.counts[place.count as usize] as usize
    }

    fn floats(&self, place: Place) -> *mut f32 {
        // SAFETY: the place lies in the arena.
        unsafe { self.base.add(place.at).cast() }
    }

    fn integers(&self, place: Place) -> &[u32] {
        // SAFETY: the place lies in the arena, and no step writes integers.
        unsafe { core::slice::from_raw_parts(self.base.add(place.at), self.count(place) * place.cols) }
    }

    fn vector<'w>(&self, weight: &'w Weight) -> &'w [f32] {
        match kept(weight, self.isa) {
            Ok(Kept::Vector(values)) => values,
            // Lowering has checked it.
            _ => unreachable!("weight `{}` is no vector", weight.name()),
        }
    }

    fn table<'w>(&self, weight: &'w Weight) -> &'w Table {
        match kept(weight, self.isa) {
            Ok(Kept::Table(table)) => table,
            _ => unreachable!("weight `{}` is no table", weight.name()),
        }
    }

    fn norm<'w>(&self, norm: &'w NormStep) -> NormRef<'w> {
        let (values, cols) = (self.vector(&norm.weight), norm.weight.cols());
        let bias = (norm.weight.rows() == 2).then(|| &values[cols..2 * cols]);
        NormRef { kind: norm.kind, weight: &values[..cols], bias, eps: norm.eps }
    }

    fn kernel(&self, kernel: impl Kernel) {
        // SAFETY: the backend was made for an instruction set that is available.
        unsafe { self.isa.run(kernel) }
    }

    fn row_tasks(&self, rows: usize, least: usize) -> usize {
        rows.div_ceil(least).min(TASKS * self.workers)
    }

    fn grid(&self, step: &LinearStep) -> Grid {
        let geometry = self.isa.geometry();
        let (rows, panels) = (self.count(step.x), step.out.cols.div_ceil(geometry.panel));
        // Bytes of a row that are used together.
        let used = match kept(&step.weight, self.isa) {
            Ok(Kept::Int8(_)) => 4 / geometry.dot * step.x.cols,
            _ => 4 * step.x.cols / input_blocks(step.x.cols),
        };
        let fitting = (LEFT_BYTES / used).max(geometry.rows) / geometry.rows * geometry.rows;
        let row_tasks = rows.div_ceil(fitting);
        let even = (TASKS * self.workers).div_ceil(row_tasks.max(1));
        let panel_tasks = even.max((panels * geometry.panel * used).div_ceil(RIGHT_BYTES)).min(panels);
        Grid { rows, row_tasks, panels, panel_tasks }
    }

    /// How many tasks a step has.
    pub fn tasks(&self, step: usize) -> usize {
        match &self.lowered.steps[step] {
            Step::Linear(step) => self.grid(step).tasks(),
            Step::Attention(step) if self.tiles_apart => self.count(step.tiles) * step.heads,
            Step::Attention(step) => step.heads,
            Step::Pool { out, .. } => self.row_tasks(self.count(*out), POOLED),
            Step::Embed { out, .. } | Step::Norm { out, .. } | Step::Normalize { out, .. } => {
                self.row_tasks(self.count(*out), FEW_ROWS)
            }
            Step::Quantize { x } | Step::Rope { x, .. } => self.row_tasks(self.count(*x), FEW_ROWS),
        }
    }

    /// Does one task.
    pub fn task(&self, worker: usize, at: usize, task: usize) {
        let tasks = self.tasks(at);
        let rows = |place: Place| cut(self.count(place), tasks, task);
        match &self.lowered.steps[at] {
            Step::Embed { tokens, tables, norm, out } => {
                let mut found = [(self.table(&tables[0].0), 0); 3];
                for (to, (table, field)) in found.iter_mut().zip(tables) {
                    *to = (self.table(table), *field);
                }
                let (norm, rows) = (norm.as_ref().map(|n| self.norm(n)), rows(*out));
                let (tokens, tables) = (self.integers(*tokens), &found[..tables.len()]);
                self.kernel(Embed { tokens, tables, norm, out: self.floats(*out), cols: out.cols, rows });
            }
            Step::Norm { x, norm, out } => {
                let (params, cols, rows) = (self.norm(norm), out.cols, rows(*out));
                self.kernel(Norm { x: self.floats(*x), out: self.floats(*out), cols, params, rows });
            }
            Step::Quantize { x } => {
                // SAFETY: the layout lies in the arena.
                let (words, scales) = unsafe { (self.base.add(self.layout.words), self.scales()) };
                let (inputs, row_words) = (x.cols, row_words(self.isa, x.cols));
                let (rows, x) = (rows(*x), self.floats(*x));
                self.kernel(Quantize { x, ldx: inputs, inputs, rows, words, row_words, scales });
            }
            Step::Linear(step) => self.linear(step, task),
            Step::Rope { x, tokens, table, heads, head_dim } => {
                let Values::F32(table) = &self.table(table).values else {
                    unreachable!("a RoPE table is f32")
                };
                let (tokens, rows, cols) = (self.integers(*tokens), rows(*x), x.cols);
                let (heads, head_dim, x) = (*heads, *head_dim, self.floats(*x));
                self.kernel(Rope { x, cols, tokens, table, heads, head_dim, rows });
            }
            Step::Attention(step) if self.tiles_apart => {
                self.attention(step, worker, task / step.heads, task % step.heads);
            }
            Step::Attention(step) => {
                for tile in 0..self.count(step.tiles) {
                    self.attention(step, worker, tile, task);
                }
            }
            Step::Pool { x, ranges, modes, out } => {
                let (ranges, sequences, cols) = (self.integers(*ranges), rows(*out), x.cols);
                let (x, out) = (self.floats(*x), self.floats(*out));
                self.kernel(Pool { x, cols, ranges, modes, out, sequences });
            }
            Step::Normalize { x, unit, out } => {
                let (rows, cols, out_cols, unit) = (rows(*out), x.cols, out.cols, *unit);
                let (x, out) = (self.floats(*x), self.floats(*out));
                self.kernel(Normalize { x, cols, out, out_cols, unit, rows });
            }
        }
    }

    /// # Safety
    /// The layout must lie in the arena.
    unsafe fn scales(&self) -> *mut (f32, i32) {
        // SAFETY: the caller's promise.
        unsafe { self.base.add(self.layout.scales).cast() }
    }

    fn linear(&self, step: &LinearStep, task: usize) {
        let (rows, panels) = self.grid(step).part(task);
        let output = Output {
            out: self.floats(step.out),
            cols: step.out.cols,
            activation: step.activation,
            residual: step.residual.map_or(core::ptr::null(), |r| self.floats(r).cast_const()),
            gated: step.gated,
        };
        let bias = step.bias.as_ref().map(|b| self.vector(b));
        match kept(&step.weight, self.isa) {
            Ok(Kept::F32(weight)) => {
                let product = F32Product { x: self.floats(step.x), ldx: step.x.cols, weight, bias };
                self.kernel(Linear { product, output, rows, panels });
            }
            Ok(Kept::Int8(weight)) => {
                // SAFETY: the layout lies in the arena.
                let (words, scales) = unsafe { (self.base.add(self.layout.words), self.scales()) };
                let row_words = row_words(self.isa, step.x.cols);
                let product = Int8Product { words, row_words, scales, weight, bias };
                self.kernel(Linear { product, output, rows, panels });
            }
            // Lowering has checked it.
            _ => unreachable!("weight `{}` is no matrix", step.weight.name()),
        }
    }

    fn attention(&self, step: &AttentionStep, worker: usize, tile: usize, head: usize) {
        let tile: [usize; 4] = core::array::from_fn(|i| self.integers(step.tiles)[tile * 4 + i] as usize);
        if tile[0] == tile[1] {
            return;
        }
        let d = step.head_dim;
        let kv_head = head / (step.heads / step.kv_heads);
        let columns = [head, step.heads + kv_head, step.heads + step.kv_heads + kv_head].map(|h| h * d);
        let bias = step.bias.as_ref().map(|weight| {
            let cols = weight.cols();
            Bias { table: &self.vector(weight)[head * cols..][..cols] }
        });
        // SAFETY: each worker has its own scratch memory in the arena; the head's columns lie in the output.
        let (scratch, out) = unsafe {
            let at = self.base.add(self.layout.scratch + worker * self.layout.scratch_len);
            let scratch = core::slice::from_raw_parts_mut(at.cast::<f32>(), attention::scratch_len(d));
            (scratch, self.floats(step.out).add(head * d))
        };
        self.kernel(Attention {
            qkv: self.floats(step.qkv),
            ld: step.qkv.cols,
            columns,
            head_dim: d,
            scale: step.scale,
            window: step.window,
            bias,
            tile,
            out,
            ldo: step.out.cols,
            scratch,
        });
    }
}
