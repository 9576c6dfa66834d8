//! Vectors of one instruction set behind one trait, so that every kernel is written once.
//!
//! A [`Simd`] value is a token: it exists only where its instructions do (see [`super::isa::Isa::run`]), which
//! is what makes the arithmetic methods safe. Everything here is `inline(always)`: it must end up inside the
//! `#[target_feature]` function that made the token.

#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;
#[cfg(target_arch = "aarch64")]
pub mod neon;
#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
pub mod scalar;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub mod wasm128;

/// Most lanes of any instruction set.
pub const MAX_LANES: usize = 16;

/// One instruction set: f32 lanes, i32 lanes of the same number, and an 8-bit dot product.
pub trait Simd: Copy {
    /// f32 values in a vector.
    const LANES: usize;
    /// Vectors in a row of the register tile; a weight panel is `NV * LANES` outputs wide.
    const NV: usize;
    /// Most rows in the register tile.
    const MR: usize;
    /// Inputs that one [`Simd::dot`] sums: 4 (quantized activations are bytes) or 2 (they are i16).
    const DOT: usize;
    /// What is subtracted from a quantized activation (0..=255) when it is stored.
    const SHIFT: i32;

    type F: Copy;
    type I: Copy;

    /// # Safety
    /// `LANES` values must be readable at `p`.
    unsafe fn load(self, p: *const f32) -> Self::F;
    /// # Safety
    /// `LANES` values must be writable at `p`.
    unsafe fn store(self, p: *mut f32, v: Self::F);
    fn splat(self, v: f32) -> Self::F;
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `1/a` for normal positive `a`, within two units in the last place.
    #[inline(always)]
    fn recip(self, a: Self::F) -> Self::F {
        self.div(self.splat(1.0), a)
    }
    /// `a * b + c`, with one rounding where the hardware has it.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `b` if either is NaN, except on NEON, where the result is NaN.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// As [`Simd::min`].
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// Nearest integer, ties to even.
    fn round(self, a: Self::F) -> Self::F;
    /// `a * 2^n` for an integral `n` in -126..=127; 0 for -127.
    fn scale2(self, a: Self::F, n: Self::F) -> Self::F;

    /// Runs a kernel by a call: what several kernels contain is then compiled once.
    fn call(self, kernel: impl Kernel);

    /// Asks for the cache line at `p`, which need not be readable.
    #[inline(always)]
    fn prefetch(self, p: *const u8) {
        let _ = p;
    }

    fn zero_i(self) -> Self::I;
    /// The word in every lane.
    fn splat_word(self, w: u32) -> Self::I;
    /// # Safety
    /// `LANES` values must be readable at `p`.
    unsafe fn load_i(self, p: *const i32) -> Self::I;
    fn sub_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Low 32 bits of the product.
    fn mul_i(self, a: Self::I, b: Self::I) -> Self::I;
    fn to_f(self, a: Self::I) -> Self::F;
    /// `LANES * DOT` weights, lane by lane.
    ///
    /// # Safety
    /// `LANES * DOT` bytes must be readable at `p`.
    unsafe fn load_weights(self, p: *const i8) -> Self::I;
    /// Adds to each lane the products of its `DOT` activations and weights, exactly.
    fn dot(self, acc: Self::I, activations: Self::I, weights: Self::I) -> Self::I;
    /// Stores integral values in 0..=255 as activations for [`Simd::dot`]: `LANES * 4 / DOT` bytes.
    ///
    /// # Safety
    /// That many bytes must be writable at `p`.
    unsafe fn store_activations(self, p: *mut u8, v: Self::F);

    /// What is added to the 8-bit integers of blocks when they are stored.
    const BYTE_OFFSET: i32;

    /// # Safety
    /// `LANES` f16 must be readable at `p`.
    unsafe fn load_half(self, p: *const u16) -> Self::F;
    /// Signed bytes, as f32.
    ///
    /// # Safety
    /// `LANES` bytes must be readable at `p`.
    unsafe fn load_bytes(self, p: *const i8) -> Self::F;
    /// Stores integral values in -127..=127 as bytes.
    ///
    /// # Safety
    /// `LANES` bytes must be writable at `p`.
    unsafe fn store_bytes(self, p: *mut i8, v: Self::F);
    fn and_i(self, a: Self::I, b: Self::I) -> Self::I;
    fn xor_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Each lane's bits, 4 places lower.
    fn shift4(self, a: Self::I) -> Self::I;
    /// Each lane's bits, 8 places lower.
    fn shift8(self, a: Self::I) -> Self::I;
    /// Adds to each lane the products of its four signed bytes and four weights in 0..=15, exactly.
    fn dot_low(self, acc: Self::I, weights: Self::I, activations: Self::I) -> Self::I;
    /// The same with weights of 8 bits, [`Simd::BYTE_OFFSET`] having been added to them.
    fn dot_bytes(self, acc: Self::I, weights: Self::I, activations: Self::I) -> Self::I;

    /// Sum of the lanes, always in the same order.
    #[inline(always)]
    fn sum(self, v: Self::F) -> f32 {
        fold(self, v, |a, b| a + b)
    }

    /// Smallest of the lanes.
    #[inline(always)]
    fn smallest(self, v: Self::F) -> f32 {
        fold(self, v, |a, b| if a < b { a } else { b })
    }

    /// Largest of the lanes.
    #[inline(always)]
    fn largest(self, v: Self::F) -> f32 {
        fold(self, v, |a, b| if a > b { a } else { b })
    }

    /// The first `min(values.len(), LANES)` values, then `fill`.
    #[inline(always)]
    fn load_part(self, values: &[f32], fill: f32) -> Self::F {
        if values.len() >= Self::LANES {
            // SAFETY: the slice is long enough.
            return unsafe { self.load(values.as_ptr()) };
        }
        let mut lanes = [fill; MAX_LANES];
        lanes[..values.len()].copy_from_slice(values);
        // SAFETY: the array is as long as the longest vector.
        unsafe { self.load(lanes.as_ptr()) }
    }

    /// Stores as many lanes as `out` has room for.
    #[inline(always)]
    fn store_part(self, out: &mut [f32], v: Self::F) {
        if out.len() >= Self::LANES {
            // SAFETY: the slice is long enough.
            return unsafe { self.store(out.as_mut_ptr(), v) };
        }
        let mut lanes = [0f32; MAX_LANES];
        // SAFETY: the array is as long as the longest vector.
        unsafe { self.store(lanes.as_mut_ptr(), v) };
        let n = out.len();
        out.copy_from_slice(&lanes[..n]);
    }
}

/// Folds the upper half of the lanes onto the lower one until one is left.
#[inline(always)]
fn fold<S: Simd>(s: S, v: S::F, f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0f32; MAX_LANES];
    // SAFETY: the array is as long as the longest vector.
    unsafe { s.store(lanes.as_mut_ptr(), v) };
    let mut half = S::LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] = f(lanes[i], lanes[i + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// Work that runs with the vectors of whatever instruction set it is given.
///
/// `run` must be `inline(always)`, and so must everything in it that touches vectors.
pub trait Kernel {
    fn run<S: Simd>(self, s: S);
}

/// [`Simd::call`] where no function needs instructions of its own.
#[inline(never)]
fn plain<S: Simd>(s: S, kernel: impl Kernel) {
    kernel.run(s);
}
