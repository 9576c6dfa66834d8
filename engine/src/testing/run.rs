//! Runs a case on two backends and compares.

use alloc::{format, vec, vec::Vec};
use core::fmt;

use super::{
    Case,
    build::{Builder, Graph, Read, Sizes},
    states,
};
use crate::{
    Error, Result,
    backend::{self, Backend},
    program::BufferId,
    reference::Reference,
};

/// The value that is furthest from the reference, relative to what is allowed there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deviation {
    pub expected: f32,
    pub found: f32,
    /// Largest difference allowed at this value.
    pub allowed: f32,
    pub row: usize,
    pub col: usize,
}

impl Deviation {
    pub fn difference(&self) -> f32 {
        (self.expected - self.found).abs()
    }

    /// The difference in units of what is allowed.
    pub fn ratio(&self) -> f32 {
        self.difference() / self.allowed
    }

    pub fn within(&self) -> bool {
        self.difference() <= self.allowed
    }
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Deviation { expected, found, allowed, row, col } = self;
        let difference = self.difference();
        write!(
            f,
            "row {row}, column {col}: {found} for {expected}, off by {difference:e} of {allowed:e} allowed"
        )
    }
}

pub async fn run(case: &Case, backend: &dyn Backend, reference: &Reference) -> Result<Deviation> {
    let (expected, kept) = {
        let graph = record(case, reference, backend)?;
        let values = values(&graph, reference, case.sizes, false).await?;
        (values, states::read(&graph.states, reference).await?)
    };
    let graph = record(case, backend, backend)?;
    let found = values(&graph, backend, case.sizes, case.sizes.has_spare_rows()).await?;
    let mut worst = compare_reads(&graph, &expected, &found, case.tolerance)?;
    let found = states::read(&graph.states, backend).await?;
    for here in states::compare(&graph.states, &kept, &found, case.tolerance)? {
        if here.ratio() > worst.ratio() {
            worst = here;
        }
    }
    Ok(worst)
}

fn record(case: &Case, on: &dyn Backend, formats: &dyn Backend) -> Result<Graph> {
    let mut builder = Builder::new(on, formats.capabilities(), case.sizes, &case.name);
    (case.build)(&mut builder)?;
    builder.finish()
}

/// One run's outputs, one after the other; after a run full of garbage if so wanted.
async fn values(graph: &Graph, backend: &dyn Backend, sizes: Sizes, garbage_first: bool) -> Result<Vec<f32>> {
    let mut plan = backend.prepare(&graph.program)?;
    let mut out = Vec::new();
    for full in [true, false] {
        if full && !garbage_first {
            continue;
        }
        states::fill(&graph.states, backend)?;
        let inputs: Vec<(BufferId, &[u32])> = graph
            .inputs
            .iter()
            .map(|i| (i.id, if full { i.garbage.as_slice() } else { i.real.as_slice() }))
            .collect();
        let reads: Vec<(BufferId, usize)> = graph.reads.iter().map(|r| (r.id, r.rows)).collect();
        out = vec![0.0; graph.reads.iter().map(|r| r.rows * r.cols).sum()];
        let ticket = plan.submit(sizes.counts(full), &inputs, &reads)?;
        plan.wait(ticket)?;
        backend::read(&mut *plan, ticket, &mut out).await?;
    }
    Ok(out)
}

/// The worst value over all compared rows of all reads.
fn compare_reads(graph: &Graph, expected: &[f32], found: &[f32], tolerance: f32) -> Result<Deviation> {
    let mut worst: Option<Deviation> = None;
    let mut at = 0;
    for Read { rows, cols, compared, .. } in &graph.reads {
        let span = at + compared.start * cols..at + compared.end * cols;
        at += rows * cols;
        let (e, f) = (&expected[span.clone()], &found[span]);
        let here = compare(*cols, |row| compared.start + row, e, f, graph.floor, tolerance)?;
        if worst.is_none_or(|w| here.ratio() > w.ratio()) {
            worst = Some(here);
        }
    }
    worst.ok_or_else(|| Error::Unsupported("the case reads nothing".into()))
}

/// The worst value of `[rows, cols]` buffers. Each is measured against the largest value of its row, or the
/// buffer's root mean square or `floor` where that is larger, so that rows of small values beside large ones are
/// not held to more than single precision gives. `name_row` gives the row numbers that results name.
///
/// # Errors
/// `Unsupported` for values that are not finite, and if there is nothing to compare.
pub fn compare(
    cols: usize,
    name_row: impl Fn(usize) -> usize,
    expected: &[f32],
    found: &[f32],
    floor: f32,
    tolerance: f32,
) -> Result<Deviation> {
    let squares: f64 = expected.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
    let rms = libm::sqrt(squares / expected.len().max(1) as f64) as f32;
    let least = rms.max(floor).max(1e-30);
    let mut worst: Option<Deviation> = None;
    let cols = cols.max(1);
    for (row, (e, f)) in expected.chunks(cols).zip(found.chunks(cols)).enumerate() {
        let scale = e.iter().fold(least, |m, v| m.max(v.abs()));
        for (col, (&expected, &found)) in e.iter().zip(f).enumerate() {
            let row = name_row(row);
            if !found.is_finite() {
                let why = format!("{found} at row {row}, column {col}, where the reference has {expected}");
                return Err(Error::Unsupported(why));
            }
            let here = Deviation { expected, found, allowed: tolerance * scale, row, col };
            if worst.is_none_or(|w| here.ratio() > w.ratio()) {
                worst = Some(here);
            }
        }
    }
    worst.ok_or_else(|| Error::Unsupported("there is nothing to compare".into()))
}
