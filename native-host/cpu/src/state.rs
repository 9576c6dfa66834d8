//! States: words that outlive runs. Whoever holds the arena's lock may touch them; a run holds it all the while.

use std::{
    any::Any,
    ops::Range,
    sync::{Arc, Mutex},
};

use inferencelayer_engine::{
    Error, Result,
    backend::{check_state, check_state_rows},
    tensor::{State, StateSpec, WeightStorage},
};

use super::{
    gemm::pack::Aligned,
    plan::{Arena, lock},
    weight::{Held, Memory},
};

/// A state's memory.
pub struct CpuState {
    /// Where `memory` is, which lives as long and is used through this alone.
    words: Words,
    len: usize,
    /// Whose lock guards it.
    arena: Arc<Mutex<Arena>>,
    _memory: Aligned<u32>,
    _held: Held,
}

impl std::fmt::Debug for CpuState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuState").finish_non_exhaustive()
    }
}

impl WeightStorage for CpuState {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Where a state's words are. They stay there as long as the state lives.
#[derive(Debug, Clone, Copy)]
pub struct Words(pub *mut u32);

// SAFETY: the pointer is followed only by who holds the arena's lock.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl CpuState {
    /// # Errors
    /// Those of [`check_state`]; `Unsupported` for more than memory.
    pub fn create(spec: StateSpec, arena: &Arc<Mutex<Arena>>, memory: &Memory) -> Result<State> {
        check_state(&spec)?;
        let too_large = || {
            let (name, rows, cols) = (spec.name, spec.rows, spec.cols);
            Error::Unsupported(format!(
                "state `{name}`: [{rows}, {cols}] is more than memory; ask for a smaller context"
            ))
        };
        let len = spec.rows.checked_mul(spec.row_words()).ok_or_else(too_large)?;
        let mut words = Aligned::try_zeroed(len).ok_or_else(too_large)?;
        let held = memory.hold(words.bytes());
        let at = Words(words.as_mut_slice().as_mut_ptr());
        let state = CpuState { words: at, len, arena: arena.clone(), _memory: words, _held: held };
        Ok(State::new(spec, Arc::new(state)))
    }

    /// # Errors
    /// `Unsupported` for a state of another backend.
    pub fn of<'a>(state: &'a State, arena: &Arc<Mutex<Arena>>) -> Result<&'a CpuState> {
        state.storage::<CpuState>().filter(|held| Arc::ptr_eq(&held.arena, arena)).ok_or_else(|| {
            Error::Unsupported(format!("state `{}` belongs to another backend", state.spec().name))
        })
    }

    /// The words, for plans.
    pub fn words(&self) -> Words {
        self.words
    }

    /// Calls `use_words` with all words while no run goes on.
    fn with<T>(&self, use_words: impl FnOnce(&mut [u32]) -> T) -> T {
        let _guard = lock(&self.arena);
        // SAFETY: the memory has so many words; the lock is held, and the borrow ends with it.
        use_words(unsafe { core::slice::from_raw_parts_mut(self.words.0, self.len) })
    }
}

/// # Errors
/// As [`inferencelayer_engine::backend::Backend::write_state`].
pub fn write(state: &State, arena: &Arc<Mutex<Arena>>, first_row: usize, words: &[u32]) -> Result<()> {
    let row = state.spec().row_words();
    let rows = first_row..first_row.saturating_add(words.len() / row.max(1));
    check_state_rows(state.spec(), &rows, Some(words.len()))?;
    let state = CpuState::of(state, arena)?;
    state.with(|all| all[first_row * row..][..words.len()].copy_from_slice(words));
    Ok(())
}

/// # Errors
/// As [`write()`].
pub fn copy(state: &State, arena: &Arc<Mutex<Arena>>, from: Range<usize>, to: usize) -> Result<()> {
    let row = state.spec().row_words();
    check_state_rows(state.spec(), &from, None)?;
    check_state_rows(state.spec(), &(to..to.saturating_add(from.len())), None)?;
    let state = CpuState::of(state, arena)?;
    state.with(|all| all.copy_within(from.start * row..from.end * row, to * row));
    Ok(())
}

/// # Errors
/// As [`write()`].
pub fn read(state: &State, arena: &Arc<Mutex<Arena>>, rows: Range<usize>) -> Result<Vec<u32>> {
    let row = state.spec().row_words();
    check_state_rows(state.spec(), &rows, None)?;
    let state = CpuState::of(state, arena)?;
    Ok(state.with(|all| all[rows.start * row..rows.end * row].to_vec()))
}
