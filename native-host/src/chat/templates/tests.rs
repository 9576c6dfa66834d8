use inferencelayer_engine::{
    checkpoint::{
        MemoryFolder,
        gguf::{Array, Strings, Value as Key},
    },
    task::block_on,
};
use serde_json::json;

use super::*;
use crate::chat::Message;

fn folder(files: &[(&str, Value)]) -> MemoryFolder {
    let mut folder = MemoryFolder::new("model");
    for (name, content) in files {
        let text = content.as_str().map_or_else(|| content.to_string(), str::to_owned);
        folder.insert(*name, text.into_bytes());
    }
    folder
}

fn load(files: &[(&str, Value)]) -> Result<Option<ChatTemplates>> {
    block_on(ChatTemplates::from_folder(&folder(files)))
}

/// A chat with or without tools.
fn chat(tools: bool) -> Chat {
    let tools = if tools { vec![json!({"name": "f"})] } else { vec![] };
    Chat { tools, ..Chat::from(vec![Message::user("hi")]) }
}

fn said(files: &[(&str, Value)], tools: bool) -> String {
    load(files).unwrap().expect("a template").render(&chat(tools)).unwrap()
}

#[test]
fn folders() {
    assert!(load(&[]).unwrap().is_none());
    assert!(load(&[("tokenizer_config.json", json!({"chat_template": null}))]).unwrap().is_none());
    let config = json!({
        "chat_template": "{{ bos_token }}{{ eos_token }}{{ pad_token }}config", "bos_token": "<s>",
        "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": null
    });
    let map = json!({"pad_token": "<pad>", "eos_token": "other"});
    let files = [("tokenizer_config.json", config), ("special_tokens_map.json", map)];
    assert_eq!(said(&files, false), "<s></s><pad>config");
    let [config, _] = files;
    let several = json!({"chat_template": [
        {"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools | length }} tools"},
    ]});
    let several = ("tokenizer_config.json", several);
    assert_eq!(said(std::slice::from_ref(&several), false), "plain");
    assert_eq!(said(std::slice::from_ref(&several), true), "1 tools");
    // A file of its own comes first, the oldest place last.
    let alone = ("chat_template.jinja", json!("{{ bos_token }}alone\n"));
    let oldest = ("chat_template.json", json!({"chat_template": "oldest"}));
    assert_eq!(said(&[config.clone(), alone.clone(), oldest.clone()], true), "<s>alone");
    assert_eq!(said(&[config.clone(), oldest.clone()], true), "<s></s>config");
    assert_eq!(said(&[oldest], false), "oldest");
    let tools = ("additional_chat_templates/tool_use.jinja", json!("tools"));
    assert_eq!(said(&[alone.clone(), tools.clone()], true), "tools");
    assert_eq!(said(&[alone, tools], false), "alone");
}

#[test]
fn folders_with_mistakes() {
    let cases = [
        (json!({"chat_template": 5}), "model/tokenizer_config.json: chat_template is neither"),
        (json!({"chat_template": [{"name": "a"}]}), "model/tokenizer_config.json: chat_template is neither"),
        (json!({"chat_template": "a\n{% for %}"}), "chat template of model/tokenizer_config.json, line 2: "),
        (
            json!({"chat_template": [{"name": "x", "template": "{{"}]}),
            "chat template of model/tokenizer_config.json (`x`), line 1: ",
        ),
        (json!("{"), "model/tokenizer_config.json: "),
    ];
    for (config, wanted) in cases {
        let error = load(&[("tokenizer_config.json", config)]).unwrap_err().to_string();
        assert!(error.starts_with(wanted), "{error}");
    }
    let other = json!({"chat_template": [{"name": "rag", "template": "x"}]});
    let error = load(&[("tokenizer_config.json", other)]).unwrap().unwrap().render(&chat(true)).unwrap_err();
    assert!(error.to_string().ends_with("no default one: rag"), "{error}");
    let none = Chat::from(vec![]);
    let error = ChatTemplates::new("t", "x").unwrap().render(&none).unwrap_err();
    assert_eq!(error.to_string(), "a chat without messages");
}

fn metadata(values: &[(&str, Key)]) -> Metadata {
    Metadata::new("m.gguf", values.iter().map(|(key, value)| ((*key).to_owned(), value.clone())))
}

#[test]
fn gguf_files() {
    let text = |text: &str| Key::String(text.into());
    assert!(ChatTemplates::from_gguf(&metadata(&[])).unwrap().is_none());
    let tokens = Strings::from_iter(["<unk>", "<s>", "</s>"]);
    let all = metadata(&[
        ("tokenizer.ggml.tokens", Key::Array(Array::Strings(tokens))),
        ("tokenizer.ggml.bos_token_id", Key::U32(1)),
        ("tokenizer.ggml.eos_token_id", Key::U32(2)),
        ("tokenizer.ggml.padding_token_id", Key::U32(7)),
        (
            "tokenizer.chat_template",
            text("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}"),
        ),
        ("tokenizer.chat_templates", Key::Array(Array::Strings(Strings::from_iter(["tool_use", "gone"])))),
        ("tokenizer.chat_template.tool_use", text("{{ tools[0].name }}")),
    ]);
    let found = ChatTemplates::from_gguf(&all).unwrap().unwrap();
    assert_eq!(found.names().collect::<Vec<_>>(), ["default", "tool_use"]);
    assert_eq!(found.render(&chat(false)).unwrap(), "<s>hi</s>");
    assert_eq!(found.render(&chat(true)).unwrap(), "f");
    let broken = metadata(&[("tokenizer.chat_template", text("{{"))]);
    let error = ChatTemplates::from_gguf(&broken).unwrap_err().to_string();
    assert!(error.starts_with("chat template of m.gguf, line 1: "), "{error}");
    let number = metadata(&[("tokenizer.chat_template", Key::U32(1))]);
    assert!(ChatTemplates::from_gguf(&number).unwrap_err().to_string().contains("tokenizer.chat_template"));
}

#[test]
fn variables_reach_the_template_but_do_not_replace_the_chat() {
    let source = "{{ enable_thinking }} {{ bos_token }} {{ messages | length }} {{ tools }} {{ documents }}";
    let templates = ChatTemplates::new("t", source).unwrap();
    let templates = templates.with_special([("bos_token".into(), "<s>".into())]);
    let mut chat = chat(false);
    for (key, value) in
        [("enable_thinking", json!(false)), ("messages", json!([])), ("bos_token", json!("<x>"))]
    {
        chat.variables.insert(key.into(), value);
    }
    assert_eq!(templates.render(&chat).unwrap(), "False <x> 1 None None");
}
