//! Records an encoder's layers.

use core::ops::Range;

use super::{Encoder, NormOrder, encoder::Layer};
use crate::{
    Error, Result,
    op::{Activation, Attention, Embed, GatedLinear, Linear, Norm, NormParams, Normalize, Op, Rope},
    program::{BufferId, Count, Recorder},
    tensor::{DType, Weight},
};

/// Most rows that a program is recorded for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bucket {
    pub tokens: usize,
    pub sequences: usize,
    /// Query tiles of attention.
    pub tiles: usize,
}

/// What recorded layers read.
#[derive(Debug, Clone, Copy)]
pub struct Stage {
    /// u32 `[T, 4]`: id, position, type, 0.
    pub tokens: BufferId,
    /// u32 `[N, 4]`, as [`Attention::tiles`].
    pub tiles: BufferId,
    /// f32 `[T, hidden]`: what the layer before the first recorded one put out. `None` at the first layer,
    /// which takes the embeddings.
    pub hidden: Option<BufferId>,
}

struct Scribe<'a> {
    encoder: &'a Encoder,
    recorder: &'a mut Recorder,
    rows: usize,
    stage: Stage,
}

impl Encoder {
    /// Records layers `range` for at most `bucket` rows and returns the buffer of hidden states, in the
    /// element type of the stream; after the last layer with the final norm where the model has one.
    ///
    /// # Errors
    /// `Input` if layers are not loaded or the hidden state is missing or superfluous.
    pub fn record(
        &self,
        recorder: &mut Recorder,
        bucket: Bucket,
        range: Range<usize>,
        stage: Stage,
    ) -> Result<BufferId> {
        if range.start < self.range.start || range.end > self.range.end || range.is_empty() {
            let loaded = &self.range;
            return Err(Error::Input(alloc::format!(
                "layers {range:?} of a model with layers {loaded:?} loaded"
            )));
        }
        if stage.hidden.is_none() != (range.start == 0) {
            return Err(Error::Input("the first layer takes tokens, any other a hidden state".into()));
        }
        let mut scribe = Scribe { encoder: self, recorder, rows: bucket.tokens, stage };
        let mut x = match stage.hidden {
            Some(hidden) => scribe.copy(hidden, "stream", scribe.stream())?,
            None => scribe.embed()?,
        };
        for at in range.clone() {
            x = scribe.layer(at, x)?;
        }
        match &self.final_norm {
            Some(params) if range.end == self.config.layers.len() => {
                scribe.norm(x, params, "final", self.activations)
            }
            _ => Ok(x),
        }
    }
}

impl Scribe<'_> {
    /// Element type of the residual stream.
    fn stream(&self) -> DType {
        match self.encoder.config.order {
            NormOrder::Post => self.encoder.activations,
            NormOrder::Pre => DType::F32,
        }
    }

    fn buffer(&mut self, name: &'static str, dtype: DType, cols: usize) -> BufferId {
        self.recorder.internal(name, dtype, self.rows, cols, Count::Tokens)
    }

    fn embed(&mut self) -> Result<BufferId> {
        let Some(embedding) = &self.encoder.embedding else {
            return Err(Error::Input("the embeddings are not loaded".into()));
        };
        let out = self.buffer("embedded", self.stream(), self.encoder.config.hidden);
        let (tables, norm) = (embedding.tables.clone(), Some(embedding.norm.clone()));
        self.recorder.push(Op::Embed(Embed { tokens: self.stage.tokens, tables, norm, out }))?;
        Ok(out)
    }

    fn copy(&mut self, x: BufferId, name: &'static str, dtype: DType) -> Result<BufferId> {
        let out = self.buffer(name, dtype, self.encoder.config.hidden);
        self.recorder.push(Op::Normalize(Normalize { x, unit: false, out }))?;
        Ok(out)
    }

    fn norm(
        &mut self,
        x: BufferId,
        params: &NormParams,
        name: &'static str,
        dtype: DType,
    ) -> Result<BufferId> {
        let out = self.buffer(name, dtype, self.encoder.config.hidden);
        self.recorder.push(Op::Norm(Norm { x, params: params.clone(), out }))?;
        Ok(out)
    }

    fn linear(
        &mut self,
        x: BufferId,
        (weight, bias): &(Weight, Option<Weight>),
        activation: Activation,
        residual: Option<BufferId>,
        out: BufferId,
    ) -> Result<()> {
        let (weight, bias) = (weight.clone(), bias.clone());
        self.recorder.push(Op::Linear(Linear { x, weight, bias, activation, residual, out }))
    }

    fn layer(&mut self, at: usize, x: BufferId) -> Result<BufferId> {
        let encoder = self.encoder;
        let layer = &encoder.layers[at - encoder.range.start];
        let pre = encoder.config.order == NormOrder::Pre;
        let act = encoder.activations;

        let source = match &layer.input_norm {
            Some(params) => self.norm(x, params, "normed", act)?,
            // A pre-norm layer without norm: matrices take activations in their usual type.
            None if pre && act != DType::F32 => self.copy(x, "normed", act)?,
            None => x,
        };
        let attended = self.attention(at, layer, source)?;
        let mut sum = self.buffer("attention sum", self.stream(), encoder.config.hidden);
        self.linear(attended, &layer.attention_out, Activation::None, Some(x), sum)?;
        let normed = self.norm(sum, &layer.middle_norm, "middle", act)?;
        if !pre {
            sum = normed;
        }

        let wide = self.feed_forward(layer, normed)?;
        let out = self.buffer("layer sum", self.stream(), encoder.config.hidden);
        self.linear(wide, &layer.down, Activation::None, Some(sum), out)?;
        match &layer.output_norm {
            Some(params) => self.norm(out, params, "layer out", self.stream()),
            None => Ok(out),
        }
    }

    fn attention(&mut self, at: usize, layer: &Layer, source: BufferId) -> Result<BufferId> {
        let encoder = self.encoder;
        let (config, kind) = (&encoder.config, encoder.config.layers[at]);
        let (heads, head_dim) = (config.heads, config.head_dim());
        let qkv = self.buffer("qkv", encoder.activations, 3 * config.hidden);
        self.linear(source, &layer.qkv, Activation::None, None, qkv)?;
        if let Some(table) = kind.rope_theta.and_then(|theta| encoder.rope.get(&theta.to_bits())) {
            let (tokens, table) = (self.stage.tokens, table.clone());
            self.recorder.push(Op::Rope(Rope {
                x: qkv,
                tokens,
                q_norm: None,
                k_norm: None,
                table,
                heads,
                kv_heads: heads,
                head_dim,
            }))?;
        }
        let out = self.buffer("attended", encoder.activations, config.hidden);
        self.recorder.push(Op::Attention(Attention {
            qkv,
            tiles: self.stage.tiles,
            heads,
            kv_heads: heads,
            head_dim,
            scale: 1.0 / libm::sqrtf(head_dim as f32),
            window: kind.window,
            causal: false,
            bias: encoder.relative_bias.clone(),
            out,
        }))?;
        Ok(out)
    }

    fn feed_forward(&mut self, layer: &Layer, x: BufferId) -> Result<BufferId> {
        let config = &self.encoder.config;
        let out = self.buffer("wide", self.encoder.activations, config.intermediate);
        if config.gated {
            let ((weight, bias), activation) = (layer.up.clone(), config.activation);
            self.recorder.push(Op::GatedLinear(GatedLinear { x, weight, bias, activation, out }))?;
        } else {
            self.linear(x, &layer.up, config.activation, None, out)?;
        }
        Ok(out)
    }
}
