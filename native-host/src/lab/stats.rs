//! Statistics of repeated measurements.

use serde::{Deserialize, Serialize};

/// What is kept of a series of measurements.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub min: f64,
    /// First quartile, median, third quartile.
    pub q1: f64,
    pub median: f64,
    pub q3: f64,
    pub count: usize,
}

impl Summary {
    /// `None` for an empty series; values that are not numbers are left out.
    pub fn of(values: &[f64]) -> Option<Summary> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|v| !v.is_nan()).collect();
        sorted.sort_by(f64::total_cmp);
        Some(Summary {
            min: *sorted.first()?,
            q1: quantile(&sorted, 0.25),
            median: quantile(&sorted, 0.5),
            q3: quantile(&sorted, 0.75),
            count: sorted.len(),
        })
    }
}

/// Of a sorted, not empty series; between two values, their weighted mean.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_values() {
        let s = Summary::of(&[4.0, 1.0, 3.0, 2.0, f64::NAN]).unwrap();
        assert_eq!((s.min, s.q1, s.median, s.q3, s.count), (1.0, 1.75, 2.5, 3.25, 4));
        let one = Summary::of(&[7.0]).unwrap();
        assert_eq!((one.min, one.median, one.q3), (7.0, 7.0, 7.0));
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[f64::NAN]), None);
    }
}
