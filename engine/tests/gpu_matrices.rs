//! Kernels on cooperative matrices, as tensor cores have. On adapters without such matrices plain arithmetic stands in
//! for them, so that all of the kernels but the matrix unit itself is tested everywhere.
#![cfg(feature = "gpu")]

use inferencelayer_engine::{
    backend::Backend,
    gpu::{GpuBackend, GpuContext, GpuFormats, GpuOptions},
    tensor::Format,
    testing::{Case, Size, cases, decoder_cases, require_cases, tile_cases},
};

fn backend(linear_tile: Option<&'static str>) -> GpuBackend {
    let options = GpuOptions {
        as_hardware: true,
        emulate_cooperative_matrix: true,
        linear_tile,
        ..GpuOptions::default()
    };
    let context = pollster::block_on(GpuContext::new(&options)).unwrap_or_else(|e| panic!("{e}"));
    assert!(context.features().cooperative_matrix, "{} lacks f16", context.name());
    // Blocks multiply f16 alone, which is what these kernels take.
    GpuBackend::new(context, GpuFormats { floats: Format::F16, q8_activations: false }).unwrap()
}

/// Checks all cases on matrix units; where they are emulated, which is slow, every fifth, so that all kernels and
/// layouts come up in some shape.
fn check(backend: &GpuBackend, mut cases: Vec<Case>) {
    if !backend.context().adapter().cooperative_matrix {
        let mut at = 0;
        cases.retain(|_| {
            at += 1;
            at % 5 == 0
        });
    }
    let count = pollster::block_on(require_cases(backend, cases));
    assert!(count.unwrap_or_else(|e| panic!("{e}")) > 0);
}

#[test]
fn ops_match_the_reference() {
    let backend = backend(None);
    let mut cases = cases(backend.capabilities(), Size::Small);
    // The others have no kernel on matrices.
    cases.retain(|c| ["linear", "gated", "attention"].iter().any(|op| c.name().starts_with(op)));
    check(&backend, cases);
}

#[test]
fn decoder_ops_match_the_reference() {
    let backend = backend(None);
    let cases = decoder_cases(backend.capabilities(), Size::Small);
    check(&backend, cases);
}

#[test]
fn blocks_match_the_reference() {
    let backend = backend(None);
    let cases = tile_cases(backend.capabilities());
    check(&backend, cases);
}

/// Each tile of `linear_coop` by layouts of blocks that differ in how they are read.
#[test]
fn every_tile_matches_the_reference() {
    for (tile, formats) in [
        ("128", ["Q4_0", "Q5_K"]),
        ("128n", ["Q8_0", "Q6_K"]),
        ("64w", ["Q5_1", "Q2_K"]),
        ("64", ["MXFP4", "Q3_K"]),
    ] {
        let backend = backend(Some(tile));
        let mut cases = tile_cases(backend.capabilities());
        cases.retain(|c| formats.iter().any(|f| c.name().contains(&format!(" {f} "))));
        check(&backend, cases);
    }
}
