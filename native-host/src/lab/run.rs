//! The program `kernel-lab`: its command line and what it does.

use std::{io::Write as _, process::ExitCode};

use clap::{Parser, Subcommand, ValueEnum};
use inferencelayer_engine::{
    gpu::{AdapterChoice, list_adapters},
    task::block_on,
    tensor::{Format, Weight},
};

use super::{
    check::{self, Expectations, KeepF32},
    costs::Formats,
    data::{Data, Sample},
    probe::{self, Best},
    problem::{Param, Problem},
    record,
    report::{Checked, Line, Report, duration},
    suite::{self, SuiteArgs},
    timing::{self, Timer},
    variant::{Device, Opened, Variant},
    words::size,
};
use crate::{Error, Result};

/// Multiplications that the reference does within a few seconds.
const CHECK_BUDGET: u64 = 600_000_000;
/// Bytes of weights and inputs that no cache holds.
const COLD_BYTES: usize = 256 << 20;

/// Checks any op in any shape against the scalar reference, then times variants of it side by side.
#[derive(Debug, Parser)]
#[command(name = "kernel-lab", version, about)]
pub struct Cli {
    #[command(flatten)]
    pub options: Options,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    #[command(flatten)]
    Op(Problem),
    /// What the devices do at best: copying, multiplying, starting a kernel
    Probe,
    /// Every op with every option against the reference
    Suite(SuiteArgs),
}

#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Variants to compare, as in gpu-f16,gpu-f16-nocoop,gpu-q4_0,reference: a device, a format (f32, f16, int8), a
    /// format of blocks for matrices (q4_0, q4_k, mxfp4, ...) and, for the GPU, any of nocoop, nosubgroups, nof16,
    /// default-limits, checked, as-hardware. Blocks alone multiply 8-bit activations where rows are few; after f32
    /// or f16 they multiply those
    #[arg(long, global = true, value_delimiter = ',')]
    pub variants: Vec<Variant>,
    /// Devices whose usual variants are compared if no variants are named
    #[arg(long, global = true, default_value = "all")]
    pub device: DeviceWord,
    /// Of the usual variants, only those that keep matrices in this format
    #[arg(long, global = true)]
    pub dtype: Option<FormatWord>,
    /// GPU by number or by part of its name [default: the fastest]
    #[arg(long, global = true)]
    pub adapter: Option<String>,
    /// Threads of the CPU backend [default: all]
    #[arg(long, global = true, value_parser = size)]
    pub threads: Option<usize>,
    /// Keep the op's float input in f32 even where f16 is stored
    #[arg(long, global = true)]
    pub f32_in: bool,
    /// Keep the op's result in f32 even where f16 is stored
    #[arg(long, global = true)]
    pub f32_out: bool,
    /// Let repetitions take turns with as many copies of weights and inputs as no cache holds
    #[arg(long, global = true)]
    pub cold: bool,
    /// Most rounds of measurements
    #[arg(long, global = true, default_value_t = 30, value_parser = size)]
    pub rounds: usize,
    /// Seconds to measure each variant for, at most
    #[arg(long, global = true, default_value_t = 2.0)]
    pub seconds: f64,
    /// The machine's bandwidth in GB/s, instead of a measured one
    #[arg(long, global = true)]
    pub bandwidth: Option<f64>,
    /// The machine's arithmetic in TFLOP/s, instead of a measured one
    #[arg(long, global = true)]
    pub flops: Option<f64>,
    /// Check only
    #[arg(long, global = true)]
    pub check_only: bool,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DeviceWord {
    Gpu,
    Cpu,
    Reference,
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FormatWord {
    F32,
    F16,
    Int8,
}

impl Options {
    fn adapter(&self) -> AdapterChoice {
        match &self.adapter {
            None => AdapterChoice::Best,
            Some(text) => {
                text.parse().map_or_else(|_| AdapterChoice::Name(text.clone()), AdapterChoice::Index)
            }
        }
    }

    fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
    }

    fn keep(&self) -> KeepF32 {
        KeepF32 { x: self.f32_in, out: self.f32_out }
    }

    /// The variants to run, opened; what cannot be used is said on stderr, and is an error if it was asked for.
    fn open(&self) -> Result<Vec<(Variant, Opened)>> {
        let mut variants = self.variants.clone();
        let named = !variants.is_empty();
        if !named {
            let devices: &[Device] = match self.device {
                DeviceWord::Gpu => &[Device::Gpu],
                DeviceWord::Cpu => &[Device::Cpu],
                DeviceWord::Reference => &[Device::Reference],
                // The reference is slow, and has its say in every check.
                DeviceWord::All if cfg!(feature = "encoder-cpu") => &[Device::Gpu, Device::Cpu],
                DeviceWord::All => &[Device::Gpu],
            };
            variants = devices.iter().flat_map(|d| Variant::usual(*d)).collect();
            if let Some(word) = self.dtype {
                let format = match word {
                    FormatWord::F32 => Format::F32,
                    FormatWord::F16 => Format::F16,
                    FormatWord::Int8 => Format::Int8,
                };
                variants.retain(|v| v.format == format);
            }
        }
        let optional = !named && self.device == DeviceWord::All;
        let no_gpu = optional && block_on(list_adapters()).is_empty();
        if no_gpu {
            eprintln!("no GPU adapter: only other devices are measured");
            variants.retain(|v| v.device != Device::Gpu);
        }
        if variants.is_empty() {
            return Err(Error::Input("no variant is left; name some with --variants".into()));
        }
        let (adapter, threads) = (self.adapter(), self.threads());
        variants
            .into_iter()
            .map(|v| {
                let opened = v.open(&adapter, threads)?;
                Ok((v, opened))
            })
            .collect()
    }

    /// What the variant's machine does at best; without it there is no floor, but times all the same.
    fn best(&self, variant: &Variant, opened: &Opened) -> Option<Best> {
        let given = (self.bandwidth.map(|b| b * 1e9), self.flops.map(|f| f * 1e12));
        if let (Some(bytes_per_second), Some(flops)) = given {
            return Some(Best { bytes_per_second, flops_per_second: Some(flops) });
        }
        match probe::best(opened, variant, self.threads()) {
            Ok(measured) => Some(Best {
                bytes_per_second: given.0.unwrap_or(measured.bytes_per_second),
                flops_per_second: given.1.or(measured.flops_per_second),
            }),
            Err(error) => {
                eprintln!("{variant}: its floor is not known: {error}");
                None
            }
        }
    }
}

/// Runs the program; failure if anything was wrong.
///
/// # Errors
/// Those of devices and of the op's shapes.
pub fn main(cli: Cli) -> Result<ExitCode> {
    let right = match &cli.command {
        Command::Op(problem) => op(problem, &cli.options)?,
        Command::Probe => {
            probe_all(&cli.options)?;
            true
        }
        Command::Suite(args) => run_suite(args, &cli.options)?,
    };
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::io("stdout"))
}

fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(|e| Error::Input(e.to_string()))?;
    print(&(text + "\n"))
}

fn op(problem: &Problem, options: &Options) -> Result<bool> {
    problem.check()?;
    let opened = options.open()?;
    let report = report(problem, options, &opened)?;
    if options.json {
        print_json(&report)?
    } else {
        print(&report.text())?
    }
    Ok(report.all_right())
}

/// Checks every variant, then times those that are right.
///
/// # Errors
/// Those of the op's shapes, of the reference, and of probes.
pub fn report(problem: &Problem, options: &Options, opened: &[(Variant, Opened)]) -> Result<Report> {
    let data = Data::new(problem);
    let sample = Sample::new(problem, &data.streams, CHECK_BUDGET);
    let mut expectations = Expectations::default();
    // Of the variant that keeps its weights in the fewest bytes.
    let lane_bytes = opened.iter().map(|(variant, opened)| {
        let formats = formats(variant, opened);
        let kept = |p: &Param| p.rows * formats.of(p).row_bytes(p.cols);
        4 * data.streams.x.len() + problem.operands().params.iter().map(kept).sum::<usize>()
    });
    let lane_bytes = lane_bytes.min().unwrap_or(0).max(1);
    let copies = if options.cold { COLD_BYTES.div_ceil(lane_bytes).clamp(1, 64) } else { 1 };
    let mut lines = Vec::new();
    let mut timers = Vec::new();
    for (variant, opened) in opened {
        let (line, timer) =
            one(problem, options, (variant, opened), &data, &sample, &mut expectations, copies)?;
        if let Some(timer) = timer {
            timers.push((lines.len(), timer));
        }
        lines.push(line);
    }
    let (at, mut running): (Vec<usize>, Vec<Timer>) = timers.into_iter().unzip();
    timing::interleave(&mut running, options.rounds, options.seconds)?;
    for (at, timer) in at.into_iter().zip(&running) {
        lines[at].times = timer.times();
    }
    let o = problem.operands();
    let rows = [sample.of_whole.len(), o.rows[o.out.0 as usize]];
    Ok(Report { problem: problem.to_string(), checked_rows: rows, copies, lines })
}

fn formats<'a>(variant: &Variant, opened: &'a Opened) -> Formats<'a> {
    Formats { capabilities: opened.backend().capabilities(), blocks: variant.blocks.map(|b| b.format) }
}

fn one(
    problem: &Problem,
    options: &Options,
    (variant, opened): (&Variant, &Opened),
    data: &Data,
    sample: &Sample,
    expectations: &mut Expectations,
    copies: usize,
) -> Result<(Line, Option<Timer>)> {
    let backend = opened.backend();
    let capabilities = backend.capabilities();
    let formats = formats(variant, opened);
    let types = options.keep().types(problem, formats);
    let upload = || record::weights(problem, &data.weights, backend, formats);
    let first = upload()?;
    let expected = expectations.get(data, sample, formats, types)?;
    let is_slow = variant.device == Device::Reference && sample.is_part(problem);
    let outcome = if is_slow {
        // Running it whole would take too long, and it is what the others are compared with.
        let part = Data { streams: sample.streams.clone(), weights: data.weights.clone() };
        let rows = Sample { of_whole: sample.rows.clone(), ..sample.clone() };
        check::check(&sample.problem, &part, &rows, &expected, backend, &first, types)
    } else {
        check::check(problem, data, sample, &expected, backend, &first, types)
    };
    let mut line = Line {
        variant: variant.to_string(),
        backend: capabilities.name.clone(),
        kernels: kernels(opened, problem, data, &first, types)?,
        check: Checked::new(outcome.map_err(|e| e.to_string())),
        costs: problem.costs(formats, types),
        best: None,
        times: None,
        untimed: None,
    };
    if !line.check.right {
        line.untimed = Some("its result is wrong".into());
    } else if options.check_only {
        line.untimed = Some("only the check was asked for".into());
    } else if is_slow {
        line.untimed = Some("the reference would take too long".into());
    }
    if line.untimed.is_some() {
        return Ok((line, None));
    }
    line.best = options.best(variant, opened);
    let mut lanes: Vec<Vec<Weight>> = vec![first];
    for _ in 1..copies {
        lanes.push(upload()?);
    }
    Ok((line, Some(Timer::new(opened, problem, &data.streams, &lanes, types)?)))
}

/// The kernels that the op becomes on a GPU.
fn kernels(
    opened: &Opened,
    problem: &Problem,
    data: &Data,
    weights: &[Weight],
    types: super::costs::Types,
) -> Result<Vec<String>> {
    let Opened::Gpu(gpu) = opened else { return Ok(Vec::new()) };
    let lanes = [weights.to_vec()];
    let steps = |repeats| -> Result<Vec<String>> {
        let recorded = record::repeated(problem, &data.streams, &lanes, repeats, types)?;
        let plan = gpu.prepare_gpu(&recorded.program)?;
        Ok(plan.steps().map(|(name, [x, y, z])| format!("{name} {x}x{y}x{z}")).collect())
    };
    let (one, two) = (steps(1)?, steps(2)?);
    // What a second occurrence adds, just before the copy that ends both programs.
    let count = two.len().saturating_sub(one.len());
    let start = one.len().saturating_sub(1);
    Ok(two.into_iter().skip(start).take(count).collect())
}

#[derive(Debug, serde::Serialize)]
struct Probed {
    variant: String,
    backend: String,
    #[serde(flatten)]
    best: Best,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<probe::gpu::Latency>,
}

fn probe_all(options: &Options) -> Result<()> {
    let mut all = Vec::new();
    for (variant, opened) in options.open()? {
        let best = probe::best(&opened, &variant, options.threads())?;
        let latency = match &opened {
            Opened::Gpu(gpu) => Some(probe::gpu::Probe::new(gpu.context())?.latency()?),
            Opened::Other(_) => None,
        };
        let backend = opened.backend().capabilities().name.clone();
        if !options.json {
            let rate = best.flops_per_second.map_or("unknown".into(), |r| format!("{:.1}", r / 1e9));
            let bandwidth = best.bytes_per_second / 1e9;
            print(&format!("{variant}: {backend}\n  copy {bandwidth:.1} GB/s, multiply {rate} GFLOP/s\n"))?;
            if let Some(l) = latency {
                let (dispatch, submit) = (duration(l.dispatch), duration(l.submit));
                print(&format!("  dependent dispatch {dispatch}, submit and wait {submit}\n"))?;
            }
        }
        all.push(Probed { variant: variant.to_string(), backend, best, latency });
    }
    if options.json { print_json(&all) } else { Ok(()) }
}

fn run_suite(args: &SuiteArgs, options: &Options) -> Result<bool> {
    let mut outcomes = Vec::new();
    for (variant, opened) in options.open()? {
        let mut progress = |name: &str| log::debug!("{name}");
        let outcome = suite::run(variant.to_string(), opened.backend(), args, &mut progress);
        if !options.json {
            print(&outcome.text())?;
        }
        outcomes.push(outcome);
    }
    if options.json {
        print_json(&outcomes)?;
    }
    Ok(outcomes.iter().all(suite::Outcome::passed))
}
