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
    if std::env::var("SLOW").is_ok() {
        let only = std::env::var("ONLY").unwrap_or_default();
        for c in cases.iter().filter(|c| c.name().contains(&only)) {
            let t = std::time::Instant::now();
            let r = pollster::block_on(c.run(backend));
            match &r {
                Ok(d) => eprintln!("{:?} {} {} {d}", t.elapsed(), d.within(), c.name()),
                Err(e) => eprintln!("{:?} ERR {} {e}", t.elapsed(), c.name()),
            }
        }
        return;
    }
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

/// Each tile of `linear_coop` by each layout of blocks that differs in how it is read.
#[test]
fn every_tile_matches_the_reference() {
    for tile in ["128", "128n", "64w", "64"] {
        let backend = backend(Some(tile));
        let mut cases = tile_cases(backend.capabilities());
        let formats = ["Q8_0", "Q4_0", "Q5_1", "Q6_K", "Q2_K", "MXFP4"];
        cases.retain(|c| formats.iter().any(|f| c.name().contains(&format!(" {f} "))));
        check(&backend, cases);
    }
}
