//! The generator: stops, limits, rewinding, snapshots, slots, and what it refuses.

use std::sync::Arc;

use inferencelayer_engine::{
    Error,
    backend::Backend,
    generate::{Generator, GeneratorOptions, Sampling, Slot},
    task::block_on,
};
use inferencelayer_tests::{
    backends,
    fixture::{Fixture, load_decoder},
};

fn generator(name: &str, backend: &Arc<dyn Backend>, slots: usize, context: usize) -> Generator {
    let decoder = load_decoder(&Fixture::new(name), &**backend, None).expect("the fixture loads");
    let cache = backend.capabilities().activations;
    let options = GeneratorOptions { slots, context, cached_tokens: slots * context, chunk: 8, cache };
    Generator::new(backend.clone(), decoder, options, true).expect("a generator")
}

/// Reads until the sequence's answer ends, submitting as far ahead as possible. Tokens, and whether the last was
/// marked.
fn finish(generator: &mut Generator, slot: Slot) -> (Vec<u32>, bool) {
    let mut tokens = Vec::new();
    loop {
        while generator.in_flight() < generator.depth() && generator.decode().expect("a step") > 0 {}
        let Some(choices) = block_on(generator.next()).expect("tokens") else { return (tokens, false) };
        for choice in choices.iter().filter(|c| c.slot == slot) {
            tokens.push(choice.token);
            if choice.last {
                // What was submitted ahead brings nothing more.
                while let Some(more) = block_on(generator.next()).expect("tokens") {
                    assert!(more.iter().all(|c| c.slot != slot), "{more:?}");
                }
                return (tokens, true);
            }
        }
    }
}

fn answer(generator: &mut Generator, ids: &[u32], tokens: usize, sampling: &Sampling) -> Vec<u32> {
    let slot = generator.start().expect("a slot");
    generator.prompt(slot, ids, tokens, sampling).expect("a prompt");
    let (found, marked) = finish(generator, slot);
    assert!(marked);
    generator.finish(slot);
    found
}

const PROMPT: [u32; 11] = [20, 31, 42, 53, 64, 75, 86, 97, 108, 119, 130];

/// Varied answers that are the same each time: the greedy ones of random weights repeat themselves.
fn hot(seed: u64, choice: u32) -> Sampling {
    Sampling { temperature: 1.5, top_k: 50, seed, choice, ..Sampling::default() }
}

fn stops_and_goes_on(name: &str, backend: &Arc<dyn Backend>) {
    let mut g = generator(name, backend, 2, 128);
    let free = answer(&mut g, &PROMPT, 12, &hot(1, 0));
    assert_eq!(free.len(), 12);
    let at = (2..11).find(|i| !free[..*i].contains(&free[*i])).expect("a token that was not there before");
    let stop = Sampling { stop: vec![free[at]], ..hot(1, 0) };
    let slot = g.start().expect("a slot");
    g.prompt(slot, &PROMPT, 12, &stop).expect("a prompt");
    assert_eq!(finish(&mut g, slot), (free[..=at].to_vec(), true), "{name}");
    // The stop token is fed with what follows it; the caches are as if nothing had been submitted ahead.
    g.prompt(slot, &[7, 8, 9], 5, &hot(1, 0)).expect("a second prompt");
    let (second, _) = finish(&mut g, slot);
    let whole: Vec<u32> = PROMPT.iter().chain(&free[..=at]).chain(&[7, 8, 9]).copied().collect();
    assert_eq!(second, answer(&mut g, &whole, 5, &hot(1, 0)), "{name}");
    assert_eq!(g.tokens(slot)[..whole.len()], whole, "{name}");
}

fn ends_with_the_context(name: &str, backend: &Arc<dyn Backend>) {
    let mut g = generator(name, backend, 1, 16);
    assert_eq!(answer(&mut g, &PROMPT, 100, &Sampling::default()).len(), 16 - PROMPT.len());
    let full: Vec<u32> = (0..16).map(|i| 20 + i).collect();
    assert_eq!(answer(&mut g, &full, 100, &Sampling::default()).len(), 1);
    let slot = g.start().expect("a slot");
    let long: Vec<u32> = (0..17).map(|i| 20 + i).collect();
    let error = g.prompt(slot, &long, 1, &Sampling::default()).expect_err("too long");
    assert!(error.to_string().contains("17 tokens; the context of 16"), "{error}");
}

fn snapshots_go_on_alike(name: &str, backend: &Arc<dyn Backend>) {
    let mut g = generator(name, backend, 3, 128);
    let wanted = answer(&mut g, &PROMPT, 9, &hot(1, 0));
    let first = g.start().expect("a slot");
    g.prompt(first, &PROMPT, 4, &hot(1, 0)).expect("a prompt");
    assert_eq!(finish(&mut g, first).0, wanted[..4]);
    let second = block_on(g.fork(first)).expect("a fork");
    let snapshot = block_on(g.save(first)).expect("a snapshot");
    // The pending token is all there is to feed.
    g.prompt(first, &[], 5, &hot(1, 0)).expect("a prompt");
    assert_eq!(finish(&mut g, first).0, wanted[4..], "{name}");
    g.prompt(second, &[], 5, &hot(1, 0)).expect("a prompt");
    assert_eq!(finish(&mut g, second).0, wanted[4..], "{name}");
    let third = g.restore(&snapshot).expect("a slot");
    g.prompt(third, &[], 5, &hot(1, 0)).expect("a prompt");
    assert_eq!(finish(&mut g, third).0, wanted[4..], "{name}");
    g.finish(third);
    let mut cut = snapshot.clone();
    cut.layers[0].pop();
    assert!(matches!(g.restore(&cut), Err(Error::Input(_))));
    cut = snapshot;
    cut.ids[0] = u32::MAX;
    assert!(matches!(g.restore(&cut), Err(Error::Input(_))));
    // A failed restore leaves its slot free.
    g.start().expect("a slot");
}

fn rewinds(name: &str, backend: &Arc<dyn Backend>) {
    let mut g = generator(name, backend, 2, 128);
    let slot = g.start().expect("a slot");
    g.prompt(slot, &PROMPT, 6, &hot(1, 0)).expect("a prompt");
    finish(&mut g, slot);
    if !g.can_rewind() {
        assert!(matches!(g.rewind(slot, 5), Err(Error::Unsupported(_))), "{name}");
        return;
    }
    g.rewind(slot, 5).expect("rewinding");
    g.prompt(slot, &[9, 10, 11], 6, &hot(1, 0)).expect("a prompt");
    let (found, _) = finish(&mut g, slot);
    let ids = [&PROMPT[..5], &[9, 10, 11]].concat();
    assert_eq!(found, answer(&mut g, &ids, 6, &hot(1, 0)), "{name}");
    assert!(matches!(g.rewind(slot, 100), Err(Error::Input(_))));
}

fn seeds_decide(name: &str, backend: &Arc<dyn Backend>) {
    let mut g = generator(name, backend, 1, 128);
    let first = answer(&mut g, &PROMPT, 16, &hot(1, 0));
    assert_eq!(first, answer(&mut g, &PROMPT, 16, &hot(1, 0)), "{name}");
    assert_ne!(first, answer(&mut g, &PROMPT, 16, &hot(2, 0)), "{name}");
    assert_ne!(first, answer(&mut g, &PROMPT, 16, &hot(1, 1)), "{name}");
    // A penalty keeps greedy answers from repeating themselves.
    let rare = Sampling { repetition_penalty: 100.0, presence_penalty: 50.0, ..Sampling::default() };
    let mut found = answer(&mut g, &PROMPT, 16, &rare);
    found.extend(PROMPT);
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), 16 + PROMPT.len(), "{name}");
}

fn slots_are_counted_and_reused(name: &str, backend: &Arc<dyn Backend>) {
    let mut g = generator(name, backend, 2, 64);
    let wanted = answer(&mut g, &PROMPT, 5, &Sampling::default());
    let (a, b) = (g.start().expect("a slot"), g.start().expect("a slot"));
    assert!(matches!(g.start(), Err(Error::Input(_))));
    g.prompt(a, &PROMPT, 20, &Sampling::default()).expect("a prompt");
    g.decode().expect("a step");
    // Gone with steps in flight: they are nobody's.
    g.finish(a);
    let c = g.start().expect("the slot again");
    g.prompt(c, &PROMPT, 5, &Sampling::default()).expect_or_drained(&mut g, c);
    assert_eq!(finish(&mut g, c).0, wanted, "{name}");
    g.finish(b);
    assert!(matches!(g.prompt(b, &PROMPT, 5, &Sampling::default()), Err(Error::Input(_))));
}

/// A prompt that finds the ring of results full is made again once it was read.
trait Drained {
    fn expect_or_drained(self, generator: &mut Generator, slot: Slot);
}

impl Drained for inferencelayer_engine::Result<()> {
    fn expect_or_drained(self, generator: &mut Generator, slot: Slot) {
        if self.is_err() {
            while block_on(generator.next()).expect("tokens").is_some() {}
            generator.rewind(slot, 0).expect("an empty sequence");
            generator.prompt(slot, &PROMPT, 5, &Sampling::default()).expect("a prompt");
        }
    }
}

fn refuses(name: &str, backend: &Arc<dyn Backend>) {
    let mut g = generator(name, backend, 1, 64);
    let slot = g.start().expect("a slot");
    let plain = Sampling::default();
    let vocab = g.model().vocab as u32;
    let cases: [(&[u32], usize, Sampling, &str); 10] = [
        (&[], 1, plain.clone(), "empty prompt"),
        (&[vocab], 1, plain.clone(), "of a vocabulary of"),
        (&[20], 0, plain.clone(), "no tokens to choose"),
        (&[20], 1, Sampling { temperature: f32::NAN, ..plain.clone() }, "temperature is NaN"),
        (&[20], 1, Sampling { temperature: -1.0, ..plain.clone() }, "temperature is -1"),
        (&[20], 1, Sampling { top_p: 0.0, ..plain.clone() }, "top_p is 0"),
        (&[20], 1, Sampling { min_p: 2.0, ..plain.clone() }, "min_p is 2"),
        (&[20], 1, Sampling { repetition_penalty: 0.0, ..plain.clone() }, "repetition_penalty is 0"),
        (&[20], 1, Sampling { logit_bias: vec![(vocab, 1.0)], ..plain.clone() }, "of a vocabulary of"),
        (&[20], 1, Sampling { stop: (0..9).collect(), ..plain.clone() }, "9 stop tokens"),
    ];
    for (ids, tokens, sampling, wanted) in cases {
        let error = g.prompt(slot, ids, tokens, &sampling).expect_err(wanted);
        assert!(error.to_string().contains(wanted), "{error}");
    }
    // None of them has left anything behind.
    assert_eq!(g.tokens(slot), [] as [u32; 0]);
    g.prompt(slot, &PROMPT, 1, &plain).expect("a prompt");
}

fn check_all(make: backends::Make) {
    let backend = make();
    for name in ["lfm2", "qwen3_tied"] {
        stops_and_goes_on(name, &backend);
        ends_with_the_context(name, &backend);
        snapshots_go_on_alike(name, &backend);
        rewinds(name, &backend);
        seeds_decide(name, &backend);
        slots_are_counted_and_reused(name, &backend);
        refuses(name, &backend);
    }
}

#[test]
fn reference() {
    check_all(backends::REFERENCE);
}

#[test]
fn cpu() {
    check_all(backends::CPU_F32);
}

#[test]
fn gpu() {
    check_all(backends::GPU_F32);
}
