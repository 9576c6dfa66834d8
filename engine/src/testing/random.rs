//! Seeded pseudo-random inputs that are the same on every target.

use alloc::vec::Vec;

/// SplitMix64.
pub struct Random(u64);

impl Random {
    /// Seeded by a name, so that cases do not shift when others are added.
    pub fn named(name: &str) -> Self {
        // FNV-1a.
        Random(
            name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)),
        )
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `limit`, which must not be 0.
    pub fn below(&mut self, limit: usize) -> u32 {
        (self.bits() % limit.max(1) as u64) as u32
    }

    /// Uniform in [-1, 1).
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// `n` values uniform in `[center - spread, center + spread)`.
    pub fn values(&mut self, n: usize, center: f32, spread: f32) -> Vec<f32> {
        (0..n).map(|_| center + spread * self.unit()).collect()
    }
}
