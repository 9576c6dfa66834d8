//! Logits and greedy continuations of the decoder fixtures against transformers in float32, on every backend; and
//! what must not depend on how tokens are cut into runs.

use std::sync::Arc;

use inferencelayer_engine::{
    backend::{Backend, Capabilities},
    generate::{Generator, GeneratorOptions, Sampling, Slot},
    task::block_on,
    tensor::{DType, Format},
};
use inferencelayer_tests::{
    backends,
    fixture::{DECODERS, Expected, Fixture, GGUF_DECODERS, load_decoder},
};

/// Largest difference of logits that is allowed.
fn bound(capabilities: &Capabilities) -> f32 {
    if (capabilities.activations, capabilities.matrices) == (DType::F32, Format::F32) { 1e-3 } else { 5e-2 }
}

fn generator(name: &str, backend: &Arc<dyn Backend>, slots: usize, chunk: usize) -> Generator {
    let decoder = load_decoder(&Fixture::new(name), &**backend, None).expect("the fixture loads");
    let cache = backend.capabilities().activations;
    let options = GeneratorOptions { slots, context: 192, cached_tokens: 192 * slots, chunk, cache };
    Generator::new(backend.clone(), decoder, options, true).expect("a generator")
}

fn largest_difference(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    assert!(found.iter().all(|v| v.is_finite()), "a value is not finite");
    found.iter().zip(expected).fold(0f32, |m, (f, e)| m.max((f - e).abs()))
}

fn logits(generator: &mut Generator, ids: &[u32]) -> Vec<f32> {
    let slot = generator.start().expect("a slot");
    let logits = block_on(generator.logits(slot, ids)).expect("logits");
    generator.finish(slot);
    logits
}

/// The most likely `count` tokens after `ids`, with steps submitted ahead.
fn greedy(generator: &mut Generator, ids: &[u32], count: usize) -> Vec<u32> {
    let slot = generator.start().expect("a slot");
    generator.prompt(slot, ids, count, &Sampling::default()).expect("a prompt");
    let tokens = read_ahead(generator, &[slot], count).remove(0);
    generator.finish(slot);
    tokens
}

/// `count` tokens of each slot, as many steps ahead as the generator takes.
fn read_ahead(generator: &mut Generator, slots: &[Slot], count: usize) -> Vec<Vec<u32>> {
    let mut tokens = vec![Vec::new(); slots.len()];
    let mut submitted = 1;
    while tokens.iter().any(|t| t.len() < count) {
        while generator.in_flight() < generator.depth() && generator.decode().expect("a step") > 0 {
            submitted += 1;
        }
        for choice in block_on(generator.next()).expect("tokens").expect("a run in flight") {
            let at = slots.iter().position(|s| *s == choice.slot).expect("a known slot");
            tokens[at].push(choice.token);
        }
    }
    assert_eq!(submitted, count);
    tokens
}

fn check_logits(name: &str, backend: &Arc<dyn Backend>, expected: &Expected) -> f32 {
    let mut generator = generator(name, backend, 1, 512);
    let (vocab, bound) = (generator.model().vocab, bound(backend.capabilities()));
    let prompts: Vec<String> =
        expected.names().iter().filter_map(|n| n.strip_suffix(".argmax")).map(String::from).collect();
    let prompts: Vec<String> = prompts.into_iter().filter(|n| n.starts_with("prompt")).collect();
    assert!(prompts.len() >= 3, "{prompts:?}");
    let mut worst = 0f32;
    for prompt in prompts {
        let ids = expected.ids(&format!("{prompt}.input_ids"));
        let all = logits(&mut generator, &ids);
        let rows = match expected.has(&format!("{prompt}.positions")) {
            true => expected.ids(&format!("{prompt}.positions")),
            false => (0..ids.len() as u32).collect(),
        };
        let found: Vec<f32> =
            rows.iter().flat_map(|row| &all[*row as usize * vocab..][..vocab]).copied().collect();
        let off = largest_difference(&found, &expected.floats(&format!("{prompt}.logits")));
        assert!(off <= bound, "{name} {prompt} on {}: {off:e}", backend.capabilities().name);
        worst = worst.max(off);
    }
    worst
}

fn check_greedy(name: &str, backend: &Arc<dyn Backend>, expected: &Expected) {
    // A chunk that is shorter than prompts and no multiple of anything.
    for chunk in [512, 5] {
        let mut generator = generator(name, backend, 1, chunk);
        for case in ["greedy0", "greedy1"] {
            let ids = expected.ids(&format!("{case}.input_ids"));
            let mut wanted = expected.ids(&format!("{case}.tokens"));
            if bound(backend.capabilities()) > 1e-3 {
                // Up to the first near tie that rounding to f16 may decide.
                let gaps = expected.floats(&format!("{case}.top2_gap"));
                wanted.truncate(gaps.iter().position(|g| *g < 0.1).unwrap_or(gaps.len()).max(1));
            }
            let found = greedy(&mut generator, &ids, wanted.len());
            assert_eq!(
                found,
                wanted,
                "{name} {case} in chunks of {chunk} on {}",
                backend.capabilities().name
            );
        }
    }
}

/// Logits of the last row, by a prompt and by decoding the same tokens one by one (with a bias that forces them).
fn check_decode_is_prefill(name: &str, backend: &Arc<dyn Backend>, expected: &Expected) {
    let ids = expected.ids("prompt33.input_ids");
    let mut one = generator(name, backend, 1, 512);
    let whole = logits(&mut one, &ids);
    let vocab = one.model().vocab;
    for chunk in [1, 7, 16] {
        let slot = one.start().expect("a slot");
        let mut parts = Vec::new();
        for part in ids.chunks(chunk) {
            parts.extend(block_on(one.logits(slot, part)).expect("logits"));
        }
        one.finish(slot);
        let off = largest_difference(&parts, &whole);
        let name_of = &backend.capabilities().name;
        assert!(off <= bound(backend.capabilities()), "{name} in chunks of {chunk} on {name_of}: {off:e}");
    }
    // A decoding step reports the probability of its token: the same as the prompt's logits give.
    let slot = one.start().expect("a slot");
    let forced = |token: u32| Sampling { logit_bias: vec![(token, 1e4)], ..Sampling::default() };
    for (at, next) in ids.iter().enumerate().skip(1).take(8) {
        let from = if at == 1 { &ids[..1] } else { &[][..] };
        one.prompt(slot, from, 1, &forced(*next)).expect("a prompt");
        let choice = block_on(one.next()).expect("a token").expect("a run")[0];
        assert_eq!((choice.token, choice.position), (*next, at), "{name}");
        let row = &whole[(at - 1) * vocab..][..vocab];
        let top = row.iter().fold(f32::MIN, |m, v| m.max(*v));
        let total: f32 = row.iter().map(|v| (v - top).exp()).sum();
        let wanted = row[*next as usize] - top - total.ln();
        let off = (choice.log_probability - wanted).abs();
        assert!(off <= 2.0 * bound(backend.capabilities()), "{name} at {at}: off by {off:e}");
    }
}

fn check_batch_is_singles(name: &str, backend: &Arc<dyn Backend>, expected: &Expected) {
    let prompts: Vec<Vec<u32>> = ["prompt1", "prompt7", "prompt33", "greedy0", "greedy1"]
        .iter()
        .map(|p| expected.ids(&format!("{p}.input_ids")))
        .collect();
    let mut generator = generator(name, backend, prompts.len(), 16);
    let singles: Vec<Vec<u32>> = prompts.iter().map(|p| greedy(&mut generator, p, 6)).collect();
    let mut slots = Vec::new();
    for prompt in &prompts {
        let slot = generator.start().expect("a slot");
        generator.prompt(slot, prompt, 6, &Sampling::default()).expect("a prompt");
        slots.push(slot);
        // Before the next prompt, so that the ring of results does not fill up.
        let first = block_on(generator.next()).expect("a token").expect("a run");
        assert_eq!(first[0].token, singles[slots.len() - 1][0]);
    }
    let mut tokens: Vec<Vec<u32>> = singles.iter().map(|s| vec![s[0]]).collect();
    for _ in 1..6 {
        generator.decode().expect("a step");
        for choice in block_on(generator.next()).expect("tokens").expect("a run") {
            tokens[slots.iter().position(|s| *s == choice.slot).expect("a slot")].push(choice.token);
        }
    }
    assert_eq!(tokens, singles, "{name} on {}", backend.capabilities().name);
}

fn check_all(make: backends::Make) {
    let backend = make();
    for name in DECODERS.into_iter().chain(GGUF_DECODERS) {
        let expected = Fixture::new(name).expected();
        let off = check_logits(name, &backend, &expected);
        println!("{name} on {}: logits are off by {off:e}", backend.capabilities().name);
        check_greedy(name, &backend, &expected);
        check_decode_is_prefill(name, &backend, &expected);
        check_batch_is_singles(name, &backend, &expected);
    }
}

#[test]
fn reference() {
    check_all(backends::REFERENCE);
}

#[test]
fn reference_in_f16() {
    check_all(backends::REFERENCE_F16);
}

#[test]
fn cpu() {
    check_all(backends::CPU_F32);
}

#[test]
fn gpu_f32() {
    check_all(backends::GPU_F32);
}

#[test]
fn gpu_f16() {
    check_all(backends::GPU_F16);
}

#[test]
fn hardware_kernels() {
    check_all(backends::HARDWARE_F32);
    check_all(backends::HARDWARE_F16);
}
