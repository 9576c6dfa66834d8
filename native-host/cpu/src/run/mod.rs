//! One run: what each task of each step computes, given the run's counts.

use core::ops::Range;

use inferencelayer_engine::{
    program::Counts,
    quant::q8,
    tensor::{DType, Weight},
};

use super::{
    attention::{self, Attention, Bias},
    blocks::{q8::ToQ8, tile::Factor},
    gemm::{
        linear::{BlocksProduct, F32Product, Int8Product, Linear, Output, Product, input_blocks},
        quantize::{Quantize, row_words},
    },
    isa::Isa,
    rows::{Embed, Lookup, Norm, NormRef, Normalize, Pool, Rope, Source, Target},
    simd::Kernel,
    state::Words,
    step::{AttentionStep, Home, LinearStep, Lowered, NormStep, Place, Step},
    table::{Table, Values},
    weight::{Kept, kept},
};

mod decoder;
mod sample;

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
    /// What a step leaves to the next one.
    pub staged: usize,
}

/// A run of a lowered program.
pub struct Run<'a> {
    pub isa: Isa,
    pub lowered: &'a Lowered,
    pub layout: Layout,
    pub counts: Counts,
    /// The arena, which every place and the layout lie in.
    pub base: *mut u32,
    pub states: &'a [Words],
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

    fn words(&self, place: Place) -> *mut u32 {
        // SAFETY: the place lies in the arena, the staged region in it too, or begins a state.
        unsafe {
            match place.home {
                Home::Arena => self.base.add(place.at),
                Home::Staged => self.base.add(self.layout.staged + place.at),
                Home::State(at) => self.states[at].0.add(place.at),
            }
        }
    }

    fn floats(&self, place: Place) -> *mut f32 {
        self.words(place).cast()
    }

    /// The real rows of an input, all of a state's.
    fn integers(&self, place: Place) -> &[u32] {
        let rows = if matches!(place.home, Home::State(_)) { place.rows } else { self.count(place) };
        // SAFETY: the place has so many rows, and no step writes what is read as integers by it.
        unsafe { core::slice::from_raw_parts(self.words(place), rows * place.cols) }
    }

    /// The `tokens` of as many rows as `like` has.
    fn tokens(&self, tokens: Place, like: Place) -> &[u32] {
        &self.integers(tokens)[..self.count(like) * 4]
    }

    /// A worker's own memory.
    fn scratch(&self, worker: usize) -> *mut f32 {
        // SAFETY: the layout lies in the arena, with scratch memory for every worker.
        unsafe { self.base.add(self.layout.scratch + worker * self.layout.scratch_len).cast() }
    }

    fn target(&self, place: Place, scratch: *mut f32) -> Target {
        match place.dtype {
            DType::Q8 => Target::Q8(self.words(place), scratch),
            _ => Target::F32(self.floats(place)),
        }
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

    fn lookup<'w>(&self, weight: &'w Weight) -> Lookup<'w> {
        match kept(weight, self.isa) {
            Ok(Kept::Table(table)) => Lookup::Table(table),
            Ok(Kept::F32(matrix)) => Lookup::F32(matrix),
            Ok(Kept::Blocks(matrix)) => Lookup::Blocks(matrix),
            _ => unreachable!("weight `{}` has no rows to look up", weight.name()),
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
            Ok(Kept::Blocks(_)) => step.x.dtype.row_bytes(step.x.cols),
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
            Step::Quantize { x } | Step::ToQ8 { x, .. } | Step::Dots { x, .. } => {
                self.row_tasks(self.count(*x), FEW_ROWS)
            }
            Step::Rope(step) => self.row_tasks(self.count(step.x), FEW_ROWS),
            Step::Choose(step) => self.row_tasks(self.count(step.out), FEW_ROWS),
            Step::StoreKv(step) => self.store_tasks(step),
            Step::Cached(step) => self.cached_tasks(step),
            Step::ShortConv(step) => self.conv_tasks(step),
            Step::Experts(step) => self.expert_tasks(step).tasks(),
            Step::Scan(step) => self.count(step.logits) * step.parts(),
            Step::Pick(step) => step.choices.min(self.count(step.logits)),
            Step::Commit(_) => 1,
        }
    }

    /// Does one task.
    pub fn task(&self, worker: usize, at: usize, task: usize) {
        let tasks = self.tasks(at);
        let rows = |place: Place| cut(self.count(place), tasks, task);
        match &self.lowered.steps[at] {
            Step::Embed { tokens, tables, norm, out } => {
                let mut found = [(self.lookup(&tables[0].0), 0); 3];
                for (to, (table, field)) in found.iter_mut().zip(tables) {
                    *to = (self.lookup(table), *field);
                }
                let (norm, rows) = (norm.as_ref().map(|n| self.norm(n)), rows(*out));
                let (tokens, tables) = (self.integers(*tokens), &found[..tables.len()]);
                self.kernel(Embed { tokens, tables, norm, out: self.floats(*out), cols: out.cols, rows });
            }
            Step::Norm { x, norm, out } => {
                let (params, cols, rows) = (self.norm(norm), out.cols, rows(*out));
                let out = self.target(*out, self.scratch(worker));
                self.kernel(Norm { x: self.floats(*x), out, cols, params, rows });
            }
            Step::Quantize { x } => {
                // SAFETY: the layout lies in the arena.
                let (words, scales) = unsafe { (self.base.add(self.layout.words), self.scales()) };
                let (inputs, row_words) = (x.cols, row_words(self.isa, x.cols));
                let (rows, x) = (rows(*x), self.floats(*x));
                self.kernel(Quantize { x, ldx: inputs, inputs, rows, words, row_words, scales });
            }
            Step::ToQ8 { x, out } => {
                let (rows, cols) = (rows(*x), x.cols);
                self.kernel(ToQ8 { x: self.floats(*x), cols, rows, out: self.words(*out) });
            }
            Step::Linear(step) => self.linear(step, task),
            Step::StoreKv(step) => self.store_kv(step, tasks, task),
            Step::Cached(step) => self.cached(step, worker, task),
            Step::ShortConv(step) => self.short_conv(step, tasks, task),
            Step::Dots { x, weight, out } => self.dots(*x, weight, *out, rows(*x)),
            Step::Choose(step) => self.choose(step, rows(step.out)),
            Step::Experts(step) => self.experts(step, task),
            Step::Scan(step) => self.scan(step, task),
            Step::Pick(step) => self.pick(step, tasks, task),
            Step::Commit(step) => self.commit(step),
            Step::Rope(step) => {
                let Values::F32(table) = &self.table(&step.table).values else {
                    unreachable!("a RoPE table is f32")
                };
                self.kernel(Rope {
                    x: self.floats(step.x),
                    cols: step.x.cols,
                    tokens: self.integers(step.tokens),
                    q_norm: step.q_norm.as_ref().map(|n| self.norm(n)),
                    k_norm: step.k_norm.as_ref().map(|n| self.norm(n)),
                    table,
                    heads: step.heads,
                    kv_heads: step.kv_heads,
                    head_dim: step.head_dim,
                    rows: rows(step.x),
                });
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
                let scratch = self.scratch(worker);
                let source = match x.dtype {
                    DType::Q8 => Source::Q8(self.words(*x), scratch),
                    _ => Source::F32(self.floats(*x)),
                };
                // SAFETY: a worker has room for two rows.
                let (x, out) = (source, self.target(*out, unsafe { scratch.add(cols) }));
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
        let product = self.product(step.x, 0, &step.weight, bias);
        self.kernel(Linear { product, output, rows, panels });
    }

    /// The product with the part of `x` that begins at a column; the last step has made 8-bit activations where the
    /// weight takes such.
    fn product<'w>(
        &'w self,
        x: Place,
        first: usize,
        weight: &'w Weight,
        bias: Option<&'w [f32]>,
    ) -> Product<'w> {
        // SAFETY: the layout and the place have room for the rows, of which the part is one.
        unsafe {
            match kept(weight, self.isa) {
                Ok(Kept::F32(weight)) => {
                    Product::F32(F32Product { x: self.floats(x).add(first), ldx: x.cols, weight, bias })
                }
                Ok(Kept::Int8(weight)) => {
                    let (words, row_words) = (self.base.add(self.layout.words), row_words(self.isa, x.cols));
                    let (words, scales) = (words.add(first / self.isa.geometry().dot), self.scales());
                    Product::Int8(Int8Product { words, row_words, scales, weight, bias })
                }
                Ok(Kept::Blocks(weight)) => {
                    let factor = match x.dtype {
                        DType::Q8 => {
                            let words = self.words(x).cast_const();
                            let sides = words.add(x.cols / 4 + first / q8::BLOCK * 2);
                            Factor::Q8(words.add(first / 4), sides, q8::row_words(x.cols))
                        }
                        _ => Factor::F32(self.floats(x).add(first).cast_const(), x.cols),
                    };
                    Product::Blocks(BlocksProduct { x: factor, weight, bias })
                }
                // Lowering has checked it.
                _ => unreachable!("weight `{}` is no matrix", weight.name()),
            }
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
            let scratch = core::slice::from_raw_parts_mut(self.scratch(worker), attention::scratch_len(d));
            (scratch, self.floats(step.out).add(head * d))
        };
        self.kernel(Attention {
            qkv: self.floats(step.qkv),
            ld: step.qkv.cols,
            columns,
            head_dim: d,
            scale: step.scale,
            reach: step.reach,
            bias,
            tile,
            out,
            ldo: step.out.cols,
            scratch,
        });
    }
}
