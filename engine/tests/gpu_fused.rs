//! Neighbouring ops that share a dispatch, against the scalar reference, which does them one by one: with fusion and
//! without, and how many dispatches are left.
#![cfg(feature = "gpu")]

use inferencelayer_engine::{
    backend::{Backend, upload_f32},
    gpu::{GpuBackend, GpuContext, GpuFormats, GpuOptions},
    op::{Activation, GatedLinear, Linear, Norm, NormKind, NormParams, Normalize, Op},
    program::{BufferId, BufferSpec, Count, Recorder, Role},
    tensor::{DType, Format, Weight, WeightUse},
    testing::{Size, fused_cases, require_cases},
};

/// The kernels of real GPUs, which are the ones that are fused.
fn hardware() -> GpuOptions {
    GpuOptions { as_hardware: true, ..Default::default() }
}

fn backend(options: &GpuOptions, formats: impl Into<GpuFormats>) -> GpuBackend {
    let context = pollster::block_on(GpuContext::new(options)).unwrap_or_else(|e| panic!("{e}"));
    GpuBackend::new(context, formats).unwrap()
}

fn check(options: &GpuOptions, formats: impl Into<GpuFormats>, size: Size) {
    let backend = backend(options, formats);
    let cases = fused_cases(backend.capabilities(), size);
    let count = pollster::block_on(require_cases(&backend, cases)).unwrap_or_else(|e| panic!("{e}"));
    assert!(count > 10, "{count} cases");
}

const HALVES: GpuFormats = GpuFormats { floats: Format::F16, q8_activations: true };

#[test]
fn fused_ops_match_the_reference() {
    check(&hardware(), HALVES, Size::Full);
    check(&GpuOptions { checked_shaders: true, ..hardware() }, Format::F32, Size::Small);
}

#[test]
fn without_fusion_the_same_cases_pass() {
    check(&GpuOptions { no_fusion: true, ..hardware() }, HALVES, Size::Small);
}

#[test]
fn a_software_adapter_is_spared_fusion_and_right() {
    check(&GpuOptions::default(), HALVES, Size::Small);
}

#[test]
fn without_subgroups_at_default_limits() {
    let options = GpuOptions { default_limits: true, no_f16: true, no_subgroups: true, ..hardware() };
    let formats = GpuFormats { floats: Format::F32, q8_activations: true };
    check(&options, formats, Size::Small);
    check(&GpuOptions { no_subgroups: true, ..hardware() }, HALVES, Size::Small);
}

struct Recording<'a> {
    backend: &'a GpuBackend,
    recorder: Recorder,
    rows: usize,
}

impl Recording<'_> {
    fn new(backend: &GpuBackend, rows: usize) -> Recording<'_> {
        Recording { backend, recorder: Recorder::new(), rows }
    }

    fn buffer(&mut self, dtype: DType, cols: usize, role: Role) -> BufferId {
        let rows = self.rows;
        self.recorder.buffer(BufferSpec { name: "b", dtype, rows, cols, count: Count::Tokens, role })
    }

    fn weight(&self, usage: WeightUse, rows: usize, cols: usize) -> Weight {
        upload_f32(self.backend, "w", usage, (rows, cols), &vec![0.1; rows * cols]).unwrap()
    }

    fn norm(&mut self, x: BufferId, cols: usize) -> BufferId {
        let weight = self.weight(WeightUse::Vector, 1, cols);
        let out = self.buffer(self.backend.capabilities().activations, cols, Role::Internal);
        let params = NormParams { kind: NormKind::Rms, weight, eps: 1e-5 };
        self.recorder.push(Op::Norm(Norm { x, params, out })).unwrap();
        out
    }

    fn linear(&mut self, x: BufferId, (k, n): (usize, usize), residual: Option<BufferId>) -> BufferId {
        let weight = self.weight(WeightUse::Matrix, n, k);
        let out = self.buffer(DType::F32, n, Role::Output);
        let activation = Activation::None;
        self.recorder.push(Op::Linear(Linear { x, weight, bias: None, activation, residual, out })).unwrap();
        out
    }

    fn gated(&mut self, x: BufferId, k: usize, n: usize) -> BufferId {
        let weight = self.weight(WeightUse::Matrix, 2 * n, k);
        let out = self.buffer(DType::F32, n, Role::Output);
        let activation = Activation::Silu;
        self.recorder.push(Op::GatedLinear(GatedLinear { x, weight, bias: None, activation, out })).unwrap();
        out
    }

    /// The kernels of its dispatches.
    fn kernels(self) -> Vec<&'static str> {
        let plan = self.backend.prepare_gpu(&self.recorder.finish().unwrap()).unwrap();
        plan.steps().map(|(name, _)| name).collect()
    }
}

/// A norm that products read, `gated` ones too; `other` reads it besides.
fn normed(options: &GpuOptions, rows: usize, cols: usize, gated: bool, other: bool) -> Vec<&'static str> {
    let backend = backend(options, Format::F16);
    let mut r = Recording::new(&backend, rows);
    let x = r.buffer(DType::F32, cols, Role::Input);
    let normed = r.norm(x, cols);
    r.linear(normed, (cols, 64), None);
    if gated {
        r.gated(normed, cols, 32);
    }
    if other {
        let out = r.buffer(DType::F32, cols, Role::Output);
        r.recorder.push(Op::Normalize(Normalize { x: normed, unit: true, out })).unwrap();
    }
    r.kernels()
}

#[test]
fn norms_that_only_products_read_take_no_dispatch() {
    assert_eq!(normed(&hardware(), 1, 64, false, false), ["linear_vec"]);
    assert_eq!(normed(&hardware(), 4, 64, true, false), ["linear_vec", "linear_vec"]);
}

#[test]
fn norms_are_left_alone_where_they_must_be() {
    let apart = ["norm", "linear_vec"];
    let options = GpuOptions { no_fusion: true, ..hardware() };
    assert_eq!(normed(&options, 1, 64, false, false), apart);
    // Somebody else reads it.
    assert_eq!(normed(&hardware(), 1, 64, false, true), ["norm", "linear_vec", "normalize"]);
    // More rows than are worth it, or longer ones than a workgroup holds.
    assert_eq!(normed(&hardware(), 8, 64, false, false), apart);
    let options = GpuOptions { default_limits: true, ..hardware() };
    assert_eq!(normed(&options, 2, 8192, false, false), apart);
}

/// A buffer that the norm read may be given to others as soon as nobody reads it any more.
#[test]
fn what_a_norm_reads_lives_until_the_products_have_read_it() {
    for no_fusion in [false, true] {
        let backend = backend(&GpuOptions { no_fusion, ..hardware() }, Format::F32);
        let mut r = Recording::new(&backend, 1);
        let x = r.buffer(DType::F32, 64, Role::Input);
        let stream = r.buffer(DType::F32, 64, Role::Internal);
        r.recorder.push(Op::Normalize(Normalize { x, unit: false, out: stream })).unwrap();
        let normed = r.norm(stream, 64);
        let out = r.linear(normed, (64, 64), None);
        let mut plan = backend.prepare_gpu(&r.recorder.finish().unwrap()).unwrap();
        let input: Vec<u32> = (0..64u8).map(|i| f32::from(i).to_bits()).collect();
        let run = |plan: &mut inferencelayer_engine::gpu::GpuPlan| {
            use inferencelayer_engine::backend::{Plan, read};
            let ticket = plan.submit([1, 0, 0, 0], &[(x, &input)], &[(out, 1)]).unwrap();
            plan.wait(ticket).unwrap();
            let mut values = vec![0.0; 64];
            pollster::block_on(read(plan, ticket, &mut values)).unwrap();
            values
        };
        // 64 values of 0.1 · 0.1 · i / rms.
        let rms = ((0..64).map(|i| f64::from(i * i)).sum::<f64>() / 64.0 + 1e-5).sqrt();
        let expected = (0..64).map(f64::from).sum::<f64>() * 0.01 / rms;
        for _ in 0..3 {
            for value in run(&mut plan) {
                assert!((f64::from(value) - expected).abs() < 1e-4, "{value} for {expected}");
            }
        }
    }
}
