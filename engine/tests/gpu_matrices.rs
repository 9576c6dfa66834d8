//! Kernels on cooperative matrices, as tensor cores have. On adapters without such matrices plain arithmetic stands in
//! for them, so that all of the kernels but the matrix unit itself is tested everywhere.
#![cfg(feature = "gpu")]

use inferencelayer_engine::{
    backend::Backend,
    gpu::{GpuBackend, GpuContext, GpuFormats, GpuOptions},
    tensor::Format,
    testing::{Case, Size, decoder_cases, require_cases, require_ops, tile_cases},
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

fn check(backend: &GpuBackend, cases: Vec<Case>) {
    let count = pollster::block_on(require_cases(backend, cases));
    assert!(count.unwrap_or_else(|e| panic!("{e}")) > 0);
}

#[test]
fn ops_match_the_reference() {
    let count = pollster::block_on(require_ops(&backend(None), Size::Small));
    assert!(count.unwrap_or_else(|e| panic!("{e}")) > 0);
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
