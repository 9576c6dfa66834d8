//! Feeds the fuzz targets with mutated templates: the same mutations in every run, no nightly toolchain needed.
//! `native-host/fuzz` has the targets and says how to fuzz them for longer.
#![cfg(feature = "tokenizer")]

#[path = "../fuzz/targets.rs"]
mod targets;

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use inferencelayer_engine::testing::Random;

/// What templates are made of.
const WORDS: [&str; 48] = [
    "{{ ",
    " }}",
    "{% ",
    " %}",
    "{%- ",
    " -%}",
    "{# ",
    " #}",
    "if ",
    "else",
    "endif",
    "for x in ",
    "endfor",
    "set x = ",
    "set ns.x = ",
    "endset",
    "macro m(x) ",
    "endmacro",
    "m(x)",
    "ns",
    "namespace(x=x)",
    "messages",
    "loop.index0",
    "[x, x]",
    "[ns.x]",
    "{'a': x}",
    "(x, )",
    "range(99999)",
    " ~ ",
    " * 9999",
    " + ",
    " == ",
    " in ",
    " | tojson",
    " | list",
    " | join(x)",
    " | trim",
    " | string",
    "[::-1]",
    "[0]",
    ".strip()",
    ".split('\\n')",
    ".items()",
    "not ",
    "'",
    "\\",
    "raw",
    "generation",
];

fn mutate(data: &mut Vec<u8>, random: &mut Random) {
    let below = |random: &mut Random, limit: usize| random.below(limit.max(1)) as usize;
    let at = below(random, data.len());
    let end = (at + 1 + below(random, 32)).min(data.len());
    match random.below(8) {
        0 => data.truncate(at),
        1 if !data.is_empty() => data[at] = b' ' + random.below(95) as u8,
        2 => drop(data.drain(at..end)),
        3 => {
            let copy = data[at..end].to_vec();
            let to = below(random, data.len() + 1);
            data.splice(to..to, copy);
        }
        _ => {
            let word = WORDS[below(random, WORDS.len())];
            data.splice(at..at, word.bytes());
        }
    }
}

#[test]
fn chat_templates() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/chat");
    let expected = fs::read(folder.join("expected.json")).expect("a fixture");
    let expected: serde_json::Value = serde_json::from_slice(&expected).expect("JSON");
    let chats: Vec<String> =
        expected["conversations"].as_object().expect("chats").values().map(ToString::to_string).collect();
    let mut seeds = Vec::new();
    for entry in fs::read_dir(folder).expect("the fixtures").flatten() {
        if entry.path().extension().is_some_and(|e| e == "jinja") {
            seeds.push(fs::read(entry.path()).expect("a template"));
        }
    }
    seeds.sort();
    assert!(seeds.len() >= 6, "the templates");
    let mut random = Random::named("chat templates");
    for seed in &seeds {
        for round in 0..600 {
            let mut data = seed.clone();
            for _ in 0..random.below(6) {
                mutate(&mut data, &mut random);
            }
            data.retain(|b| *b != 0);
            let shown = String::from_utf8_lossy(&data).into_owned();
            data.push(0);
            data.extend(chats[round % chats.len()].bytes());
            let start = Instant::now();
            let result = std::panic::catch_unwind(|| targets::chat_template(&data));
            assert!(result.is_ok(), "fails on {shown}");
            assert!(start.elapsed() < Duration::from_secs(60), "{:?} for {shown}", start.elapsed());
        }
    }
}
