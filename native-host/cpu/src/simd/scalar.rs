//! Plain Rust lanes: every target has them, and compilers turn most of them into whatever vectors there are.

use half::f16;

use super::{Kernel, Simd};

/// Eight lanes as arrays.
#[derive(Debug, Clone, Copy)]
pub struct Scalar;

const N: usize = 8;

#[inline(always)]
fn zip(a: [f32; N], b: [f32; N], f: impl Fn(f32, f32) -> f32) -> [f32; N] {
    let mut out = a;
    for i in 0..N {
        out[i] = f(a[i], b[i]);
    }
    out
}

impl Simd for Scalar {
    const LANES: usize = N;
    const NV: usize = 1;
    const MR: usize = 4;
    const DOT: usize = 2;
    const SHIFT: i32 = 0;
    const BYTE_OFFSET: i32 = 0;

    type F = [f32; N];
    /// Lanes of i32; as dot operands, each holds two i16.
    type I = [i32; N];

    #[inline(always)]
    fn call(self, kernel: impl Kernel) {
        super::plain(self, kernel);
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> Self::F {
        // SAFETY: the caller's promise; an array has the alignment of its element.
        unsafe { p.cast::<[f32; N]>().read() }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: Self::F) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[f32; N]>().write(v) }
    }

    #[inline(always)]
    fn splat(self, v: f32) -> Self::F {
        [v; N]
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a * b)
    }

    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a / b)
    }

    // Two roundings: without the instruction a true fused operation is a library call.
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        self.add(self.mul(a, b), c)
    }

    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn round(self, a: Self::F) -> Self::F {
        // Adding and taking away 1.5 · 2^23 leaves the nearest integer; larger values have no fraction.
        const MAGIC: f32 = 12_582_912.0;
        zip(a, a, |a, _| if a.abs() < 4_194_304.0 { (a + MAGIC) - MAGIC } else { a })
    }

    #[inline(always)]
    fn scale2(self, a: Self::F, n: Self::F) -> Self::F {
        zip(a, n, |a, n| a * f32::from_bits(((n as i32 + 127) << 23) as u32))
    }

    #[inline(always)]
    fn zero_i(self) -> Self::I {
        [0; N]
    }

    #[inline(always)]
    fn splat_word(self, w: u32) -> Self::I {
        [w as i32; N]
    }

    #[inline(always)]
    unsafe fn load_i(self, p: *const i32) -> Self::I {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[i32; N]>().read() }
    }

    #[inline(always)]
    fn sub_i(self, a: Self::I, b: Self::I) -> Self::I {
        let mut out = a;
        for i in 0..N {
            out[i] = a[i].wrapping_sub(b[i]);
        }
        out
    }

    #[inline(always)]
    fn mul_i(self, a: Self::I, b: Self::I) -> Self::I {
        let mut out = a;
        for i in 0..N {
            out[i] = a[i].wrapping_mul(b[i]);
        }
        out
    }

    #[inline(always)]
    fn to_f(self, a: Self::I) -> Self::F {
        let mut out = [0f32; N];
        for i in 0..N {
            out[i] = a[i] as f32;
        }
        out
    }

    #[inline(always)]
    unsafe fn load_weights(self, p: *const i8) -> Self::I {
        // SAFETY: the caller's promise.
        let bytes = unsafe { p.cast::<[i8; 2 * N]>().read() };
        let mut out = [0i32; N];
        for i in 0..N {
            out[i] = i32::from(bytes[2 * i]) & 0xffff | i32::from(bytes[2 * i + 1]) << 16;
        }
        out
    }

    #[inline(always)]
    fn dot(self, acc: Self::I, activations: Self::I, weights: Self::I) -> Self::I {
        let mut out = acc;
        for i in 0..N {
            let (a, w) = (activations[i], weights[i]);
            let low = i32::from(a as i16) * i32::from(w as i16);
            out[i] = acc[i].wrapping_add(low).wrapping_add((a >> 16) * (w >> 16));
        }
        out
    }

    #[inline(always)]
    unsafe fn store_activations(self, p: *mut u8, v: Self::F) {
        let mut out = [0i16; N];
        for i in 0..N {
            out[i] = v[i] as i16;
        }
        // SAFETY: the caller's promise: LANES * 4 / DOT = 2 * LANES bytes.
        unsafe { p.cast::<[i16; N]>().write_unaligned(out) };
    }

    #[inline(always)]
    unsafe fn load_half(self, p: *const u16) -> Self::F {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[u16; N]>().read_unaligned() }.map(|h| f16::from_bits(h).to_f32_const())
    }

    #[inline(always)]
    unsafe fn load_bytes(self, p: *const i8) -> Self::F {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[i8; N]>().read() }.map(f32::from)
    }

    #[inline(always)]
    unsafe fn store_bytes(self, p: *mut i8, v: Self::F) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[i8; N]>().write(v.map(|v| v as i8)) };
    }

    #[inline(always)]
    fn and_i(self, a: Self::I, b: Self::I) -> Self::I {
        core::array::from_fn(|i| a[i] & b[i])
    }

    #[inline(always)]
    fn xor_i(self, a: Self::I, b: Self::I) -> Self::I {
        core::array::from_fn(|i| a[i] ^ b[i])
    }

    #[inline(always)]
    fn shift4(self, a: Self::I) -> Self::I {
        a.map(|a| (a as u32 >> 4) as i32)
    }

    #[inline(always)]
    fn shift8(self, a: Self::I) -> Self::I {
        a.map(|a| (a as u32 >> 8) as i32)
    }

    #[inline(always)]
    fn dot_low(self, acc: Self::I, weights: Self::I, activations: Self::I) -> Self::I {
        self.dot_bytes(acc, weights, activations)
    }

    #[inline(always)]
    fn dot_bytes(self, acc: Self::I, weights: Self::I, activations: Self::I) -> Self::I {
        let mut out = acc;
        for i in 0..N {
            let (w, a) = (weights[i].to_le_bytes(), activations[i].to_le_bytes());
            for b in 0..4 {
                out[i] += i32::from(w[b] as i8) * i32::from(a[b] as i8);
            }
        }
        out
    }
}
