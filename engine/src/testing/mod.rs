//! The op suite: every op with every option in odd shapes, on any backend, against the scalar reference.
//!
//! A case records the same small program for the backend under test and for
//! [`Reference`], with weights rounded to the formats that the backend keeps, runs
//! both on the same seeded inputs and compares within a bound that follows from element types and op. Programs
//! recorded for more rows than a run uses are first run full of NaN and huge values, so that whatever leaks
//! from beyond the counts shows.
//!
//! To add an op: a file of cases here, called from [`cases`].

mod attention;
mod blocks;
mod build;
mod cached;
mod chain;
mod experts;
mod fused;
mod gguf;
mod linear;
mod quick;
mod random;
mod rows;
mod run;
mod sample;
mod states;
mod stored;
#[cfg(test)]
mod tests;

use alloc::{boxed::Box, format, string::String, vec::Vec};
use core::fmt::Write;

use crate::{
    Error, Result,
    backend::{Backend, Capabilities},
    quant::q8,
    reference::Reference,
    tensor::{DType, Format},
};
pub use blocks::random_blocks;
pub use build::tiles;
use build::{Builder, Sizes};
pub use chain::in_flight;
pub use gguf::GgufWriter;
pub use quick::{Wrong, quick_cases, quick_check};
pub use random::Random;
pub use run::{Deviation, compare};

/// How much of the suite to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Every option in small shapes: for software adapters and browsers, where barriers are slow.
    Small,
    /// The small shapes and those that reach every edge of a tile, up to 1536 columns and 130 rows.
    Full,
}

/// Records a case's program.
type Build = dyn Fn(&mut Builder) -> Result<()>;

/// One named check of the suite.
pub struct Case {
    name: String,
    sizes: Sizes,
    tolerance: f32,
    build: Box<Build>,
}

impl Case {
    fn new(
        name: String,
        sizes: Sizes,
        tolerance: f32,
        build: impl Fn(&mut Builder) -> Result<()> + 'static,
    ) -> Self {
        Case { name, sizes, tolerance, build: Box::new(build) }
    }

    /// The op first, then shapes and options.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs on `backend` and on the reference and returns the worst deviation, be it within the bound or not.
    ///
    /// # Errors
    /// Those of the backend; `Unsupported` if it returns values that are not finite.
    pub async fn run(&self, backend: &dyn Backend) -> Result<Deviation> {
        run::run(self, backend, &Reference::new()).await
    }
}

/// What became of one case.
#[derive(Debug, Clone)]
pub struct CaseReport {
    pub name: String,
    pub outcome: Result<Deviation>,
}

impl CaseReport {
    pub fn passed(&self) -> bool {
        self.outcome.as_ref().is_ok_and(Deviation::within)
    }
}

/// The suite's cases for a backend with these capabilities.
pub fn cases(capabilities: &Capabilities, size: Size) -> Vec<Case> {
    let mut all = Vec::new();
    let plan = &Suite { capabilities, full: size == Size::Full };
    rows::embed(plan, &mut all);
    rows::norm(plan, &mut all);
    rows::normalize(plan, &mut all);
    rows::q8(plan, &mut all);
    rows::pool(plan, &mut all);
    rows::rope(plan, &mut all);
    linear::linear(plan, &mut all);
    linear::activations(plan, &mut all);
    linear::gated(plan, &mut all);
    blocks::embed(plan, &mut all);
    blocks::linear(plan, &mut all);
    blocks::gated(plan, &mut all);
    attention::attention(plan, &mut all);
    chain::chain(plan, &mut all);
    all
}

/// Products of floats and blocks in shapes that reach every tile of kernels for many rows.
pub fn tile_cases(capabilities: &Capabilities) -> Vec<Case> {
    let mut all = Vec::new();
    blocks::tiles(&Suite { capabilities, full: true }, &mut all);
    all
}

/// The cases of the decoders' ops.
pub fn decoder_cases(capabilities: &Capabilities, size: Size) -> Vec<Case> {
    let mut all = Vec::new();
    let plan = &Suite { capabilities, full: size == Size::Full };
    stored::store_kv(plan, &mut all);
    stored::short_conv(plan, &mut all);
    cached::cached_attention(plan, &mut all);
    experts::route(plan, &mut all);
    experts::expert_gated_linear(plan, &mut all);
    experts::expert_linear(plan, &mut all);
    sample::sample(plan, &mut all);
    all
}

/// Cases of neighbouring ops that a backend may do together.
pub fn fused_cases(capabilities: &Capabilities, size: Size) -> Vec<Case> {
    let mut all = Vec::new();
    let plan = &Suite { capabilities, full: size == Size::Full };
    fused::norms(plan, &mut all);
    fused::attention(plan, &mut all);
    fused::convolution(plan, &mut all);
    fused::mixture(plan, &mut all);
    all
}

/// Runs these cases, whether those before passed or not.
pub async fn check_cases(backend: &dyn Backend, cases: Vec<Case>) -> Vec<CaseReport> {
    let mut reports = Vec::new();
    for case in cases {
        let outcome = case.run(backend).await;
        reports.push(CaseReport { name: case.name, outcome });
    }
    reports
}

/// Runs every case of [`cases`], and several runs in flight.
pub async fn check_ops(backend: &dyn Backend, size: Size) -> Vec<CaseReport> {
    let mut reports = check_cases(backend, cases(backend.capabilities(), size)).await;
    reports.push(CaseReport { name: "runs in flight".into(), outcome: chain::in_flight(backend).await });
    reports
}

/// Runs the suite and turns failures into one error that lists them.
///
/// # Errors
/// `Unsupported`, naming the backend and each failed case with its worst value.
pub async fn require_ops(backend: &dyn Backend, size: Size) -> Result<usize> {
    require(backend, &check_ops(backend, size).await)
}

/// The same for these cases alone.
///
/// # Errors
/// As [`require_ops`].
pub async fn require_cases(backend: &dyn Backend, cases: Vec<Case>) -> Result<usize> {
    require(backend, &check_cases(backend, cases).await)
}

fn require(backend: &dyn Backend, reports: &[CaseReport]) -> Result<usize> {
    let mut text = String::new();
    for report in reports.iter().filter(|r| !r.passed()) {
        let _ = match &report.outcome {
            Ok(deviation) => write!(text, "\n  {}: {deviation}", report.name),
            Err(error) => write!(text, "\n  {}: {error}", report.name),
        };
    }
    if text.is_empty() {
        return Ok(reports.len());
    }
    Err(Error::Unsupported(format!(
        "{}: ops that differ from the reference:{text}",
        backend.capabilities().name
    )))
}

/// What the lists of cases depend on.
struct Suite<'a> {
    capabilities: &'a Capabilities,
    full: bool,
}

/// What an op computes; decides how far two right implementations may be apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Moves values.
    Copy,
    /// Few roundings a value: norms, pooling, rotation.
    Rows,
    /// Dot products with a matrix.
    Dot,
    /// Softmax and its weighted sum.
    Attention,
}

impl Suite<'_> {
    /// The element types between ops: the preferred one, and f32, which residual streams and heads use.
    fn dtypes(&self) -> &'static [DType] {
        match self.capabilities.activations {
            DType::F16 => &[DType::F16, DType::F32],
            _ => &[DType::F32],
        }
    }

    /// The element types of what is multiplied by blocks.
    fn factors(&self) -> Vec<DType> {
        let q8 = self.capabilities.q8_rows > 0;
        self.dtypes().iter().copied().chain(q8.then_some(DType::Q8)).collect()
    }

    /// Every pair of element types of two operands.
    fn pairs(&self) -> Vec<(DType, DType)> {
        let types = self.dtypes();
        types.iter().flat_map(|x| types.iter().map(|out| (*x, *out))).collect()
    }

    /// The same where a result of so many columns may be multiplied by blocks.
    fn pairs_to_factors(&self, cols: usize) -> Vec<(DType, DType)> {
        let mut all = self.pairs();
        if self.factors().contains(&DType::Q8) && cols.is_multiple_of(q8::BLOCK) {
            all.push((self.preferred(), DType::Q8));
        }
        all
    }

    /// The preferred element type.
    fn preferred(&self) -> DType {
        self.capabilities.activations
    }

    /// [`tolerance`] on the suite's backend.
    fn tolerance(&self, work: Work, x: DType, out: DType) -> f32 {
        tolerance(self.capabilities, work, x, out)
    }

    /// The same for products with blocks, which a matrix unit takes as f16: each weight off by up to 2^-11, so that of
    /// some ten thousand sums of 256 terms the worst is off by about 0.07 % of their size, and a gate times up by twice
    /// that.
    fn blocks_tolerance(&self, x: DType, out: DType) -> f32 {
        let half = x == DType::F16 && self.preferred() == DType::F16;
        self.tolerance(Work::Dot, if half { DType::F32 } else { x }, out) + if half { 1e-3 } else { 0.0 }
    }
}

/// Allowed difference from the reference, relative to the size of the row's values, on a backend with these
/// capabilities, for element types `x` in and `out` out.
pub fn tolerance(capabilities: &Capabilities, work: Work, x: DType, out: DType) -> f32 {
    let half = capabilities.activations == DType::F16;
    let base = match work {
        Work::Copy => 1e-6,
        Work::Rows => 2e-5,
        // Per-row scales of 8-bit activations: 1/254 of the largest value for each term.
        Work::Dot if capabilities.matrices == Format::Int8 => 3e-2,
        // A matrix unit takes f16, so f32 operands may be rounded first.
        Work::Dot if half && x == DType::F32 => 1e-3,
        Work::Dot => 2e-5,
        // Probabilities may be rounded to f16 for the matrix unit.
        Work::Attention if half => 2e-3,
        Work::Attention => 2e-5,
    };
    // Two roundings to f16 of nearly the same value may be one unit in the last place apart.
    base + match out {
        DType::F16 => 1e-3,
        // Or one 8-bit integer.
        DType::Q8 => 1.0 / 126.0,
        DType::F32 | DType::U32 => 0.0,
    }
}
