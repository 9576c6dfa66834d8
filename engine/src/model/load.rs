//! Loads an encoder's weights by the names its architecture gave.

use alloc::{
    collections::{BTreeMap, btree_map::Entry},
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};
use core::ops::Range;

use super::{
    Encoder, EncoderConfig,
    encoder::{Embedding, Layer},
};
use crate::{
    Error, Result,
    backend::{Backend, upload_f32},
    checkpoint::{Loader, Part, TensorSource},
    op::{NormKind, NormParams, TokenField},
    tensor::{Format, Weight, WeightSpec, WeightUse},
};

/// Distance from which on all relative positions share a bucket, so that tables reach no further.
pub const RELATIVE_RADIUS: usize = 128;

/// Least distance of each bucket from the ninth on: bucket `8 + i` begins at the i-th. Between 8 and 128 the
/// buckets are spaced logarithmically, `8 + ⌊8·ln(n/8)/ln(16)⌋`, which at 16, 32 and 64 is a whole number that
/// rounding would decide.
const FAR_BUCKETS: [usize; 8] = [8, 12, 16, 23, 32, 46, 64, 91];

/// Buckets of relative positions, half of them for keys to the right.
pub const RELATIVE_BUCKETS: usize = 32;

/// Bucket of a key `offset` rows to the right of its query, for 32 buckets.
pub fn relative_bucket(offset: isize) -> usize {
    let distance = offset.unsigned_abs();
    let near =
        if distance < 8 { distance } else { 7 + FAR_BUCKETS.iter().filter(|d| **d <= distance).count() };
    if offset > 0 { RELATIVE_BUCKETS / 2 + near } else { near }
}

impl Encoder {
    /// Loads all layers.
    ///
    /// # Errors
    /// `Config` for an impossible geometry, and those of [`Loader::weight`].
    pub async fn load(
        config: EncoderConfig,
        source: &dyn TensorSource,
        backend: &dyn Backend,
    ) -> Result<Self> {
        let layers = 0..config.layers.len();
        Self::load_layers(config, layers, &mut Loader::new(source, backend)).await
    }

    /// Loads some layers: with the first come the embeddings, with the last the final norm.
    ///
    /// # Errors
    /// As [`Encoder::load`]; `Input` for layers that the model has not.
    pub async fn load_layers(
        config: EncoderConfig,
        range: Range<usize>,
        loader: &mut Loader<'_>,
    ) -> Result<Self> {
        config.check()?;
        if range.start > range.end || range.end > config.layers.len() {
            let count = config.layers.len();
            return Err(Error::Input(format!("layers {range:?} of a model that has {count}")));
        }
        let prefix = prefix(&config, loader.source())?;
        let mut from = Modules { config: &config, prefix, loader };
        let embedding = if range.start == 0 { Some(from.embedding().await?) } else { None };
        let mut layers = Vec::new();
        for at in range.clone() {
            layers.push(from.layer(at).await?);
        }
        let final_norm = match &config.names.final_norm {
            Some(name) if range.end == config.layers.len() => Some(from.norm(name).await?),
            _ => None,
        };
        let relative_bias = match &config.names.relative_bias {
            Some(name) => Some(from.relative_bias(name).await?),
            None => None,
        };
        let rope = rope_tables(&config, range.clone(), loader.backend())?;
        let activations = loader.backend().capabilities().activations;
        Ok(Encoder { config, range, activations, embedding, layers, final_norm, relative_bias, rope })
    }
}

/// What the checkpoint puts before all names: nothing, `bert.`, `model.` and the like.
fn prefix(config: &EncoderConfig, source: &dyn TensorSource) -> Result<String> {
    let probe = format!("{}.weight", config.names.word);
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
    config: &'a EncoderConfig,
    prefix: String,
    loader: &'b mut Loader<'c>,
}

impl Modules<'_, '_, '_> {
    fn part(&self, module: &str, kind: &str, shape: Vec<usize>) -> Part {
        Part::new(format!("{}{module}.{kind}", self.prefix), shape)
    }

    async fn table(&mut self, name: &str, rows: usize) -> Result<Weight> {
        let shape = (rows, self.config.hidden);
        let part = self.part(name, "weight", vec![shape.0, shape.1]);
        self.loader.weight(WeightUse::Table, shape, &[part]).await
    }

    async fn embedding(&mut self) -> Result<Embedding> {
        let config = self.config;
        let names = &config.names;
        let mut tables = vec![(self.table(&names.word, config.vocab).await?, TokenField::Id)];
        if let Some(name) = &names.position {
            tables.push((self.table(name, config.max_positions).await?, TokenField::Position));
        }
        if let Some(name) = &names.token_type {
            tables.push((self.table(name, config.token_types).await?, TokenField::Type));
        }
        Ok(Embedding { tables, norm: self.norm(&names.embedding_norm).await? })
    }

    /// Weight and bias of a norm, which very old files call gamma and beta.
    async fn norm(&mut self, name: &str) -> Result<NormParams> {
        let cols = self.config.hidden;
        let old = format!("{}{name}.gamma", self.prefix);
        let is_old = self.loader.source().tensor(&old).is_some();
        let (weight, bias) = if is_old { ("gamma", "beta") } else { ("weight", "bias") };
        let mut parts = vec![self.part(name, weight, vec![cols])];
        if self.config.norm_bias {
            parts.push(self.part(name, bias, vec![cols]));
        }
        let weight = self.loader.weight(WeightUse::Vector, (parts.len(), cols), &parts).await?;
        Ok(NormParams { kind: NormKind::Layer, weight, eps: self.config.norm_eps })
    }

    /// One linear op of several modules, whose rows follow each other.
    async fn linear(
        &mut self,
        names: &[String],
        rows: usize,
        cols: usize,
    ) -> Result<(Weight, Option<Weight>)> {
        let each = rows / names.len().max(1);
        let parts: Vec<Part> = names.iter().map(|n| self.part(n, "weight", vec![each, cols])).collect();
        let weight = self.loader.weight(WeightUse::Matrix, (rows, cols), &parts).await?;
        if !self.config.linear_bias {
            return Ok((weight, None));
        }
        let parts: Vec<Part> = names.iter().map(|n| self.part(n, "bias", vec![each])).collect();
        let bias = self.loader.weight(WeightUse::Vector, (1, rows), &parts).await?;
        Ok((weight, Some(bias)))
    }

    async fn layer(&mut self, at: usize) -> Result<Layer> {
        let config = self.config;
        let names = &config.names.layers[at];
        let (h, f) = (config.hidden, config.intermediate);
        let up_rows = if config.gated { 2 * f } else { f };
        Ok(Layer {
            input_norm: match &names.input_norm {
                Some(name) => Some(self.norm(name).await?),
                None => None,
            },
            qkv: self.linear(&names.qkv, 3 * h, h).await?,
            attention_out: self.linear(core::slice::from_ref(&names.attention_out), h, h).await?,
            middle_norm: self.norm(&names.middle_norm).await?,
            up: self.linear(core::slice::from_ref(&names.up), up_rows, h).await?,
            down: self.linear(core::slice::from_ref(&names.down), h, f).await?,
            output_norm: match &names.output_norm {
                Some(name) => Some(self.norm(name).await?),
                None => None,
            },
        })
    }

    /// The table of [`Attention::bias`](crate::op::Attention::bias) that the buckets' biases amount to.
    async fn relative_bias(&mut self, name: &str) -> Result<Weight> {
        let heads = self.config.heads;
        let part = self.part(name, "weight", vec![RELATIVE_BUCKETS, heads]);
        let buckets = self.loader.values(&part).await?;
        let radius = RELATIVE_RADIUS as isize;
        let table: Vec<f32> = (0..heads)
            .flat_map(|head| (-radius..=radius).map(move |offset| (head, offset)))
            .map(|(head, offset)| buckets[relative_bucket(offset) * heads + head])
            .collect();
        let shape = (heads, 2 * RELATIVE_RADIUS + 1);
        upload_f32(self.loader.backend(), &part.name, WeightUse::Vector, shape, &table)
    }
}

/// A table of cosines and sines for each theta of these layers, as long as the longest sequence.
fn rope_tables(
    config: &EncoderConfig,
    layers: Range<usize>,
    backend: &dyn Backend,
) -> Result<BTreeMap<u32, Weight>> {
    let mut tables = BTreeMap::new();
    for theta in config.layers[layers].iter().filter_map(|l| l.rope_theta) {
        if let Entry::Vacant(free) = tables.entry(theta.to_bits()) {
            free.insert(rope_table(theta, config.max_positions, config.head_dim(), backend)?);
        }
    }
    Ok(tables)
}

fn rope_table(theta: f32, positions: usize, head_dim: usize, backend: &dyn Backend) -> Result<Weight> {
    let half = head_dim / 2;
    let frequencies: Vec<f32> =
        (0..half).map(|i| libm::pow(f64::from(theta), -((2 * i) as f64) / head_dim as f64) as f32).collect();
    let name = format!("rope table of base {theta}");
    let spec =
        WeightSpec { name, rows: positions, cols: head_dim, format: Format::F32, usage: WeightUse::Table };
    let mut sink = backend.weight(spec)?;
    let mut row = Vec::new();
    for position in 0..positions {
        row.clear();
        // The angle is rounded to f32, as models were trained with; its sine and cosine are not.
        let angle = |f: &f32| f64::from(position as f32 * f);
        let cosines = frequencies.iter().map(|f| libm::cos(angle(f)) as f32);
        let sines = frequencies.iter().map(|f| libm::sin(angle(f)) as f32);
        row.extend(cosines.chain(sines).flat_map(f32::to_le_bytes));
        sink.push(Format::F32, &row)?;
    }
    sink.finish()
}
