//! Loads a decoder's weights by the names its architecture gave.

use alloc::{
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};
use core::ops::Range;

use super::{
    Decoder, DecoderConfig, ExpertNames, Experts, FeedForward, FeedForwardNames, FeedForwardWeights, Layer,
    Mixer, MixerNames, MixerWeights, Projection, RopeScaling, rope,
};
use crate::{
    Error, Result,
    checkpoint::{Loader, Part, TensorSource},
    op::{NormKind, NormParams},
    tensor::{Weight, WeightUse},
};

impl Decoder {
    /// Loads layers `range`: with the first come the embeddings, with the last the head. `context` is the longest
    /// sequence that will be asked for.
    ///
    /// # Errors
    /// `Config` for an impossible geometry, `Input` for layers that the model has not or a context beyond what it
    /// is made for, and those of [`Loader::weight`].
    pub async fn load_layers(
        config: DecoderConfig,
        range: Range<usize>,
        context: usize,
        loader: &mut Loader<'_>,
    ) -> Result<Self> {
        Self::load_parts(config, range, context, true, loader).await
    }

    /// Loads all layers and the final norm, without the head: what an embedding model is made of.
    ///
    /// # Errors
    /// As [`Decoder::load_layers`].
    pub async fn load_trunk(config: DecoderConfig, context: usize, loader: &mut Loader<'_>) -> Result<Self> {
        let layers = 0..config.layers.len();
        Self::load_parts(config, layers, context, false, loader).await
    }

    async fn load_parts(
        config: DecoderConfig,
        range: Range<usize>,
        context: usize,
        with_head: bool,
        loader: &mut Loader<'_>,
    ) -> Result<Self> {
        config.check()?;
        let count = config.layers.len();
        if range.is_empty() || range.end > count {
            return Err(Error::Input(format!("layers {range:?} of a model that has {count}")));
        }
        if context == 0 || context > config.max_positions {
            let most = config.max_positions;
            return Err(Error::Input(format!(
                "a context of {context} tokens; this model is made for {most}"
            )));
        }
        let prefix = prefix(&config, loader.source())?;
        let divisors = match &config.rope.scaling {
            RopeScaling::Divisors { tensor } => {
                loader.values(&Part::new(tensor.clone(), [config.head_dim / 2])).await?
            }
            _ => Vec::new(),
        };
        let rope = rope::table(&config.rope, &divisors, context, config.head_dim, loader.backend())?;
        let capabilities = loader.backend().capabilities().clone();
        let (first, last) = (range.start == 0, range.end == count);
        let (tied, with_head) = (config.tied && with_head, last && with_head);
        let mut from = Modules { config: &config, prefix, loader };
        // A tied table is multiplied with too, so it is kept as a matrix.
        let usage = if tied { WeightUse::Matrix } else { WeightUse::Table };
        let table = if first || (last && tied) { Some(from.embedding(usage).await?) } else { None };
        let mut layers = Vec::new();
        for at in range.clone() {
            layers.push(from.layer(at).await?);
        }
        let final_norm = match last {
            true => Some(from.norm(&config.names.final_norm, config.hidden).await?),
            false => None,
        };
        let head = match &table {
            _ if !with_head => None,
            Some(table) if tied => Some(table.clone()),
            _ => Some(from.head().await?),
        };
        let embedding = table.filter(|_| first);
        Ok(Decoder { config, range, context, capabilities, embedding, layers, final_norm, head, rope })
    }
}

/// What the checkpoint puts before all names but the head's: nothing, `model.` and the like.
fn prefix(config: &DecoderConfig, source: &dyn TensorSource) -> Result<String> {
    let probe = format!("{}.weight", config.names.embedding);
    let prefixes = source
        .names()
        .into_iter()
        .filter_map(|name| name.strip_suffix(probe.as_str()).filter(|p| p.is_empty() || p.ends_with('.')));
    match prefixes.min_by_key(|p| p.len()) {
        Some(found) => Ok(found.to_string()),
        None => Err(Error::MissingTensor { tensor: probe, file: source.name().into() }),
    }
}

struct Modules<'a, 'b, 'c> {
    config: &'a DecoderConfig,
    prefix: String,
    loader: &'b mut Loader<'c>,
}

impl Modules<'_, '_, '_> {
    fn name(&self, module: &str, kind: &str) -> String {
        format!("{}{module}.{kind}", self.prefix)
    }

    fn matrix_part(&self, module: &str, rows: usize, cols: usize) -> Part {
        Part::new(self.name(module, "weight"), [rows, cols])
    }

    async fn embedding(&mut self, usage: WeightUse) -> Result<Weight> {
        let (vocab, hidden) = (self.config.vocab, self.config.hidden);
        let part = self.matrix_part(&self.config.names.embedding, vocab, hidden);
        self.loader.padded_weight(usage, (vocab, hidden), &[part]).await
    }

    async fn head(&mut self) -> Result<Weight> {
        let (vocab, hidden) = (self.config.vocab, self.config.hidden);
        let part = Part::new(format!("{}.weight", self.config.names.head), [vocab, hidden]);
        self.loader.padded_weight(WeightUse::Matrix, (vocab, hidden), &[part]).await
    }

    async fn norm(&mut self, module: &str, cols: usize) -> Result<NormParams> {
        let weight = self.vector(&self.name(module, "weight"), cols).await?;
        Ok(NormParams { kind: NormKind::Rms, weight, eps: self.config.norm_eps })
    }

    async fn vector(&mut self, name: &str, cols: usize) -> Result<Weight> {
        self.loader.weight(WeightUse::Vector, (1, cols), &[Part::new(name, [cols])]).await
    }

    /// One matrix of several modules, whose rows follow each other; `(name, rows, rotated)`.
    async fn projection(
        &mut self,
        modules: &[(&str, usize, bool)],
        cols: usize,
        bias: bool,
    ) -> Result<Projection> {
        let rows = modules.iter().map(|(_, rows, _)| rows).sum();
        let order = |part: Part, rotated: bool| match rotated && self.config.interleaved {
            true => part.interleaved(self.config.head_dim),
            false => part,
        };
        let parts: Vec<Part> = modules
            .iter()
            .map(|(n, rows, rotated)| order(self.matrix_part(n, *rows, cols), *rotated))
            .collect();
        let biases: Vec<Part> = modules
            .iter()
            .map(|(n, rows, rotated)| order(Part::new(self.name(n, "bias"), [*rows]), *rotated))
            .collect();
        let weight = self.loader.weight(WeightUse::Matrix, (rows, cols), &parts).await?;
        let bias = match bias {
            true => Some(self.loader.weight(WeightUse::Vector, (1, rows), &biases).await?),
            false => None,
        };
        Ok((weight, bias))
    }

    async fn layer(&mut self, at: usize) -> Result<Layer> {
        let config = self.config;
        let (names, kind) = (&config.names.layers[at], config.layers[at]);
        Ok(Layer {
            mixer_norm: self.norm(&names.mixer_norm, config.hidden).await?,
            mixer: self.mixer(&names.mixer, kind.mixer).await?,
            feed_forward_norm: self.norm(&names.feed_forward_norm, config.hidden).await?,
            feed_forward: self.feed_forward(&names.feed_forward, kind.feed_forward).await?,
        })
    }

    async fn mixer(&mut self, names: &MixerNames, mixer: Mixer) -> Result<MixerWeights> {
        let (hidden, d) = (self.config.hidden, self.config.head_dim);
        let heads = self.config.heads;
        match (names, mixer) {
            (
                MixerNames::Attention { q, k, v, out, q_norm, k_norm },
                Mixer::Attention { kv_heads, qk_norm, bias, out_bias },
            ) => {
                let modules =
                    [(q.as_str(), heads * d, true), (k, kv_heads * d, true), (v, kv_heads * d, false)];
                let norms = match qk_norm {
                    true => (Some(self.norm(q_norm, d).await?), Some(self.norm(k_norm, d).await?)),
                    false => (None, None),
                };
                Ok(MixerWeights::Attention {
                    kv_heads,
                    qkv: self.projection(&modules, hidden, bias).await?,
                    q_norm: norms.0,
                    k_norm: norms.1,
                    out: self.projection(&[(out, hidden, false)], heads * d, out_bias).await?,
                })
            }
            (MixerNames::ShortConv { input, conv, out }, Mixer::ShortConv { taps, bias }) => {
                Ok(MixerWeights::ShortConv {
                    input: self.projection(&[(input, 3 * hidden, false)], hidden, bias).await?,
                    taps: self.taps(conv, taps).await?,
                    bias: match bias {
                        true => Some(self.vector(&self.name(conv, "bias"), hidden).await?),
                        false => None,
                    },
                    out: self.projection(&[(out, hidden, false)], hidden, bias).await?,
                })
            }
            _ => Err(Error::Unsupported("a layer's names are not those of its kind".into())),
        }
    }

    /// The taps of a depthwise convolution, `[hidden, 1, taps]` or `[hidden, taps]` in the checkpoint, as
    /// `[taps, hidden]`.
    async fn taps(&mut self, module: &str, taps: usize) -> Result<Weight> {
        let (name, hidden) = (self.name(module, "weight"), self.config.hidden);
        let squeezed = self.loader.source().tensor(&name).is_some_and(|t| t.shape.len() == 2);
        let shape = if squeezed { vec![hidden, taps] } else { vec![hidden, 1, taps] };
        let values = self.loader.values(&Part::new(name.clone(), shape)).await?;
        let turned: Vec<f32> = (0..taps).flat_map(|j| values.iter().skip(j).step_by(taps).copied()).collect();
        crate::backend::upload_f32(self.loader.backend(), &name, WeightUse::Vector, (taps, hidden), &turned)
    }

    async fn feed_forward(
        &mut self,
        names: &FeedForwardNames,
        kind: FeedForward,
    ) -> Result<FeedForwardWeights> {
        let hidden = self.config.hidden;
        match (names, kind) {
            (FeedForwardNames::Dense { gate, up, down }, FeedForward::Dense { width }) => {
                let both = [(gate.as_str(), width, false), (up, width, false)];
                Ok(FeedForwardWeights::Dense {
                    gate_up: self.projection(&both, hidden, false).await?.0,
                    down: self.projection(&[(down, hidden, false)], width, false).await?.0,
                })
            }
            (FeedForwardNames::Experts { router, bias, experts }, FeedForward::Experts(config)) => {
                let count = config.count;
                let part = self.matrix_part(router, count, hidden);
                Ok(FeedForwardWeights::Experts {
                    router: self.loader.weight(WeightUse::Vector, (count, hidden), &[part]).await?,
                    bias: match (bias, config.bias) {
                        (Some(name), true) => {
                            let name = format!("{}{name}", self.prefix);
                            Some(self.vector(&name, count).await?)
                        }
                        _ => None,
                    },
                    gate_up: self.experts(experts, &config, true).await?,
                    down: self.experts(experts, &config, false).await?,
                    config,
                })
            }
            _ => Err(Error::Unsupported("a layer's names are not those of its kind".into())),
        }
    }

    /// All experts' gate and up rows, or their down rows, expert by expert.
    async fn experts(&mut self, names: &ExpertNames, config: &Experts, gate_up: bool) -> Result<Weight> {
        let (hidden, width, count) = (self.config.hidden, config.width, config.count);
        let (rows, cols) = if gate_up { (width, hidden) } else { (hidden, width) };
        let mut parts = Vec::new();
        for expert in 0..count {
            match names {
                ExpertNames::Separate { prefix, gate, up, down } => {
                    let modules = if gate_up { vec![gate, up] } else { vec![down] };
                    for module in modules {
                        parts.push(self.matrix_part(&format!("{prefix}.{expert}.{module}"), rows, cols));
                    }
                }
                ExpertNames::Stacked { gate, up, down } => {
                    let modules = if gate_up { vec![gate, up] } else { vec![down] };
                    for module in modules {
                        let part = Part::new(self.name(module, "weight"), [count, rows, cols]);
                        parts.push(part.rows(expert * rows..(expert + 1) * rows));
                    }
                }
            }
        }
        let all = count * rows * if gate_up { 2 } else { 1 };
        self.loader.weight(WeightUse::Matrix, (all, cols), &parts).await
    }
}
