//! States of a case: filled before each run, compared after the last.

use alloc::{format, vec, vec::Vec};

use super::{build::Builder, random::Random, run, run::Deviation};
use crate::{
    Error, Result,
    backend::Backend,
    op::PAGE,
    program::BufferId,
    tensor::{DType, State, StateSpec},
};

/// A state with its words before a run.
pub struct Kept {
    state: State,
    words: Vec<u32>,
    compared: bool,
}

/// Whether a state's rows are compared after the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    Compared,
    Ignored,
}

impl Builder<'_> {
    /// A state of these values, rounded if it is f16.
    pub fn state(
        &mut self,
        name: &'static str,
        dtype: DType,
        cols: usize,
        values: &[f32],
        after: After,
    ) -> Result<BufferId> {
        let words = match dtype {
            DType::F16 => {
                let half = |v: &f32| u32::from(half::f16::from_f32(*v).to_bits());
                values.chunks(2).map(|pair| half(&pair[0]) | half(&pair[1]) << 16).collect()
            }
            _ => values.iter().map(|v| v.to_bits()).collect(),
        };
        self.keep(StateSpec { name, dtype, rows: values.len() / cols, cols }, words, after)
    }

    /// A u32 state of these words.
    pub fn integers(
        &mut self,
        name: &'static str,
        cols: usize,
        words: Vec<u32>,
        after: After,
    ) -> Result<BufferId> {
        self.keep(StateSpec { name, dtype: DType::U32, rows: words.len() / cols, cols }, words, after)
    }

    fn keep(&mut self, spec: StateSpec, words: Vec<u32>, after: After) -> Result<BufferId> {
        let state = self.backend.state(spec)?;
        let id = self.recorder.state(&state);
        self.states.push(Kept { state, words, compared: after == After::Compared });
        Ok(id)
    }
}

/// Gives every state the words it starts from.
pub fn fill(states: &[Kept], backend: &dyn Backend) -> Result<()> {
    states.iter().try_for_each(|kept| backend.write_state(&kept.state, 0, &kept.words))
}

/// The words of the states that are compared.
pub async fn read(states: &[Kept], backend: &dyn Backend) -> Result<Vec<Vec<u32>>> {
    let mut all = Vec::new();
    for kept in states.iter().filter(|kept| kept.compared) {
        all.push(backend.read_state(&kept.state, 0..kept.state.spec().rows).await?);
    }
    Ok(all)
}

/// The worst value of each compared float state.
///
/// # Errors
/// `Unsupported` for integers that differ, and for values that are not finite.
pub fn compare(
    states: &[Kept],
    expected: &[Vec<u32>],
    found: &[Vec<u32>],
    tolerance: f32,
) -> Result<Vec<Deviation>> {
    let mut all = Vec::new();
    let compared = states.iter().filter(|kept| kept.compared);
    for (kept, (expected, found)) in compared.zip(expected.iter().zip(found)) {
        let StateSpec { name, dtype, cols, .. } = *kept.state.spec();
        if dtype == DType::U32 {
            if let Some(at) = expected.iter().zip(found).position(|(e, f)| e != f) {
                let (row, col, e, f) = (at / cols, at % cols, expected[at], found[at]);
                let why = format!("state `{name}`: {f} at row {row}, column {col}, not {e}");
                return Err(Error::Unsupported(why));
            }
            continue;
        }
        let (expected, found) = (floats(dtype, expected), floats(dtype, found));
        all.push(run::compare(cols, |row| row, &expected, &found, 0.0, tolerance)?);
    }
    Ok(all)
}

fn floats(dtype: DType, words: &[u32]) -> Vec<f32> {
    if dtype == DType::F32 {
        return words.iter().map(|w| f32::from_bits(*w)).collect();
    }
    let halves = words.iter().flat_map(|w| [*w as u16, (w >> 16) as u16]);
    halves.map(|h| half::f16::from_bits(h).to_f32()).collect()
}

/// Consecutive positions of one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub slot: u32,
    pub position: u32,
    pub rows: u32,
}

/// One row of each of these slots, at these positions.
pub fn singles(places: &[(u32, u32)]) -> Vec<Run> {
    places.iter().map(|&(slot, position)| Run { slot, position, rows: 1 }).collect()
}

/// The rows of `tokens` for these runs, one after the other.
pub fn token_rows(runs: &[Run]) -> Vec<[u32; 4]> {
    runs.iter().flat_map(|run| (0..run.rows).map(|i| [7, run.position + i, 0, run.slot])).collect()
}

/// First and past-the-end row of each run.
pub fn spans(runs: &[Run]) -> Vec<[u32; 2]> {
    let mut start = 0;
    let next = |run: &Run| {
        let first = start;
        start += run.rows;
        [first, start]
    };
    runs.iter().map(next).collect()
}

/// A cache's pages, dealt to slots in no order.
pub struct Pages {
    /// `[slots, per_slot]`. Entries past a slot's last page name a page of nobody's.
    pub table: Vec<u32>,
    pub per_slot: usize,
    /// Rows of the cache.
    pub rows: usize,
    /// Rows that hold a position of a slot.
    pub held: Vec<bool>,
}

impl Pages {
    /// Pages for `slots` slots of at least `context` positions each, of which the runs' slots hold those up to
    /// the last row's.
    pub fn deal(random: &mut Random, runs: &[Run], slots: usize, context: usize) -> Pages {
        let per_slot = context.div_ceil(PAGE).next_multiple_of(4);
        let mut lens = vec![0; slots];
        for run in runs {
            let len = &mut lens[run.slot as usize];
            *len = (run.position + run.rows).max(*len);
        }
        let used: usize = lens.iter().map(|len| (*len as usize).div_ceil(PAGE)).sum();
        let mut order: Vec<u32> = (0..=used as u32).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i + 1) as usize);
        }
        let nobodys = order[used];
        let (mut table, mut next) = (vec![nobodys; slots * per_slot], 0);
        let mut held = vec![false; (used + 1) * PAGE];
        for (slot, len) in lens.into_iter().enumerate() {
            for position in 0..len as usize {
                if position % PAGE == 0 {
                    table[slot * per_slot + position / PAGE] = order[next];
                    next += 1;
                }
                held[order[next - 1] as usize * PAGE + position % PAGE] = true;
            }
        }
        Pages { table, per_slot, rows: held.len(), held }
    }
}
