//! AVX2 with FMA, and AVX-VNNI where there is.

use core::arch::x86_64::*;

use super::{Kernel, Simd};
use crate::isa::x86;

/// Token of AVX2 and FMA; `VNNI` adds AVX-VNNI's four-byte dot product.
#[derive(Debug, Clone, Copy)]
pub struct Avx2<const VNNI: bool>(());

impl<const VNNI: bool> Avx2<VNNI> {
    /// # Safety
    /// The processor must have avx2, fma and f16c, and avxvnni if `VNNI`.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        Avx2(())
    }
}

/// Methods that are a few intrinsics.
macro_rules! intrinsics {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $out:ty = $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $($arg: $ty),*) -> $out {
            // SAFETY: the token exists only where the processor has these instructions.
            unsafe { $body }
        }
    )*};
}

impl<const VNNI: bool> Simd for Avx2<VNNI> {
    const LANES: usize = 8;
    const NV: usize = 2;
    const MR: usize = 6;
    const DOT: usize = if VNNI { 4 } else { 2 };
    const SHIFT: i32 = 0;
    /// The four-byte dot product takes unsigned weights.
    const BYTE_OFFSET: i32 = if VNNI { 128 } else { 0 };

    type F = __m256;
    type I = __m256i;

    #[inline(always)]
    fn call(self, kernel: impl Kernel) {
        // SAFETY: the token exists only where the processor has these instructions.
        unsafe { if VNNI { x86::avx2_vnni(kernel) } else { x86::avx2(kernel) } }
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m256 {
        // SAFETY: the caller's promise and the token's.
        unsafe { _mm256_loadu_ps(p) }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m256) {
        // SAFETY: the caller's promise and the token's.
        unsafe { _mm256_storeu_ps(p, v) }
    }

    #[inline(always)]
    unsafe fn load_i(self, p: *const i32) -> __m256i {
        // SAFETY: the caller's promise and the token's.
        unsafe { _mm256_loadu_si256(p.cast()) }
    }

    #[inline(always)]
    unsafe fn load_weights(self, p: *const i8) -> __m256i {
        // SAFETY: the caller's promise and the token's.
        unsafe {
            if VNNI { _mm256_loadu_si256(p.cast()) } else { _mm256_cvtepi8_epi16(_mm_loadu_si128(p.cast())) }
        }
    }

    #[inline(always)]
    unsafe fn store_activations(self, p: *mut u8, v: __m256) {
        // SAFETY: the caller's promise and the token's.
        unsafe {
            let integers = _mm256_cvtps_epi32(v);
            let (low, high) = (_mm256_castsi256_si128(integers), _mm256_extracti128_si256::<1>(integers));
            let words = _mm_packus_epi32(low, high);
            if VNNI {
                _mm_storel_epi64(p.cast(), _mm_packus_epi16(words, words));
            } else {
                _mm_storeu_si128(p.cast(), words);
            }
        }
    }

    #[inline(always)]
    unsafe fn load_half(self, p: *const u16) -> __m256 {
        // SAFETY: the caller's promise and the token's.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
    }

    #[inline(always)]
    unsafe fn load_bytes(self, p: *const i8) -> __m256 {
        // SAFETY: the caller's promise and the token's.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast()))) }
    }

    #[inline(always)]
    unsafe fn store_bytes(self, p: *mut i8, v: __m256) {
        // SAFETY: the caller's promise and the token's.
        unsafe {
            let integers = _mm256_cvtps_epi32(v);
            let (low, high) = (_mm256_castsi256_si128(integers), _mm256_extracti128_si256::<1>(integers));
            let words = _mm_packs_epi32(low, high);
            _mm_storel_epi64(p.cast(), _mm_packs_epi16(words, words));
        }
    }

    intrinsics! {
        sum(v: __m256) -> f32 = {
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
        };
        largest(v: __m256) -> f32 = {
            let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)))
        };
        and_i(a: __m256i, b: __m256i) -> __m256i = _mm256_and_si256(a, b);
        xor_i(a: __m256i, b: __m256i) -> __m256i = _mm256_xor_si256(a, b);
        shift4(a: __m256i) -> __m256i = _mm256_srli_epi32::<4>(a);
        shift8(a: __m256i) -> __m256i = _mm256_srli_epi32::<8>(a);
        dot_low(acc: __m256i, weights: __m256i, activations: __m256i) -> __m256i = if VNNI {
            _mm256_dpbusd_avx_epi32(acc, weights, activations)
        } else {
            let pairs = _mm256_maddubs_epi16(weights, activations);
            _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        };
        dot_bytes(acc: __m256i, weights: __m256i, activations: __m256i) -> __m256i = if VNNI {
            _mm256_dpbusd_avx_epi32(acc, weights, activations)
        } else {
            // Magnitudes and signed activations: 2 · 128 · 127 does not saturate.
            let signed = _mm256_sign_epi8(activations, weights);
            let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(weights), signed);
            _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        };
        splat(v: f32) -> __m256 = _mm256_set1_ps(v);
        add(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
        sub(a: __m256, b: __m256) -> __m256 = _mm256_sub_ps(a, b);
        mul(a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
        div(a: __m256, b: __m256) -> __m256 = _mm256_div_ps(a, b);
        fma(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps(a, b, c);
        min(a: __m256, b: __m256) -> __m256 = _mm256_min_ps(a, b);
        max(a: __m256, b: __m256) -> __m256 = _mm256_max_ps(a, b);
        round(a: __m256) -> __m256 =
            _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
        scale2(a: __m256, n: __m256) -> __m256 = {
            let biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
            _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased)))
        };
        prefetch(p: *const u8) -> () = _mm_prefetch::<_MM_HINT_T0>(p.cast());
        zero_i() -> __m256i = _mm256_setzero_si256();
        splat_word(w: u32) -> __m256i = _mm256_set1_epi32(w as i32);
        sub_i(a: __m256i, b: __m256i) -> __m256i = _mm256_sub_epi32(a, b);
        mul_i(a: __m256i, b: __m256i) -> __m256i = _mm256_mullo_epi32(a, b);
        to_f(a: __m256i) -> __m256 = _mm256_cvtepi32_ps(a);
        dot(acc: __m256i, activations: __m256i, weights: __m256i) -> __m256i = if VNNI {
            _mm256_dpbusd_avx_epi32(acc, activations, weights)
        } else {
            // Sixteen-bit products: the eight-bit `maddubs` would saturate.
            _mm256_add_epi32(acc, _mm256_madd_epi16(activations, weights))
        };
    }
}
