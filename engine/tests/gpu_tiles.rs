//! Which tile or kernel multiplies depends on a program's bucket; the bits of its result must not.
#![cfg(feature = "gpu")]

use inferencelayer_engine::{
    backend::{Backend, Plan, read, upload_f32},
    gpu::{GpuBackend, GpuContext, GpuOptions},
    op::{Activation, GatedLinear, Linear, Normalize, Op},
    program::{BufferSpec, Count, Recorder, Role},
    tensor::{DType, Format, Weight, WeightSpec, WeightUse},
    testing::{Random, random_blocks},
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

/// A matrix in blocks, or in the backend's floats.
fn matrix(backend: &GpuBackend, blocks: Option<Format>, rows: usize, cols: usize) -> Weight {
    let scale = 1.0 / (cols as f32).sqrt();
    let Some(format) = blocks else {
        let values = values(rows * cols, scale);
        return upload_f32(backend, "w", WeightUse::Matrix, (rows, cols), &values).unwrap();
    };
    let bytes = random_blocks(&mut Random::named("tiles"), format, rows * cols / format.block(), 3.0 * scale);
    let spec = WeightSpec { name: "w".into(), rows, cols, format, usage: WeightUse::Matrix };
    let mut sink = backend.weight(spec).unwrap();
    sink.push(format, &bytes).unwrap();
    sink.finish().unwrap()
}

/// The first rows of a product in a program for `bucket` rows, and the grid of its kernel.
fn run(
    backend: &GpuBackend,
    blocks: Option<Format>,
    bucket: usize,
    (k, n): (usize, usize),
    gated: bool,
) -> (Vec<f32>, [u32; 3]) {
    let rows = if gated { 2 * n } else { n };
    let weight = matrix(backend, blocks, rows, k);
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
            let (expected, least) = run(&backend, None, 16, (k, n), gated);
            let mut grids = vec![least];
            for bucket in [80, 300, 1700] {
                let (found, grid) = run(&backend, None, bucket, (k, n), gated);
                grids.push(grid);
                let differ = expected.iter().zip(&found).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
                assert_eq!(differ, 0, "{format:?} {bucket}x{k}->{n} gated={gated} of {}", found.len());
            }
            // Fewer columns of workgroups for more rows: a larger tile was taken.
            assert!(grids[0][0] > grids[3][0], "{format:?} {k}->{n}: {grids:?}");
        }
    }
}

/// A backend with cooperative matrices, real ones or emulated.
fn matrices(linear_tile: Option<&'static str>) -> GpuBackend {
    let options =
        GpuOptions { as_hardware: true, emulate_cooperative_matrix: true, linear_tile, ..Default::default() };
    let context = pollster::block_on(GpuContext::new(&options)).unwrap_or_else(|e| panic!("{e}"));
    assert!(context.features().cooperative_matrix, "{} lacks f16", context.name());
    GpuBackend::new(context, Format::F16).unwrap()
}

fn differing(a: &[f32], b: &[f32]) -> usize {
    assert!(a.len() == b.len() && a.iter().any(|v| *v != 0.0));
    a.iter().zip(b).filter(|(a, b)| a.to_bits() != b.to_bits()).count()
}

#[test]
fn tiles_of_matrix_kernels_give_the_same_bits() {
    let all = ["128", "128n", "64w", "64", "32", "32s", "16", "16s"];
    let of_blocks = &all[..4];
    for (blocks, gated, tiles) in [
        (None, false, &all[..]),
        (None, true, &all[2..5]),
        (Some(Format::Q4_0), true, of_blocks),
        (Some(Format::Q6K), false, of_blocks),
    ] {
        let result = |tile: &'static str| run(&matrices(Some(tile)), blocks, 80, (256, 132), gated).0;
        let expected = result(tiles[0]);
        for tile in &tiles[1..] {
            assert_eq!(differing(&expected, &result(tile)), 0, "{blocks:?} {tile} gated={gated}");
        }
    }
}

#[test]
fn few_rows_of_blocks_give_the_same_bits_in_any_bucket() {
    let backend = matrices(None);
    for (k, n, gated) in [(512, 132, false), (256, 4100, false), (768, 68, true)] {
        let (expected, _) = run(&backend, Some(Format::Q4_0), 16, (k, n), gated);
        for bucket in [17, 32, 50, 64] {
            let (found, _) = run(&backend, Some(Format::Q4_0), bucket, (k, n), gated);
            assert_eq!(differing(&expected, &found), 0, "{bucket}x{k}->{n} gated={gated}");
        }
    }
}
