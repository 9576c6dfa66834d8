//! What follows the encoder: pooling, dense layers, normalisation, truncation.

use alloc::{format, string::String, vec::Vec};

use crate::{
    Error, Result,
    checkpoint::{Loader, Part},
    model::Bucket,
    op::{Activation, Linear, Normalize, Op, Pool, PoolMode},
    program::{BufferId, BufferSpec, Count, Recorder, Role},
    tensor::{DType, Weight, WeightUse},
};

/// A dense layer on pooled vectors: `act(W x + b)`, plus a residual.
#[derive(Debug, Clone)]
pub struct Dense {
    weight: Weight,
    bias: Option<Weight>,
    activation: Activation,
    residual: Residual,
}

#[derive(Debug, Clone)]
enum Residual {
    None,
    /// The input itself.
    Input,
    /// `R x`
    Projected(Weight),
}

/// What a dense layer is like; its tensors are `linear.weight`, `linear.bias` and `residual.weight`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenseConfig {
    pub in_features: usize,
    pub out_features: usize,
    pub bias: bool,
    pub activation: Activation,
    /// Adds the input, projected where its width differs.
    pub residual: bool,
}

impl Dense {
    /// # Errors
    /// Those of [`Loader::weight`].
    pub async fn load(config: &DenseConfig, loader: &mut Loader<'_>) -> Result<Self> {
        let (rows, cols) = (config.out_features, config.in_features);
        let matrix = |name: &str| [Part::new(name, [rows, cols])];
        let weight = loader.weight(WeightUse::Matrix, (rows, cols), &matrix("linear.weight")).await?;
        let bias = match config.bias {
            true => {
                let part = [Part::new("linear.bias", [rows])];
                Some(loader.weight(WeightUse::Vector, (1, rows), &part).await?)
            }
            false => None,
        };
        let residual = match config.residual {
            false => Residual::None,
            true if rows == cols => Residual::Input,
            true => Residual::Projected(
                loader.weight(WeightUse::Matrix, (rows, cols), &matrix("residual.weight")).await?,
            ),
        };
        Ok(Dense { weight, bias, activation: config.activation, residual })
    }

    /// Values that it takes.
    pub fn input_width(&self) -> usize {
        self.weight.cols()
    }

    /// Values of a result.
    pub fn width(&self) -> usize {
        self.weight.rows()
    }
}

/// One step after pooling.
#[derive(Debug, Clone)]
pub enum HeadStep {
    Dense(Dense),
    /// To unit length.
    Normalize,
}

/// From hidden states to one vector a sequence.
#[derive(Debug, Clone)]
pub struct Head {
    /// Ways of pooling, concatenated in this order; at least one.
    pub pooling: Vec<PoolMode>,
    pub steps: Vec<HeadStep>,
    /// Keep the first so many values only, after all steps; a vector that ends in unit length gets it back.
    pub dim: Option<usize>,
}

impl Head {
    /// Width of the vectors before truncation, for hidden states of `hidden` values.
    pub fn full_width(&self, hidden: usize) -> usize {
        let pooled = self.pooling.len() * hidden;
        self.steps.iter().fold(pooled, |width, step| match step {
            HeadStep::Dense(dense) => dense.width(),
            HeadStep::Normalize => width,
        })
    }

    /// Width of the vectors.
    ///
    /// # Errors
    /// `Input` if `dim` is 0 or more than there are; `Shape` if a step does not take what the one before gives.
    pub fn width(&self, hidden: usize) -> Result<usize> {
        self.check(hidden)?;
        let full = self.full_width(hidden);
        match self.dim {
            Some(dim) if dim == 0 || dim > full => {
                Err(Error::Input(format!("{dim} dimensions asked for, the model's vectors have {full}")))
            }
            Some(dim) => Ok(dim),
            None => Ok(full),
        }
    }

    fn check(&self, hidden: usize) -> Result<()> {
        if self.pooling.is_empty() {
            return Err(Error::Input("no way of pooling was given".into()));
        }
        let mut width = self.pooling.len() * hidden;
        for step in &self.steps {
            let HeadStep::Dense(dense) = step else { continue };
            if dense.input_width() != width {
                return Err(Error::Shape {
                    what: format!("vectors before the dense layer `{}`", dense.weight.name()),
                    expected: format!("[{}]", dense.input_width()),
                    found: format!("[{width}]"),
                });
            }
            if !dense.width().is_multiple_of(4) {
                let name = dense.weight.name();
                return Err(Error::Unsupported(format!(
                    "the dense layer `{name}` gives {} values; only multiples of 4 are supported",
                    dense.width()
                )));
            }
            width = dense.width();
        }
        Ok(())
    }

    /// Whether vectors end in unit length.
    pub fn unit(&self) -> bool {
        matches!(self.steps.last(), Some(HeadStep::Normalize))
    }

    /// Makes vectors end in unit length, or not.
    pub fn set_unit(&mut self, unit: bool) {
        while self.unit() {
            self.steps.pop();
        }
        if unit {
            self.steps.push(HeadStep::Normalize);
        }
    }

    /// Whether the last step is left to [`Head::finish`]: rows on a device have a multiple of 4 values.
    fn truncates_on_host(&self) -> bool {
        self.dim.is_some_and(|dim| !dim.is_multiple_of(4))
    }

    /// Values of a row that is read from the device.
    pub(super) fn device_width(&self, hidden: usize) -> Result<usize> {
        Ok(if self.truncates_on_host() { self.full_width(hidden) } else { self.width(hidden)? })
    }

    /// What the device left to do for one row.
    pub(super) fn finish(&self, row: &[f32]) -> Vec<f32> {
        let kept = if self.truncates_on_host() { self.dim.unwrap_or(row.len()) } else { row.len() };
        let mut vector = row[..kept].to_vec();
        if self.truncates_on_host() && self.unit() {
            let squares: f64 = vector.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
            let norm = libm::sqrt(squares).max(1e-12);
            vector.iter_mut().for_each(|v| *v = (f64::from(*v) / norm) as f32);
        }
        vector
    }

    /// Records the head for hidden states `x`; returns the output, `[sequences, device width]`.
    pub(super) fn record(
        &self,
        recorder: &mut Recorder,
        bucket: Bucket,
        x: BufferId,
        hidden: usize,
        ranges: BufferId,
    ) -> Result<BufferId> {
        let (steps, width) = (self.device_steps(), self.device_width(hidden)?);
        let mut buffer = |cols: usize, last: bool, name: &'static str| {
            let role = if last { Role::Output } else { Role::Internal };
            let (dtype, rows, count) = (DType::F32, bucket.sequences, Count::Sequences);
            (recorder.buffer(BufferSpec { name, dtype, rows, cols, count, role }), cols)
        };
        let mut ops = Vec::new();
        let modes = self.pooling.clone();
        let (mut at, mut cols) = buffer(modes.len() * hidden, steps.is_empty(), "pooled");
        ops.push(Op::Pool(Pool { x, ranges, modes, out: at }));
        for (i, step) in steps.iter().enumerate() {
            let (last, x) = (i + 1 == steps.len(), at);
            match step {
                DeviceStep::Dense(dense) => {
                    let residual = match &dense.residual {
                        Residual::None => None,
                        Residual::Input => Some(x),
                        Residual::Projected(weight) => {
                            let (out, _) = buffer(dense.width(), false, "dense residual");
                            ops.push(linear(x, weight.clone(), None, Activation::None, None, out));
                            Some(out)
                        }
                    };
                    (at, cols) = buffer(dense.width(), last, "dense");
                    let (weight, bias) = (dense.weight.clone(), dense.bias.clone());
                    ops.push(linear(x, weight, bias, dense.activation, residual, at));
                }
                DeviceStep::Normalize { unit } => {
                    (at, cols) = buffer(if last { width } else { cols }, last, "normalized");
                    ops.push(Op::Normalize(Normalize { x, unit: *unit, out: at }));
                }
            }
        }
        ops.into_iter().try_for_each(|op| recorder.push(op))?;
        Ok(at)
    }

    /// The steps that run on the device. Truncation is part of a last normalisation.
    fn device_steps(&self) -> Vec<DeviceStep<'_>> {
        let mut steps: Vec<DeviceStep> = self
            .steps
            .iter()
            .map(|step| match step {
                HeadStep::Dense(dense) => DeviceStep::Dense(dense),
                HeadStep::Normalize => DeviceStep::Normalize { unit: true },
            })
            .collect();
        if self.dim.is_some() && !self.truncates_on_host() && !self.unit() {
            steps.push(DeviceStep::Normalize { unit: false });
        }
        steps
    }

    /// For people: `Mean, normalize`.
    pub fn describe(&self) -> String {
        let modes: Vec<String> = self.pooling.iter().map(|mode| format!("{mode:?}")).collect();
        let mut text = modes.join("+");
        for step in &self.steps {
            text += match step {
                HeadStep::Dense(_) => ", dense",
                HeadStep::Normalize => ", normalize",
            };
        }
        text
    }
}

enum DeviceStep<'a> {
    Dense(&'a Dense),
    Normalize { unit: bool },
}

fn linear(
    x: BufferId,
    weight: Weight,
    bias: Option<Weight>,
    activation: Activation,
    residual: Option<BufferId>,
    out: BufferId,
) -> Op {
    Op::Linear(Linear { x, weight, bias, activation, residual, out })
}
