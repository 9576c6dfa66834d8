//! Every op on the machine's GPU (or software adapter) against the scalar reference. No adapter is a failure.
#![cfg(feature = "gpu")]

use inferencelayer_engine::{
    gpu::{GpuBackend, GpuContext, GpuFormats, GpuOptions},
    tensor::Format,
    testing::{Size, require_ops},
};

fn check(options: &GpuOptions, formats: impl Into<GpuFormats>, size: Size) {
    let count = pollster::block_on(async {
        let context = GpuContext::new(options).await?;
        let backend = GpuBackend::new(context, formats)?;
        require_ops(&backend, size).await
    });
    assert!(count.unwrap_or_else(|e| panic!("{e}")) > 0);
}

#[test]
fn f32_ops_match_the_reference() {
    check(&GpuOptions { checked_shaders: true, ..Default::default() }, Format::F32, Size::Full);
}

#[test]
fn f16_ops_match_the_reference() {
    let formats = GpuFormats { floats: Format::F16, q8_activations: true };
    check(&GpuOptions::default(), formats, Size::Full);
}

/// The kernels that software adapters are spared.
#[test]
fn hardware_kernels_match_the_reference() {
    for floats in [Format::F32, Format::F16] {
        let formats = GpuFormats { floats, q8_activations: floats == Format::F16 };
        check(&GpuOptions { as_hardware: true, ..Default::default() }, formats, Size::Small);
    }
}

#[test]
fn webgpu_default_limits_are_enough() {
    let options = GpuOptions { default_limits: true, no_f16: true, no_subgroups: true, ..Default::default() };
    check(&options, GpuFormats { floats: Format::F32, q8_activations: true }, Size::Small);
}
