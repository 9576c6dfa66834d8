//! Lowering: an op becomes a step or several.

use std::sync::Arc;

use inferencelayer_engine::{
    Error, Result,
    op::{
        Activation, CachedAttention, ConvRows, ExpertGatedLinear, ExpertLinear, NormParams, Op, Route,
        Sample, ShortConv, StoreKv,
    },
    program::{BufferId, BufferSpec, Program, Role},
    tensor::{DType, Weight},
};

use super::{
    attention, cached,
    check::Check,
    gemm::quantize::row_words,
    isa::Isa,
    plan::LINE,
    sample,
    step::{
        AttentionStep, CachedStep, ChooseStep, ConvPlaces, ConvStep, ExpertKind, ExpertStep, Home,
        LinearStep, Lowered, NormStep, Place, RopeStep, SampleStep, Step, StoreStep,
    },
    table::{Table, Values},
    weight::{Kept, kept},
};

/// Lowers a program whose buffers are at `places`.
///
/// # Errors
/// `Unsupported` for buffers that are not kept in f32 and for weights of another backend.
pub fn lower(program: &Program, places: &[Place], isa: Isa, workers: usize) -> Result<Lowered> {
    let wrong = |b: &&BufferSpec| b.dtype == DType::F16 && b.role != Role::State;
    if let Some(spec) = program.buffers.iter().find(wrong) {
        return Err(Error::Unsupported(format!(
            "buffer `{}` is {:?}; the CPU backend computes in f32, so record with its capabilities' activations",
            spec.name, spec.dtype
        )));
    }
    let mut lowering =
        Lowering { program, places, isa, workers, written: Vec::new(), lowered: Lowered::default() };
    for op in &program.ops {
        lowering.op(op)?;
    }
    Ok(lowering.lowered)
}

struct Lowering<'a> {
    program: &'a Program,
    places: &'a [Place],
    isa: Isa,
    workers: usize,
    /// States of integers that an op before writes.
    written: Vec<BufferId>,
    lowered: Lowered,
}

impl Lowering<'_> {
    fn place(&self, id: BufferId) -> Place {
        self.places[id.index()]
    }

    fn spec(&self, id: BufferId) -> &BufferSpec {
        self.program.spec(id)
    }

    fn wrong(weight: &Weight, needed: &str) -> Error {
        Error::Unsupported(format!(
            "weight `{}` was uploaded as a {:?} of {:?} values, but the op needs a {needed}",
            weight.name(),
            weight.usage(),
            weight.format()
        ))
    }

    fn vector<'w>(&self, weight: &'w Weight) -> Result<&'w [f32]> {
        match kept(weight, self.isa)? {
            Kept::Vector(values) => Ok(values),
            _ => Err(Self::wrong(weight, "vector")),
        }
    }

    fn norm(&self, params: &NormParams) -> Result<NormStep> {
        self.vector(&params.weight)?;
        Ok(NormStep { kind: params.kind, weight: params.weight.clone(), eps: params.eps })
    }

    fn op(&mut self, op: &Op) -> Result<()> {
        let step = match op {
            Op::Embed(o) => {
                let mut tables = Vec::new();
                let tokens = self.index(o.tokens)?;
                for (table, field) in &o.tables {
                    if !matches!(kept(table, self.isa)?, Kept::Table(_) | Kept::F32(_) | Kept::Blocks(_)) {
                        return Err(Self::wrong(table, "table"));
                    }
                    let field = *field as usize;
                    self.entries(tokens, field, table, self.place(o.out));
                    tables.push((table.clone(), field));
                }
                let norm = o.norm.as_ref().map(|n| self.norm(n)).transpose()?;
                Step::Embed { tokens, tables, norm, out: self.place(o.out) }
            }
            Op::Norm(o) => {
                self.scratch(self.spec(o.out).cols);
                Step::Norm { x: self.place(o.x), norm: self.norm(&o.params)?, out: self.place(o.out) }
            }
            Op::Linear(o) => {
                let residual = o.residual.map(|id| self.place(id));
                let out = self.place(o.out);
                self.linear(o.x, &o.weight, o.bias.as_ref(), o.activation, residual, false, out)?
            }
            Op::GatedLinear(o) => {
                let out = self.staged_for(o.out);
                let step = self.linear(o.x, &o.weight, o.bias.as_ref(), o.activation, None, true, out)?;
                return self.then_round(step, out, o.out);
            }
            Op::Rope(o) => {
                if !matches!(kept(&o.table, self.isa)?, Kept::Table(Table { values: Values::F32(_), .. })) {
                    return Err(Self::wrong(&o.table, "table of f32 values"));
                }
                let (x, tokens, table) = (self.place(o.x), self.index(o.tokens)?, o.table.clone());
                self.entries(tokens, 1, &table, x);
                Step::Rope(RopeStep {
                    x,
                    tokens,
                    q_norm: o.q_norm.as_ref().map(|n| self.norm(n)).transpose()?,
                    k_norm: o.k_norm.as_ref().map(|n| self.norm(n)).transpose()?,
                    table,
                    heads: o.heads,
                    kv_heads: o.kv_heads,
                    head_dim: o.head_dim,
                })
            }
            Op::Attention(o) => {
                if let Some(bias) = &o.bias {
                    self.vector(bias)?;
                }
                let (qkv, tiles) = (self.place(o.qkv), self.index(o.tiles)?);
                self.check(Check::Tiles { tiles, qkv });
                self.scratch(attention::scratch_len(o.head_dim));
                Step::Attention(AttentionStep {
                    qkv,
                    tiles,
                    heads: o.heads,
                    kv_heads: o.kv_heads,
                    head_dim: o.head_dim,
                    scale: o.scale,
                    reach: o.reach(),
                    bias: o.bias.clone(),
                    out: self.place(o.out),
                })
            }
            Op::Pool(o) => {
                let (x, ranges) = (self.place(o.x), self.index(o.ranges)?);
                self.check(Check::Ranges { ranges, x });
                Step::Pool { x, ranges, modes: o.modes.clone(), out: self.place(o.out) }
            }
            Op::Normalize(o) => {
                self.scratch(2 * self.spec(o.x).cols);
                Step::Normalize { x: self.place(o.x), unit: o.unit, out: self.place(o.out) }
            }
            Op::StoreKv(o) => self.store_kv(o)?,
            Op::CachedAttention(o) => return self.cached_attention(o),
            Op::ShortConv(o) => return self.short_conv(o),
            Op::Route(o) => self.route(o)?,
            Op::ExpertGatedLinear(o) => return self.expert_gated_linear(o),
            Op::ExpertLinear(o) => self.expert_linear(o)?,
            Op::Sample(o) => return self.sample(o),
        };
        self.lowered.steps.push(step);
        Ok(())
    }

    /// A buffer of integers that are checked before a run: what no op has written before.
    fn index(&self, id: BufferId) -> Result<Place> {
        let spec = self.spec(id);
        if !matches!(spec.role, Role::Input | Role::State) || self.written.contains(&id) {
            return Err(Error::Unsupported(format!(
                "buffer `{}`: indices must be an input, or a state that no op before has written",
                spec.name
            )));
        }
        Ok(self.place(id))
    }

    fn check(&mut self, check: Check) {
        // Layers check the same.
        if !self.lowered.checks.contains(&check) {
            self.lowered.checks.push(check);
        }
    }

    fn entries(&mut self, tokens: Place, field: usize, table: &Weight, like: Place) {
        let (rows, name) = (table.rows(), table.name().to_owned());
        self.check(Check::Entry { tokens, field, rows, name, like });
    }

    fn scratch(&mut self, words: usize) {
        self.lowered.scratch = self.lowered.scratch.max(words);
    }

    /// A place for f32 rows that the next step reads.
    fn staged(&mut self, rows: usize, cols: usize, like: BufferId) -> Place {
        self.lowered.staged = self.lowered.staged.max(rows * cols);
        Place { home: Home::Staged, at: 0, rows, cols, count: self.spec(like).count, dtype: DType::F32 }
    }

    /// Where an op writes f32 whose result is `out`.
    fn staged_for(&mut self, out: BufferId) -> Place {
        let place = self.place(out);
        if place.dtype == DType::Q8 { self.staged(place.rows, place.cols, out) } else { place }
    }

    /// Adds a step that writes `staged`, and the rounding of that to `out` if they are not the same.
    fn then_round(&mut self, step: Step, staged: Place, out: BufferId) -> Result<()> {
        self.lowered.steps.push(step);
        let out = self.place(out);
        if staged != out {
            self.lowered.steps.push(Step::ToQ8 { x: staged, out });
        }
        Ok(())
    }

    /// Makes ready the activations of a product of `inputs` at a time, of which a row of `x` has several.
    fn factor(&mut self, x: Place, weight: &Weight) -> Result<()> {
        match kept(weight, self.isa)? {
            Kept::F32(_) | Kept::Blocks(_) => {}
            Kept::Int8(_) => {
                let words = x.rows * row_words(self.isa, x.cols);
                self.lowered.words = self.lowered.words.max(words);
                self.lowered.quantized_rows = self.lowered.quantized_rows.max(x.rows);
                self.lowered.steps.push(Step::Quantize { x });
            }
            _ => return Err(Self::wrong(weight, "matrix")),
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the operands of two ops")]
    fn linear(
        &mut self,
        x: BufferId,
        weight: &Weight,
        bias: Option<&Weight>,
        activation: Activation,
        residual: Option<Place>,
        gated: bool,
        out: Place,
    ) -> Result<Step> {
        let x = self.place(x);
        self.factor(x, weight)?;
        if let Some(bias) = bias {
            self.vector(bias)?;
        }
        let (weight, bias) = (weight.clone(), bias.cloned());
        Ok(Step::Linear(LinearStep { x, weight, bias, activation, residual, gated, out }))
    }

    fn store_kv(&mut self, o: &StoreKv) -> Result<Step> {
        if !matches!(kept(&o.rope, self.isa)?, Kept::Table(Table { values: Values::F32(_), .. })) {
            return Err(Self::wrong(&o.rope, "table of f32 values"));
        }
        let q_norm = o.q_norm.as_ref().map(|n| self.norm(n)).transpose()?;
        let k_norm = o.k_norm.as_ref().map(|n| self.norm(n)).transpose()?;
        let (qkv, tokens, pages) = (self.place(o.qkv), self.index(o.tokens)?, self.index(o.pages)?);
        let cache = self.place(o.cache);
        self.entries(tokens, 1, &o.rope, qkv);
        self.check(Check::Pages { tokens, pages, cache_rows: cache.rows, like: qkv });
        let (heads, kv_heads, head_dim) = (o.heads, o.kv_heads, o.head_dim);
        let rope = o.rope.clone();
        Ok(Step::StoreKv(StoreStep {
            qkv,
            tokens,
            q_norm,
            k_norm,
            rope,
            cache,
            pages,
            heads,
            kv_heads,
            head_dim,
        }))
    }

    fn cached_attention(&mut self, o: &CachedAttention) -> Result<()> {
        let (q, tokens, pages) = (self.place(o.q), self.index(o.tokens)?, self.index(o.pages)?);
        let (cache, tiles) = (self.place(o.cache), o.tiles.map(|t| self.index(t)).transpose()?);
        self.check(Check::Pages { tokens, pages, cache_rows: cache.rows, like: q });
        if let Some(tiles) = tiles {
            self.check(Check::QueryTiles { tiles, tokens, like: q });
        }
        self.scratch(cached::scratch_len(o.head_dim));
        let out = self.staged_for(o.out);
        let step = CachedStep {
            q,
            tokens,
            tiles,
            cache,
            pages,
            heads: o.heads,
            kv_heads: o.kv_heads,
            head_dim: o.head_dim,
            scale: o.scale,
            out,
        };
        self.then_round(Step::Cached(step), out, o.out)
    }

    fn short_conv(&mut self, o: &ShortConv) -> Result<()> {
        self.vector(&o.weight)?;
        if let Some(bias) = &o.bias {
            self.vector(bias)?;
        }
        let bcx = self.place(o.bcx);
        let rows = match o.rows {
            ConvRows::Slots { tokens, spans, state } => {
                let (tokens, state) = (self.index(tokens)?, self.place(state));
                let spans = spans.map(|s| self.index(s)).transpose()?;
                let slots = state.rows / (o.weight.rows() - 1);
                self.check(Check::Spans { tokens, spans, slots, like: bcx });
                ConvPlaces::Slots { tokens, spans, state }
            }
            ConvRows::Sequences { tiles, ahead } => {
                let tiles = self.index(tiles)?;
                self.check(Check::Tiles { tiles, qkv: bcx });
                ConvPlaces::Sequences { tiles, ahead }
            }
        };
        let out = self.staged_for(o.out);
        let (weight, bias) = (o.weight.clone(), o.bias.clone());
        let step = ConvStep { bcx, rows, weight, bias, out };
        self.then_round(Step::ShortConv(step), out, o.out)
    }

    fn route(&mut self, o: &Route) -> Result<Step> {
        let x = self.place(o.x);
        let logits = self.staged(x.rows, o.weight.rows(), o.x);
        let step = match kept(&o.weight, self.isa)? {
            Kept::Vector(_) => Step::Dots { x, weight: o.weight.clone(), out: logits },
            _ => self.linear(o.x, &o.weight, None, Activation::None, None, false, logits)?,
        };
        self.lowered.steps.push(step);
        if let Some(bias) = &o.bias {
            self.vector(bias)?;
        }
        let (bias, out) = (o.bias.clone(), self.place(o.out));
        let Route { scoring, used, normalize, scale, .. } = *o;
        Ok(Step::Choose(ChooseStep { logits, bias, scoring, used, normalize, scale, out }))
    }

    /// Routes; those that come in are checked.
    fn routes(&mut self, id: BufferId, used: usize, weight: &Weight, rows: usize) -> Result<Place> {
        let (routes, experts) = (self.place(id), weight.rows() / rows.max(1));
        if experts == 0 {
            return Err(Error::Unsupported(format!("weight `{}` holds no expert", weight.name())));
        }
        if self.spec(id).role == Role::Input {
            self.check(Check::Routes { routes, used, experts });
        }
        Ok(routes)
    }

    fn expert_gated_linear(&mut self, o: &ExpertGatedLinear) -> Result<()> {
        let (x, out, used) = (self.place(o.x), self.staged_for(o.out), o.used);
        let width = out.cols / used;
        let routes = self.routes(o.routes, used, &o.weight, 2 * width)?;
        self.factor(x, &o.weight)?;
        let (weight, kind) = (o.weight.clone(), ExpertKind::Gated(o.activation));
        self.then_round(Step::Experts(ExpertStep { x, routes, used, weight, kind, width, out }), out, o.out)
    }

    fn expert_linear(&mut self, o: &ExpertLinear) -> Result<Step> {
        let (x, out, used) = (self.place(o.x), self.place(o.out), o.used);
        let routes = self.routes(o.routes, used, &o.weight, out.cols)?;
        self.factor(x, &o.weight)?;
        let kind = ExpertKind::Sum(o.residual.map(|r| self.place(r)));
        let (weight, width) = (o.weight.clone(), out.cols);
        Ok(Step::Experts(ExpertStep { x, routes, used, weight, kind, width, out }))
    }

    fn sample(&mut self, o: &Sample) -> Result<()> {
        let logits = self.place(o.logits);
        let targets = o.targets.map(|t| self.index(t)).transpose()?;
        let tokens = if targets.is_some() { self.place(o.tokens) } else { self.index(o.tokens)? };
        let (settings, counts) = (self.place(o.settings), self.place(o.counts));
        // Rows of every state that a slot indexes.
        let others = [Some(o.counts), o.bias, o.mask];
        let slots =
            others.into_iter().flatten().map(|id| self.place(id).rows).fold(settings.rows, usize::min);
        self.check(Check::Targets { tokens, targets, slots, like: logits });
        let (sequences, vocab) = (logits.rows, o.vocab);
        let mut len = 0;
        let mut take = |words: usize| {
            let at = len;
            len += words.next_multiple_of(LINE);
            at
        };
        let values = take(sequences * vocab);
        let found = take(sequences * vocab.div_ceil(sample::PART) * sample::FOUND_WORDS);
        let scratch_words = sample::scratch_words(vocab).next_multiple_of(LINE);
        let choices = self.workers.min(sequences).max(1);
        let scratch = take(choices * scratch_words);
        self.lowered.staged = self.lowered.staged.max(len);
        let step = Arc::new(SampleStep {
            logits,
            vocab,
            tokens,
            targets,
            settings,
            counts,
            bias: o.bias.map(|id| self.place(id)),
            mask: o.mask.map(|id| self.place(id)),
            out: self.place(o.out),
            values,
            found,
            scratch,
            scratch_words,
            choices,
        });
        self.written.extend([o.tokens, o.counts]);
        self.lowered.steps.extend([Step::Scan(step.clone()), Step::Pick(step.clone()), Step::Commit(step)]);
        Ok(())
    }
}
