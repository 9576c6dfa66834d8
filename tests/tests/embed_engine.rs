//! The public API, as the README shows it: folders in, texts or token ids in, vectors out.

use inferencelayer::{
    EmbedEngine, EmbedOptions,
    device::{Device, DeviceOptions, Dtype},
    encoder_weights::EncBatch,
    engine::op::PoolMode,
    pooled,
    pooling::EmbedOut,
};
use inferencelayer_tests::{compare::cosine_distance, fixture::Fixture};

const DEVICES: [Device; 3] = [Device::Reference, Device::Gpu, Device::Cpu];

fn open_with(fixture: &Fixture, device: Device, options: &EmbedOptions) -> EmbedEngine {
    let device = DeviceOptions { device, dtype: Some(Dtype::F32), ..DeviceOptions::default() };
    EmbedEngine::open(fixture.path(), 512, &device, options).expect("the fixture loads")
}

fn open(fixture: &Fixture, device: Device) -> EmbedEngine {
    open_with(fixture, device, &EmbedOptions::default())
}

#[track_caller]
fn assert_close(found: &[Vec<f32>], expected: &[f32]) {
    let width = expected.len() / found.len();
    for (at, (found, expected)) in found.iter().zip(expected.chunks(width)).enumerate() {
        assert_eq!(found.len(), width);
        let off = cosine_distance(found, expected);
        assert!(off <= 1e-6, "text {at}: 1 - cosine is {off:e}");
    }
}

fn borrowed(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

#[test]
fn modules_of_a_folder_are_followed() {
    let fixture = Fixture::new("heads");
    let expected = fixture.expected();
    for device in DEVICES {
        let mut engine = open(&fixture, device);
        assert_eq!(engine.dimension(), 24);
        let found = engine.embed(&borrowed(&fixture.texts()), None).unwrap();
        assert_close(&found, &expected.floats("encode.embeddings"));
        let unit = |v: &Vec<f32>| (v.iter().map(|v| v * v).sum::<f32>() - 1.0).abs() < 1e-4;
        assert!(found.iter().all(unit));
    }
}

/// Models of a decoder's layers, from texts by their folder's tokenizer, prompts, pooling and limit.
#[test]
fn decoders_embed() {
    for name in ["lfm2_bidirectional", "lfm2_embedding_causal", "qwen3_embedding"] {
        let fixture = Fixture::new(name);
        let (expected, texts, queries) = (fixture.expected(), fixture.texts(), fixture.queries());
        for device in DEVICES {
            let mut engine = open(&fixture, device);
            assert_close(
                &engine.embed(&borrowed(&texts), None).unwrap(),
                &expected.floats("encode.embeddings"),
            );
            if queries.is_empty() {
                continue;
            }
            let found = engine.embed(&borrowed(&queries), Some("query")).unwrap();
            assert_close(&found, &expected.floats("encode.query_embeddings"));
            let found = engine.embed(&borrowed(&texts[..4]), Some("document")).unwrap();
            assert_close(&found, &expected.floats("encode.document_embeddings"));
        }
    }
}

/// Folders that are no embedding model of this kind are refused by what is wrong with them.
#[test]
fn wrong_bidirectional_folders_are_named() {
    let refused = |file: &str, from: &str, to: &str, parts: &[&str]| {
        let (fixture, copy) = (Fixture::new("lfm2_bidirectional"), tempfile::tempdir().unwrap());
        std::fs::create_dir(copy.path().join("1_Pooling")).unwrap();
        for name in ["config.json", "model.safetensors", "modules.json", "1_Pooling/config.json"] {
            let bytes = std::fs::read(fixture.path().join(name)).unwrap();
            let bytes = match String::from_utf8(bytes) {
                Ok(text) if name == file => {
                    assert!(text.contains(from), "{file} lacks {from}");
                    text.replace(from, to).into_bytes()
                }
                Ok(text) => text.into_bytes(),
                Err(binary) => binary.into_bytes(),
            };
            std::fs::write(copy.path().join(name), bytes).unwrap();
        }
        let device = DeviceOptions { device: Device::Reference, ..DeviceOptions::default() };
        let opened = EmbedEngine::open(copy.path(), 512, &device, &EmbedOptions::default());
        let error = opened.unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    };
    let config = "config.json";
    refused(config, r#""conv_L_cache": 3"#, r#""conv_L_cache": 4"#, &["`conv_L_cache`", "is 4", "3 taps"]);
    refused(config, r#""conv","#, r#""mamba","#, &["`layer_types`", "`mamba`"]);
    refused(config, r#""hidden_size": 32"#, r#""hidden_size": 64"#, &["embed_tokens.weight", "[400, 64]"]);
    refused(
        config,
        r#""block_multiple_of": 16"#,
        r#""block_multiple_of": 32"#,
        &["layers.0.feed_forward.w1.weight", "[64, 32]"],
    );
    let pooling = "1_Pooling/config.json";
    refused(pooling, r#""include_prompt": true"#, r#""pooling_mode": "first""#, &["`first`", "cls"]);
    refused(pooling, ": 32", ": 48", &["pooling", "[32]", "[48]"]);
}

#[test]
fn prompts_by_name_and_by_default() {
    let fixture = Fixture::new("prompts");
    let (expected, texts, queries) = (fixture.expected(), fixture.texts(), fixture.queries());
    for device in DEVICES {
        let mut engine = open(&fixture, device);
        let plain = engine.embed(&borrowed(&texts), Some("plain")).unwrap();
        assert_close(&plain, &expected.floats("encode.embeddings"));
        let found = engine.embed(&borrowed(&queries), Some("query")).unwrap();
        assert_close(&found, &expected.floats("encode.query_embeddings"));
        let found = engine.embed(&borrowed(&texts[..4]), None).unwrap();
        assert_close(&found, &expected.floats("encode.default_embeddings"));
        assert!(cosine_distance(&found[0], &plain[0]) > 1e-6, "the default prompt makes a difference");
    }
    let error = open(&fixture, Device::Reference).embed(&["x"], Some("poem")).unwrap_err().to_string();
    assert_eq!(error, "the model has no prompt `poem` (it has: document, plain, query)");
}

#[test]
fn token_ids_and_texts_agree() {
    let fixture = Fixture::new("bert");
    let mut engine = open(&fixture, Device::Reference);
    let texts = fixture.texts();
    let from_texts = engine.embed(&borrowed(&texts), None).unwrap();
    let ids = fixture.expected().ragged("encode.token_ids", "encode.token_offsets");
    let EmbedOut::Pooled(from_ids) = engine.encode(&EncBatch::from_seqs(ids)).unwrap() else { panic!() };
    assert_eq!(from_ids, from_texts);
    // A batch of many is what its texts are alone.
    let single = engine.embed(&[&texts[3]], None).unwrap();
    assert!(cosine_distance(&single[0], &from_texts[3]) < 1e-7);
    assert_eq!(pooled(engine.encode(&EncBatch::default()).unwrap()).unwrap(), Vec::<Vec<f32>>::new());
    assert_eq!(engine.embed(&[], None).unwrap(), Vec::<Vec<f32>>::new());
}

#[test]
fn options_override_the_folder() {
    let fixture = Fixture::new("roberta");
    let text = ["a text of some tokens"];
    let embed = |options: EmbedOptions| {
        open_with(&fixture, Device::Reference, &options).embed(&text, None).unwrap().remove(0)
    };
    let raw = |modes: &[PoolMode]| {
        embed(EmbedOptions { pooling: Some(modes.to_vec()), normalize: false, ..EmbedOptions::default() })
    };
    let length = |v: &[f32]| v.iter().map(|v| v * v).sum::<f32>().sqrt();
    let (mean, max) = (raw(&[PoolMode::Mean]), raw(&[PoolMode::Max]));
    assert_eq!(raw(&[PoolMode::Max, PoolMode::Mean]), [max, mean.clone()].concat());
    assert!((length(&mean) - 1.0).abs() > 0.1, "this model's vectors are not of unit length by themselves");
    let unit = embed(EmbedOptions::default());
    assert!((length(&unit) - 1.0).abs() < 1e-5 && cosine_distance(&unit, &mean) < 1e-6);
    let cut = embed(EmbedOptions { dim: Some(10), ..EmbedOptions::default() });
    assert_eq!(cut.len(), 10);
    assert!((length(&cut) - 1.0).abs() < 1e-5 && cosine_distance(&cut, &unit[..10]) < 1e-6);
}

#[test]
fn deterministic_results_do_not_depend_on_the_batch() {
    let fixture = Fixture::new("mpnet");
    let options = EmbedOptions { deterministic: true, ..EmbedOptions::default() };
    for device in DEVICES {
        let mut engine = open_with(&fixture, device, &options);
        let texts = fixture.texts();
        let together = engine.embed(&borrowed(&texts), None).unwrap();
        for (text, together) in texts.iter().zip(&together) {
            assert_eq!(&engine.embed(&[text], None).unwrap()[0], together, "{text:?}");
        }
    }
}

#[test]
fn threads_change_nothing_on_the_cpu() {
    let fixture = Fixture::new("modernbert");
    let texts = fixture.texts();
    let (texts, expected) = (borrowed(&texts), fixture.expected().floats("encode.embeddings"));
    for (dtype, bound) in [(Dtype::F32, 1e-6), (Dtype::Int8, 3e-3)] {
        let open = |threads| {
            let device = Device::Cpu;
            let device = DeviceOptions { device, dtype: Some(dtype), threads, ..DeviceOptions::default() };
            EmbedEngine::open(fixture.path(), 512, &device, &EmbedOptions::default())
        };
        let one = open(Some(1)).unwrap().embed(&texts, None).unwrap();
        for (vector, expected) in one.iter().zip(expected.chunks(one[0].len())) {
            let off = cosine_distance(vector, expected);
            assert!(off <= bound, "{dtype:?}: 1 - cosine is {off:e}");
        }
        for threads in [Some(2), Some(3), None] {
            let mut engine = open(threads).unwrap();
            assert_eq!(engine.embed(&texts, None).unwrap(), one, "{dtype:?} on {threads:?} threads");
        }
        for wrong in [0, 1025] {
            let error = open(Some(wrong)).unwrap_err().to_string();
            assert!(error.contains(&format!("{wrong} threads: 1 to 1024")), "{error}");
        }
    }
}

#[test]
fn f16_is_refused_on_the_cpu() {
    let device = DeviceOptions { device: Device::Cpu, dtype: Some(Dtype::F16), ..DeviceOptions::default() };
    let path = Fixture::new("bert").path().to_owned();
    let error = EmbedEngine::open(path, 512, &device, &EmbedOptions::default()).unwrap_err().to_string();
    assert!(error.contains("f16 runs on GPUs: use --dtype f32 or int8"), "{error}");
}

#[test]
fn a_folder_without_tokenizer_takes_ids() {
    let fixture = Fixture::new("bert");
    let copy = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(fixture.path().join(name), copy.path().join(name)).unwrap();
    }
    let device = DeviceOptions { device: Device::Reference, ..DeviceOptions::default() };
    let mut engine = EmbedEngine::open(copy.path(), 512, &device, &EmbedOptions::default()).unwrap();
    let expected = fixture.expected();
    let ids = expected.ragged("encode.token_ids", "encode.token_offsets");
    assert_close(
        &pooled(engine.encode(&EncBatch::from_seqs(ids)).unwrap()).unwrap(),
        &expected.floats("encode.embeddings"),
    );
    let error = engine.embed(&["x"], None).unwrap_err().to_string();
    assert!(error.contains("no tokenizer.json"), "{error}");
}

#[test]
fn wrong_sequences_are_named() {
    let mut engine = open(&Fixture::new("bert"), Device::Reference);
    let mut said = |seqs: Vec<Vec<u32>>| engine.encode(&EncBatch::from_seqs(seqs)).unwrap_err().to_string();
    assert!(said(vec![vec![1], vec![]]).contains("sequence 1 is empty"));
    assert!(said(vec![vec![1, 512]]).contains("id 512 at token 1"));
    assert!(said(vec![vec![1; 65]]).contains("65 tokens, the model takes 64"));
}
