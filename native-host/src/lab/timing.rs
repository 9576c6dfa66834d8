//! How fast is it? Variants timed side by side, in turns.

use std::time::Instant;

use inferencelayer_engine::{
    backend::{self, Plan},
    gpu::GpuPlan,
    program::Program,
    task::block_on,
    tensor::Weight,
};

use super::{
    costs::Types,
    data::Streams,
    problem::Problem,
    record::{self, Recorded},
    stats::Summary,
    variant::Opened,
};
use crate::Result;

/// Seconds that the repetitions of one measurement should take.
const TARGET: f64 = 0.01;
/// Most repetitions of an op in one program.
const MOST: usize = 256;

/// How times were taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// The GPU's own, by timestamp queries.
    Gpu,
    /// From submission until the result is in host memory.
    Wall,
}

/// Seconds for one op.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Times {
    pub clock: Clock,
    /// Of the differences between a long and a short program, taken one after the other, for each op.
    pub each: Summary,
    /// From the fastest long and the fastest short program: what the least disturbed run shows.
    pub best: f64,
    /// Ops by which the programs differ.
    pub repeats: usize,
}

enum Runner {
    Gpu(Box<GpuPlan>),
    Wall(Box<dyn Plan>),
}

impl Runner {
    fn new(opened: &Opened, program: &Program) -> Result<Runner> {
        match opened {
            Opened::Gpu(gpu) if gpu.context().features().timestamps => {
                Ok(Runner::Gpu(Box::new(gpu.prepare_gpu(program)?)))
            }
            other => Ok(Runner::Wall(other.backend().prepare(program)?)),
        }
    }

    fn clock(&self) -> Clock {
        match self {
            Runner::Gpu(_) => Clock::Gpu,
            Runner::Wall(_) => Clock::Wall,
        }
    }

    /// Seconds of one run.
    fn run(&mut self, recorded: &Recorded, out: &mut [f32]) -> Result<f64> {
        let inputs = recorded.inputs();
        match self {
            Runner::Gpu(plan) => Ok(plan.time(recorded.counts, &inputs, 1)? * 1e-9),
            Runner::Wall(plan) => {
                let start = Instant::now();
                let ticket = plan.submit(recorded.counts, &inputs, &[(recorded.read.0, 1)])?;
                plan.wait(ticket)?;
                block_on(backend::read(&mut **plan, ticket, out))?;
                Ok(start.elapsed().as_secs_f64())
            }
        }
    }
}

/// A program with few repetitions and one with more; their difference is the cost of the op alone.
pub struct Timer {
    short: (Runner, Recorded),
    long: (Runner, Recorded),
    repeats: usize,
    out: [f32; 4],
    samples: Vec<(f64, f64)>,
}

impl Timer {
    /// Records both programs; `lanes` are copies of the weights to take turns with.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn new(
        opened: &Opened,
        problem: &Problem,
        streams: &Streams,
        lanes: &[Vec<Weight>],
        types: Types,
    ) -> Result<Timer> {
        let record = |repeats: usize| -> Result<(Runner, Recorded)> {
            let recorded = record::repeated(problem, streams, lanes, repeats, types)?;
            Ok((Runner::new(opened, &recorded.program)?, recorded))
        };
        let base = lanes.len();
        let mut out = [0.0; 4];
        let mut run = |(runner, recorded): &mut (Runner, Recorded)| {
            // The first run may compile or touch memory for the first time.
            runner.run(recorded, &mut out)?;
            let again = runner.run(recorded, &mut out)?;
            Ok::<f64, crate::Error>(again.min(runner.run(recorded, &mut out)?))
        };
        let mut short = record(base)?;
        let few = run(&mut short)?;
        // One run of the short program bounds the op's cost; if that is little, look closer.
        let mut repeats = base;
        let mut long = record(base + repeats)?;
        loop {
            let one = (run(&mut long)? - few).max(1e-9) / repeats as f64;
            let wanted = ((TARGET / one) as usize).clamp(1, MOST).div_ceil(base) * base;
            if wanted < 2 * repeats || repeats >= MOST {
                break;
            }
            // In steps, since the first differences are mostly noise.
            repeats = wanted.min(repeats * 16);
            long = record(base + repeats)?;
        }
        Ok(Timer { short, long, repeats, out, samples: Vec::new() })
    }

    /// Takes one measurement.
    ///
    /// # Errors
    /// Those of a run.
    pub fn sample(&mut self) -> Result<()> {
        let short = self.short.0.run(&self.short.1, &mut self.out)?;
        let long = self.long.0.run(&self.long.1, &mut self.out)?;
        self.samples.push((short, long));
        Ok(())
    }

    /// Seconds of one measurement so far, at the median.
    pub fn round(&self) -> f64 {
        let all: Vec<f64> = self.samples.iter().map(|(a, b)| a + b).collect();
        Summary::of(&all).map_or(0.0, |s| s.median)
    }

    /// `None` before the first measurement.
    pub fn times(&self) -> Option<Times> {
        let n = self.repeats as f64;
        let each: Vec<f64> = self.samples.iter().map(|(short, long)| (long - short) / n).collect();
        let least = |f: fn(&(f64, f64)) -> f64| self.samples.iter().map(f).fold(f64::MAX, f64::min);
        let best = (least(|s| s.1) - least(|s| s.0)) / n;
        Some(Times { clock: self.long.0.clock(), each: Summary::of(&each)?, best, repeats: self.repeats })
    }
}

/// Measures the timers in turns, so that whatever disturbs the machine disturbs all of them, until `seconds`
/// have gone for each or `rounds` are done; at least three rounds.
///
/// # Errors
/// Those of a run.
pub fn interleave(timers: &mut [Timer], rounds: usize, seconds: f64) -> Result<()> {
    let start = Instant::now();
    let limit = seconds * timers.len() as f64;
    for round in 0..rounds.max(3) {
        if round >= 3 && start.elapsed().as_secs_f64() > limit {
            break;
        }
        for timer in timers.iter_mut() {
            timer.sample()?;
        }
    }
    Ok(())
}
