//! Every op on the browser's WebGPU and on the CPU against the scalar reference. Chromium's own compiler reads the
//! kernels here, which is stricter than naga.

use inferencelayer::cpu::{CpuBackend, CpuOptions, Isa};
use inferencelayer_engine::{
    backend::Backend,
    gpu::{GpuBackend, GpuContext, GpuFormats, GpuOptions},
    tensor::Format,
    testing::{Size, decoder_cases, quick_check, require_cases, require_ops},
};
use wasm_bindgen_test::{console_log, wasm_bindgen_test};

async fn check(options: &GpuOptions, format: Format) {
    let result = async {
        let context = GpuContext::new(options).await?;
        console_log!("{} {:?}", context.name(), context.features());
        require_ops(&GpuBackend::new(context, format)?, Size::Small).await
    };
    assert!(result.await.unwrap_or_else(|e| panic!("{e}")) > 0);
}

#[wasm_bindgen_test]
async fn f32_ops_match_the_reference() {
    check(&GpuOptions::default(), Format::F32).await;
}

/// Weights and activations in f16; arithmetic in f16 where the adapter has it.
#[wasm_bindgen_test]
async fn f16_ops_match_the_reference() {
    check(&GpuOptions::default(), Format::F16).await;
}

/// What generating text needs, with activations in 8-bit blocks too.
#[wasm_bindgen_test]
async fn decoder_ops_match_the_reference() {
    let context = GpuContext::new(&GpuOptions::default()).await.unwrap_or_else(|e| panic!("{e}"));
    let formats = GpuFormats { floats: Format::F32, q8_activations: true };
    let backend = GpuBackend::new(context, formats).unwrap_or_else(|e| panic!("{e}"));
    let cases = decoder_cases(backend.capabilities(), Size::Small);
    assert!(require_cases(&backend, cases).await.unwrap_or_else(|e| panic!("{e}")) > 0);
}

/// The check that every page makes finds nothing wrong here.
#[wasm_bindgen_test]
async fn the_quick_check_passes() {
    for floats in [Format::F32, Format::F16] {
        let context = GpuContext::new(&GpuOptions::default()).await.unwrap_or_else(|e| panic!("{e}"));
        let backend = GpuBackend::new(context, GpuFormats { floats, q8_activations: true });
        let wrong = quick_check(&backend.unwrap_or_else(|e| panic!("{e}"))).await;
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

/// The kernels that software adapters are spared.
#[wasm_bindgen_test]
async fn hardware_kernels_match_the_reference() {
    for format in [Format::F32, Format::F16] {
        check(&GpuOptions { as_hardware: true, ..Default::default() }, format).await;
    }
}

#[wasm_bindgen_test]
async fn webgpu_default_limits_are_enough() {
    let options = GpuOptions { default_limits: true, no_f16: true, no_subgroups: true, ..Default::default() };
    check(&options, Format::F32).await;
}

#[wasm_bindgen_test]
async fn features_can_be_declined() {
    let without = GpuOptions { no_f16: true, no_subgroups: true, ..Default::default() };
    let features = GpuContext::new(&without).await.unwrap_or_else(|e| panic!("{e}")).features();
    assert!(!features.f16 && !features.subgroups, "{features:?}");
}

/// The CPU backend compiled to wasm, f32 and int8.
#[wasm_bindgen_test]
async fn cpu_ops_match_the_reference() {
    assert_eq!(Isa::detect(), Isa::Wasm128, "built without simd128: .cargo/config.toml asks for it");
    for matrices in [Format::F32, Format::Int8] {
        let options = CpuOptions { matrices, ..CpuOptions::default() };
        let backend = CpuBackend::new(options).unwrap_or_else(|e| panic!("{e}"));
        console_log!("{:?}", backend.capabilities());
        assert!(require_ops(&backend, Size::Small).await.unwrap_or_else(|e| panic!("{e}")) > 0);
    }
}
