//! Records a decoder's layers and its head.

use core::ops::Range;

use super::{Caches, Decoder, FeedForwardWeights, Layer, MixerWeights, Projection};
use crate::{
    Error, Result,
    op::{
        Activation, Attention, CachedAttention, ConvRows, Embed, ExpertGatedLinear, ExpertLinear,
        GatedLinear, Linear, Norm, NormParams, Normalize, Op, Pool, PoolMode, Rope, Route, ShortConv,
        StoreKv, TokenField,
    },
    program::{BufferId, Count, Recorder},
    tensor::{DType, Weight},
};

/// What rows of slots go on from.
#[derive(Debug, Clone, Copy)]
pub struct Kept<'a> {
    pub caches: &'a Caches,
    /// No position reaches this.
    pub context: usize,
}

/// How the rows of a run lie.
#[derive(Debug, Clone, Copy)]
pub enum Rows<'a> {
    /// One row of each of some slots.
    Decode(Kept<'a>),
    /// Consecutive positions of some slots: tiles as in [`CachedAttention::tiles`], spans as in [`ConvRows::Slots`].
    Prefill { kept: Kept<'a>, tiles: BufferId, spans: BufferId },
    /// Whole sequences, packed, of which nothing is kept: tiles as in [`Attention::tiles`].
    Packed { tiles: BufferId },
}

/// Of which rows the last recorded layer's output is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    All,
    /// Of the last row of each of so many sequences, whose first and past-the-end rows are u32 `[S, 2]`.
    LastRows(BufferId, usize),
    /// Of none: the layers only leave their states behind.
    Nothing,
}

/// What recorded layers read.
#[derive(Debug, Clone, Copy)]
pub struct DecoderStage<'a> {
    /// Most rows of a run.
    pub rows: usize,
    /// u32 `[T, 4]`: id, position, type, slot.
    pub tokens: BufferId,
    pub layout: Rows<'a>,
    /// f32 `[T, hidden]`: what the layer before the first recorded one put out. `None` at the first layer,
    /// which takes the embeddings.
    pub hidden: Option<BufferId>,
    pub wanted: Wanted,
}

struct Scribe<'a> {
    decoder: &'a Decoder,
    recorder: &'a mut Recorder,
    stage: DecoderStage<'a>,
    /// Most rows that are worked on, and which count they have.
    rows: (usize, Count),
    /// At the last layer, [`DecoderStage::wanted`].
    wanted: Wanted,
}

impl Decoder {
    /// Records layers `range` and returns the f32 residual stream after them: `[T, hidden]`, or of the wanted rows
    /// `[S, hidden]`, or none.
    ///
    /// # Errors
    /// `Input` if layers are not loaded or the hidden state is missing or superfluous; `Unsupported` for slots of a
    /// bidirectional model.
    pub fn record(
        &self,
        recorder: &mut Recorder,
        range: Range<usize>,
        stage: DecoderStage<'_>,
    ) -> Result<Option<BufferId>> {
        if self.config.bidirectional && !matches!(stage.layout, Rows::Packed { .. }) {
            let why = alloc::format!(
                "`{}` is bidirectional: it takes whole sequences only",
                self.config.model_type
            );
            return Err(Error::Unsupported(why));
        }
        if range.start < self.range.start || range.end > self.range.end || range.is_empty() {
            let loaded = &self.range;
            return Err(Error::Input(alloc::format!(
                "layers {range:?} of a model with layers {loaded:?} loaded"
            )));
        }
        if stage.hidden.is_none() != (range.start == 0) {
            return Err(Error::Input("the first layer takes tokens, any other a hidden state".into()));
        }
        let (rows, wanted) = ((stage.rows, Count::Tokens), Wanted::All);
        let mut scribe = Scribe { decoder: self, recorder, stage, rows, wanted };
        let mut x = match stage.hidden {
            Some(hidden) => scribe.copy(hidden)?,
            None => scribe.embed()?,
        };
        let last = range.end - 1;
        for at in range {
            if at == last {
                scribe.wanted = stage.wanted;
            }
            let Some(out) = scribe.layer(at, x)? else { return Ok(None) };
            x = out;
        }
        Ok(Some(x))
    }

    /// Records the final norm of each row of `x`, f32 `[rows, hidden]`: f32 of the same shape.
    ///
    /// # Errors
    /// `Input` if the last layer is not loaded.
    pub fn record_final_norm(&self, recorder: &mut Recorder, x: BufferId) -> Result<BufferId> {
        self.final_norm(recorder, x, DType::F32)
    }

    fn final_norm(&self, recorder: &mut Recorder, x: BufferId, dtype: DType) -> Result<BufferId> {
        let Some(params) = self.final_norm.clone() else {
            return Err(Error::Input("the last layer, and with it the final norm, is not loaded".into()));
        };
        let spec = recorder.spec(x).clone();
        let out = recorder.internal("final norm", dtype, spec.rows, spec.cols, spec.count);
        recorder.push(Op::Norm(Norm { x, params, out }))?;
        Ok(out)
    }

    /// Records the final norm and the head for each row of `x`, f32 `[rows, hidden]`; `out` is f32
    /// `[rows, logit_columns]`.
    ///
    /// # Errors
    /// `Input` if the last layer is not loaded.
    pub fn record_logits(&self, recorder: &mut Recorder, x: BufferId, out: BufferId) -> Result<()> {
        let Some(head) = &self.head else {
            return Err(Error::Input("the head is not loaded, or not the last layer".into()));
        };
        let dtype = self.linear_input(recorder.spec(x).rows, head);
        let normed = self.final_norm(recorder, x, dtype)?;
        recorder.push(Op::Linear(Linear {
            x: normed,
            weight: head.clone(),
            bias: None,
            activation: Activation::None,
            residual: None,
            out,
        }))
    }

    /// Element type for the input of products with `weight`.
    fn linear_input(&self, rows: usize, weight: &Weight) -> DType {
        self.capabilities.linear_input(rows, weight.format())
    }
}

/// What multiplies `q·k`.
fn score_scale(head_dim: usize) -> f32 {
    (1.0 / libm::sqrt(head_dim as f64)) as f32
}

impl Scribe<'_> {
    fn buffer(&mut self, name: &'static str, dtype: DType, cols: usize) -> BufferId {
        let (rows, count) = self.rows;
        self.recorder.internal(name, dtype, rows, cols, count)
    }

    /// Element type for the input of products with `weight`.
    fn linear_input(&self, weight: &Weight) -> DType {
        self.decoder.linear_input(self.rows.0, weight)
    }

    /// Element type of what a mixer makes for products with `weight`, be it of all rows or of the wanted ones.
    fn mixed_input(&self, weight: &Weight) -> DType {
        match self.wanted {
            Wanted::All => self.linear_input(weight),
            // Rows are taken from floats.
            _ => self.decoder.capabilities.activations,
        }
    }

    /// What a mixer made and the residual stream, of the rows that are wanted from here on; `None` if none are.
    fn wanted_rows(
        &mut self,
        mixed: BufferId,
        x: BufferId,
        weight: &Weight,
    ) -> Result<Option<(BufferId, BufferId)>> {
        let (ranges, sequences) = match self.wanted {
            Wanted::All => return Ok(Some((mixed, x))),
            Wanted::Nothing => return Ok(None),
            Wanted::LastRows(ranges, sequences) => (ranges, sequences),
        };
        self.rows = (sequences, Count::Sequences);
        let mut taken = self.last_rows(mixed, ranges)?;
        let dtype = self.linear_input(weight);
        if dtype != DType::F32 {
            let cols = self.recorder.spec(mixed).cols;
            let out = self.buffer("last mixed rows", dtype, cols);
            self.recorder.push(Op::Normalize(Normalize { x: taken, unit: false, out }))?;
            taken = out;
        }
        Ok(Some((taken, self.last_rows(x, ranges)?)))
    }

    /// f32 `[S, cols]`: the last row of each sequence.
    fn last_rows(&mut self, x: BufferId, ranges: BufferId) -> Result<BufferId> {
        let cols = self.recorder.spec(x).cols;
        let out = self.buffer("last rows", DType::F32, cols);
        self.recorder.push(Op::Pool(Pool { x, ranges, modes: alloc::vec![PoolMode::LastToken], out }))?;
        Ok(out)
    }

    fn stream(&mut self, name: &'static str) -> BufferId {
        self.buffer(name, DType::F32, self.decoder.config.hidden)
    }

    fn embed(&mut self) -> Result<BufferId> {
        let Some(table) = &self.decoder.embedding else {
            return Err(Error::Input("the embeddings are not loaded".into()));
        };
        let out = self.stream("embedded");
        let tables = alloc::vec![(table.clone(), TokenField::Id)];
        self.recorder.push(Op::Embed(Embed { tokens: self.stage.tokens, tables, norm: None, out }))?;
        Ok(out)
    }

    fn copy(&mut self, x: BufferId) -> Result<BufferId> {
        let out = self.stream("stream");
        self.recorder.push(Op::Normalize(Normalize { x, unit: false, out }))?;
        Ok(out)
    }

    fn layer(&mut self, at: usize, x: BufferId) -> Result<Option<BufferId>> {
        let decoder = self.decoder;
        let index = at - decoder.range.start;
        let layer = &decoder.layers[index];
        let x = match &layer.mixer {
            MixerWeights::Attention { .. } => self.attention(index, layer, x)?,
            MixerWeights::ShortConv { .. } => self.short_conv(index, layer, x)?,
        };
        x.map(|x| self.feed_forward(layer, x)).transpose()
    }

    /// `norm(x)`, in the element type that products with `weight` take best.
    fn norm(&mut self, x: BufferId, params: &NormParams, weight: &Weight) -> Result<BufferId> {
        let dtype = self.linear_input(weight);
        let out = self.buffer("norm", dtype, self.decoder.config.hidden);
        self.recorder.push(Op::Norm(Norm { x, params: params.clone(), out }))?;
        Ok(out)
    }

    fn linear(
        &mut self,
        x: BufferId,
        (weight, bias): &Projection,
        residual: Option<BufferId>,
        out: BufferId,
    ) -> Result<()> {
        let (weight, bias) = (weight.clone(), bias.clone());
        self.recorder.push(Op::Linear(Linear {
            x,
            weight,
            bias,
            activation: Activation::None,
            residual,
            out,
        }))
    }

    fn attention(&mut self, index: usize, layer: &Layer, x: BufferId) -> Result<Option<BufferId>> {
        let MixerWeights::Attention { kv_heads, qkv, out, .. } = &layer.mixer else {
            return Err(Error::Unsupported("this layer has no attention".into()));
        };
        let config = &self.decoder.config;
        let (heads, head_dim) = (config.heads, config.head_dim);
        let normed = self.norm(x, &layer.mixer_norm, &qkv.0)?;
        let activations = self.decoder.capabilities.activations;
        let projected = self.buffer("qkv", activations, (heads + 2 * kv_heads) * head_dim);
        self.linear(normed, qkv, None, projected)?;
        let attended = match self.stage.layout {
            Rows::Decode(kept) => self.cached_attention(index, layer, projected, kept, None)?,
            Rows::Prefill { kept, tiles, .. } => {
                self.cached_attention(index, layer, projected, kept, Some(tiles))?
            }
            Rows::Packed { tiles } => Some(self.packed_attention(layer, projected, tiles)?),
        };
        let Some(attended) = attended else { return Ok(None) };
        let Some((attended, x)) = self.wanted_rows(attended, x, &out.0)? else { return Ok(None) };
        let sum = self.stream("mixed");
        self.linear(attended, out, Some(x), sum)?;
        Ok(Some(sum))
    }

    /// Stores keys and values and attends to what the cache holds; `None` if nothing is wanted of it.
    fn cached_attention(
        &mut self,
        index: usize,
        layer: &Layer,
        projected: BufferId,
        kept: Kept<'_>,
        tiles: Option<BufferId>,
    ) -> Result<Option<BufferId>> {
        let MixerWeights::Attention { kv_heads, q_norm, k_norm, out, .. } = &layer.mixer else {
            return Err(Error::Unsupported("this layer has no attention".into()));
        };
        let config = &self.decoder.config;
        let (heads, head_dim, kv_heads) = (config.heads, config.head_dim, *kv_heads);
        let cache = self.recorder.state(&kept.caches.layers[index]);
        let pages = self.recorder.state(&kept.caches.pages);
        self.recorder.push(Op::StoreKv(StoreKv {
            qkv: projected,
            tokens: self.stage.tokens,
            q_norm: q_norm.clone(),
            k_norm: k_norm.clone(),
            rope: self.decoder.rope.clone(),
            cache,
            pages,
            heads,
            kv_heads,
            head_dim,
        }))?;
        if self.wanted == Wanted::Nothing {
            return Ok(None);
        }
        let dtype = self.mixed_input(&out.0);
        let attended = self.buffer("attended", dtype, heads * head_dim);
        self.recorder.push(Op::CachedAttention(CachedAttention {
            q: projected,
            tokens: self.stage.tokens,
            tiles,
            cache,
            pages,
            context: kept.context,
            heads,
            kv_heads,
            head_dim,
            scale: score_scale(head_dim),
            out: attended,
        }))?;
        Ok(Some(attended))
    }

    /// Attention within whole sequences.
    fn packed_attention(&mut self, layer: &Layer, qkv: BufferId, tiles: BufferId) -> Result<BufferId> {
        let MixerWeights::Attention { kv_heads, q_norm, k_norm, .. } = &layer.mixer else {
            return Err(Error::Unsupported("this layer has no attention".into()));
        };
        let config = &self.decoder.config;
        let (heads, head_dim, kv_heads) = (config.heads, config.head_dim, *kv_heads);
        self.recorder.push(Op::Rope(Rope {
            x: qkv,
            tokens: self.stage.tokens,
            q_norm: q_norm.clone(),
            k_norm: k_norm.clone(),
            table: self.decoder.rope.clone(),
            heads,
            kv_heads,
            head_dim,
        }))?;
        let out = self.buffer("attended", self.decoder.capabilities.activations, heads * head_dim);
        self.recorder.push(Op::Attention(Attention {
            qkv,
            tiles,
            heads,
            kv_heads,
            head_dim,
            scale: score_scale(head_dim),
            window: None,
            causal: !config.bidirectional,
            bias: None,
            out,
        }))?;
        Ok(out)
    }

    fn short_conv(&mut self, index: usize, layer: &Layer, x: BufferId) -> Result<Option<BufferId>> {
        let MixerWeights::ShortConv { input, taps, bias, out } = &layer.mixer else {
            return Err(Error::Unsupported("this layer has no convolution".into()));
        };
        let hidden = self.decoder.config.hidden;
        let normed = self.norm(x, &layer.mixer_norm, &input.0)?;
        // f32: the products of its thirds would multiply the errors of rounding.
        let bcx = self.buffer("bcx", DType::F32, 3 * hidden);
        self.linear(normed, input, None, bcx)?;
        let dtype = self.mixed_input(&out.0);
        let convolved = self.buffer("convolved", dtype, hidden);
        let tokens = self.stage.tokens;
        let mut slots = |kept: Kept<'_>, spans| {
            let state = self.recorder.state(&kept.caches.layers[index]);
            ConvRows::Slots { tokens, spans, state }
        };
        let rows = match self.stage.layout {
            Rows::Decode(kept) => slots(kept, None),
            Rows::Prefill { kept, spans, .. } => slots(kept, Some(spans)),
            Rows::Packed { tiles } => {
                let ahead = if self.decoder.config.bidirectional { taps.rows() / 2 } else { 0 };
                ConvRows::Sequences { tiles, ahead }
            }
        };
        self.recorder.push(Op::ShortConv(ShortConv {
            bcx,
            rows,
            weight: taps.clone(),
            bias: bias.clone(),
            out: convolved,
        }))?;
        let Some((convolved, x)) = self.wanted_rows(convolved, x, &out.0)? else { return Ok(None) };
        let sum = self.stream("mixed");
        self.linear(convolved, out, Some(x), sum)?;
        Ok(Some(sum))
    }

    fn feed_forward(&mut self, layer: &Layer, x: BufferId) -> Result<BufferId> {
        let activations = self.decoder.capabilities.activations;
        match &layer.feed_forward {
            FeedForwardWeights::Dense { gate_up, down } => {
                let normed = self.norm(x, &layer.feed_forward_norm, gate_up)?;
                let dtype = self.linear_input(down);
                let wide = self.buffer("feed-forward", dtype, gate_up.rows() / 2);
                self.recorder.push(Op::GatedLinear(GatedLinear {
                    x: normed,
                    weight: gate_up.clone(),
                    bias: None,
                    activation: Activation::Silu,
                    out: wide,
                }))?;
                let sum = self.stream("stream");
                self.linear(wide, &(down.clone(), None), Some(x), sum)?;
                Ok(sum)
            }
            FeedForwardWeights::Experts { config, router, bias, gate_up, down } => {
                // The router takes the norm as it is: rounding it to 8 bits would flip choices.
                let hidden = self.decoder.config.hidden;
                let normed = self.buffer("norm", activations, hidden);
                let params = layer.feed_forward_norm.clone();
                self.recorder.push(Op::Norm(Norm { x, params, out: normed }))?;
                let used = config.used;
                let routes = self.buffer("routes", DType::F32, (2 * used).next_multiple_of(4));
                self.recorder.push(Op::Route(Route {
                    x: normed,
                    weight: router.clone(),
                    bias: bias.clone(),
                    scoring: config.scoring,
                    used,
                    normalize: config.normalize,
                    scale: config.scale,
                    out: routes,
                }))?;
                // The experts' own factor is another, where 8-bit blocks are taken.
                let x_experts = match self.linear_input(gate_up) {
                    dtype if dtype == activations => normed,
                    _ => self.norm(x, &layer.feed_forward_norm, gate_up)?,
                };
                let dtype = self.linear_input(down);
                let wide = self.buffer("experts", dtype, used * config.width);
                self.recorder.push(Op::ExpertGatedLinear(ExpertGatedLinear {
                    x: x_experts,
                    routes,
                    used,
                    weight: gate_up.clone(),
                    activation: Activation::Silu,
                    out: wide,
                }))?;
                let sum = self.stream("stream");
                self.recorder.push(Op::ExpertLinear(ExpertLinear {
                    x: wide,
                    routes,
                    used,
                    weight: down.clone(),
                    residual: Some(x),
                    out: sum,
                }))?;
                Ok(sum)
            }
        }
    }
}
