//! AVX-512 (F, BW, VL, DQ), with VNNI where there is.

use core::arch::x86_64::*;

use super::{Kernel, Simd};
use crate::isa::x86;

/// Token of AVX-512; `VNNI` adds the four-byte dot product.
#[derive(Debug, Clone, Copy)]
pub struct Avx512<const VNNI: bool>(());

impl<const VNNI: bool> Avx512<VNNI> {
    /// # Safety
    /// The processor must have avx512f, bw, vl, dq, and avx512vnni if `VNNI`.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        Avx512(())
    }
}

/// Methods that are one intrinsic.
macro_rules! intrinsics {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $out:ty = $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $($arg: $ty),*) -> $out {
            // SAFETY: the token exists only where the processor has these instructions.
            unsafe { $body }
        }
    )*};
}

impl<const VNNI: bool> Simd for Avx512<VNNI> {
    const LANES: usize = 16;
    const NV: usize = 2;
    const MR: usize = 12;
    const DOT: usize = if VNNI { 4 } else { 2 };
    const SHIFT: i32 = 0;
    /// The four-byte dot product takes unsigned weights.
    const BYTE_OFFSET: i32 = if VNNI { 128 } else { 0 };

    type F = __m512;
    type I = __m512i;

    #[inline(always)]
    fn call(self, kernel: impl Kernel) {
        // SAFETY: the token exists only where the processor has these instructions.
        unsafe { if VNNI { x86::avx512_vnni(kernel) } else { x86::avx512(kernel) } }
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m512 {
        // SAFETY: the caller's promise and the token's.
        unsafe { _mm512_loadu_ps(p) }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m512) {
        // SAFETY: the caller's promise and the token's.
        unsafe { _mm512_storeu_ps(p, v) }
    }

    #[inline(always)]
    unsafe fn load_i(self, p: *const i32) -> __m512i {
        // SAFETY: the caller's promise and the token's.
        unsafe { _mm512_loadu_si512(p.cast()) }
    }

    #[inline(always)]
    unsafe fn load_weights(self, p: *const i8) -> __m512i {
        // SAFETY: the caller's promise and the token's.
        unsafe {
            if VNNI {
                _mm512_loadu_si512(p.cast())
            } else {
                _mm512_cvtepi8_epi16(_mm256_loadu_si256(p.cast()))
            }
        }
    }

    #[inline(always)]
    unsafe fn store_activations(self, p: *mut u8, v: __m512) {
        // SAFETY: the caller's promise and the token's.
        unsafe {
            let integers = _mm512_cvtps_epi32(v);
            if VNNI {
                _mm_storeu_si128(p.cast(), _mm512_cvtepi32_epi8(integers));
            } else {
                _mm256_storeu_si256(p.cast(), _mm512_cvtepi32_epi16(integers));
            }
        }
    }

    #[inline(always)]
    unsafe fn load_half(self, p: *const u16) -> __m512 {
        // SAFETY: the caller's promise and the token's.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }

    #[inline(always)]
    unsafe fn load_bytes(self, p: *const i8) -> __m512 {
        // SAFETY: the caller's promise and the token's.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()))) }
    }

    #[inline(always)]
    unsafe fn store_bytes(self, p: *mut i8, v: __m512) {
        // SAFETY: the caller's promise and the token's.
        unsafe { _mm_storeu_si128(p.cast(), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v))) }
    }

    intrinsics! {
        sum(v: __m512) -> f32 = {
            let v = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
        };
        largest(v: __m512) -> f32 = {
            let v = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
            let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)))
        };
        and_i(a: __m512i, b: __m512i) -> __m512i = _mm512_and_si512(a, b);
        xor_i(a: __m512i, b: __m512i) -> __m512i = _mm512_xor_si512(a, b);
        shift4(a: __m512i) -> __m512i = _mm512_srli_epi32::<4>(a);
        shift8(a: __m512i) -> __m512i = _mm512_srli_epi32::<8>(a);
        dot_low(acc: __m512i, weights: __m512i, activations: __m512i) -> __m512i = if VNNI {
            _mm512_dpbusd_epi32(acc, weights, activations)
        } else {
            let pairs = _mm512_maddubs_epi16(weights, activations);
            _mm512_add_epi32(acc, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))
        };
        dot_bytes(acc: __m512i, weights: __m512i, activations: __m512i) -> __m512i = if VNNI {
            _mm512_dpbusd_epi32(acc, weights, activations)
        } else {
            let (low, high) = (_mm512_slli_epi16::<8>(weights), _mm512_slli_epi16::<8>(activations));
            let even = _mm512_madd_epi16(_mm512_srai_epi16::<8>(low), _mm512_srai_epi16::<8>(high));
            let odd = _mm512_madd_epi16(_mm512_srai_epi16::<8>(weights), _mm512_srai_epi16::<8>(activations));
            _mm512_add_epi32(acc, _mm512_add_epi32(even, odd))
        };
        splat(v: f32) -> __m512 = _mm512_set1_ps(v);
        add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        div(a: __m512, b: __m512) -> __m512 = _mm512_div_ps(a, b);
        recip(a: __m512) -> __m512 = {
            // A step of Newton's from 14 bits: division takes as long as the rest of an activation.
            let r = _mm512_rcp14_ps(a);
            _mm512_fmadd_ps(r, _mm512_fnmadd_ps(a, r, _mm512_set1_ps(1.0)), r)
        };
        fma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        min(a: __m512, b: __m512) -> __m512 = _mm512_min_ps(a, b);
        max(a: __m512, b: __m512) -> __m512 = _mm512_max_ps(a, b);
        round(a: __m512) -> __m512 =
            _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
        scale2(a: __m512, n: __m512) -> __m512 = {
            // Not plain `scalef`: results below the normal range take the processor's slow path.
            let normal = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(n, _mm512_set1_ps(-127.0));
            _mm512_maskz_scalef_ps(normal, a, n)
        };
        prefetch(p: *const u8) -> () = _mm_prefetch::<_MM_HINT_T0>(p.cast());
        zero_i() -> __m512i = _mm512_setzero_si512();
        splat_word(w: u32) -> __m512i = _mm512_set1_epi32(w as i32);
        sub_i(a: __m512i, b: __m512i) -> __m512i = _mm512_sub_epi32(a, b);
        mul_i(a: __m512i, b: __m512i) -> __m512i = _mm512_mullo_epi32(a, b);
        to_f(a: __m512i) -> __m512 = _mm512_cvtepi32_ps(a);
        dot(acc: __m512i, activations: __m512i, weights: __m512i) -> __m512i = if VNNI {
            _mm512_dpbusd_epi32(acc, activations, weights)
        } else {
            _mm512_add_epi32(acc, _mm512_madd_epi16(activations, weights))
        };
    }
}
