//! Configurations: what is read from each architecture's, and what is refused by name.

use alloc::{format, string::ToString, vec::Vec};

use serde_json::{Value, json};

use super::{
    NormOrder, Positions, TextConfig,
    arch::{only_embeds, read_decoder, read_encoder, read_text},
    config::Config,
    relative_bucket,
};
use crate::{Result, op::Activation};

fn bert() -> Value {
    json!({
        "model_type": "bert", "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 40,
        "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "pad_token_id": 0
    })
}

fn mpnet() -> Value {
    let mut config = with(bert(), "model_type", json!("mpnet"));
    config["relative_attention_num_buckets"] = json!(32);
    config["type_vocab_size"] = Value::Null;
    config
}

fn distilbert() -> Value {
    json!({
        "model_type": "distilbert", "vocab_size": 100, "dim": 32, "n_layers": 2, "n_heads": 4,
        "hidden_dim": 64, "max_position_embeddings": 40, "activation": "relu"
    })
}

/// As older files write it.
fn modernbert() -> Value {
    json!({
        "model_type": "modernbert", "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 5,
        "num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 40,
        "hidden_activation": "gelu", "norm_eps": 1e-5, "global_attn_every_n_layers": 3,
        "local_attention": 16, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0
    })
}

fn with(mut config: Value, key: &str, value: Value) -> Value {
    config[key] = value;
    config
}

fn read(config: &Value) -> Result<super::EncoderConfig> {
    read_encoder(&Config::parse("config.json", &config.to_string())?)
}

#[track_caller]
fn refused(config: &Value, parts: &[&str]) {
    let text = read(config).unwrap_err().to_string();
    for part in parts {
        assert!(text.contains(part), "`{text}` lacks `{part}`");
    }
}

#[test]
fn reads_bert() {
    let config = read(&bert()).unwrap();
    assert_eq!((config.head_dim(), config.max_tokens(), config.token_types), (8, 40, 2));
    assert_eq!(config.positions, Positions { first: 0, uncounted: None });
    assert_eq!((config.order, config.activation), (NormOrder::Post, Activation::Gelu));
    assert_eq!(config.names.layers[1].qkv[2], "encoder.layer.1.attention.self.value");
}

#[test]
fn roberta_positions_follow_padding() {
    for model_type in ["roberta", "xlm-roberta"] {
        let config = with(with(bert(), "model_type", json!(model_type)), "pad_token_id", json!(1));
        let config = read(&config).unwrap();
        assert_eq!(config.positions, Positions { first: 2, uncounted: Some(1) });
        assert_eq!(config.max_tokens(), 38);
    }
    let config = with(with(bert(), "model_type", json!("roberta")), "pad_token_id", json!(40));
    refused(&config, &["`pad_token_id`"]);
}

#[test]
fn mpnet_ignores_the_pad_token() {
    let config = read(&with(mpnet(), "pad_token_id", json!(7))).unwrap();
    assert_eq!(config.positions, Positions { first: 2, uncounted: Some(1) });
    assert_eq!(config.token_types, 0);
    refused(&with(mpnet(), "relative_attention_num_buckets", json!(64)), &["num_buckets", "64", "32"]);
}

#[test]
fn mpnet_buckets() {
    // Distance to a key on the left, and its bucket; on the right 16 more.
    let expected = (0..200).map(|n| match n {
        0..8 => n,
        8..12 => 8,
        12..16 => 9,
        16..23 => 10,
        23..32 => 11,
        32..46 => 12,
        46..64 => 13,
        64..91 => 14,
        _ => 15,
    });
    for (n, bucket) in expected.enumerate() {
        assert_eq!(relative_bucket(-(n as isize)), bucket, "{n} to the left");
        if n > 0 {
            assert_eq!(relative_bucket(n as isize), bucket + 16, "{n} to the right");
        }
    }
}

#[test]
fn reads_distilbert() {
    let config = read(&distilbert()).unwrap();
    assert_eq!((config.hidden, config.heads, config.intermediate, config.layers.len()), (32, 4, 64, 2));
    assert_eq!((config.activation, config.norm_eps), (Activation::Relu, 1e-12));
}

#[test]
fn reads_modernbert_old_and_new() {
    let old = read(&modernbert()).unwrap();
    let windows: Vec<_> = old.layers.iter().map(|l| l.window).collect();
    assert_eq!(windows, [None, Some(8), Some(8), None, Some(8)]);
    let thetas: Vec<_> = old.layers.iter().map(|l| l.rope_theta).collect();
    assert_eq!(thetas[..2], [Some(160_000.0), Some(10_000.0)]);
    assert_eq!(old.names.layers[0].input_norm, None);
    assert_eq!(old.names.layers[1].input_norm.as_deref(), Some("layers.1.attn_norm"));

    let (full, local) = ("full_attention", "sliding_attention");
    let mut new = with(modernbert(), "layer_types", json!([local, full, local, full, local]));
    new["rope_parameters"] = json!({
        "full_attention": {"rope_type": "default", "rope_theta": 5000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 70.0}
    });
    let config = read(&new).unwrap();
    assert_eq!((config.layers[0].window, config.layers[0].rope_theta), (Some(8), Some(70.0)));
    assert_eq!((config.layers[1].window, config.layers[1].rope_theta), (None, Some(5000.0)));

    refused(&with(new.clone(), "layer_types", json!([full])), &["`layer_types`", "1 layers of 5"]);
    refused(
        &with(new.clone(), "layer_types", json!(["x", full, full, full, full])),
        &["`layer_types`", "`x`"],
    );
    let mut scaled = new.clone();
    scaled["rope_parameters"]["full_attention"]["rope_type"] = json!("yarn");
    refused(&scaled, &["`rope_type`", "yarn", "full_attention"]);
    scaled["rope_parameters"] = json!({"full_attention": {"rope_theta": 1.0}});
    refused(&scaled, &["`sliding_attention`", "missing"]);
    refused(&with(modernbert(), "attention_bias", json!(true)), &["`attention_bias`"]);
}

#[test]
fn missing_keys_are_named() {
    for config in [bert(), mpnet(), distilbert(), modernbert()] {
        assert!(read(&config).is_ok());
        let given = config.as_object().unwrap().iter().filter(|(_, value)| !value.is_null());
        for key in given.map(|(key, _)| key).filter(|key| *key != "pad_token_id") {
            let mut damaged = config.clone();
            damaged.as_object_mut().unwrap().remove(key);
            refused(&damaged, &[&format!("`{key}`"), "is missing", "config.json"]);
        }
    }
}

#[test]
fn impossible_values_are_named() {
    let wrong = [json!(0), json!(-1), json!(1.5), json!("x"), json!([1]), json!(true), json!(1u64 << 62)];
    for key in ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"]
    {
        for value in &wrong {
            refused(&with(bert(), key, value.clone()), &[&format!("`{key}`"), "whole number"]);
        }
    }
    for value in [json!(0), json!(-1e-5), json!("1e-12"), json!(1e300)] {
        refused(&with(bert(), "layer_norm_eps", value), &["`layer_norm_eps`", "number above 0"]);
    }
    refused(&with(bert(), "hidden_act", json!("quick_gelu")), &["`hidden_act`", "quick_gelu", "gelu_new"]);
    refused(&with(bert(), "position_embedding_type", json!("relative_key")), &["relative_key"]);
    refused(&with(bert(), "is_decoder", json!(true)), &["`is_decoder`"]);
    refused(&with(bert(), "num_attention_heads", json!(5)), &["`num_attention_heads`", "5 heads"]);
    refused(&with(bert(), "num_attention_heads", json!(16)), &["`num_attention_heads`", "2 dimensions"]);
    refused(&with(bert(), "intermediate_size", json!(63)), &["`intermediate_size`", "63"]);
    let roberta = with(with(bert(), "model_type", json!("roberta")), "pad_token_id", json!(1));
    refused(&with(roberta, "max_position_embeddings", json!(2)), &["`max_position_embeddings`"]);
}

#[test]
fn unknown_models_are_named() {
    let t5 = with(bert(), "model_type", json!("t5")).to_string();
    let text = read_text(&Config::parse("config.json", &t5).unwrap()).unwrap_err().to_string();
    assert!(text.starts_with("config key `model_type`: is `t5`"), "{text}");
    for known in super::arch::supported() {
        assert!(text.contains(known), "`{text}` lacks {known}");
    }
    for (text, part) in [("", "not valid JSON"), ("[]", "no JSON object"), ("{\"a\":", "not valid JSON")] {
        let error = Config::parse("m/config.json", text).unwrap_err().to_string();
        assert!(error.starts_with("m/config.json: ") && error.contains(part), "{error}");
    }
}

fn lfm2(class: &str) -> Value {
    json!({
        "model_type": "lfm2", "architectures": [class], "vocab_size": 100, "hidden_size": 32,
        "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
        "block_auto_adjust_ff_dim": false, "max_position_embeddings": 40, "layer_types": ["conv", "full_attention"]
    })
}

#[test]
fn bidirectional_models_embed_only() {
    let parse = |config: &Value| Config::parse("config.json", &config.to_string()).unwrap();
    let own_type = with(lfm2("Lfm2BidirectionalModel"), "model_type", json!("lfm2_bidirectional"));
    for (config, bidirectional) in
        [(lfm2("Lfm2Model"), false), (lfm2("Lfm2BidirectionalModel"), true), (own_type, true)]
    {
        let config = parse(&config);
        let TextConfig::Decoder(read) = read_text(&config).unwrap() else { panic!("no decoder") };
        assert_eq!(read.bidirectional, bidirectional);
        assert_eq!(only_embeds(&config).unwrap(), bidirectional);
        assert_eq!(read_decoder(&config).is_err(), bidirectional);
    }
    let error = read_decoder(&parse(&lfm2("Lfm2BidirectionalModel"))).unwrap_err().to_string();
    assert!(error.contains("`architectures`") && error.contains("does not generate text"), "{error}");
    let four = with(lfm2("Lfm2BidirectionalModel"), "conv_L_cache", json!(4));
    let error = read_text(&parse(&four)).unwrap_err().to_string();
    assert!(error.contains("`conv_L_cache`") && error.contains("is 4"), "{error}");
    assert!(read_text(&parse(&with(lfm2("Lfm2Model"), "conv_L_cache", json!(4)))).is_ok());
}

#[test]
fn bidirectional_variants_of_other_decoders_are_refused() {
    let qwen3 = json!({
        "model_type": "qwen3", "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 40, "rms_norm_eps": 1e-6
    });
    let read = |config: &Value| read_text(&Config::parse("config.json", &config.to_string()).unwrap());
    assert!(read(&qwen3).is_ok());
    for (key, value) in [
        ("architectures", json!(["Qwen3BidirectionalModel"])),
        ("is_causal", json!(false)),
        ("use_bidirectional_attention", json!(true)),
    ] {
        let error = read(&with(qwen3.clone(), key, value)).unwrap_err().to_string();
        assert!(error.contains(&format!("`{key}`")), "{error}");
    }
}
