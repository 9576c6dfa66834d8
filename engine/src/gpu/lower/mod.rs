//! Lowering: each op becomes one or more dispatches, chosen by shape and by what the device offers.

mod attention;
mod cached;
mod expert_tiles;
mod experts;
mod few_rows;
mod linear;
mod linear_coop;
mod linear_vec;
mod rows;
mod sample;
mod stored;

use alloc::{format, string::ToString, vec, vec::Vec};

use super::{
    blocks::Layout,
    context::Features,
    fuse::Call,
    kernel::Kernel,
    pipelines::Definitions,
    weight::{GpuWeight, Piece},
};
use crate::{
    Error, Result,
    op::{Activation, Norm, NormKind, NormParams, Op, Route, ShortConv, StoreKv},
    program::{BufferId, Program},
    tensor::{DType, Format, Weight},
};

/// Largest number of workgroups in one dimension of a dispatch.
const MAX_GRID: u32 = 65_535;

/// What a dispatch binds, in the order of the kernel's declarations.
#[derive(Debug, Clone)]
pub enum Binding {
    Buffer(BufferId),
    Weight(wgpu::Buffer),
    /// The first so many bytes of memory that holds something from one dispatch of an op to its next.
    Scratch(u64),
    /// The same of another memory, so that a dispatch may read one and write the other.
    Lists(u64),
}

/// One kernel call with everything resolved but the program's buffers.
#[derive(Debug, Clone)]
pub struct Dispatch {
    pub kernel: &'static Kernel,
    pub definitions: Definitions,
    /// The uniform parameters, as words.
    pub params: Vec<u32>,
    pub bindings: Vec<Binding>,
    pub grid: [u32; 3],
}

impl Dispatch {
    /// Bytes of scratch memory, and of lists, that it needs.
    pub fn scratch(&self) -> [usize; 2] {
        let mut most = [0; 2];
        for binding in &self.bindings {
            match binding {
                Binding::Scratch(bytes) => most[0] = most[0].max(*bytes as usize),
                Binding::Lists(bytes) => most[1] = most[1].max(*bytes as usize),
                Binding::Buffer(_) | Binding::Weight(_) => {}
            }
        }
        most
    }
}

/// What lowering may look at.
#[derive(Debug, Clone, Copy)]
pub struct Lowering<'a> {
    pub program: &'a Program,
    pub features: Features,
    /// Memory that the invocations of a workgroup may share.
    pub workgroup_bytes: u32,
    /// Invocations that a workgroup may have.
    pub most_invocations: u32,
    /// The tile of `linear_coop` to take wherever it can be.
    pub linear_tile: Option<&'static str>,
}

impl Lowering<'_> {
    /// Whether a call's dispatch can make its input from what `norm` reads, so that `norm` needs none.
    pub fn takes_norm(&self, call: &Call<'_>, norm: &Norm) -> bool {
        few_rows::takes_norm(self, call, norm)
    }

    /// Whether a call's dispatch can do what `conv` does with its outputs.
    pub fn takes_conv(&self, call: &Call<'_>, conv: &ShortConv) -> bool {
        matches!(call.op, Op::Linear(o) if few_rows::takes_conv(self, call, o, conv))
    }

    /// Whether a call's dispatch can choose its experts by the logits of `router`'s op.
    pub fn takes_route(&self, call: &Call<'_>, router: (&Call<'_>, &Route)) -> bool {
        matches!(call.op, Op::ExpertGatedLinear(o) if few_rows::takes_route(self, call, o, router))
    }

    /// Whether an op's dispatch can do what `store` does before.
    pub fn takes_store(&self, op: &Op, store: &StoreKv) -> bool {
        matches!(op, Op::CachedAttention(o) if cached::takes_store(self, o, store))
    }

    /// The dispatches of one call.
    ///
    /// # Errors
    /// `Unsupported` for weights of another backend or layouts a kernel cannot read.
    pub fn lower(&self, call: &Call<'_>) -> Result<Vec<Dispatch>> {
        if let Some(dispatches) = few_rows::lower(self, call)? {
            return Ok(dispatches);
        }
        match call.op {
            Op::Embed(o) => rows::embed(self, o),
            Op::Norm(o) => rows::norm(self, o),
            Op::Linear(o) => linear::linear(self, o),
            Op::GatedLinear(o) => linear::gated_linear(self, o),
            Op::Rope(o) => stored::rope(self, o),
            Op::Attention(o) => attention::attention(self, o),
            Op::Pool(o) => rows::pool(self, o),
            Op::Normalize(o) => rows::normalize(self, o),
            Op::StoreKv(o) => stored::store_kv(self, o),
            Op::ShortConv(o) => stored::short_conv(self, o),
            Op::Sample(o) => sample::sample(self, o),
            Op::CachedAttention(o) => cached::cached_attention(self, o, call.store),
            Op::Route(o) => experts::route(self, o),
            Op::ExpertGatedLinear(o) => experts::expert_gated_linear(self, o),
            Op::ExpertLinear(o) => experts::expert_linear(self, o),
        }
    }

    /// Most rows of a buffer.
    fn rows(&self, id: BufferId) -> u32 {
        self.program.spec(id).rows as u32
    }

    /// Groups of four columns.
    fn cols4(&self, id: BufferId) -> u32 {
        self.program.spec(id).cols as u32 / 4
    }

    fn count(&self, id: BufferId) -> u32 {
        self.program.spec(id).count as u32
    }

    /// The template word for a buffer's element type.
    fn word(&self, id: BufferId) -> &'static str {
        match self.program.spec(id).dtype {
            DType::F16 => "f16",
            DType::F32 | DType::U32 => "f32",
            DType::Q8 => "q8",
        }
    }
}

fn storage(weight: &Weight) -> Result<&GpuWeight> {
    weight
        .storage::<GpuWeight>()
        .ok_or_else(|| Error::Unsupported(format!("weight `{}` belongs to another backend", weight.name())))
}

/// The template word for a weight's format.
fn weight_word(weight: &Weight) -> Result<&'static str> {
    match weight.format() {
        Format::F32 => Ok("f32"),
        Format::F16 => Ok("f16"),
        other => match Layout::of(other) {
            Some(layout) => Ok(layout.word),
            None => Err(Error::Unsupported(format!("weight `{}`: no kernel reads {other}", weight.name()))),
        },
    }
}

/// The only piece of a weight that must not be split.
fn whole(weight: &Weight) -> Result<&Piece> {
    match &storage(weight)?.pieces[..] {
        [piece] => Ok(piece),
        pieces => Err(Error::Unsupported(format!(
            "weight `{}` needs {} bindings on this GPU, but its kernel takes one; use f16 or the CPU",
            weight.name(),
            pieces.len()
        ))),
    }
}

fn bind(weight: &Weight) -> Result<Binding> {
    Ok(Binding::Weight(whole(weight)?.buffer.clone()))
}

fn norm_word(params: Option<&NormParams>) -> &'static str {
    match params.map(|p| p.kind) {
        None => "none",
        Some(NormKind::Layer) => "layer",
        Some(NormKind::Rms) => "rms",
    }
}

fn has_bias(params: &NormParams) -> u32 {
    u32::from(params.weight.rows() == 2)
}

fn activation_word(activation: Activation) -> &'static str {
    match activation {
        Activation::None => "none",
        Activation::Gelu => "gelu",
        Activation::GeluTanh => "gelu_tanh",
        Activation::Relu => "relu",
        Activation::Silu => "silu",
        Activation::Tanh => "tanh",
        Activation::Sigmoid => "sigmoid",
    }
}

fn flag(on: bool) -> alloc::string::String {
    if on { "1" } else { "0" }.to_string()
}

/// A one-dimensional grid folded into x and y; x is the kernel's `grid_x`.
fn fold(count: u32) -> [u32; 3] {
    if count <= MAX_GRID {
        return [count.max(1), 1, 1];
    }
    [32_768, count.div_ceil(32_768), 1]
}

fn define(pairs: &[(&'static str, &str)]) -> Definitions {
    pairs.iter().map(|(k, v)| (*k, v.to_string())).collect()
}

fn dispatch(
    kernel: &'static Kernel,
    definitions: Definitions,
    params: &[u32],
    bindings: Vec<Binding>,
    grid: [u32; 3],
) -> Dispatch {
    Dispatch { kernel, definitions, params: params.to_vec(), bindings, grid }
}

fn one(d: Dispatch) -> Result<Vec<Dispatch>> {
    Ok(vec![d])
}
