//! Instruction sets: which there are, which the processor has, and running a kernel with one of them.

use core::fmt;

use super::simd::{Kernel, Simd};

/// What needs no asking: plain Rust, or the vectors of a WebAssembly module that has them. Such a module does not load
/// without, and does not carry every kernel twice.
#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
use super::simd::scalar::Scalar as Plain;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
use super::simd::wasm128::Wasm128 as Plain;

/// An instruction set that kernels can be run with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// Plain Rust; every target but WebAssembly with vectors.
    Scalar,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX2, FMA, F16C and AVX-VNNI.
    Avx2Vnni,
    /// AVX-512 F, BW, VL, DQ.
    Avx512,
    /// AVX-512 with VNNI.
    Avx512Vnni,
    /// NEON.
    Neon,
    /// NEON with the dot-product extension.
    NeonDot,
    /// WebAssembly's 128-bit vectors.
    Wasm128,
}

/// Sizes of an instruction set's tiles; they decide the layout of packed weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    pub lanes: usize,
    /// Outputs in a weight panel.
    pub panel: usize,
    /// Most rows in a register tile.
    pub rows: usize,
    /// Inputs summed by one 8-bit dot step.
    pub dot: usize,
    /// Offset of stored 8-bit activations.
    pub shift: i32,
    /// What is added to the 8-bit integers of blocks.
    pub byte_offset: i32,
}

impl Isa {
    /// All of them, the best last.
    pub const ALL: [Isa; 8] = [
        Isa::Scalar,
        Isa::Wasm128,
        Isa::Neon,
        Isa::NeonDot,
        Isa::Avx2,
        Isa::Avx2Vnni,
        Isa::Avx512,
        Isa::Avx512Vnni,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::Avx2Vnni => "avx2-vnni",
            Isa::Avx512 => "avx512",
            Isa::Avx512Vnni => "avx512-vnni",
            Isa::Neon => "neon",
            Isa::NeonDot => "neon-dot",
            Isa::Wasm128 => "wasm128",
        }
    }

    /// The instruction set called `name`.
    pub fn from_name(name: &str) -> Option<Isa> {
        Isa::ALL.into_iter().find(|isa| isa.name() == name)
    }

    /// Whether this build has it and this processor does.
    #[cfg(target_arch = "x86_64")]
    pub fn available(self) -> bool {
        use std::arch::is_x86_feature_detected as has;
        let avx2 = has!("avx2") && has!("fma") && has!("f16c");
        let avx512 = avx2 && has!("avx512f") && has!("avx512bw") && has!("avx512vl") && has!("avx512dq");
        match self {
            Isa::Scalar => true,
            Isa::Avx2 => avx2,
            Isa::Avx2Vnni => avx2 && has!("avxvnni"),
            Isa::Avx512 => avx512,
            Isa::Avx512Vnni => avx512 && has!("avx512vnni"),
            Isa::Neon | Isa::NeonDot | Isa::Wasm128 => false,
        }
    }

    /// Whether this build has it and this processor does.
    #[cfg(target_arch = "aarch64")]
    pub fn available(self) -> bool {
        use std::arch::is_aarch64_feature_detected as has;
        match self {
            Isa::Scalar => true,
            Isa::Neon => has!("neon"),
            Isa::NeonDot => has!("neon") && has!("dotprod"),
            _ => false,
        }
    }

    /// Whether this build has it and this processor does.
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub fn available(self) -> bool {
        self == if cfg!(target_feature = "simd128") { Isa::Wasm128 } else { Isa::Scalar }
    }

    /// The best one there is here.
    pub fn detect() -> Isa {
        Isa::ALL.into_iter().rev().find(|isa| isa.available()).expect("every target has one")
    }

    /// Tile sizes.
    pub const fn geometry(self) -> Geometry {
        const fn of<S: Simd>() -> Geometry {
            Geometry {
                lanes: S::LANES,
                panel: S::LANES * S::NV,
                rows: S::MR,
                dot: S::DOT,
                shift: S::SHIFT,
                byte_offset: S::BYTE_OFFSET,
            }
        }
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => of::<super::simd::avx2::Avx2<false>>(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2Vnni => of::<super::simd::avx2::Avx2<true>>(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => of::<super::simd::avx512::Avx512<false>>(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => of::<super::simd::avx512::Avx512<true>>(),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => of::<super::simd::neon::Neon<false>>(),
            #[cfg(target_arch = "aarch64")]
            Isa::NeonDot => of::<super::simd::neon::Neon<true>>(),
            _ => of::<Plain>(),
        }
    }

    /// Runs a kernel with this instruction set.
    ///
    /// # Safety
    /// [`Isa::available`] must be true of it.
    #[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(unused_unsafe))]
    pub unsafe fn run(self, kernel: impl Kernel) {
        // SAFETY: the caller says that the processor has the instruction set, which is what entering its
        // `target_feature` function and making its token need.
        unsafe {
            match self {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => x86::avx2(kernel),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2Vnni => x86::avx2_vnni(kernel),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => x86::avx512(kernel),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512Vnni => x86::avx512_vnni(kernel),
                #[cfg(target_arch = "aarch64")]
                Isa::Neon => arm::neon(kernel),
                #[cfg(target_arch = "aarch64")]
                Isa::NeonDot => arm::neon_dot(kernel),
                _ => kernel.run(Plain),
            }
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86 {
    use super::super::simd::{Kernel, avx2::Avx2, avx512::Avx512};

    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline(never)]
    pub fn avx2(kernel: impl Kernel) {
        // SAFETY: the features of this function.
        kernel.run(unsafe { Avx2::<false>::new() });
    }

    #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
    #[inline(never)]
    pub fn avx2_vnni(kernel: impl Kernel) {
        // SAFETY: the features of this function.
        kernel.run(unsafe { Avx2::<true>::new() });
    }

    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")]
    #[inline(never)]
    pub fn avx512(kernel: impl Kernel) {
        // SAFETY: the features of this function.
        kernel.run(unsafe { Avx512::<false>::new() });
    }

    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    #[inline(never)]
    pub fn avx512_vnni(kernel: impl Kernel) {
        // SAFETY: the features of this function.
        kernel.run(unsafe { Avx512::<true>::new() });
    }
}

#[cfg(target_arch = "aarch64")]
pub(crate) mod arm {
    use super::super::simd::{Kernel, neon::Neon};

    #[target_feature(enable = "neon")]
    #[inline(never)]
    pub fn neon(kernel: impl Kernel) {
        // SAFETY: the features of this function.
        kernel.run(unsafe { Neon::<false>::new() });
    }

    #[target_feature(enable = "neon,dotprod")]
    #[inline(never)]
    pub fn neon_dot(kernel: impl Kernel) {
        // SAFETY: the features of this function.
        kernel.run(unsafe { Neon::<true>::new() });
    }
}
