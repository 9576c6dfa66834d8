//! Measures of difference, and how much of it each backend's number formats allow.

use inferencelayer_engine::{
    backend::Capabilities,
    tensor::{DType, Format},
};

/// Largest difference over the largest expected value.
pub fn relative(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    assert!(found.iter().all(|v| v.is_finite()), "a value is not finite");
    let largest = expected.iter().fold(0f32, |m, v| m.max(v.abs()));
    found.iter().zip(expected).fold(0f32, |m, (f, e)| m.max((f - e).abs())) / largest
}

/// `1 − cosine`, in f64.
pub fn cosine_distance(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    1.0 - dot(found, expected) / (dot(found, found) * dot(expected, expected)).sqrt()
}

/// What parity with a float32 computation may cost.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Of hidden states, as [`relative`].
    pub hidden: f32,
    /// Of vectors, as [`cosine_distance`].
    pub cosine: f64,
}

impl Bounds {
    pub fn of(capabilities: &Capabilities) -> Self {
        match (capabilities.activations, capabilities.matrices) {
            (_, Format::Int8) => Bounds { hidden: 0.1, cosine: 3e-3 },
            (DType::F32, Format::F32) => Bounds { hidden: 1e-4, cosine: 1e-6 },
            _ => Bounds { hidden: 2e-2, cosine: 1e-4 },
        }
    }
}
