//! Records a case's program, with its weights and inputs, for one backend.

use alloc::{boxed::Box, vec, vec::Vec};
use core::ops::Range;

use super::{random::Random, states::Kept};
use crate::{
    Result,
    backend::{Backend, Capabilities, WeightSink},
    op::{Normalize, Op},
    program::{BufferId, BufferSpec, Count, Counts, Program, Recorder, Role},
    quant::q8,
    tensor::{DType, Format, Weight, WeightSpec, WeightUse},
};

/// A case's row counts: what its program is recorded for and what its run uses, indexed by [`Count`].
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub bucket: [usize; 3],
    pub real: [usize; 3],
}

impl Sizes {
    /// `rows` tokens, in a program for exactly so many or for some more.
    pub fn rows(rows: usize, spare: usize) -> Self {
        Sizes { bucket: [rows + spare, 1, 1], real: [rows, 1, 1] }
    }

    pub fn has_spare_rows(&self) -> bool {
        self.bucket != self.real
    }

    pub fn counts(&self, full: bool) -> Counts {
        let [tokens, sequences, tiles] = if full { self.bucket } else { self.real };
        [tokens as u32, sequences as u32, tiles as u32, 0]
    }
}

/// One input's values for the real run, and for the run that fills the whole bucket with garbage.
pub struct Input {
    pub id: BufferId,
    pub real: Vec<u32>,
    pub garbage: Vec<u32>,
}

/// An output and those of its rows that are compared.
pub struct Read {
    pub id: BufferId,
    pub rows: usize,
    pub cols: usize,
    pub compared: Range<usize>,
}

/// A recorded case.
pub struct Graph {
    pub program: Program,
    pub inputs: Vec<Input>,
    pub reads: Vec<Read>,
    pub states: Vec<Kept>,
    /// Magnitude below which the scale of a row's values never falls.
    pub floor: f32,
}

pub struct Builder<'a> {
    pub(super) backend: &'a dyn Backend,
    formats: &'a Capabilities,
    sizes: Sizes,
    pub recorder: Recorder,
    pub random: Random,
    inputs: Vec<Input>,
    reads: Vec<Read>,
    pub(super) states: Vec<Kept>,
    floor: f32,
}

impl<'a> Builder<'a> {
    /// Weights go to `backend`, in the formats of `formats`.
    pub fn new(backend: &'a dyn Backend, formats: &'a Capabilities, sizes: Sizes, name: &str) -> Self {
        Builder {
            backend,
            formats,
            sizes,
            recorder: Recorder::new(),
            random: Random::named(name),
            inputs: Vec::new(),
            reads: Vec::new(),
            states: Vec::new(),
            floor: 0.0,
        }
    }

    pub fn finish(self) -> Result<Graph> {
        let Builder { recorder, inputs, reads, states, floor, .. } = self;
        Ok(Graph { program: recorder.finish()?, inputs, reads, states, floor })
    }

    /// Sets the least scale that differences are relative to: the size of what was summed where results cancel.
    pub fn scale_at_least(&mut self, floor: f32) {
        self.floor = floor;
    }

    pub fn push(&mut self, op: Op) -> Result<()> {
        self.recorder.push(op)
    }

    fn input(&mut self, spec: BufferSpec, real: Vec<u32>, garbage: Vec<u32>) -> BufferId {
        let id = self.recorder.buffer(BufferSpec { role: Role::Input, ..spec });
        self.inputs.push(Input { id, real, garbage });
        id
    }

    fn spec(&self, name: &'static str, dtype: DType, cols: usize, count: Count) -> BufferSpec {
        let rows = self.sizes.bucket[count as usize];
        BufferSpec { name, dtype, rows, cols, count, role: Role::Internal }
    }

    /// An f32 input buffer `[rows of count, cols]` holding `values`.
    pub fn raw(&mut self, count: Count, cols: usize, values: &[f32]) -> BufferId {
        let spec = self.spec("values", DType::F32, cols, count);
        let garbage = (0..spec.rows * cols)
            .map(|i| [f32::NAN, 1e30, f32::INFINITY, -3e4, 6e4][i % 5].to_bits())
            .collect();
        self.input(spec, values.iter().map(|v| v.to_bits()).collect(), garbage)
    }

    /// The experts of rows and their weights: see [`Route::out`](crate::op::Route::out).
    pub fn routes(&mut self, cols: usize, values: &[f32]) -> BufferId {
        let spec = self.spec("routes", DType::F32, cols, Count::Tokens);
        let garbage = vec![0; spec.rows * cols];
        self.input(spec, values.iter().map(|v| v.to_bits()).collect(), garbage)
    }

    /// A buffer of type `dtype` holding `values`, copied there by an op as between ops of a model.
    pub fn given(&mut self, dtype: DType, count: Count, cols: usize, values: &[f32]) -> Result<BufferId> {
        let x = self.raw(count, cols, values);
        let out = self.internal("staged", dtype, count, cols);
        self.push(Op::Normalize(Normalize { x, unit: false, out }))?;
        Ok(out)
    }

    /// [`Builder::given`] with values uniform in ±`spread`. Those for 8-bit blocks lie so far from the middle between
    /// two integers that every right rounding takes the same.
    pub fn uniform(&mut self, dtype: DType, count: Count, cols: usize, spread: f32) -> Result<BufferId> {
        let mut values = self.random.values(self.sizes.real[count as usize] * cols, 0.0, spread);
        if dtype == DType::Q8 {
            for block in values.chunks_mut(q8::BLOCK) {
                // The last value decides the scale.
                let scale = spread * (1.0 + self.random.unit() / 3.0) / 256.0;
                for (i, v) in block.iter_mut().rev().enumerate() {
                    let q = libm::rintf(*v / spread * 126.0);
                    *v = scale * if i == 0 { 127.0 } else { q + self.random.unit() * 0.4 };
                }
            }
        }
        self.given(dtype, count, cols, &values)
    }

    /// The `tokens` input.
    pub fn tokens(&mut self, rows: &[[u32; 4]]) -> BufferId {
        let spec = self.spec("tokens", DType::U32, 4, Count::Tokens);
        let garbage = vec![0; spec.rows * 4];
        self.input(spec, rows.concat(), garbage)
    }

    /// Query tiles of at most `tile` rows over sequences of these lengths.
    pub fn tiles(&mut self, lens: &[usize], tile: usize) -> BufferId {
        self.tile_rows(&tiles(lens, tile), tile)
    }

    /// These query tiles, of at most `tile` rows each.
    pub fn tile_rows(&mut self, rows: &[[u32; 4]], tile: usize) -> BufferId {
        let spec = self.spec("tiles", DType::U32, 4, Count::Tiles);
        let whole = self.sizes.bucket[0] as u32;
        let garbage = [0, whole.min(tile as u32), 0, whole].repeat(spec.rows);
        self.input(spec, rows.concat(), garbage)
    }

    /// The input that says which sequence goes on where: see [`Sample::targets`](crate::op::Sample::targets).
    pub fn targets(&mut self, rows: &[[u32; 4]]) -> BufferId {
        let spec = self.spec("targets", DType::U32, 4, Count::Sequences);
        let garbage = vec![0; spec.rows * 4];
        self.input(spec, rows.concat(), garbage)
    }

    /// The `ranges` input.
    pub fn ranges(&mut self, ranges: &[[u32; 2]]) -> BufferId {
        let spec = self.spec("ranges", DType::U32, 2, Count::Sequences);
        let garbage = [0, self.sizes.bucket[0] as u32].repeat(spec.rows);
        self.input(spec, ranges.concat(), garbage)
    }

    pub fn internal(&mut self, name: &'static str, dtype: DType, count: Count, cols: usize) -> BufferId {
        let spec = self.spec(name, dtype, cols, count);
        self.recorder.buffer(spec)
    }

    /// A result buffer of type `dtype`, of which these rows are compared. An f16 result is copied to f32 to be
    /// read: call [`Builder::read_back`] once the op that writes it is pushed.
    pub fn result(&mut self, dtype: DType, count: Count, cols: usize) -> BufferId {
        if dtype == DType::F32 {
            return self.output(count, cols, None);
        }
        self.internal("result", dtype, count, cols)
    }

    /// An f32 output; `compared` restricts the comparison to some of its rows.
    pub fn output(&mut self, count: Count, cols: usize, compared: Option<Range<usize>>) -> BufferId {
        let spec = BufferSpec { role: Role::Output, ..self.spec("output", DType::F32, cols, count) };
        let id = self.recorder.buffer(spec);
        let rows = self.sizes.real[count as usize];
        self.reads.push(Read { id, rows, cols, compared: compared.unwrap_or(0..rows) });
        id
    }

    /// Copies an f16 result to an f32 output; does nothing for one that can be read itself.
    pub fn read_back(&mut self, dtype: DType, count: Count, cols: usize, result: BufferId) -> Result<()> {
        if dtype == DType::F32 {
            return Ok(());
        }
        let out = self.output(count, cols, None);
        self.push(Op::Normalize(Normalize { x: result, unit: false, out }))
    }

    /// A weight of these values, in the format that the backend under test keeps, pushed as `source` in pieces
    /// of uneven size.
    pub fn weight_from(
        &mut self,
        source: Format,
        usage: WeightUse,
        (rows, cols): (usize, usize),
        values: &[f32],
    ) -> Result<Weight> {
        let format = self.formats.format_for(usage, Format::F32);
        self.upload(WeightSpec { name: "suite".into(), rows, cols, format, usage }, source, values)
    }

    /// A weight on its way to the backend.
    pub fn sink(&mut self, spec: WeightSpec) -> Result<Box<dyn WeightSink>> {
        self.backend.weight(spec)
    }

    /// A RoPE table, which is f32 on every backend.
    pub fn angles(&mut self, (rows, cols): (usize, usize), values: &[f32]) -> Result<Weight> {
        let (format, usage) = (Format::F32, WeightUse::Table);
        self.upload(WeightSpec { name: "angles".into(), rows, cols, format, usage }, Format::F32, values)
    }

    fn upload(&mut self, spec: WeightSpec, source: Format, values: &[f32]) -> Result<Weight> {
        let mut sink = self.backend.weight(spec)?;
        let encode = |v: &f32| match source {
            Format::F16 => half::f16::from_f32(*v).to_le_bytes().to_vec(),
            Format::BF16 => half::bf16::from_f32(*v).to_le_bytes().to_vec(),
            _ => v.to_le_bytes().to_vec(),
        };
        let (mut rest, mut piece) = (values, 1);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(piece.min(rest.len()));
            sink.push(source, &now.iter().flat_map(encode).collect::<Vec<u8>>())?;
            (rest, piece) = (later, piece * 3 + 2);
        }
        sink.finish()
    }

    /// A random matrix scaled so that results are about as large as operands.
    pub fn matrix(&mut self, rows: usize, cols: usize) -> Result<Weight> {
        let values = self.random.values(rows * cols, 0.0, 1.7 / libm::sqrtf(cols as f32));
        self.weight_from(Format::F32, WeightUse::Matrix, (rows, cols), &values)
    }

    pub fn table(&mut self, rows: usize, cols: usize) -> Result<Weight> {
        let values = self.random.values(rows * cols, 0.0, 1.0);
        self.weight_from(Format::F32, WeightUse::Table, (rows, cols), &values)
    }

    pub fn vector(&mut self, rows: usize, cols: usize, center: f32) -> Result<Weight> {
        let values = self.random.values(rows * cols, center, 0.5);
        self.weight_from(Format::F32, WeightUse::Vector, (rows, cols), &values)
    }
}

/// Query tiles of at most `tile` rows over packed sequences of these lengths.
pub fn tiles(lens: &[usize], tile: usize) -> Vec<[u32; 4]> {
    let (mut all, mut start) = (Vec::new(), 0);
    for len in lens {
        let end = start + len;
        all.extend((start..end).step_by(tile).map(|q| [q, end.min(q + tile), start, end].map(|v| v as u32)));
        start = end;
    }
    all
}
