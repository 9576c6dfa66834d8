//! The generator and its device: memory of caches, and a device that is lost in the middle of an answer.

use std::sync::Arc;

use inferencelayer_engine::{
    Error,
    backend::Backend,
    generate::{Generator, GeneratorOptions, Sampling},
    gpu::{GpuBackend, GpuContext, GpuOptions},
    model::decoder::Mixer,
    op::PAGE,
    task::block_on,
    tensor::{DType, Format},
};
use inferencelayer_tests::{
    backends,
    fixture::{Fixture, load_decoder},
};

const CONTEXT: usize = 256;
const SLOTS: usize = 64;

fn generator(name: &str, backend: &Arc<dyn Backend>, cached_tokens: usize) -> Generator {
    let decoder = load_decoder(&Fixture::new(name), &**backend, None).expect("the fixture loads");
    let cache = backend.capabilities().activations;
    let options = GeneratorOptions { slots: SLOTS, context: CONTEXT, cached_tokens, chunk: 8, cache };
    Generator::new(backend.clone(), decoder, options, true).expect("a generator")
}

/// Keys and values of so many more tokens take what they have to, and at most a tenth more.
#[test]
fn caches_take_the_memory_of_their_values() {
    for name in ["lfm2", "qwen3_tied", "lfm2_moe"] {
        let held = |cached_tokens: usize| {
            let backend = (backends::GPU_F16)();
            let generator = generator(name, &backend, cached_tokens);
            let config = generator.model().clone();
            (backend.memory(), config, backend.capabilities().activations)
        };
        // A page for each slot is the least.
        let (few, many) = (SLOTS * PAGE, SLOTS * CONTEXT);
        let ((least, config, dtype), (most, ..)) = (held(few), held(many));
        let values = config.layers.iter().map(|layer| match layer.mixer {
            Mixer::Attention { kv_heads, .. } => 2 * kv_heads * config.head_dim,
            Mixer::ShortConv { .. } => 0,
        });
        let width = if dtype == DType::F16 { 2 } else { 4 };
        let wanted = (values.sum::<usize>() * width * (many - few)) as u64;
        let found = most - least;
        assert!((wanted..=wanted + wanted / 10).contains(&found), "{name}: {found} bytes, {wanted} expected");
    }
}

#[test]
fn a_device_lost_in_an_answer_is_an_error() {
    let context = block_on(GpuContext::new(&GpuOptions::default())).expect("a GPU, or a software adapter");
    let backend: Arc<dyn Backend> =
        Arc::new(GpuBackend::new(context.clone(), Format::F32).expect("a backend"));
    let mut generator = generator("lfm2", &backend, SLOTS * CONTEXT);
    let slot = generator.start().expect("a slot");
    generator.prompt(slot, &[20, 31, 42], 100, &Sampling::default()).expect("a prompt");
    generator.decode().expect("a step");
    block_on(generator.next()).expect("a token").expect("a choice");
    context.lose_device();
    // Whatever was on its way may still arrive; then comes the error, and it stays.
    let mut tries = 0;
    let error = loop {
        match generator.decode().and_then(|_| block_on(generator.next())) {
            Err(error) => break error,
            Ok(_) => tries += 1,
        }
        assert!(tries < 10, "a lost device goes on");
    };
    assert!(matches!(error, Error::DeviceLost(_)), "{error:?}");
    assert!(matches!(generator.decode(), Err(Error::DeviceLost(_))));
    let next = generator.start().and_then(|slot| generator.prompt(slot, &[20], 1, &Sampling::default()));
    assert!(matches!(next, Err(Error::DeviceLost(_))), "{next:?}");
}
