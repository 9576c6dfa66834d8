//! How many dispatches a decoding step takes on a real GPU's kernels: at batch 1 that is what it costs.

use std::sync::Arc;

use inferencelayer_engine::{
    backend::Backend,
    generate::{Generator, GeneratorOptions, Sampling},
    model::decoder::{FeedForward, Mixer},
    task::block_on,
};
use inferencelayer_tests::{
    backends,
    fixture::{DECODERS, Fixture, GGUF_DECODERS, load_decoder},
};

/// Dispatches of one step of one sequence, and how many there may be.
fn step(name: &str, backend: &Arc<dyn Backend>) -> (usize, usize) {
    let decoder = load_decoder(&Fixture::new(name), &**backend, None).expect("the fixture loads");
    let cache = backend.capabilities().activations;
    let options = GeneratorOptions { slots: 1, context: 192, cached_tokens: 192, chunk: 16, cache };
    let mut generator = Generator::new(backend.clone(), decoder, options, true).expect("a generator");
    let slot = generator.start().expect("a slot");
    generator.prompt(slot, &[20, 31, 42], 9, &Sampling::default()).expect("a prompt");
    block_on(generator.next()).expect("a token").expect("a run");
    // Embedding, head, and two for the choice.
    let mut most = 4;
    for layer in &generator.model().layers {
        // Projections in and out, attention between them in parts that are joined; a convolution of its own where the
        // format of its input's projection does not let them be one.
        most += if matches!(layer.mixer, Mixer::Attention { .. }) { 4 } else { 3 };
        // Gates and sum, and the router.
        most += if matches!(layer.feed_forward, FeedForward::Experts(_)) { 3 } else { 2 };
    }
    assert!(most <= 7 * generator.model().layers.len() + 6);
    (generator.profile().expect("timestamps").len(), most)
}

#[test]
fn a_step_takes_few_dispatches() {
    for make in [backends::HARDWARE_F16, backends::HARDWARE_Q8] {
        let backend = make();
        for name in DECODERS.into_iter().chain(GGUF_DECODERS) {
            let (found, most) = step(name, &backend);
            assert!(found <= most, "{name}: {found} dispatches, {most} are enough");
        }
    }
}
