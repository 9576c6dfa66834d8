//! What the GPU backend promises beyond the values: replay makes nothing, weights are split, faults are typed.
#![cfg(feature = "gpu")]

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use inferencelayer_engine::{
    Error,
    backend::{Backend, Plan, read, upload_f32},
    gpu::{AdapterChoice, GpuBackend, GpuContext, GpuOptions, PipelineStore},
    op::{Activation, Linear, Normalize, Op},
    program::{BufferId, BufferSpec, Count, Program, Recorder, Role},
    tensor::{DType, Format, WeightSpec, WeightUse},
    testing::{Size, cases},
};

fn context(options: &GpuOptions) -> Arc<GpuContext> {
    pollster::block_on(GpuContext::new(options)).unwrap_or_else(|e| panic!("{e}"))
}

/// Two linear ops in a row, 8 → 12 → 8 columns.
fn program(backend: &dyn Backend, rows: usize) -> (Program, BufferId, BufferId) {
    let values: Vec<f32> = (0..96).map(|i| (i % 7) as f32 * 0.1 - 0.3).collect();
    let first = upload_f32(backend, "first", WeightUse::Matrix, (12, 8), &values).unwrap();
    let second = upload_f32(backend, "second", WeightUse::Matrix, (8, 12), &values).unwrap();
    let mut recorder = Recorder::new();
    let spec = |name, role| BufferSpec { name, dtype: DType::F32, rows, cols: 8, count: Count::Tokens, role };
    let x = recorder.buffer(spec("x", Role::Input));
    let hidden = recorder.internal("hidden", DType::F32, rows, 12, Count::Tokens);
    let y = recorder.buffer(spec("y", Role::Output));
    let linear = |x, weight, out| {
        Op::Linear(Linear { x, weight, bias: None, activation: Activation::None, residual: None, out })
    };
    recorder.push(linear(x, first, hidden)).unwrap();
    recorder.push(linear(hidden, second, y)).unwrap();
    (recorder.finish().unwrap(), x, y)
}

#[test]
fn a_run_creates_no_gpu_object() {
    let context = context(&GpuOptions::default());
    let backend = GpuBackend::new(context.clone(), Format::F32).unwrap();
    let (program, x, y) = program(&backend, 16);
    let mut plan = backend.prepare_gpu(&program).unwrap();
    let before = context.objects_created();
    let mut results = Vec::new();
    for rows in [16usize, 3, 16, 1, 9] {
        let input = vec![1f32.to_bits(); rows * 8];
        let ticket = plan.submit([rows as u32, 0, 0, 0], &[(x, &input)], &[(y, rows)]).unwrap();
        plan.wait(ticket).unwrap();
        let mut out = vec![0.0; rows * 8];
        pollster::block_on(read(&mut plan, ticket, &mut out)).unwrap();
        results.push(out[0]);
    }
    assert_eq!(context.objects_created(), before);
    assert!(results.iter().all(|v| v == &results[0]), "{results:?}");
    assert_eq!(plan.steps().count(), 2);
}

#[test]
fn weights_larger_than_a_binding_are_split() {
    let options = GpuOptions { max_binding_bytes: Some(4096), ..Default::default() };
    let backend = GpuBackend::new(context(&options), Format::F32).unwrap();
    let mut ran = 0;
    for case in cases(backend.capabilities(), Size::Full) {
        if !case.name().starts_with("linear") && !case.name().starts_with("embed") {
            continue;
        }
        match pollster::block_on(case.run(&backend)) {
            Ok(deviation) => {
                assert!(deviation.within(), "{}: {deviation}", case.name());
                ran += 1;
            }
            // Secondary tables and norm weights are never split, and four rows must fit.
            Err(Error::Unsupported(why)) => assert!(why.contains("bindings on this GPU"), "{why}"),
            Err(error) => assert!(matches!(error, Error::TooLarge { .. }), "{error}"),
        }
    }
    assert!(ran > 20, "{ran} cases ran");
}

#[test]
fn blocks_that_are_not_whole_rows_are_refused() {
    let backend = GpuBackend::new(context(&GpuOptions::default()), Format::F32).unwrap();
    let spec = |cols| WeightSpec {
        name: "tensor".into(),
        rows: 4,
        cols,
        format: Format::Q4K,
        usage: WeightUse::Matrix,
    };
    let error = backend.weight(spec(384)).err().expect("384 is no multiple of 256").to_string();
    assert!(error.contains("`tensor` in Q4_K") && error.contains("[4, 384]"), "{error}");

    let mut sink = backend.weight(spec(512)).unwrap();
    let error = sink.push(Format::F32, &[0; 64]).unwrap_err().to_string();
    assert!(error.contains("F32 values for blocks of Q4_K"), "{error}");
    sink.push(Format::Q4K, &[0; 7 * 144]).unwrap();
    let error = sink.finish().expect_err("a block is missing").to_string();
    assert!(error.contains("[4, 512]") && error.contains("1792 values"), "{error}");

    let mut sink = backend.weight(spec(512)).unwrap();
    assert!(matches!(sink.push(Format::Q4K, &[0; 10 * 144]), Err(Error::Shape { .. })));
}

#[test]
fn a_lost_device_is_an_error_not_a_panic() {
    let context = context(&GpuOptions::default());
    let backend = GpuBackend::new(context.clone(), Format::F32).unwrap();
    let (program, x, y) = program(&backend, 4);
    let mut plan = backend.prepare_gpu(&program).unwrap();
    context.lose_device();
    let input = vec![0u32; 32];
    let outcome = plan.submit([4, 0, 0, 0], &[(x, &input)], &[(y, 4)]);
    assert!(matches!(outcome, Err(Error::DeviceLost(_))), "{outcome:?}");
    assert!(matches!(backend.prepare_gpu(&program), Err(Error::DeviceLost(_))));
}

#[test]
fn an_activation_too_large_for_a_binding_is_a_typed_error() {
    let options = GpuOptions { default_limits: true, ..Default::default() };
    let backend = GpuBackend::new(context(&options), Format::F32).unwrap();
    let mut recorder = Recorder::new();
    let spec = |name, role, cols| BufferSpec {
        name,
        dtype: DType::F32,
        rows: 40_000,
        cols,
        count: Count::Tokens,
        role,
    };
    let x = recorder.buffer(spec("x", Role::Input, 1024));
    let out = recorder.buffer(spec("y", Role::Output, 1024));
    recorder.push(Op::Normalize(Normalize { x, unit: true, out })).unwrap();
    let outcome = backend.prepare_gpu(&recorder.finish().unwrap()).map(|_| ());
    assert!(matches!(outcome, Err(Error::TooLarge { .. })), "{outcome:?}");
}

#[derive(Debug, Default)]
struct Store(Mutex<HashMap<String, Vec<u8>>>);

impl PipelineStore for Store {
    fn load(&self, key: &str) -> Option<Vec<u8>> {
        self.0.lock().unwrap().get(key).cloned()
    }

    fn save(&self, key: &str, data: &[u8]) {
        self.0.lock().unwrap().insert(key.into(), data.into());
    }
}

#[test]
fn pipelines_are_saved_once_and_reused_and_garbage_is_ignored() {
    let store = Arc::new(Store::default());
    let options = GpuOptions { pipeline_store: Some(store.clone()), ..Default::default() };
    for round in 0..3 {
        let context = context(&options);
        let backend = GpuBackend::new(context.clone(), Format::F32).unwrap();
        let (program, _, _) = program(&backend, 16);
        backend.prepare_gpu(&program).unwrap();
        context.save_pipelines();
        let mut saved = store.0.lock().unwrap();
        assert_eq!(saved.len(), 1, "round {round}");
        if round == 1 {
            saved.values_mut().for_each(|data| data.truncate(7));
        }
    }
}

#[test]
fn an_unknown_adapter_is_named() {
    let options = GpuOptions { adapter: AdapterChoice::Name("no such adapter".into()), ..Default::default() };
    let error = pollster::block_on(GpuContext::new(&options)).unwrap_err();
    assert!(error.to_string().contains("no such adapter"), "{error}");
}
