//! Feeds the fuzz targets with mutated good files: the same mutations in every run, no nightly toolchain needed.
//! `engine/fuzz` has the targets and says how to fuzz them for longer.

#[path = "../fuzz/targets.rs"]
mod targets;

use inferencelayer_engine::{
    checkpoint::{
        Gguf, MemoryFile,
        gguf::{Array, Strings},
    },
    format::Format,
    task::block_on,
    testing::GgufWriter,
};

/// A xorshift generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

/// What numbers and words in damaged files look like.
const WORDS: [&str; 22] = [
    "0",
    "-1",
    "1",
    "7",
    "1e999",
    "-0.5",
    "18446744073709551615",
    "9223372036854775808",
    "4294967296",
    "null",
    "true",
    "\"\"",
    "[]",
    "{}",
    "[[[[[[[[",
    "\"F32\"",
    "\"BF16\"",
    "\"I64\"",
    "\"F4\"",
    "\\u0000",
    "\u{feff}",
    "é",
];

const NUMBERS: usize = 9;

fn mutate(data: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(data.len());
    let length = random.below((data.len() - at).min(16)) + 1;
    let end = (at + length).min(data.len());
    match random.below(8) {
        0 => data.truncate(at),
        1 if !data.is_empty() => data[at] ^= 1 << random.below(8),
        2 => {
            data.splice(at..at, std::iter::once(random.below(256) as u8));
        }
        3 => {
            data.drain(at..end);
        }
        4 => {
            let copy = data[at..end].to_vec();
            let to = random.below(data.len() + 1);
            data.splice(to..to, copy);
        }
        5 => {
            let word = WORDS[random.below(WORDS.len())];
            data.splice(at..at, word.bytes());
        }
        _ => replace_number(data, random),
    }
}

/// Puts a word where a number stands, so that the JSON around it stays whole.
fn replace_number(data: &mut Vec<u8>, random: &mut Random) {
    let starts: Vec<usize> =
        (1..data.len()).filter(|i| data[*i].is_ascii_digit() && !data[i - 1].is_ascii_digit()).collect();
    if starts.is_empty() {
        return;
    }
    let start = starts[random.below(starts.len())];
    let end = (start..data.len()).find(|i| !data[*i].is_ascii_digit()).unwrap_or(data.len());
    // The first words are numbers.
    let words = if random.below(4) == 0 { &WORDS[..] } else { &WORDS[..NUMBERS] };
    data.splice(start..end, words[random.below(words.len())].bytes());
}

/// [`mutate`] for files of binary numbers.
fn mutate_binary(data: &mut Vec<u8>, random: &mut Random) {
    if random.below(3) == 0 || data.len() < 8 {
        return mutate(data, random);
    }
    let number = match random.below(4) {
        0 => random.below(64) as u64,
        1 => 1 << random.below(64),
        2 => (1u64 << random.below(64)).wrapping_neg(),
        _ => data.len() as u64 / 2,
    };
    let width = [1, 4, 8][random.below(3)];
    let at = random.below(data.len() - width + 1);
    data[at..at + width].copy_from_slice(&number.to_le_bytes()[..width]);
}

fn feed(target: fn(&[u8]), seeds: &[Vec<u8>], rounds: usize) {
    feed_by(mutate, target, seeds, rounds);
}

/// Mutates each seed `rounds` times, by a few steps: one alone leaves the rest whole and so gets furthest.
fn feed_by(mutate: fn(&mut Vec<u8>, &mut Random), target: fn(&[u8]), seeds: &[Vec<u8>], rounds: usize) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for seed in seeds {
        target(seed);
        for _ in 0..rounds {
            let mut data = seed.clone();
            for _ in 0..=random.below(5).saturating_sub(2) {
                mutate(&mut data, &mut random);
            }
            let result = std::panic::catch_unwind(|| target(&data));
            assert!(result.is_ok(), "fails on {:?}", String::from_utf8_lossy(&data));
        }
    }
}

/// A file as the target `header` takes it.
fn safetensors(tensors: &[(String, Vec<usize>)]) -> Vec<u8> {
    let (mut header, mut bytes) = (Vec::new(), Vec::new());
    for (name, shape) in tensors {
        let begin = bytes.len();
        let count: usize = shape.iter().product();
        bytes.extend((0..count).flat_map(|i| ((i % 5) as f32 * 0.25 - 0.5).to_le_bytes()));
        header.push(format!(
            "{name:?}:{{\"dtype\":\"F32\",\"shape\":{shape:?},\"data_offsets\":[{begin},{}]}}",
            bytes.len()
        ));
    }
    joined(&format!("{{\"__metadata__\":{{\"format\":\"pt\"}},{}}}", header.join(",")), &bytes)
}

fn small_file() -> Vec<u8> {
    safetensors(&[
        ("a".into(), vec![2, 3]),
        ("b".into(), vec![]),
        ("c".into(), vec![0, 4]),
        ("d".into(), vec![4]),
    ])
}

const BERT: &str = r#"{"model_type":"bert","vocab_size":4,"hidden_size":4,"num_hidden_layers":1,
"num_attention_heads":1,"intermediate_size":4,"hidden_act":"gelu","max_position_embeddings":4,"type_vocab_size":1,
"layer_norm_eps":1e-12,"pad_token_id":0}"#;

fn bert_weights() -> Vec<u8> {
    let mut tensors: Vec<(String, Vec<usize>)> = vec![
        ("embeddings.word_embeddings.weight".into(), vec![4, 4]),
        ("embeddings.position_embeddings.weight".into(), vec![4, 4]),
        ("embeddings.token_type_embeddings.weight".into(), vec![1, 4]),
    ];
    let mut pair = |name: &str, weight: &[usize]| {
        tensors.push((format!("{name}.weight"), weight.to_vec()));
        tensors.push((format!("{name}.bias"), vec![4]));
    };
    pair("embeddings.LayerNorm", &[4]);
    for module in
        ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"]
    {
        pair(&format!("encoder.layer.0.{module}"), &[4, 4]);
    }
    for module in ["intermediate.dense", "output.dense"] {
        pair(&format!("encoder.layer.0.{module}"), &[4, 4]);
    }
    for module in ["attention.output.LayerNorm", "output.LayerNorm"] {
        pair(&format!("encoder.layer.0.{module}"), &[4]);
    }
    safetensors(&tensors)
}

fn joined(first: &str, second: &[u8]) -> Vec<u8> {
    [first.as_bytes(), &[0], second].concat()
}

#[test]
fn safetensors_files() {
    feed(targets::header, &[small_file(), bert_weights()], 20_000);
}

#[test]
fn safetensors_files_as_they_are() {
    let file = small_file();
    let header = file.iter().position(|b| *b == 0).expect("a separator");
    let file = [&(header as u64).to_le_bytes(), &file[..header], &file[header + 1..]].concat();
    feed(targets::safetensors, &[file], 20_000);
}

#[test]
fn shard_indices() {
    let index = r#"{"metadata":{},"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors"}}"#;
    feed(targets::shards, &[joined(index, &small_file())], 20_000);
}

/// A value of every kind and a tensor of every format.
fn gguf_file() -> Vec<u8> {
    let nested = vec![Array::Strings(Strings::from_iter(["x"])), Array::Arrays(vec![Array::F64(vec![1.0])])];
    let mut file = GgufWriter::new()
        .aligned(32)
        .key("name", "tiny")
        .key("bool", true)
        .key("u8", 3u8)
        .key("i64", -1i64)
        .key("f32", 1.5f32)
        .key("f64", 1e9)
        .key("split.count", 1u16)
        .key("tokens", Strings::from_iter(["a", "", "\u{2581}b"]))
        .key("types", vec![1, 2, 3])
        .key("scores", vec![0.5f32, -1.0])
        .key("bools", vec![true, false])
        .key("nested", nested);
    for format in Format::ALL.into_iter().filter(|f| *f != Format::Int8) {
        let columns = 2 * format.block();
        file = file.tensor(format.name(), &[2, columns], format, &vec![0x35; 2 * format.row_bytes(columns)]);
    }
    file.tensor("empty", &[0, 32], Format::Q4_0, &[]).finish()
}

#[test]
fn gguf_files() {
    let small = GgufWriter::new().key("k", 7u32).tensor("t", &[1, 32], Format::Q8_0, &[9; 34]);
    let seeds = [gguf_file(), small.finish()];
    for seed in &seeds {
        let file = MemoryFile::new("seed", seed.clone());
        block_on(Gguf::open(Box::new(file))).expect("mutations of what does not open show little");
    }
    feed_by(mutate_binary, targets::gguf, &seeds, 30_000);
}

#[test]
fn configs() {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures");
    let mut seeds = vec![BERT.as_bytes().to_vec()];
    for entry in std::fs::read_dir(fixtures).expect("the fixtures").flatten() {
        if let Ok(config) = std::fs::read(entry.path().join("config.json")) {
            seeds.push(config);
        }
    }
    assert!(seeds.len() > 6, "a config of each architecture");
    feed(targets::config, &seeds, 8000);
}

#[test]
fn checkpoints() {
    let seed = joined(BERT, &bert_weights());
    assert!(targets::encode(&seed).is_some(), "mutations of what does not load show little");
    feed(targets::checkpoint, &[seed], 20_000);
}
