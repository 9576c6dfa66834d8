//! NEON, with the dot-product extension where there is.

use core::arch::aarch64::*;

use super::{Kernel, Simd};
use crate::isa::arm;

/// Token of NEON; `DOTPROD` adds the four-byte dot product.
#[derive(Debug, Clone, Copy)]
pub struct Neon<const DOTPROD: bool>(());

impl<const DOTPROD: bool> Neon<DOTPROD> {
    /// # Safety
    /// The processor must have neon, and dotprod if `DOTPROD`.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        Neon(())
    }
}

/// `acc + Σ a·w` over four signed bytes a lane.
///
/// Written as an instruction because the intrinsic is not stable.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot(acc: int32x4_t, a: int8x16_t, w: int8x16_t) -> int32x4_t {
    let mut out = acc;
    // SAFETY: the instruction is in the features of this function and touches only its registers.
    unsafe {
        core::arch::asm!(
            "sdot {acc:v}.4s, {a:v}.16b, {w:v}.16b",
            acc = inout(vreg) out, a = in(vreg) a, w = in(vreg) w,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    out
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

impl<const DOTPROD: bool> Simd for Neon<DOTPROD> {
    const LANES: usize = 4;
    const NV: usize = 4;
    const MR: usize = 6;
    const DOT: usize = if DOTPROD { 4 } else { 2 };
    /// The signed dot product needs signed activations.
    const SHIFT: i32 = if DOTPROD { 128 } else { 0 };
    const BYTE_OFFSET: i32 = 0;

    type F = float32x4_t;
    type I = int32x4_t;

    #[inline(always)]
    fn call(self, kernel: impl Kernel) {
        // SAFETY: the token exists only where the processor has these instructions.
        unsafe { if DOTPROD { arm::neon_dot(kernel) } else { arm::neon(kernel) } }
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> float32x4_t {
        // SAFETY: the caller's promise and the token's.
        unsafe { vld1q_f32(p) }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: float32x4_t) {
        // SAFETY: the caller's promise and the token's.
        unsafe { vst1q_f32(p, v) }
    }

    #[inline(always)]
    unsafe fn load_i(self, p: *const i32) -> int32x4_t {
        // SAFETY: the caller's promise and the token's.
        unsafe { vld1q_s32(p) }
    }

    #[inline(always)]
    unsafe fn load_weights(self, p: *const i8) -> int32x4_t {
        // SAFETY: the caller's promise and the token's.
        unsafe {
            if DOTPROD {
                vreinterpretq_s32_s8(vld1q_s8(p))
            } else {
                vreinterpretq_s32_s16(vmovl_s8(vld1_s8(p)))
            }
        }
    }

    #[inline(always)]
    unsafe fn store_activations(self, p: *mut u8, v: float32x4_t) {
        // SAFETY: the caller's promise and the token's.
        unsafe {
            let words = vmovn_s32(vsubq_s32(vcvtnq_s32_f32(v), vdupq_n_s32(Self::SHIFT)));
            if DOTPROD {
                let bytes = vmovn_s16(vcombine_s16(words, words));
                let packed = vget_lane_u32::<0>(vreinterpret_u32_s8(bytes));
                p.cast::<u32>().write_unaligned(packed);
            } else {
                vst1_s16(p.cast(), words);
            }
        }
    }

    #[inline(always)]
    unsafe fn load_half(self, p: *const u16) -> float32x4_t {
        // SAFETY: the caller's promise and the token's.
        unsafe {
            let h = vmovl_u16(vld1_u16(p));
            // The exponent's bias differs by 112; subnormal numbers come right too.
            let magnitude = vreinterpretq_f32_u32(vshlq_n_u32::<13>(vandq_u32(h, vdupq_n_u32(0x7fff))));
            let scaled = vmulq_f32(magnitude, vdupq_n_f32(f32::from_bits(0x7780_0000)));
            let sign = vshlq_n_u32::<16>(vandq_u32(h, vdupq_n_u32(0x8000)));
            vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(scaled), sign))
        }
    }

    #[inline(always)]
    unsafe fn load_bytes(self, p: *const i8) -> float32x4_t {
        // SAFETY: the caller's promise and the token's.
        unsafe {
            let bytes = vreinterpret_s8_u32(vdup_n_u32(p.cast::<u32>().read_unaligned()));
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))))
        }
    }

    #[inline(always)]
    unsafe fn store_bytes(self, p: *mut i8, v: float32x4_t) {
        // SAFETY: the caller's promise and the token's.
        unsafe {
            let words = vmovn_s32(vcvtnq_s32_f32(v));
            let bytes = vmovn_s16(vcombine_s16(words, words));
            p.cast::<u32>().write_unaligned(vget_lane_u32::<0>(vreinterpret_u32_s8(bytes)));
        }
    }

    #[inline(always)]
    fn dot_low(self, acc: int32x4_t, weights: int32x4_t, activations: int32x4_t) -> int32x4_t {
        self.dot_bytes(acc, weights, activations)
    }

    intrinsics! {
        and_i(a: int32x4_t, b: int32x4_t) -> int32x4_t = vandq_s32(a, b);
        xor_i(a: int32x4_t, b: int32x4_t) -> int32x4_t = veorq_s32(a, b);
        shift4(a: int32x4_t) -> int32x4_t =
            vreinterpretq_s32_u32(vshrq_n_u32::<4>(vreinterpretq_u32_s32(a)));
        shift8(a: int32x4_t) -> int32x4_t =
            vreinterpretq_s32_u32(vshrq_n_u32::<8>(vreinterpretq_u32_s32(a)));
        dot_bytes(acc: int32x4_t, weights: int32x4_t, activations: int32x4_t) -> int32x4_t = {
            let (w, a) = (vreinterpretq_s8_s32(weights), vreinterpretq_s8_s32(activations));
            if DOTPROD {
                sdot(acc, a, w)
            } else {
                let low = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(a)));
                vaddq_s32(acc, vpaddq_s32(low, vpaddlq_s16(vmull_high_s8(w, a))))
            }
        };
        splat(v: f32) -> float32x4_t = vdupq_n_f32(v);
        add(a: float32x4_t, b: float32x4_t) -> float32x4_t = vaddq_f32(a, b);
        sub(a: float32x4_t, b: float32x4_t) -> float32x4_t = vsubq_f32(a, b);
        mul(a: float32x4_t, b: float32x4_t) -> float32x4_t = vmulq_f32(a, b);
        div(a: float32x4_t, b: float32x4_t) -> float32x4_t = vdivq_f32(a, b);
        fma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t = vfmaq_f32(c, a, b);
        min(a: float32x4_t, b: float32x4_t) -> float32x4_t = vminq_f32(a, b);
        max(a: float32x4_t, b: float32x4_t) -> float32x4_t = vmaxq_f32(a, b);
        round(a: float32x4_t) -> float32x4_t = vrndnq_f32(a);
        scale2(a: float32x4_t, n: float32x4_t) -> float32x4_t = {
            let biased = vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127));
            vmulq_f32(a, vreinterpretq_f32_s32(vshlq_n_s32::<23>(biased)))
        };
        zero_i() -> int32x4_t = vdupq_n_s32(0);
        splat_word(w: u32) -> int32x4_t = vdupq_n_s32(w as i32);
        sub_i(a: int32x4_t, b: int32x4_t) -> int32x4_t = vsubq_s32(a, b);
        mul_i(a: int32x4_t, b: int32x4_t) -> int32x4_t = vmulq_s32(a, b);
        to_f(a: int32x4_t) -> float32x4_t = vcvtq_f32_s32(a);
        dot(acc: int32x4_t, activations: int32x4_t, weights: int32x4_t) -> int32x4_t = if DOTPROD {
            sdot(acc, vreinterpretq_s8_s32(activations), vreinterpretq_s8_s32(weights))
        } else {
            let (a, w) = (vreinterpretq_s16_s32(activations), vreinterpretq_s16_s32(weights));
            let low = vmull_s16(vget_low_s16(a), vget_low_s16(w));
            vaddq_s32(acc, vpaddq_s32(low, vmull_high_s16(a, w)))
        };
    }
}
