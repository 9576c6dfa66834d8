//! What this CPU does at best.

use std::{
    hint::black_box,
    sync::Barrier,
    time::{Duration, Instant},
};

/// Operands of the probed multiplications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    F32,
    /// Products of 8-bit integers summed in 32 bits.
    Int8,
}

/// Bytes read and written each second when `threads` threads copy buffers that no cache holds.
pub fn copy_bandwidth(threads: usize) -> f64 {
    const BYTES: usize = 128 << 20;
    const ROUNDS: usize = 4;
    let seconds = slowest(
        threads,
        || {
            let from = vec![1u8; BYTES];
            let mut to = vec![0u8; BYTES];
            move || {
                to.copy_from_slice(black_box(&from));
                black_box(&mut to);
            }
        },
        ROUNDS,
    );
    (threads * 2 * BYTES) as f64 / seconds
}

/// Multiplications and additions each second, with the widest instructions there are; `None` where no probe
/// knows them.
pub fn rate(arithmetic: Arithmetic, threads: usize) -> Option<f64> {
    const STEPS: u64 = 1 << 20;
    let (run, per_step) = kernel(arithmetic)?;
    let seconds = slowest(threads, || move || run(STEPS), 5);
    Some(threads as f64 * STEPS as f64 * per_step / seconds)
}

/// Runs what `prepare` gives on every thread at once, and returns the seconds of the fastest round, each of
/// which ends when its slowest thread does.
fn slowest<F: FnMut()>(threads: usize, prepare: impl Fn() -> F + Sync, rounds: usize) -> f64 {
    let barrier = Barrier::new(threads);
    let all: Vec<Vec<Duration>> = std::thread::scope(|scope| {
        let spawned: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut run = prepare();
                    run();
                    (0..rounds)
                        .map(|_| {
                            barrier.wait();
                            let start = Instant::now();
                            run();
                            start.elapsed()
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        spawned.into_iter().filter_map(|t| t.join().ok()).collect()
    });
    let round = |i: usize| all.iter().map(|times| times[i]).max();
    (0..rounds).filter_map(round).min().unwrap_or(Duration::MAX).as_secs_f64().max(1e-9)
}

/// A loop of independent multiply-adds, and how many multiplications and additions one of its steps does.
type Kernel = (fn(u64), f64);

/// Chains of dependent instructions: enough to hide their latency.
const CHAINS: usize = 12;

#[cfg(target_arch = "x86_64")]
fn kernel(arithmetic: Arithmetic) -> Option<Kernel> {
    let chains = CHAINS as f64;
    match arithmetic {
        Arithmetic::F32 if is_x86_feature_detected!("avx512f") => Some((x86::fma512, chains * 32.0)),
        Arithmetic::F32 if is_x86_feature_detected!("fma") => Some((x86::fma256, chains * 16.0)),
        Arithmetic::F32 => Some((portable, chains * 16.0)),
        Arithmetic::Int8 if is_x86_feature_detected!("avx512vnni") => Some((x86::dot512, chains * 128.0)),
        Arithmetic::Int8 if is_x86_feature_detected!("avx2") => Some((x86::dot256, chains * 64.0)),
        Arithmetic::Int8 => None,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn kernel(arithmetic: Arithmetic) -> Option<Kernel> {
    (arithmetic == Arithmetic::F32).then_some((portable as fn(u64), CHAINS as f64 * 16.0))
}

/// Eight lanes a chain, vectorised by the compiler.
fn portable(steps: u64) {
    let (factor, addend) = (black_box([0.999f32; 8]), black_box([0.001f32; 8]));
    let mut chains = [[1f32; 8]; CHAINS];
    for _ in 0..steps {
        for chain in &mut chains {
            for i in 0..8 {
                chain[i] = chain[i] * factor[i] + addend[i];
            }
        }
    }
    black_box(chains);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! Each function is called only where [`super::kernel`] has detected its instructions.

    use std::{arch::x86_64::*, hint::black_box};

    use super::CHAINS;

    pub fn fma512(steps: u64) {
        #[target_feature(enable = "avx512f")]
        fn run(steps: u64) {
            let (factor, addend) = (black_box(_mm512_set1_ps(0.999)), black_box(_mm512_set1_ps(0.001)));
            let mut chains = [_mm512_set1_ps(1.0); CHAINS];
            for _ in 0..steps {
                for chain in &mut chains {
                    *chain = _mm512_fmadd_ps(*chain, factor, addend);
                }
            }
            black_box(chains);
        }
        // SAFETY: AVX-512F was detected.
        unsafe { run(steps) }
    }

    pub fn fma256(steps: u64) {
        #[target_feature(enable = "avx,fma")]
        fn run(steps: u64) {
            let (factor, addend) = (black_box(_mm256_set1_ps(0.999)), black_box(_mm256_set1_ps(0.001)));
            let mut chains = [_mm256_set1_ps(1.0); CHAINS];
            for _ in 0..steps {
                for chain in &mut chains {
                    *chain = _mm256_fmadd_ps(*chain, factor, addend);
                }
            }
            black_box(chains);
        }
        // SAFETY: FMA, which includes AVX, was detected.
        unsafe { run(steps) }
    }

    pub fn dot512(steps: u64) {
        #[target_feature(enable = "avx512f,avx512vnni")]
        fn run(steps: u64) {
            let (a, b) = (black_box(_mm512_set1_epi8(3)), black_box(_mm512_set1_epi8(-2)));
            let mut chains = [_mm512_setzero_si512(); CHAINS];
            for _ in 0..steps {
                for chain in &mut chains {
                    *chain = _mm512_dpbusd_epi32(*chain, a, b);
                }
            }
            black_box(chains);
        }
        // SAFETY: AVX-512 VNNI, which includes AVX-512F, was detected.
        unsafe { run(steps) }
    }

    pub fn dot256(steps: u64) {
        #[target_feature(enable = "avx2")]
        fn run(steps: u64) {
            let (a, b) = (black_box(_mm256_set1_epi8(3)), black_box(_mm256_set1_epi8(-2)));
            let ones = black_box(_mm256_set1_epi16(1));
            let mut chains = [_mm256_setzero_si256(); CHAINS];
            for _ in 0..steps {
                for chain in &mut chains {
                    // The product takes part in the chain, so that it is not computed once for all steps.
                    let pairs = _mm256_maddubs_epi16(_mm256_xor_si256(a, *chain), b);
                    *chain = _mm256_add_epi32(*chain, _mm256_madd_epi16(pairs, ones));
                }
            }
            black_box(chains);
        }
        // SAFETY: AVX2 was detected.
        unsafe { run(steps) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_positive_numbers() {
        assert!(rate(Arithmetic::F32, 1).is_some_and(|r| r.is_finite() && r > 1e6));
        assert!(rate(Arithmetic::Int8, 1).is_none_or(|r| r.is_finite() && r > 1e6));
        assert!(copy_bandwidth(2) > 1e6);
    }
}
