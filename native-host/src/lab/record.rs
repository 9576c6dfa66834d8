//! Programs of a problem: one that shows the result, and one that repeats the op to be timed.

use inferencelayer_engine::{
    backend::Backend,
    op::{Normalize, Op},
    program::{BufferId, BufferSpec, Count, Counts, Program, Recorder, Role},
    tensor::{DType, Format, Weight, WeightSpec},
};

use super::{
    costs::{Formats, Types},
    data::{self, Streams},
    problem::{Handles, Operands, Problem},
};
use crate::{Error, Result};

/// A program, what goes in, and the one output.
#[derive(Debug)]
pub struct Recorded {
    pub program: Program,
    pub inputs: Vec<(BufferId, Vec<u32>)>,
    pub counts: Counts,
    /// The output, its rows and columns.
    pub read: (BufferId, usize, usize),
}

impl Recorded {
    /// The inputs as a run takes them.
    pub fn inputs(&self) -> Vec<(BufferId, &[u32])> {
        self.inputs.iter().map(|(id, values)| (*id, values.as_slice())).collect()
    }
}

/// Uploads the problem's weights to `backend`, in these formats.
///
/// # Errors
/// Those of the backend.
pub fn weights(
    problem: &Problem,
    values: &[Vec<f32>],
    backend: &dyn Backend,
    formats: Formats<'_>,
) -> Result<Vec<Weight>> {
    let mut all = Vec::new();
    for (param, values) in problem.operands().params.iter().zip(values) {
        let spec = WeightSpec {
            name: param.name.into(),
            rows: param.rows,
            cols: param.cols,
            format: formats.of(param),
            usage: param.usage,
        };
        let format = spec.format;
        let mut sink = backend.weight(spec)?;
        // In pieces, as a checkpoint arrives.
        if format.is_block() {
            let bytes = data::blocks(problem, param, format);
            for piece in bytes.chunks(format.block_bytes() << 16) {
                sink.push(format, piece)?;
            }
        } else {
            for piece in values.chunks(1 << 20) {
                sink.push(Format::F32, bytemuck::cast_slice(piece))?;
            }
        }
        all.push(sink.finish()?);
    }
    Ok(all)
}

/// The op once; its whole result is the output.
///
/// # Errors
/// Those of the op's check.
pub fn once(problem: &Problem, streams: &Streams, weights: &[Weight], types: Types) -> Result<Recorded> {
    let mut r = Recording::new(problem, streams, types);
    let lane = r.lane(weights, None)?;
    r.recorder.push(problem.op(&lane))?;
    let cols = r.operands.out.1;
    r.finish(lane.out, cols)
}

/// The op `repeats` times, taking turns with the weights of `lanes`; inputs are copied for each lane, so that a
/// run's own cost does not grow with `repeats`. All results go to one buffer, which keeps the repetitions apart.
///
/// # Errors
/// Those of the op's check.
pub fn repeated(
    problem: &Problem,
    streams: &Streams,
    lanes: &[Vec<Weight>],
    repeats: usize,
    types: Types,
) -> Result<Recorded> {
    let mut r = Recording::new(problem, streams, types);
    let mut handles: Vec<Handles> = Vec::new();
    for weights in lanes {
        let lane = r.lane(weights, handles.first())?;
        handles.push(lane);
    }
    for lane in handles.iter().cycle().take(repeats) {
        r.recorder.push(problem.op(lane))?;
    }
    let Some(last) = handles.iter().cycle().nth(repeats.saturating_sub(1)) else {
        return Err(Error::Input("nothing to repeat".into()));
    };
    // Something small that cannot be read before the last repetition is done.
    r.finish(last.out, 4)
}

struct Recording<'a> {
    recorder: Recorder,
    streams: &'a Streams,
    operands: Operands,
    types: Types,
    inputs: Vec<(BufferId, Vec<u32>)>,
    index: Option<BufferId>,
    raw: [Option<BufferId>; 2],
}

impl<'a> Recording<'a> {
    fn new(problem: &Problem, streams: &'a Streams, types: Types) -> Self {
        let mut operands = problem.operands();
        // A sample may have more tiles than its sequences need.
        if let Some((_, count, cols)) = operands.index {
            operands.rows[count as usize] = streams.index.len() / cols;
        }
        let types = if operands.f32_out { Types { out: DType::F32, ..types } } else { types };
        let types = if operands.in_place { Types { out: types.x, ..types } } else { types };
        Recording {
            recorder: Recorder::new(),
            streams,
            operands,
            types,
            inputs: Vec::new(),
            index: None,
            raw: [None; 2],
        }
    }

    fn spec(&self, name: &'static str, dtype: DType, count: Count, cols: usize, role: Role) -> BufferSpec {
        BufferSpec { name, dtype, rows: self.operands.rows[count as usize], cols, count, role }
    }

    fn input(&mut self, spec: BufferSpec, values: Vec<u32>) -> BufferId {
        let id = self.recorder.buffer(spec);
        self.inputs.push((id, values));
        id
    }

    /// A buffer of `dtype` with the input's values, copied there as between ops of a model.
    fn staged(&mut self, raw: usize, name: &'static str, dtype: DType, cols: usize) -> Result<BufferId> {
        let x = match self.raw[raw] {
            Some(id) => id,
            None => {
                let values = if raw == 0 { &self.streams.x } else { &self.streams.residual };
                let bits = values.iter().map(|v| v.to_bits()).collect();
                let spec = self.spec("values", DType::F32, Count::Tokens, cols, Role::Input);
                let id = self.input(spec, bits);
                self.raw[raw] = Some(id);
                id
            }
        };
        let spec = self.spec(name, dtype, Count::Tokens, cols, Role::Internal);
        let out = self.recorder.buffer(spec);
        self.recorder.push(Op::Normalize(Normalize { x, unit: false, out }))?;
        Ok(out)
    }

    /// Buffers of one occurrence of the op; residual and result are shared with an earlier one.
    fn lane(&mut self, weights: &[Weight], earlier: Option<&Handles>) -> Result<Handles> {
        let x = match self.operands.x {
            Some(cols) => Some(self.staged(0, "x", self.types.x, cols)?),
            None => None,
        };
        let (count, cols) = self.operands.out;
        let residual = match (self.operands.residual, earlier) {
            (true, Some(lane)) => lane.residual,
            (true, None) => Some(self.staged(1, "residual", self.types.out, cols)?),
            (false, _) => None,
        };
        if let (None, Some((name, count, cols))) = (self.index, self.operands.index) {
            let spec = self.spec(name, DType::U32, count, cols, Role::Input);
            self.index = Some(self.input(spec, self.streams.index.clone()));
        }
        let out = match (self.operands.in_place, x, earlier) {
            (true, Some(x), _) => x,
            (false, _, Some(lane)) => lane.out,
            _ => self.recorder.buffer(self.spec("result", self.types.out, count, cols, Role::Internal)),
        };
        Ok(Handles { x, residual, index: self.index, weights: weights.to_vec(), out })
    }

    /// Copies the first columns of `result` to the output and ends the program.
    fn finish(mut self, result: BufferId, cols: usize) -> Result<Recorded> {
        let count = self.operands.out.0;
        let spec = self.spec("output", DType::F32, count, cols, Role::Output);
        let rows = spec.rows;
        let out = self.recorder.buffer(spec);
        self.recorder.push(Op::Normalize(Normalize { x: result, unit: false, out }))?;
        let counts = self.operands.rows.map(|n| n as u32);
        Ok(Recorded {
            program: self.recorder.finish()?,
            inputs: self.inputs,
            counts: [counts[0], counts[1], counts[2], 0],
            read: (out, rows, cols),
        })
    }
}
