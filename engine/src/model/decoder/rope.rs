//! Rotary frequencies with the scalings that long-context models use, and their table.

use alloc::{format, string::String, vec::Vec};
use core::f64::consts::PI;

use crate::{
    Result,
    backend::Backend,
    tensor::{Format, Weight, WeightSpec, WeightUse},
};

/// How frequencies are changed for contexts longer than a model was first trained for; as
/// `transformers/modeling_rope_utils.py` computes them.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    None,
    /// All divided by `factor`.
    Linear {
        factor: f64,
    },
    /// Long waves divided by `factor`, a blend between `low` and `high`.
    Llama3 {
        factor: f64,
        low: f64,
        high: f64,
        original: f64,
    },
    /// Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023.
    Yarn {
        factor: f64,
        attention_factor: Option<f64>,
        fast: f64,
        slow: f64,
        original: f64,
    },
    /// Frequency `i` divided by the `i`-th value of this tensor (GGUF's `rope_freqs.weight`).
    Divisors {
        tensor: String,
    },
}

/// Rotary embedding of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeConfig {
    pub theta: f64,
    pub scaling: RopeScaling,
}

impl RopeConfig {
    /// Frequencies of the `head_dim / 2` pairs in radians a position, and what multiplies cosines and sines.
    /// `divisors` are the values of [`RopeScaling::Divisors`]'s tensor.
    pub fn frequencies(&self, head_dim: usize, divisors: &[f32]) -> (Vec<f32>, f64) {
        let d = head_dim as f64;
        let plain = (0..head_dim / 2).map(|i| libm::pow(self.theta, -((2 * i) as f64) / d));
        let mut amplitude = 1.0;
        let scaled: Vec<f64> = match &self.scaling {
            RopeScaling::None => plain.collect(),
            RopeScaling::Linear { factor } => plain.map(|f| f / factor).collect(),
            RopeScaling::Divisors { .. } => {
                plain.enumerate().map(|(i, f)| f / divisors.get(i).map_or(1.0, |d| f64::from(*d))).collect()
            }
            RopeScaling::Llama3 { factor, low, high, original } => plain
                .map(|f| {
                    let turns = original * f / (2.0 * PI);
                    if turns > *high {
                        f
                    } else if turns < *low {
                        f / factor
                    } else {
                        let smooth = (turns - low) / (high - low);
                        (1.0 - smooth) * f / factor + smooth * f
                    }
                })
                .collect(),
            RopeScaling::Yarn { factor, attention_factor, fast, slow, original } => {
                amplitude = attention_factor
                    .unwrap_or_else(|| if *factor <= 1.0 { 1.0 } else { 0.1 * libm::log(*factor) + 1.0 });
                let dimension =
                    |turns: f64| d * libm::log(original / (turns * 2.0 * PI)) / (2.0 * libm::log(self.theta));
                let first = libm::floor(dimension(*fast)).max(0.0);
                let last = libm::ceil(dimension(*slow)).min(d - 1.0);
                let span = if last > first { last - first } else { 0.001 };
                plain
                    .enumerate()
                    .map(|(i, f)| {
                        let ramp = ((i as f64 - first) / span).clamp(0.0, 1.0);
                        f / factor * ramp + f * (1.0 - ramp)
                    })
                    .collect()
            }
        };
        (scaled.into_iter().map(|f| f as f32).collect(), amplitude)
    }
}

/// Uploads the table of [`Rope::table`](crate::op::Rope::table) for `positions` positions.
pub(super) fn table(
    config: &RopeConfig,
    divisors: &[f32],
    positions: usize,
    head_dim: usize,
    backend: &dyn Backend,
) -> Result<Weight> {
    let (frequencies, amplitude) = config.frequencies(head_dim, divisors);
    let name = format!("rope table of base {}", config.theta);
    let spec =
        WeightSpec { name, rows: positions, cols: head_dim, format: Format::F32, usage: WeightUse::Table };
    let mut sink = backend.weight(spec)?;
    let mut row = Vec::new();
    for position in 0..positions {
        row.clear();
        // The angle is rounded to f32, as models were trained with; its sine and cosine are not.
        let angle = |f: &f32| f64::from(position as f32 * f);
        let cosines = frequencies.iter().map(|f| (amplitude * libm::cos(angle(f))) as f32);
        let sines = frequencies.iter().map(|f| (amplitude * libm::sin(angle(f))) as f32);
        row.extend(cosines.chain(sines).flat_map(f32::to_le_bytes));
        sink.push(Format::F32, &row)?;
    }
    sink.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama3_keeps_short_waves_and_stretches_long_ones() {
        let scaling = RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 8192.0 };
        let plain = RopeConfig { theta: 500_000.0, scaling: RopeScaling::None }.frequencies(128, &[]).0;
        let scaled = RopeConfig { theta: 500_000.0, scaling }.frequencies(128, &[]).0;
        assert_eq!(plain[0], scaled[0]);
        assert!((plain[63] / scaled[63] - 8.0).abs() < 1e-4);
        assert!(plain.iter().zip(&scaled).all(|(p, s)| s <= p && *s >= p / 8.001));
    }

    #[test]
    fn yarn_scales_amplitude_and_low_frequencies() {
        let scaling = RopeScaling::Yarn {
            factor: 4.0,
            attention_factor: None,
            fast: 32.0,
            slow: 1.0,
            original: 32_768.0,
        };
        let (scaled, amplitude) = RopeConfig { theta: 1e6, scaling }.frequencies(128, &[]);
        let plain = RopeConfig { theta: 1e6, scaling: RopeScaling::None }.frequencies(128, &[]).0;
        assert!((amplitude - (0.1 * 4f64.ln() + 1.0)).abs() < 1e-12);
        assert_eq!(plain[0], scaled[0]);
        assert!((plain[63] / scaled[63] - 4.0).abs() < 1e-4);
    }
}
