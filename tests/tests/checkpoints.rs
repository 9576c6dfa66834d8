//! The same model from checkpoints that look different, and checkpoints that are not usable.

use std::sync::Arc;

use inferencelayer_engine::{
    backend::Backend,
    batch::EncBatch,
    checkpoint::{Folder, MemoryFolder},
    embed::{Embedder, Head},
    op::PoolMode,
    pooling::EmbedOut,
    reference::Reference,
};
use inferencelayer_tests::{
    compare::relative,
    fixture::{EMBEDDERS, ENCODERS, Fixture, load_encoder, load_text},
    rewrite::{Stored, WEIGHTS, changed, renamed, sharded, tensors},
};
use safetensors::Dtype;

fn vectors(folder: &dyn Folder) -> Vec<f32> {
    let backend: Arc<dyn Backend> = Arc::new(Reference::new());
    let model = load_text(folder, &*backend).unwrap_or_else(|e| panic!("{e}"));
    let head = Head { pooling: vec![PoolMode::Mean], steps: vec![], dim: None };
    let mut embedder = Embedder::new(backend, model, head, 64, false).expect("an embedder");
    let batch = EncBatch::from_seqs(vec![vec![2, 17, 300, 44, 3], vec![9; 30]]);
    let EmbedOut::Pooled(vectors) = embedder.encode_blocking(&batch).expect("vectors") else {
        panic!("no vectors")
    };
    vectors.concat()
}

fn error(folder: &dyn Folder) -> String {
    load_text(folder, &Reference::new()).expect_err("an unusable checkpoint").to_string()
}

#[test]
fn every_prefix_is_found() {
    for (name, prefixes) in [
        ("bert", ["bert.", "model.", "0.auto_model."]),
        ("roberta", ["roberta.", "model.roberta.", "encoder."]),
        ("mpnet", ["mpnet.", "model.", "x.y."]),
        ("distilbert", ["distilbert.", "model.", "x."]),
        ("modernbert", ["model.", "modernbert.", "x."]),
        ("lfm2_bidirectional", ["model.", "lfm2.", "x."]),
    ] {
        let folder = Fixture::new(name).in_memory();
        let expected = vectors(&folder);
        for prefix in prefixes {
            let found = vectors(&renamed(&folder, |n| format!("{prefix}{n}")));
            assert_eq!(found, expected, "{name} with prefix {prefix}");
        }
    }
}

#[test]
fn a_prefixed_model_beside_its_heads() {
    let folder = Fixture::new("bert").in_memory();
    let expected = vectors(&folder);
    let with_heads = changed(&renamed(&folder, |n| format!("bert.{n}")), |all| {
        let decoder = Stored { dtype: Dtype::I64, shape: vec![3], bytes: vec![0; 24] };
        all.insert("cls.predictions.bias".into(), decoder.clone());
        all.insert("bert.embeddings.position_ids".into(), decoder);
    });
    assert_eq!(vectors(&with_heads), expected);
}

#[test]
fn old_norm_names() {
    for name in ["bert", "roberta", "mpnet"] {
        let folder = Fixture::new(name).in_memory();
        let old = renamed(&folder, |n| {
            n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        });
        assert!(tensors(&old).contains_key("embeddings.LayerNorm.gamma"));
        assert_eq!(vectors(&old), vectors(&folder), "{name}");
    }
}

#[test]
fn sharded_checkpoints() {
    for fixture in EMBEDDERS {
        let folder = Fixture::new(fixture.name).in_memory();
        let split = sharded(&folder, 3);
        assert!(split.get(WEIGHTS).is_none());
        assert_eq!(vectors(&split), vectors(&folder), "{}", fixture.name);
    }
}

#[test]
fn f16_checkpoints() {
    let folder = Fixture::new("bert").in_memory();
    let half = changed(&folder, |all| all.values_mut().for_each(|t| *t = t.to_f16()));
    let off = relative(&vectors(&half), &vectors(&folder));
    assert!(off > 0.0 && off < 2e-3, "{off:e}");
}

#[test]
fn from_disk_as_from_memory() {
    let fixture = Fixture::new("mpnet");
    assert_eq!(vectors(&fixture), vectors(&fixture.in_memory()));
}

/// Each tensor in turn: missing, of another shape, of another type.
#[test]
fn every_tensor_is_checked() {
    for fixture in EMBEDDERS {
        let folder = Fixture::new(fixture.name).in_memory();
        let names: Vec<String> = tensors(&folder).into_keys().filter(|n| !n.starts_with("pooler.")).collect();
        for name in names {
            let text = error(&changed(&folder, |all| {
                all.remove(&name);
            }));
            assert_eq!(text, format!("tensor `{name}` is missing from {}/{WEIGHTS}", fixture.name));

            let text = error(&changed(&folder, |all| {
                let tensor = all.get_mut(&name).expect("a tensor");
                tensor.shape.insert(0, 1);
            }));
            let found = format!("tensor `{name}` of {}/{WEIGHTS}: expected shape [", fixture.name);
            assert!(text.starts_with(&found) && text.contains(", found [1, "), "{text}");

            let text = error(&changed(&folder, |all| {
                let tensor = all.get_mut(&name).expect("a tensor");
                let values = tensor.shape.iter().product::<usize>();
                (tensor.dtype, tensor.bytes) = (Dtype::I64, vec![0; values * 8]);
            }));
            assert!(text.contains(&format!("tensor `{name}`")) && text.contains("I64"), "{text}");
        }
    }
}

#[test]
fn damaged_weight_files() {
    let folder = Fixture::new("bert").in_memory();
    let whole = folder.get(WEIGHTS).expect("weights").to_vec();
    for (length, part) in
        [(0, "too short"), (7, "too short"), (100, "does not fit"), (whole.len() - 1, "truncated")]
    {
        let mut cut = folder.clone();
        cut.insert(WEIGHTS, whole[..length].to_vec());
        let text = error(&cut);
        assert!(text.starts_with("bert/model.safetensors: ") && text.contains(part), "{text}");
    }
}

#[test]
fn pickled_weights_are_refused_with_advice() {
    let mut folder = Fixture::new("bert").in_memory();
    folder.remove(WEIGHTS);
    folder.insert("pytorch_model.bin", b"\x80\x02".to_vec());
    let text = error(&folder);
    assert!(text.starts_with("bert/pytorch_model.bin: ") && text.contains("save_pretrained"), "{text}");
}

#[test]
fn config_that_disagrees_with_the_weights() {
    let folder = Fixture::new("bert").in_memory();
    let text = String::from_utf8(folder.get("config.json").expect("config").to_vec()).expect("UTF-8");
    let changed = |from: &str, to: &str| {
        let mut folder: MemoryFolder = folder.clone();
        assert!(text.contains(from));
        folder.insert("config.json", text.replace(from, to).into_bytes());
        error(&folder)
    };
    let found = changed("\"hidden_size\": 64", "\"hidden_size\": 32");
    assert!(found.contains("word_embeddings") && found.contains("[512, 32], found [512, 64]"), "{found}");
    let found = changed("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
    assert!(found.contains("`encoder.layer.2.attention.self.query.weight` is missing"), "{found}");
    let found = changed("\"vocab_size\": 512", "\"vocab_size\": 511");
    assert!(found.contains("[511, 64], found [512, 64]"), "{found}");
}

/// What the backend holds is what the model has: nothing is kept twice, nothing is left behind.
#[test]
fn memory_is_the_weights() {
    for fixture in ENCODERS {
        let folder = Fixture::new(fixture.name).in_memory();
        let backend = Reference::new();
        let encoder = load_encoder(&folder, &backend).expect("the fixture loads");
        let config = encoder.config();
        let mut values: usize = tensors(&folder)
            .iter()
            .filter(|(name, _)| !name.starts_with("pooler.") && !name.contains("relative_attention_bias"))
            .map(|(_, t)| t.shape.iter().product::<usize>())
            .sum();
        if config.names.relative_bias.is_some() {
            values += config.heads * 257;
        }
        let mut thetas: Vec<u32> =
            config.layers.iter().filter_map(|l| l.rope_theta).map(f32::to_bits).collect();
        thetas.sort_unstable();
        thetas.dedup();
        values += thetas.len() * config.max_positions * config.head_dim();
        assert_eq!(backend.memory(), 4 * values as u64, "{}", fixture.name);
        drop(encoder);
        assert_eq!(backend.memory(), 0, "{}", fixture.name);
    }
}
