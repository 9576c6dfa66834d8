//! WebAssembly's 128-bit vectors, in builds that enable `simd128`.

use core::arch::wasm32::*;

use super::{Kernel, Simd};

/// Four lanes; a build has the feature or this module is not in it.
#[derive(Debug, Clone, Copy)]
pub struct Wasm128;

impl Simd for Wasm128 {
    const LANES: usize = 4;
    const NV: usize = 2;
    const MR: usize = 4;
    const DOT: usize = 2;
    const SHIFT: i32 = 0;
    const BYTE_OFFSET: i32 = 0;

    type F = v128;
    type I = v128;

    #[inline(always)]
    fn call(self, kernel: impl Kernel) {
        super::plain(self, kernel);
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> v128 {
        // SAFETY: the caller's promise.
        unsafe { v128_load(p.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: v128) {
        // SAFETY: the caller's promise.
        unsafe { v128_store(p.cast(), v) }
    }

    #[inline(always)]
    fn splat(self, v: f32) -> v128 {
        f32x4_splat(v)
    }

    #[inline(always)]
    fn add(self, a: v128, b: v128) -> v128 {
        f32x4_add(a, b)
    }

    #[inline(always)]
    fn sub(self, a: v128, b: v128) -> v128 {
        f32x4_sub(a, b)
    }

    #[inline(always)]
    fn mul(self, a: v128, b: v128) -> v128 {
        f32x4_mul(a, b)
    }

    #[inline(always)]
    fn div(self, a: v128, b: v128) -> v128 {
        f32x4_div(a, b)
    }

    #[inline(always)]
    fn fma(self, a: v128, b: v128, c: v128) -> v128 {
        f32x4_add(f32x4_mul(a, b), c)
    }

    #[inline(always)]
    fn min(self, a: v128, b: v128) -> v128 {
        f32x4_pmin(b, a)
    }

    #[inline(always)]
    fn max(self, a: v128, b: v128) -> v128 {
        f32x4_pmax(b, a)
    }

    #[inline(always)]
    fn round(self, a: v128) -> v128 {
        f32x4_nearest(a)
    }

    #[inline(always)]
    fn scale2(self, a: v128, n: v128) -> v128 {
        let biased = i32x4_add(i32x4_trunc_sat_f32x4(n), i32x4_splat(127));
        f32x4_mul(a, i32x4_shl(biased, 23))
    }

    #[inline(always)]
    fn zero_i(self) -> v128 {
        i32x4_splat(0)
    }

    #[inline(always)]
    fn splat_word(self, w: u32) -> v128 {
        u32x4_splat(w)
    }

    #[inline(always)]
    unsafe fn load_i(self, p: *const i32) -> v128 {
        // SAFETY: the caller's promise.
        unsafe { v128_load(p.cast()) }
    }

    #[inline(always)]
    fn sub_i(self, a: v128, b: v128) -> v128 {
        i32x4_sub(a, b)
    }

    #[inline(always)]
    fn mul_i(self, a: v128, b: v128) -> v128 {
        i32x4_mul(a, b)
    }

    #[inline(always)]
    fn to_f(self, a: v128) -> v128 {
        f32x4_convert_i32x4(a)
    }

    #[inline(always)]
    unsafe fn load_weights(self, p: *const i8) -> v128 {
        // SAFETY: the caller's promise.
        unsafe { i16x8_load_extend_i8x8(p) }
    }

    #[inline(always)]
    fn dot(self, acc: v128, activations: v128, weights: v128) -> v128 {
        i32x4_add(acc, i32x4_dot_i16x8(activations, weights))
    }

    #[inline(always)]
    unsafe fn store_activations(self, p: *mut u8, v: v128) {
        let integers = i32x4_trunc_sat_f32x4(v);
        let words = u16x8_narrow_i32x4(integers, integers);
        // SAFETY: the caller's promise: 2 * LANES = 8 bytes.
        unsafe { v128_store64_lane::<0>(words, p.cast()) };
    }

    #[inline(always)]
    unsafe fn load_half(self, p: *const u16) -> v128 {
        // SAFETY: the caller's promise.
        let h = unsafe { u32x4_load_extend_u16x4(p) };
        // The exponent's bias differs by 112; subnormal numbers come right too.
        let magnitude = i32x4_shl(v128_and(h, u32x4_splat(0x7fff)), 13);
        let scaled = f32x4_mul(magnitude, f32x4_splat(f32::from_bits(0x7780_0000)));
        v128_or(scaled, i32x4_shl(v128_and(h, u32x4_splat(0x8000)), 16))
    }

    #[inline(always)]
    unsafe fn load_bytes(self, p: *const i8) -> v128 {
        // SAFETY: the caller's promise.
        let bytes = unsafe { v128_load32_zero(p.cast()) };
        f32x4_convert_i32x4(i32x4_extend_low_i16x8(i16x8_extend_low_i8x16(bytes)))
    }

    #[inline(always)]
    unsafe fn store_bytes(self, p: *mut i8, v: v128) {
        let integers = i32x4_trunc_sat_f32x4(v);
        let words = i16x8_narrow_i32x4(integers, integers);
        // SAFETY: the caller's promise.
        unsafe { v128_store32_lane::<0>(i8x16_narrow_i16x8(words, words), p.cast()) };
    }

    #[inline(always)]
    fn and_i(self, a: v128, b: v128) -> v128 {
        v128_and(a, b)
    }

    #[inline(always)]
    fn xor_i(self, a: v128, b: v128) -> v128 {
        v128_xor(a, b)
    }

    #[inline(always)]
    fn shift4(self, a: v128) -> v128 {
        u32x4_shr(a, 4)
    }

    #[inline(always)]
    fn shift8(self, a: v128) -> v128 {
        u32x4_shr(a, 8)
    }

    #[inline(always)]
    fn dot_low(self, acc: v128, weights: v128, activations: v128) -> v128 {
        self.dot_bytes(acc, weights, activations)
    }

    #[inline(always)]
    fn dot_bytes(self, acc: v128, weights: v128, activations: v128) -> v128 {
        let even = |v| i16x8_shr(i16x8_shl(v, 8), 8);
        let odd = |v| i16x8_shr(v, 8);
        let acc = i32x4_add(acc, i32x4_dot_i16x8(even(weights), even(activations)));
        i32x4_add(acc, i32x4_dot_i16x8(odd(weights), odd(activations)))
    }
}
