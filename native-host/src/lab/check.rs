//! Is it right? A variant's result against the scalar reference.

use inferencelayer_engine::{
    backend::{self, Backend, Capabilities},
    reference::Reference,
    task::block_on,
    tensor::{DType, Format, Weight, WeightUse},
    testing::{Deviation, Work, compare, tolerance},
};

use super::{
    costs::{Formats, Types},
    data::{Data, Sample},
    problem::Problem,
    record::{self, Recorded},
};
use crate::Result;

/// Which operands stay f32 where a backend stores f16.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeepF32 {
    pub x: bool,
    pub out: bool,
}

impl KeepF32 {
    /// The op's element types where weights have these formats.
    pub fn types<'a>(self, problem: &Problem, formats: impl Into<Formats<'a>>) -> Types {
        let formats = formats.into();
        let preferred = |keep: bool| if keep { DType::F32 } else { formats.capabilities.activations };
        let o = problem.operands();
        let x = preferred(self.x || (o.in_place && self.out));
        let out = if o.in_place { x } else { preferred(self.out || o.f32_out) };
        let factor = match (problem.work(), formats.blocks) {
            (Work::Dot, Some(blocks)) => formats.capabilities.linear_input(o.rows[0], blocks),
            _ => x,
        };
        if self.x || factor != DType::Q8 {
            return Types { x, out };
        }
        // What a gated op makes is multiplied by blocks next.
        let gated = matches!(problem, Problem::GatedLinear(_)) && !self.out && o.out.1.is_multiple_of(32);
        Types { x: factor, out: if gated { DType::Q8 } else { out } }
    }
}

/// Runs the program once and returns its output.
///
/// # Errors
/// Those of the backend.
pub fn result(backend: &dyn Backend, recorded: &Recorded) -> Result<Vec<f32>> {
    let mut plan = backend.prepare(&recorded.program)?;
    let (id, rows, cols) = recorded.read;
    let mut out = vec![0.0; rows * cols];
    let ticket = plan.submit(recorded.counts, &recorded.inputs(), &[(id, rows)])?;
    plan.wait(ticket)?;
    block_on(backend::read(&mut *plan, ticket, &mut out))?;
    Ok(out)
}

fn pick(values: &[f32], rows: &[usize], cols: usize) -> Vec<f32> {
    rows.iter().flat_map(|r| &values[r * cols..(r + 1) * cols]).copied().collect()
}

/// What the reference says of a sample, for variants that keep the same formats.
#[derive(Debug, Default)]
pub struct Expectations(Vec<(Capabilities, Option<Format>, Types, Vec<f32>)>);

impl Expectations {
    /// Values of the sample's compared rows, with weights and buffers rounded as these formats keep them.
    ///
    /// # Errors
    /// Those of the op's check, and of the reference.
    pub fn get(
        &mut self,
        data: &Data,
        sample: &Sample,
        formats: Formats<'_>,
        types: Types,
    ) -> Result<Vec<f32>> {
        let capabilities = formats.capabilities;
        let same = |c: &Capabilities| {
            (c.activations, c.matrices, c.tables)
                == (capabilities.activations, capabilities.matrices, capabilities.tables)
        };
        let known = self.0.iter().find(|(c, b, t, _)| same(c) && *b == formats.blocks && *t == types);
        if let Some((.., values)) = known {
            return Ok(values.clone());
        }
        let reference = Reference::new();
        let weights = record::weights(&sample.problem, &data.weights, &reference, formats)?;
        let recorded = record::once(&sample.problem, &sample.streams, &weights, types)?;
        let values = pick(&result(&reference, &recorded)?, &sample.rows, recorded.read.2);
        self.0.push((capabilities.clone(), formats.blocks, types, values.clone()));
        Ok(values)
    }
}

/// The variant's worst value among the sample's rows. Row numbers are those of the whole problem.
///
/// # Errors
/// Those of the backends; `Unsupported` for values that are not finite.
pub fn check(
    problem: &Problem,
    data: &Data,
    sample: &Sample,
    expected: &[f32],
    backend: &dyn Backend,
    weights: &[Weight],
    types: Types,
) -> Result<Deviation> {
    let capabilities = backend.capabilities();
    let recorded = record::once(problem, &data.streams, weights, types)?;
    let cols = recorded.read.2;
    let found = pick(&result(backend, &recorded)?, &sample.of_whole, cols);
    // A matrix unit takes blocks as f16.
    let in_blocks = weights.iter().any(|w| w.format().is_block() && w.usage() == WeightUse::Matrix);
    let x = if in_blocks && types.x == DType::F16 { DType::F32 } else { types.x };
    let allowed = tolerance(capabilities, problem.work(), x, types.out);
    Ok(compare(cols, |row| sample.of_whole[row], expected, &found, problem.floor(), allowed)?)
}
