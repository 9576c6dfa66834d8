//! Recording: ops over virtual buffers become a backend-neutral [`Program`].

use alloc::vec::Vec;

use crate::{
    Error, Result,
    op::Op,
    order,
    tensor::{DType, State},
};

/// Names a buffer of one program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BufferId(u32);

impl BufferId {
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Which of a run's real sizes bounds a buffer's rows; the value is its index in the run's counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Count {
    Tokens = 0,
    Sequences = 1,
    Tiles = 2,
}

/// The real sizes of one run, indexed by [`Count`]; none may pass the rows its buffers were recorded with.
pub type Counts = [u32; 4];

/// What a buffer is to the program's user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Written before each run.
    Input,
    /// Lives between two ops.
    Internal,
    /// f32, can be read after a run.
    Output,
    /// Outlives runs and plans: see [`State`]. Its rows are all there in every run.
    State,
}

/// A virtual buffer `[rows, cols]`, row-major.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferSpec {
    /// For error messages and profiles.
    pub name: &'static str,
    pub dtype: DType,
    /// The bucket: most rows of any run.
    pub rows: usize,
    pub cols: usize,
    /// How many of the rows are real in one run.
    pub count: Count,
    pub role: Role,
}

impl BufferSpec {
    pub const fn bytes(&self) -> usize {
        self.rows * self.dtype.row_bytes(self.cols)
    }
}

/// First and last op that touch a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    pub first: usize,
    pub last: usize,
}

/// A recorded, checked sequence of ops.
#[derive(Debug, Clone, Default)]
pub struct Program {
    pub buffers: Vec<BufferSpec>,
    pub ops: Vec<Op>,
    /// What each buffer of role [`Role::State`] is.
    pub states: Vec<(BufferId, State)>,
}

impl Program {
    pub fn spec(&self, id: BufferId) -> &BufferSpec {
        &self.buffers[id.index()]
    }

    /// Buffers of a role, in order of creation.
    pub fn with_role(&self, role: Role) -> impl Iterator<Item = BufferId> + '_ {
        let all = self.buffers.iter().enumerate();
        all.filter(move |(_, b)| b.role == role).map(|(i, _)| BufferId(i as u32))
    }

    /// Lifetimes by buffer; inputs live from the start, outputs to the end, unused buffers have none.
    pub fn lifetimes(&self) -> Vec<Option<Lifetime>> {
        self.lifetimes_in(self.ops.iter().map(Op::operands))
    }

    /// The same where the ops are done in other steps, each of which reads and writes these buffers.
    pub fn lifetimes_in(
        &self,
        steps: impl IntoIterator<Item = (Vec<BufferId>, Vec<BufferId>)>,
    ) -> Vec<Option<Lifetime>> {
        let mut lives: Vec<Option<Lifetime>> = alloc::vec![None; self.buffers.len()];
        for (at, (reads, writes)) in steps.into_iter().enumerate() {
            for id in reads.into_iter().chain(writes) {
                let life = lives[id.index()].get_or_insert(Lifetime { first: at, last: at });
                life.last = at;
            }
        }
        for (life, spec) in lives.iter_mut().zip(&self.buffers) {
            if let Some(life) = life {
                match spec.role {
                    Role::Input => life.first = 0,
                    Role::Output => life.last = usize::MAX,
                    Role::Internal | Role::State => {}
                }
            }
        }
        lives
    }

    /// Assigns internal and output buffers to slots so that no two live buffers share one. Returns the slot of
    /// each buffer and the bytes each slot needs. Greedy in order of first use; the same model recorded for a
    /// smaller bucket gets the same slots.
    pub fn slots(&self) -> (Vec<Option<usize>>, Vec<usize>) {
        self.slots_for(&self.lifetimes())
    }

    /// The same for other lifetimes.
    pub fn slots_for(&self, lives: &[Option<Lifetime>]) -> (Vec<Option<usize>>, Vec<usize>) {
        let order = order::sorted(lives.iter().map(|l| [l.map_or(u64::MAX, |l| l.first as u64), 0]));
        let (mut slot_of, mut sizes, mut free_at) =
            (alloc::vec![None; self.buffers.len()], Vec::new(), Vec::new());
        for i in order {
            let Some(life) = lives[i] else { continue };
            if !matches!(self.buffers[i].role, Role::Internal | Role::Output) {
                continue;
            }
            let bytes = self.buffers[i].bytes();
            let slot = free_at.iter().position(|&last: &usize| last < life.first).unwrap_or_else(|| {
                free_at.push(0);
                sizes.push(0);
                sizes.len() - 1
            });
            free_at[slot] = life.last;
            sizes[slot] = bytes.max(sizes[slot]);
            slot_of[i] = Some(slot);
        }
        (slot_of, sizes)
    }
}

/// Builds a [`Program`], checking each op as it is added.
#[derive(Debug, Default)]
pub struct Recorder {
    program: Program,
}

impl Recorder {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn buffer(&mut self, spec: BufferSpec) -> BufferId {
        self.program.buffers.push(spec);
        BufferId(self.program.buffers.len() as u32 - 1)
    }

    pub fn spec(&self, id: BufferId) -> &BufferSpec {
        self.program.spec(id)
    }

    /// A buffer between two ops.
    pub fn internal(
        &mut self,
        name: &'static str,
        dtype: DType,
        rows: usize,
        cols: usize,
        count: Count,
    ) -> BufferId {
        self.buffer(BufferSpec { name, dtype, rows, cols, count, role: Role::Internal })
    }

    /// The buffer that is `state`; the same one whenever it is asked for.
    pub fn state(&mut self, state: &State) -> BufferId {
        if let Some((id, _)) = self.program.states.iter().find(|(_, s)| s.same(state)) {
            return *id;
        }
        let spec = state.spec();
        let id = self.buffer(BufferSpec {
            name: spec.name,
            dtype: spec.dtype,
            rows: spec.rows,
            cols: spec.cols,
            count: Count::Tokens,
            role: Role::State,
        });
        self.program.states.push((id, state.clone()));
        id
    }

    /// Appends an op.
    ///
    /// # Errors
    /// Those of [`Op::check`].
    pub fn push(&mut self, op: Op) -> Result<()> {
        op.check(&self.program.buffers)?;
        self.program.ops.push(op);
        Ok(())
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// `Unsupported` if an output is never written.
    pub fn finish(self) -> Result<Program> {
        let lives = self.program.lifetimes();
        for (spec, life) in self.program.buffers.iter().zip(&lives) {
            if spec.role == Role::Output && (life.is_none() || spec.dtype != DType::F32) {
                return Err(Error::Unsupported(alloc::format!(
                    "output `{}` must be f32 and written by an op",
                    spec.name
                )));
            }
        }
        Ok(self.program)
    }
}
