//! A prepared program on the GPU: pipelines, bind groups and grids, replayed by every run.

use alloc::{format, string::String, sync::Arc, vec, vec::Vec};
use core::task::{Context, Poll};

use super::{
    backend::Shared,
    context::GpuContext,
    fuse::{self, Call},
    lower::{Binding, Dispatch, Lowering},
    pipelines::Pipeline,
    readback::DEPTH,
    state::GpuState,
    template::{Access, FIRST_STORAGE},
};
use crate::{
    Error, Result,
    backend::{Plan, StepTime, Ticket, check_run},
    program::{BufferId, Counts, Program, Role},
    tensor::DType,
};

/// Uniform and storage offsets are multiples of this on every adapter at default limits.
const ALIGN: u64 = 256;

/// One dispatch with everything resolved.
#[derive(Debug)]
pub(super) struct Step {
    pub name: &'static str,
    pipeline: wgpu::ComputePipeline,
    bind_group: wgpu::BindGroup,
    pub grid: [u32; 3],
}

/// Where a program's buffer lies.
#[derive(Debug, Clone)]
struct Place {
    buffer: wgpu::Buffer,
    offset: u64,
    bytes: u64,
}

/// Where everything lies that a program's dispatches bind but weights.
struct Memory<'a> {
    packed: &'a wgpu::Buffer,
    places: &'a [Option<Place>],
    /// Scratch memory and lists, if any dispatch needs them.
    scratch: &'a [wgpu::Buffer],
}

/// A prepared program on the GPU.
#[derive(Debug)]
pub struct GpuPlan {
    pub(super) shared: Arc<Shared>,
    pub(super) program: Program,
    pub(super) steps: Vec<Step>,
    places: Vec<Option<Place>>,
    /// Counts and integer inputs, written in one piece.
    packed: wgpu::Buffer,
    packed_bytes: Vec<u8>,
    /// Unread runs: the ticket and its read-back slot; no slot if nothing was asked for.
    unread: [Option<(Ticket, Option<usize>)>; DEPTH],
    next: u64,
}

impl GpuPlan {
    pub(super) fn new(shared: Arc<Shared>, program: Program) -> Result<GpuPlan> {
        let context = &shared.context;
        let (packed, packed_len, mut places) = place_inputs(context, &program)?;
        let lowering = Lowering {
            program: &program,
            features: context.features,
            workgroup_bytes: context.limits.max_compute_workgroup_storage_size,
            most_invocations: context.limits.max_compute_invocations_per_workgroup,
            linear_tile: context.linear_tile,
        };
        let calls = if context.fusion { fuse::fused(&lowering) } else { fuse::apart(&program) };
        let (slots, sizes) = program.slots_for(&program.lifetimes_in(calls.iter().map(Call::operands)));
        let arena = shared.arena.reserve(context, &sizes)?;
        for (i, slot) in slots.iter().enumerate() {
            if let Some(slot) = slot {
                let bytes = program.buffers[i].bytes() as u64;
                places[i] = Some(Place { buffer: arena[*slot].clone(), offset: 0, bytes });
            }
        }
        for (id, state) in &program.states {
            let buffer = GpuState::of(state)?.buffer.clone();
            let bytes = state.spec().bytes();
            places[id.index()] = Some(Place { buffer, offset: 0, bytes });
        }
        let results: u64 = program.with_role(Role::Output).map(|id| program.spec(id).bytes() as u64).sum();
        shared.readback.reserve(context, results)?;
        let mut dispatches = Vec::new();
        for call in &calls {
            dispatches.extend(lowering.lower(call)?);
        }
        let needed = dispatches.iter().map(Dispatch::scratch);
        let needed = needed.fold([0; 2], |[a, b], [c, d]| [a.max(c), b.max(d)]);
        let scratch = match needed {
            [0, 0] => Vec::new(),
            needed => shared.scratch.reserve(context, &needed)?,
        };
        let memory = Memory { packed: &packed, places: &places, scratch: &scratch };
        let steps = resolve(context, &memory, &program, &dispatches)?;
        let packed_bytes = vec![0; packed_len as usize];
        Ok(GpuPlan { shared, program, steps, places, packed, packed_bytes, unread: [None; DEPTH], next: 0 })
    }

    /// Kernel name and grid of each step.
    pub fn steps(&self) -> impl Iterator<Item = (&'static str, [u32; 3])> + '_ {
        self.steps.iter().map(|s| (s.name, s.grid))
    }

    pub(super) fn write_inputs(&mut self, counts: &Counts, inputs: &[(BufferId, &[u32])]) {
        let queue = &self.shared.context.queue;
        let mut changed = self.packed_bytes[..16] != *bytemuck::cast_slice::<u32, u8>(counts);
        self.packed_bytes[..16].copy_from_slice(bytemuck::cast_slice(counts));
        let mut used = 16;
        for (id, data) in inputs {
            let Some(place) = &self.places[id.index()] else { continue };
            let bytes: &[u8] = bytemuck::cast_slice(data);
            if place.buffer == self.packed {
                let end = place.offset as usize + bytes.len();
                self.packed_bytes[place.offset as usize..end].copy_from_slice(bytes);
                (used, changed) = (used.max(end), true);
            } else if !bytes.is_empty() {
                queue.write_buffer(&place.buffer, 0, bytes);
            }
        }
        // A decoding step writes nothing, and nothing has to be waited for.
        if changed {
            queue.write_buffer(&self.packed, 0, &self.packed_bytes[..used]);
        }
    }

    /// Records one pass over `steps`.
    pub(super) fn encode_steps<'a>(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        steps: impl IntoIterator<Item = &'a Step>,
        timestamp_writes: Option<wgpu::ComputePassTimestampWrites<'_>>,
    ) {
        let mut pass =
            encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes });
        for step in steps {
            pass.set_pipeline(&step.pipeline);
            pass.set_bind_group(0, &step.bind_group, &[]);
            pass.dispatch_workgroups(step.grid[0], step.grid[1], step.grid[2]);
        }
    }
}

impl Drop for GpuPlan {
    fn drop(&mut self) {
        for (_, slot) in self.unread.iter().flatten() {
            if let Some(slot) = slot {
                self.shared.readback.abandon(*slot);
            }
        }
    }
}

impl Plan for GpuPlan {
    fn submit(
        &mut self,
        counts: Counts,
        inputs: &[(BufferId, &[u32])],
        reads: &[(BufferId, usize)],
    ) -> Result<Ticket> {
        check_run(&self.program, &counts, inputs, reads)?;
        let Some(free) = self.unread.iter().position(Option::is_none) else {
            return Err(Error::Unsupported(format!("more than {DEPTH} unread runs of one plan")));
        };
        let row_bytes = |id: BufferId| self.program.spec(id).cols as u64 * 4;
        let bytes: u64 = reads.iter().map(|(id, rows)| *rows as u64 * row_bytes(*id)).sum();
        let staging = match bytes {
            0 => None,
            _ => Some(self.shared.readback.take(&self.shared.context, bytes)?),
        };
        self.write_inputs(&counts, inputs);
        let context = &self.shared.context;
        let mut encoder = context.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        self.encode_steps(&mut encoder, &self.steps, None);
        if let Some((_, staging)) = &staging {
            let mut at = 0;
            for (id, rows) in reads {
                let length = *rows as u64 * self.program.spec(*id).cols as u64 * 4;
                if let (Some(place), true) = (&self.places[id.index()], length > 0) {
                    encoder.copy_buffer_to_buffer(&place.buffer, place.offset, &staging.buffer, at, length);
                }
                at += length;
            }
        }
        let submission = context.queue.submit([encoder.finish()]);
        let slot = staging.map(|(index, staging)| {
            self.shared.readback.submitted(index, staging, bytes, submission);
            index
        });
        let ticket = Ticket(self.next);
        self.next += 1;
        self.unread[free] = Some((ticket, slot));
        context.faults.check()?;
        Ok(ticket)
    }

    fn poll_read(&mut self, ticket: Ticket, out: &mut [f32], cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(entry) = self.unread.iter_mut().find(|u| u.is_some_and(|(t, _)| t == ticket)) else {
            return Poll::Ready(Err(Error::Input(format!(
                "run {} was read already or never made",
                ticket.0
            ))));
        };
        let polled = match entry.and_then(|(_, slot)| slot) {
            Some(slot) => self.shared.readback.poll(&self.shared.context, slot, out, cx),
            None => Poll::Ready(Ok(())),
        };
        if polled.is_ready() {
            *entry = None;
        }
        polled
    }

    fn wait(&mut self, ticket: Ticket) -> Result<()> {
        match self.unread.iter().flatten().find(|(t, _)| *t == ticket) {
            Some((_, Some(slot))) => self.shared.readback.wait(&self.shared.context, *slot),
            _ => Ok(()),
        }
    }

    fn depth(&self) -> usize {
        DEPTH
    }

    fn profile(&mut self, counts: Counts, inputs: &[(BufferId, &[u32])]) -> Result<Vec<StepTime>> {
        self.profile_steps(counts, inputs)
    }
}

/// Integer inputs follow the counts in one buffer; float inputs get a buffer each, since ops may change them in
/// place and a buffer cannot be read and written by one dispatch.
fn place_inputs(context: &GpuContext, program: &Program) -> Result<(wgpu::Buffer, u64, Vec<Option<Place>>)> {
    let mut end = ALIGN;
    let mut offsets = vec![None; program.buffers.len()];
    for id in program.with_role(Role::Input) {
        if program.spec(id).dtype == DType::U32 {
            offsets[id.index()] = Some(end);
            end += (program.spec(id).bytes() as u64).next_multiple_of(ALIGN);
        }
    }
    let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
    let packed = context.buffer("inputs", end, usage | wgpu::BufferUsages::UNIFORM)?;
    let mut places = vec![None; program.buffers.len()];
    for id in program.with_role(Role::Input) {
        let (spec, i) = (program.spec(id), id.index());
        let bytes = spec.bytes() as u64;
        places[i] = Some(match (offsets[i], spec.dtype) {
            (Some(offset), _) => Place { buffer: packed.clone(), offset, bytes },
            (None, DType::F32) => {
                Place { buffer: context.buffer(spec.name, bytes, usage)?, offset: 0, bytes }
            }
            _ => return Err(Error::Unsupported(format!("input `{}` must be f32 or u32", spec.name))),
        });
    }
    Ok((packed, end, places))
}

fn resolve(
    context: &GpuContext,
    memory: &Memory<'_>,
    program: &Program,
    dispatches: &[Dispatch],
) -> Result<Vec<Step>> {
    let mut words: Vec<u8> = Vec::new();
    let mut offsets = Vec::new();
    for d in dispatches {
        offsets.push(words.len() as u64);
        words.extend_from_slice(bytemuck::cast_slice(&d.params));
        words.resize(words.len().next_multiple_of(ALIGN as usize), 0);
    }
    let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
    let params = context.buffer("parameters", words.len() as u64, usage)?;
    if !words.is_empty() {
        context.queue.write_buffer(&params, 0, &words);
    }
    let mut steps = Vec::new();
    for (d, offset) in dispatches.iter().zip(offsets) {
        let pipeline = context.pipelines.get(d.kernel, &d.definitions)?;
        let bind_group = bind(context, memory, (&params, offset), program, d, &pipeline)?;
        steps.push(Step { name: d.kernel.name, pipeline: pipeline.pipeline, bind_group, grid: d.grid });
    }
    context.faults.check()?;
    Ok(steps)
}

fn bind(
    context: &GpuContext,
    memory: &Memory<'_>,
    (params, offset): (&wgpu::Buffer, u64),
    program: &Program,
    d: &Dispatch,
    pipeline: &Pipeline,
) -> Result<wgpu::BindGroup> {
    let entry = |binding, buffer, offset, bytes: u64| wgpu::BindGroupEntry {
        binding,
        resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer,
            offset,
            size: wgpu::BufferSize::new(bytes),
        }),
    };
    let params_bytes = (d.params.len() as u64 * 4).next_multiple_of(16);
    let mut entries = vec![entry(0, params, offset, params_bytes), entry(1, memory.packed, 0, 16)];
    let bug = |why: &str| Error::Gpu(format!("kernel {}: {why}", d.kernel.name));
    if d.bindings.len() != pipeline.bindings.len() {
        return Err(bug("its lowering binds another number of buffers than it declares"));
    }
    let limit = context.limits.max_storage_buffer_binding_size;
    let fits = |what: &dyn Fn() -> String, needed: u64| match needed <= limit {
        true => Ok(()),
        false => Err(Error::TooLarge { what: what(), needed, limit }),
    };
    for (i, binding) in d.bindings.iter().enumerate() {
        let number = FIRST_STORAGE + i as u32;
        match binding {
            Binding::Weight(buffer) => {
                if pipeline.bindings[i] == Access::Write {
                    return Err(bug("it would write a weight"));
                }
                entries.push(entry(number, buffer, 0, buffer.size()));
            }
            Binding::Buffer(id) => {
                let place = memory.places[id.index()].as_ref();
                let place = place.ok_or_else(|| bug("a buffer has no place"))?;
                fits(&|| format!("activation `{}`", program.spec(*id).name), place.bytes)?;
                entries.push(entry(number, &place.buffer, place.offset, place.bytes));
            }
            Binding::Scratch(bytes) | Binding::Lists(bytes) => {
                let which = usize::from(matches!(binding, Binding::Lists(_)));
                let scratch = memory.scratch.get(which).ok_or_else(|| bug("there is no scratch memory"))?;
                fits(&|| format!("scratch memory of kernel {}", d.kernel.name), *bytes)?;
                entries.push(entry(number, scratch, 0, *bytes));
            }
        }
    }
    context.count_created();
    Ok(context.device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: Some(d.kernel.name),
        layout: &pipeline.layout,
        entries: &entries,
    }))
}
