use inferencelayer_engine::{
    checkpoint::MemoryFolder,
    embed::DenseConfig,
    op::{Activation, PoolMode},
    task::block_on,
};

use super::*;

fn read(files: &[(&str, &str)]) -> Result<SentenceTransformer> {
    let mut folder = MemoryFolder::new("model");
    for (name, text) in files {
        folder.insert(*name, text.as_bytes());
    }
    block_on(SentenceTransformer::read(&folder))
}

fn modules(kinds: &[(&str, &str)]) -> String {
    let list: Vec<_> = kinds
        .iter()
        .enumerate()
        .map(|(i, (kind, path))| serde_json::json!({"idx": i, "name": i.to_string(), "path": path, "type": kind}))
        .collect();
    serde_json::Value::from(list).to_string()
}

fn error(files: &[(&str, &str)]) -> String {
    read(files).unwrap_err().to_string()
}

const MEAN: &str = r#"{"word_embedding_dimension": 64, "pooling_mode_mean_tokens": true}"#;

#[test]
fn a_full_folder() {
    let list = modules(&[
        ("sentence_transformers.models.Transformer", ""),
        ("sentence_transformers.sentence_transformer.modules.pooling.Pooling", "1_Pooling"),
        ("sentence_transformers.models.Dense", "2_Dense"),
        ("sentence_transformers.models.Normalize", "3_Normalize"),
    ]);
    let read = read(&[
        ("modules.json", &list),
        ("1_Pooling/config.json", MEAN),
        (
            "2_Dense/config.json",
            r#"{"in_features": 64, "out_features": 32, "bias": false,
                "activation_function": "torch.nn.modules.linear.Identity", "use_residual": true}"#,
        ),
        ("sentence_bert_config.json", r#"{"max_seq_length": 48, "do_lower_case": true}"#),
        (
            "config_sentence_transformers.json",
            r#"{"prompts": {"query": "query: ", "none": null}, "default_prompt_name": "query"}"#,
        ),
    ])
    .unwrap();
    assert_eq!(read.max_seq_length, Some(48));
    assert!(read.do_lower_case && read.declared);
    assert_eq!(
        read.pooling,
        Pooling { modes: vec![PoolMode::Mean], include_prompt: true, dimension: Some(64) }
    );
    let config = DenseConfig {
        in_features: 64,
        out_features: 32,
        bias: false,
        activation: Activation::None,
        residual: true,
    };
    let dense = Dense { config, path: "2_Dense".into() };
    assert_eq!(read.head, [Module::Dense(dense), Module::Normalize]);
    assert_eq!(read.prompts.resolve(None).unwrap(), "query: ");
    assert_eq!(read.prompts.resolve(Some("")).unwrap(), "");
    let error = read.prompts.resolve(Some("passage")).unwrap_err().to_string();
    assert_eq!(error, "the model has no prompt `passage` (it has: query)");
}

#[test]
fn a_plain_folder_gets_mean_pooling() {
    let read = read(&[("config.json", "{}")]).unwrap();
    assert_eq!(read.pooling.modes, [PoolMode::Mean]);
    assert_eq!(read.head, [Module::Normalize]);
    assert!(!read.declared);
    assert_eq!(read.prompts.resolve(None).unwrap(), "");
}

#[test]
fn every_pooling_flag_and_their_concatenation() {
    let list = modules(&[("a.Transformer", ""), ("a.Pooling", "1_Pooling")]);
    let pooling = |config: &str| {
        read(&[("modules.json", &list), ("1_Pooling/config.json", config)]).map(|m| m.pooling.modes)
    };
    for (name, key, mode) in [
        ("cls", "pooling_mode_cls_token", PoolMode::Cls),
        ("max", "pooling_mode_max_tokens", PoolMode::Max),
        ("mean", "pooling_mode_mean_tokens", PoolMode::Mean),
        ("mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", PoolMode::MeanSqrtLen),
        ("weightedmean", "pooling_mode_weightedmean_tokens", PoolMode::WeightedMean),
        ("lasttoken", "pooling_mode_lasttoken", PoolMode::LastToken),
    ] {
        assert_eq!(pooling(&format!(r#"{{"{key}": true}}"#)).unwrap(), [mode]);
        assert_eq!(pooling(&format!(r#"{{"pooling_mode": "{name}"}}"#)).unwrap(), [mode]);
        assert_eq!(parse_pool_mode(name).unwrap(), mode);
    }
    // Flags are concatenated in a fixed order, a list in its own.
    let both = pooling(r#"{"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true}"#);
    assert_eq!(both.unwrap(), [PoolMode::Cls, PoolMode::Mean]);
    let both = pooling(r#"{"pooling_mode": ["mean", "cls"]}"#);
    assert_eq!(both.unwrap(), [PoolMode::Mean, PoolMode::Cls]);
    assert_eq!(pooling("{}").unwrap(), [PoolMode::Mean]);
    let error = pooling(r#"{"pooling_mode": "median"}"#).unwrap_err().to_string();
    assert!(error.starts_with("model/1_Pooling/config.json: unknown pooling mode `median`"), "{error}");
    let error = pooling(r#"{"pooling_mode_cls_token": 3}"#).unwrap_err().to_string();
    assert!(error.contains("`pooling_mode_cls_token` must be true or false"), "{error}");
}

#[test]
fn dense_activations() {
    let list = modules(&[("a.Transformer", ""), ("a.Pooling", "1_Pooling"), ("a.Dense", "2_Dense")]);
    let dense = |activation: &str| {
        let config = format!(r#"{{"in_features": 4, "out_features": 4{activation}}}"#);
        let files = [
            ("modules.json", list.as_str()),
            ("1_Pooling/config.json", MEAN),
            ("2_Dense/config.json", &config),
        ];
        read(&files).map(|m| m.head)
    };
    for (class, expected) in [
        ("torch.nn.modules.linear.Identity", Activation::None),
        ("torch.nn.modules.activation.Tanh", Activation::Tanh),
        ("torch.nn.modules.activation.GELU", Activation::Gelu),
        ("torch.nn.modules.activation.ReLU", Activation::Relu),
        ("torch.nn.modules.activation.SiLU", Activation::Silu),
        ("torch.nn.modules.activation.Sigmoid", Activation::Sigmoid),
    ] {
        let head = dense(&format!(r#", "activation_function": "{class}""#)).unwrap();
        let [Module::Dense(Dense { config, .. })] = &head[..] else { panic!("{head:?}") };
        assert_eq!(config.activation, expected);
        assert!(config.bias && !config.residual);
    }
    let [Module::Dense(tanh)] = &dense("").unwrap()[..] else { panic!() };
    assert_eq!(tanh.config.activation, Activation::Tanh, "the default of sentence-transformers");
    let error = dense(r#", "activation_function": "my.Swish""#).unwrap_err().to_string();
    assert!(error.starts_with("model/2_Dense/config.json: activation_function `my.Swish`"), "{error}");
}

#[test]
fn unknown_and_misplaced_modules_are_named() {
    let list = modules(&[("a.Transformer", ""), ("sentence_transformers.models.LSTM", "1_LSTM")]);
    let message = error(&[("modules.json", &list)]);
    assert!(
        message.starts_with("model/modules.json: module `sentence_transformers.models.LSTM`"),
        "{message}"
    );
    let list = modules(&[("a.Pooling", "0_Pooling")]);
    assert!(error(&[("modules.json", &list)]).contains("must be Transformer"));
    let list = modules(&[("a.Transformer", ""), ("pylate.models.Dense.Dense", "1_Dense")]);
    assert!(error(&[("modules.json", &list)]).contains("comes before Pooling"));
    let list = modules(&[("a.Transformer", "")]);
    assert!(error(&[("modules.json", &list)]).contains("needs a Transformer and a Pooling"));
    assert!(error(&[("modules.json", "[]")]).contains("needs a Transformer and a Pooling"));
    assert!(error(&[("modules.json", "{")]).starts_with("model/modules.json: "));
    let list = modules(&[("a.Transformer", ""), ("a.Pooling", "1_Pooling")]);
    assert_eq!(error(&[("modules.json", &list)]), "model/1_Pooling/config.json: the file is missing");
}

#[test]
fn module_paths_stay_inside() {
    for path in ["../x", "/etc", "a/../../b", "C:\\x", "a//b"] {
        let list = modules(&[("a.Transformer", path)]);
        assert!(error(&[("modules.json", &list)]).contains("leaves the model folder"), "{path}");
    }
}

#[test]
fn limits_and_prompts_are_checked() {
    let list = modules(&[("a.Transformer", "0_T"), ("a.Pooling", "1_Pooling")]);
    let files = |extra: (&'static str, &'static str)| {
        [("modules.json", list.as_str()), ("1_Pooling/config.json", MEAN), extra].to_vec()
    };
    let message = error(&files(("0_T/sentence_bert_config.json", r#"{"max_seq_length": 0}"#)));
    assert_eq!(message, "model/0_T/sentence_bert_config.json: max_seq_length must not be 0");
    let message = error(&files(("config_sentence_transformers.json", r#"{"default_prompt_name": "query"}"#)));
    assert!(message.contains("default_prompt_name `query` is not among the prompts"), "{message}");
    let read = read(&files(("0_T/sentence_roberta_config.json", r#"{"max_seq_length": 7}"#)));
    assert_eq!(read.unwrap().max_seq_length, Some(7));
}
