//! Cases of sampling: the same token as the reference, and the same counts and next rows.
//!
//! Logits, seeds and limits are such that no cumulative sum ends within rounding of its target.

use alloc::{format, vec, vec::Vec};

use super::{
    Case, Suite,
    build::{Builder, Sizes},
    random::Random,
    states::After,
};
use crate::{
    Result,
    op::{MOST_STOPS, Op, SETTING_WORDS, Sample, Setting},
    program::Count,
    tensor::DType,
};

const LATE: u32 = 1;
const MASK: u32 = 2;
const BIAS: u32 = 4;
const STILL: u32 = 8;

/// One slot's settings.
#[derive(Debug, Clone, Copy)]
struct Knobs {
    flags: u32,
    temperature: f32,
    top_k: u32,
    top_p: f32,
    min_p: f32,
    repetition: f32,
    frequency: f32,
    presence: f32,
    /// So many of the tokens end the sequence, and more are listed.
    stops: u32,
}

const GREEDY: Knobs = Knobs {
    flags: 0,
    temperature: 0.0,
    top_k: 0,
    top_p: 1.0,
    min_p: 0.0,
    repetition: 1.0,
    frequency: 0.0,
    presence: 0.0,
    stops: 0,
};
const WARM: Knobs = Knobs { temperature: 0.8, ..GREEDY };

impl Knobs {
    fn words(&self, random: &mut Random, vocab: usize) -> [u32; SETTING_WORDS] {
        let mut words = [0; SETTING_WORDS];
        let mut set = |setting: Setting, word| words[setting as usize] = word;
        set(Setting::Flags, self.flags);
        set(Setting::SeedLow, random.bits() as u32);
        set(Setting::SeedHigh, random.bits() as u32);
        set(Setting::Choice, random.below(5));
        set(Setting::Temperature, self.temperature.to_bits());
        set(Setting::TopK, self.top_k);
        set(Setting::TopP, self.top_p.to_bits());
        set(Setting::MinP, self.min_p.to_bits());
        set(Setting::Repetition, self.repetition.to_bits());
        set(Setting::Frequency, self.frequency.to_bits());
        set(Setting::Presence, self.presence.to_bits());
        set(Setting::StopCount, self.stops);
        words[Setting::Stops as usize..][..MOST_STOPS].fill_with(|| random.below(vocab));
        words
    }
}

/// What logits look like.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Logits {
    /// Random in ±spread, a few of them raised.
    Peaked(f32),
    /// As before, in steps of a quarter: equals everywhere.
    Steps(f32),
}

#[derive(Debug, Clone)]
struct Options {
    what: &'static str,
    vocab: usize,
    /// One for each sequence.
    knobs: Vec<Knobs>,
    logits: Logits,
    /// Share of tokens that the mask allows.
    allowed: f32,
    targets: bool,
    /// Bias and mask are there.
    both: bool,
    spare: usize,
}

pub fn sample(suite: &Suite, all: &mut Vec<Case>) {
    let vocabs: &[usize] = if suite.full { &[77, 1500, 70_003] } else { &[77, 1500] };
    let base = Options {
        what: "",
        vocab: 77,
        knobs: vec![],
        logits: Logits::Peaked(4.0),
        allowed: 0.4,
        targets: true,
        both: true,
        spare: 0,
    };
    for (what, knobs) in settings() {
        for &vocab in vocabs {
            for logits in [Logits::Peaked(4.0), Logits::Steps(4.0)] {
                push(all, Options { what, vocab, knobs: knobs.clone(), logits, ..base.clone() });
            }
        }
    }
    let mixed = vec![GREEDY, WARM, Knobs { top_k: 5, ..WARM }, Knobs { top_p: 0.6, ..WARM }, GREEDY];
    let more = Options { knobs: mixed, ..base };
    push(all, Options { what: "rows go on in place", targets: false, ..more.clone() });
    push(all, Options { what: "spare rows", spare: 3, ..more.clone() });
    push(all, Options { what: "in place, spare", targets: false, spare: 2, both: false, ..more.clone() });
    push(all, Options { what: "without bias and mask", both: false, ..more.clone() });
    push(all, Options { what: "one token", vocab: 1, ..more.clone() });
    let ends = [0, 1, 4, 8].map(|stops| [Knobs { stops, ..GREEDY }, Knobs { stops, ..WARM }]).concat();
    for vocab in [1, 12] {
        for targets in [false, true] {
            let knobs = ends.clone();
            push(all, Options { what: "the end", vocab, knobs, targets, ..more.clone() });
        }
    }
    push(all, Options { what: "four tokens", vocab: 4, ..more.clone() });
    let masked = vec![Knobs { flags: MASK, ..GREEDY }, Knobs { flags: MASK | BIAS, top_k: 3, ..WARM }];
    push(all, Options { what: "nothing allowed", knobs: masked.clone(), allowed: 0.0, ..more.clone() });
    push(all, Options { what: "little allowed", knobs: masked, vocab: 1500, allowed: 0.004, ..more.clone() });
    // So flat that thousands of tokens stay.
    let flat = vec![
        WARM,
        Knobs { top_p: 0.9, ..WARM },
        Knobs { top_k: 3000, ..WARM },
        Knobs { top_k: 5000, top_p: 0.97, min_p: 0.3, flags: LATE, ..WARM },
        Knobs { min_p: 0.5, ..WARM },
    ];
    let vocab = if suite.full { 70_003 } else { 6001 };
    for logits in [Logits::Peaked(0.5), Logits::Steps(1.5), Logits::Steps(0.01)] {
        push(all, Options { what: "flat", knobs: flat.clone(), vocab, logits, ..more.clone() });
    }
}

/// Settings by what they show; each list is one run, a slot each.
fn settings() -> Vec<(&'static str, Vec<Knobs>)> {
    let penalties = Knobs { repetition: 1.31, frequency: 0.4, presence: 0.7, ..GREEDY };
    let alone = [
        Knobs { repetition: 1.53, ..GREEDY },
        Knobs { repetition: 0.61, ..GREEDY },
        Knobs { frequency: 0.9, ..GREEDY },
        Knobs { presence: 1.1, ..GREEDY },
    ];
    let late = |knobs: Knobs| Knobs { flags: knobs.flags | LATE, ..knobs };
    let all = Knobs { top_k: 20, top_p: 0.9, min_p: 0.02, flags: MASK | BIAS, ..WARM };
    let all = Knobs { repetition: 1.21, frequency: 0.2, presence: 0.3, ..all };
    let order = Knobs { temperature: 2.5, top_p: 0.7, min_p: 0.1, ..WARM };
    let top_k = |k| Knobs { top_k: k, ..WARM };
    let top_p = |p| Knobs { top_p: p, ..WARM };
    let min_p = |p| Knobs { min_p: p, ..WARM };
    vec![
        (
            "greedy",
            vec![GREEDY, Knobs { temperature: -1.0, ..GREEDY }, Knobs { top_k: 3, top_p: 0.5, ..GREEDY }],
        ),
        ("greedy, bias and mask", [MASK, BIAS, MASK | BIAS].map(|flags| Knobs { flags, ..GREEDY }).to_vec()),
        ("greedy, penalties", alone.into_iter().chain([penalties]).collect()),
        ("nothing is chosen", vec![Knobs { flags: STILL, ..GREEDY }, Knobs { flags: STILL, ..WARM }, WARM]),
        ("temperature", [0.1, 0.7, 1.0, 1.9].map(|temperature| Knobs { temperature, ..WARM }).to_vec()),
        ("seeds", vec![Knobs { temperature: 1.4, ..WARM }; 6]),
        ("warm, bias and mask", [MASK, BIAS, MASK | BIAS].map(|flags| Knobs { flags, ..WARM }).to_vec()),
        (
            "warm, penalties",
            vec![Knobs { temperature: 1.1, ..penalties }, late(Knobs { temperature: 1.1, ..penalties })],
        ),
        ("top-k", [1, 2, 13, 50, 100_000].map(top_k).to_vec()),
        ("top-p", [0.0, 0.13, 0.53, 0.93, 0.9991].map(top_p).to_vec()),
        ("min-p", [0.9, 0.3, 0.01, 1.5].map(min_p).to_vec()),
        (
            "pairs",
            vec![
                Knobs { top_p: 0.8, ..top_k(9) },
                Knobs { min_p: 0.2, ..top_k(9) },
                Knobs { min_p: 0.05, ..top_p(0.85) },
            ],
        ),
        ("together", vec![all, late(all), Knobs { top_k: 300, ..all }]),
        ("order", vec![order, late(order), Knobs { top_k: 30, ..order }, late(Knobs { top_k: 30, ..order })]),
    ]
}

fn push(all: &mut Vec<Case>, o: Options) {
    let name = format!(
        "sample {}: vocab={} {:?} sequences={}+{} targets={} both={}",
        o.what,
        o.vocab,
        o.logits,
        o.knobs.len(),
        o.spare,
        o.targets,
        o.both
    );
    let count = o.knobs.len();
    let sizes = Sizes { bucket: [1, count + o.spare, 1], real: [1, count, 1] };
    // Relative to a row's largest value, the token's id: a neighbour's id is out of bounds.
    let tolerance = if o.vocab > 20_000 { 5e-6 } else { 2e-5 };
    all.push(Case::new(name, sizes, tolerance, move |b| graph(b, &o)));
}

fn logits(random: &mut Random, o: &Options, cols: usize) -> Vec<f32> {
    let (Logits::Peaked(spread) | Logits::Steps(spread)) = o.logits;
    let mut row = random.values(cols, 0.0, spread);
    for _ in 0..o.vocab.div_ceil(10).min(30) {
        row[random.below(o.vocab) as usize] += spread * 1.5 * (1.0 + random.unit());
    }
    if matches!(o.logits, Logits::Steps(_)) {
        row.iter_mut().for_each(|v| *v = libm::roundf(*v * 4.0) / 4.0);
    }
    // Columns past the vocabulary are never chosen.
    row[o.vocab..].fill(1e4);
    row
}

fn graph(b: &mut Builder, o: &Options) -> Result<()> {
    let sequences = o.knobs.len();
    let slots = sequences + o.spare + 2;
    let (vocab, cols) = (o.vocab, o.vocab.next_multiple_of(4));
    let wide = cols + 8;
    let mut values = Vec::new();
    for _ in 0..sequences {
        values.extend(logits(&mut b.random, o, wide));
    }
    // With targets, rows of tokens and slots go backwards.
    let slot_of = |s: usize| if o.targets { slots - 1 - s } else { s };
    let mut settings = vec![0; slots * SETTING_WORDS];
    for (s, knobs) in o.knobs.iter().enumerate() {
        settings[slot_of(s) * SETTING_WORDS..][..SETTING_WORDS]
            .copy_from_slice(&knobs.words(&mut b.random, o.vocab));
    }
    let counts: Vec<u32> =
        (0..slots * cols).map(|_| [0, 0, 0, 1, 2, 3, 6][b.random.below(7) as usize]).collect();
    let position = |s: usize| (s * 37 % 400) as u32;
    let mut tokens: Vec<[u32; 4]> = (0..slots).map(|s| [3, position(s), 0, s as u32]).collect();
    let targets: Vec<[u32; 4]> =
        (0..sequences).map(|s| [(s + 1) as u32, 5 + position(s), 0, slot_of(s) as u32]).collect();
    if o.targets {
        // They are not looked at.
        tokens.iter_mut().for_each(|t| *t = [1, 900, 0, 0]);
    }
    let tokens = b.integers("tokens", 4, tokens.concat(), After::Compared)?;
    let targets = o.targets.then(|| b.targets(&targets));
    let settings = b.integers("settings", SETTING_WORDS, settings, After::Ignored)?;
    let counts = b.integers("counts", cols, counts, After::Compared)?;
    let (mut bias, mut mask) = (None, None);
    if o.both {
        let words = vocab.div_ceil(32).next_multiple_of(4);
        let allows = |random: &mut Random| random.unit() * 0.5 + 0.5 < o.allowed;
        let bits = |random: &mut Random| (0..32).fold(0, |w, i| w | u32::from(allows(random)) << i);
        let set: Vec<u32> = (0..slots * words).map(|_| bits(&mut b.random)).collect();
        let added = b.random.values(slots * cols, 0.0, 3.0);
        bias = Some(b.state("bias", DType::F32, cols, &added, After::Ignored)?);
        mask = Some(b.integers("mask", words, set, After::Ignored)?);
    }
    let logits = b.raw(Count::Sequences, wide, &values);
    let out = b.output(Count::Sequences, 4, None);
    b.push(Op::Sample(Sample { logits, vocab, tokens, targets, settings, counts, bias, mask, out }))
}
