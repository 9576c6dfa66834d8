//! Words of the command line for the engine's enums, and lengths of sequences.

use clap::ValueEnum;
use inferencelayer_engine::op::{self, NormKind, PoolMode};

/// Elementwise function of a linear op.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Activation {
    None,
    Gelu,
    GeluTanh,
    Relu,
    Silu,
    Tanh,
    Sigmoid,
}

impl From<Activation> for op::Activation {
    fn from(word: Activation) -> Self {
        match word {
            Activation::None => op::Activation::None,
            Activation::Gelu => op::Activation::Gelu,
            Activation::GeluTanh => op::Activation::GeluTanh,
            Activation::Relu => op::Activation::Relu,
            Activation::Silu => op::Activation::Silu,
            Activation::Tanh => op::Activation::Tanh,
            Activation::Sigmoid => op::Activation::Sigmoid,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Norm {
    Layer,
    Rms,
}

impl From<Norm> for NormKind {
    fn from(word: Norm) -> Self {
        match word {
            Norm::Layer => NormKind::Layer,
            Norm::Rms => NormKind::Rms,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Pooling {
    Cls,
    Max,
    Mean,
    MeanSqrtLen,
    WeightedMean,
    LastToken,
}

impl From<Pooling> for PoolMode {
    fn from(word: Pooling) -> Self {
        match word {
            Pooling::Cls => PoolMode::Cls,
            Pooling::Max => PoolMode::Max,
            Pooling::Mean => PoolMode::Mean,
            Pooling::MeanSqrtLen => PoolMode::MeanSqrtLen,
            Pooling::WeightedMean => PoolMode::WeightedMean,
            Pooling::LastToken => PoolMode::LastToken,
        }
    }
}

/// A number of rows, columns or heads.
///
/// # Errors
/// Outside 1 to 2³¹, so that products of two sizes never overflow.
pub fn size(text: &str) -> Result<usize, String> {
    const MOST: usize = 1 << 31;
    match text.parse() {
        Ok(n) if (1..=MOST).contains(&n) => Ok(n),
        _ => Err(format!("a number from 1 to {MOST} is needed")),
    }
}

/// Lengths of packed sequences: `32x512,7` is 32 sequences of 512 tokens and one of 7.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lens(pub Vec<usize>);

impl std::str::FromStr for Lens {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const MOST: usize = 1 << 20;
        let mut all = Vec::new();
        for part in text.split(',') {
            let (count, len) = part.split_once('x').unwrap_or(("1", part));
            let number = |word: &str| match word.trim().parse::<usize>() {
                Ok(n) if (1..=MOST).contains(&n) => Ok(n),
                _ => Err(format!("`{part}` is not LENGTH or COUNTxLENGTH with numbers from 1 to {MOST}")),
            };
            let (count, len) = (number(count)?, number(len)?);
            if all.len() + count > MOST {
                return Err(format!("more than {MOST} sequences"));
            }
            all.extend(std::iter::repeat_n(len, count));
        }
        Ok(Lens(all))
    }
}

impl std::fmt::Display for Lens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let runs = self.0.chunk_by(|a, b| a == b);
        let words: Vec<String> = runs.map(|r| format!("{}x{}", r.len(), r[0])).collect();
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lens_are_counted_and_shown() {
        let lens: Lens = "2x512,7, 3x1".parse().unwrap();
        assert_eq!(lens.0, [512, 512, 7, 1, 1, 1]);
        assert_eq!(lens.to_string(), "2x512,1x7,3x1");
        for bad in ["", "x", "3x", "0x4", "4x0", "1x2x3", "-1", "9999999999999999999999", "1048576x1,1"] {
            assert!(bad.parse::<Lens>().is_err(), "{bad}");
        }
    }
}
