//! Which tile or kernel multiplies depends on a program's bucket; the bits of its result must not.
#![cfg(feature = "gpu")]

use inferencelayer_engine::{
    backend::{Backend, Plan, read, upload_f32},
    gpu::{GpuBackend, GpuContext, GpuOptions},
    op::{Activation, GatedLinear, Linear, Normalize, Op},
    program::{BufferSpec, Count, Recorder, Role},
    tensor::{DType, Format, WeightUse},
};

const ROWS: usize = 13;

/// Values in ±1 that look random.
fn values(count: usize, scale: f32) -> Vec<f32> {
    let mut state = 1u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 8) as f32 / 8_388_608.0 - 1.0) * scale
    };
    (0..count).map(next).collect()
}

/// The first rows of a product in a program for `bucket` rows, and the grid of its kernel.
fn run(backend: &GpuBackend, bucket: usize, k: usize, n: usize, gated: bool) -> (Vec<f32>, [u32; 3]) {
    let rows = if gated { 2 * n } else { n };
    let scale = 1.0 / (k as f32).sqrt();
    let weight = upload_f32(backend, "w", WeightUse::Matrix, (rows, k), &values(rows * k, scale)).unwrap();
    let bias = Some(upload_f32(backend, "b", WeightUse::Vector, (1, rows), &values(rows, 0.5)).unwrap());
    let mut recorder = Recorder::new();
    let spec = |name, cols, role| BufferSpec {
        name,
        dtype: DType::F32,
        rows: bucket,
        cols,
        count: Count::Tokens,
        role,
    };
    let given = recorder.buffer(spec("given", k, Role::Input));
    let x = recorder.internal("x", backend.capabilities().activations, bucket, k, Count::Tokens);
    let out = recorder.buffer(spec("out", n, Role::Output));
    recorder.push(Op::Normalize(Normalize { x: given, unit: false, out: x })).unwrap();
    let activation = Activation::Gelu;
    recorder
        .push(if gated {
            Op::GatedLinear(GatedLinear { x, weight, bias, activation, out })
        } else {
            Op::Linear(Linear { x, weight, bias, activation, residual: None, out })
        })
        .unwrap();
    let mut plan = backend.prepare_gpu(&recorder.finish().unwrap()).unwrap();
    let grid = plan.steps().last().unwrap().1;
    let input: Vec<u32> = values(ROWS * k, 1.0).iter().map(|v| v.to_bits()).collect();
    let ticket = plan.submit([ROWS as u32, 0, 0, 0], &[(given, &input)], &[(out, ROWS)]).unwrap();
    plan.wait(ticket).unwrap();
    let mut result = vec![0.0; ROWS * n];
    pollster::block_on(read(&mut plan, ticket, &mut result)).unwrap();
    (result, grid)
}

#[test]
fn results_do_not_depend_on_the_bucket() {
    let options = GpuOptions { as_hardware: true, ..Default::default() };
    for format in [Format::F32, Format::F16] {
        let context = pollster::block_on(GpuContext::new(&options)).unwrap_or_else(|e| panic!("{e}"));
        let backend = GpuBackend::new(context, format).unwrap();
        for (k, n, gated) in [(128, 900, false), (192, 516, false), (192, 452, true), (68, 516, false)] {
            let (expected, least) = run(&backend, 16, k, n, gated);
            let mut grids = vec![least];
            for bucket in [80, 300, 1700] {
                let (found, grid) = run(&backend, bucket, k, n, gated);
                grids.push(grid);
                let differ = expected.iter().zip(&found).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
                assert_eq!(differ, 0, "{format:?} {bucket}x{k}->{n} gated={gated} of {}", found.len());
            }
            // Fewer columns of workgroups for more rows: a larger tile was taken.
            assert!(grids[0][0] > grids[3][0], "{format:?} {k}->{n}: {grids:?}");
        }
    }
}
