//! Elementary functions on vectors. The coefficients are minimax fits made for this file.

use inferencelayer_engine::op::Activation;

use super::simd::Simd;

/// `2^x`, relative error below 2e-7; 0 for x ≤ -127, and x above 127 counts as 127.
#[inline(always)]
pub fn exp2<S: Simd>(s: S, x: S::F) -> S::F {
    #[expect(clippy::approx_constant, reason = "a coefficient of the fit, not ln 2")]
    const C: [f32; 6] = [1.0, 0.693_147, 0.240_222_42, 0.055_507_336, 0.009_671_513, 0.001_326_472_7];
    let x = s.min(s.splat(127.0), s.max(s.splat(-127.0), x));
    let n = s.round(x);
    let p = polynomial(s, s.sub(x, n), &C);
    s.scale2(p, n)
}

/// `c[0] + c[1] x + …`
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(s: S, x: S::F, c: &[f32; N]) -> S::F {
    let mut p = s.splat(c[N - 1]);
    for i in (0..N - 1).rev() {
        p = s.fma(p, x, s.splat(c[i]));
    }
    p
}

/// `e^(k x)`
#[inline(always)]
fn exp_scaled<S: Simd>(s: S, k: f32, x: S::F) -> S::F {
    exp2(s, s.mul(x, s.splat(k * core::f32::consts::LOG2_E)))
}

/// `x/(1 + e^(-k x))`
#[inline(always)]
fn swish<S: Simd>(s: S, k: f32, x: S::F) -> S::F {
    s.mul(x, s.recip(s.add(s.splat(1.0), exp_scaled(s, -k, x))))
}

/// `x/2 · (1 + erf(x/√2))`, absolute error below 3e-7.
///
/// As `max(x, 0) − h(|x|)` with `h(a) = a/2 · erfc(a/√2)`, which is small and falls to 0; `h(a) = a/P(a)⁸`
/// needs no exponential and is exact where the result is linear.
#[inline(always)]
pub fn gelu<S: Simd>(s: S, x: S::F) -> S::F {
    const P: [f32; 9] = [
        1.090_508_3,
        0.108_752,
        0.048_870_396,
        0.009_315_807,
        0.001_125_625_3,
        8.748_192e-5,
        1.180_962_5e-4,
        -2.038_251_5e-5,
        3.354_599_8e-6,
    ];
    let zero = s.splat(0.0);
    let a = s.min(s.splat(16.0), s.max(x, s.sub(zero, x)));
    let p = polynomial(s, a, &P);
    let p2 = s.mul(p, p);
    let p4 = s.mul(p2, p2);
    s.sub(s.max(zero, x), s.mul(a, s.recip(s.mul(p4, p4))))
}

/// One value of an activation.
#[inline(always)]
pub fn activate<S: Simd>(s: S, activation: Activation, x: S::F) -> S::F {
    match activation {
        Activation::None => x,
        Activation::Gelu => gelu(s, x),
        Activation::GeluTanh => {
            // x/2 · (1 + tanh u) = x/(1 + e^(-2u))
            const A: f32 = 0.797_884_6;
            let u = s.fma(s.mul(x, x), s.splat(A * 0.044_715), s.splat(A));
            let e = exp_scaled(s, -2.0, s.mul(x, u));
            s.mul(x, s.recip(s.add(s.splat(1.0), e)))
        }
        Activation::Relu => s.max(s.splat(0.0), x),
        Activation::Silu => swish(s, 1.0, x),
        Activation::Tanh => {
            let e = exp_scaled(s, 2.0, x);
            s.sub(s.splat(1.0), s.mul(s.splat(2.0), s.recip(s.add(s.splat(1.0), e))))
        }
        Activation::Sigmoid => {
            let e = exp_scaled(s, -1.0, x);
            s.recip(s.add(s.splat(1.0), e))
        }
    }
}

#[cfg(test)]
mod tests {
    use inferencelayer_engine::{op::Activation, reference};

    use super::*;
    use crate::{isa::Isa, simd::Kernel};

    struct Map<'a>(&'a mut [f32], Option<Activation>);

    impl Kernel for Map<'_> {
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            for part in self.0.chunks_mut(S::LANES) {
                let x = s.load_part(part, 0.0);
                let y = match self.1 {
                    Some(activation) => activate(s, activation, x),
                    None => exp2(s, x),
                };
                s.store_part(part, y);
            }
        }
    }

    fn map(isa: Isa, xs: &[f32], activation: Option<Activation>) -> Vec<f32> {
        let mut out = xs.to_vec();
        // SAFETY: only available instruction sets are passed.
        unsafe { isa.run(Map(&mut out, activation)) };
        out
    }

    fn isas() -> impl Iterator<Item = Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.available())
    }

    #[test]
    fn exp2_is_close_and_reaches_zero() {
        let xs: Vec<f32> = (-126_000..127_000).map(|i| i as f32 / 1000.0).collect();
        for isa in isas() {
            for (x, y) in xs.iter().zip(map(isa, &xs, None)) {
                let want = f64::from(*x).exp2();
                assert!((f64::from(y) / want - 1.0).abs() < 2e-7, "{isa}: 2^{x} = {y}");
            }
            let edges = map(isa, &[-127.0, -1e30, f32::NEG_INFINITY, 0.0, 1.0, 1e30], None);
            assert_eq!(edges[..5], [0.0, 0.0, 0.0, 1.0, 2.0], "{isa}");
            assert!(edges[5].is_finite());
            assert!(map(isa, &[f32::NAN], None)[0].is_nan(), "{isa} hides NaN");
        }
    }

    #[test]
    fn activations_are_close() {
        let xs: Vec<f32> =
            (-120_000..120_000).map(|i| i as f32 / 10_000.0).chain([-1e4, 1e4, -100.0, 100.0]).collect();
        for isa in isas() {
            for activation in Activation::ALL {
                for (x, y) in xs.iter().zip(map(isa, &xs, Some(activation))) {
                    let exact = match activation {
                        // In f64, since the reference's own f32 error is of the size that is tested.
                        Activation::Gelu => {
                            let x = f64::from(*x);
                            (0.5 * x * libm::erfc(-x * core::f64::consts::FRAC_1_SQRT_2)) as f32
                        }
                        _ => reference::activate(activation, *x),
                    };
                    let bound = 3e-7 + 3e-7 * exact.abs();
                    assert!((y - exact).abs() <= bound, "{isa} {activation:?}({x}) = {y}, not {exact}");
                }
                assert!(
                    map(isa, &[f32::NAN], Some(activation))[0].is_nan(),
                    "{isa} {activation:?} hides NaN"
                );
            }
        }
    }
}
