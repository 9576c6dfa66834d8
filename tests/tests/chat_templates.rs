//! Chat templates: what transformers renders, byte for byte.

use std::{fs, path::PathBuf};

use inferencelayer::chat::{Chat, ChatTemplates};
use inferencelayer_tests::fixture::Fixture;
use serde_json::Value;

fn folder() -> PathBuf {
    Fixture::new("chat").path().to_owned()
}

fn expected() -> Value {
    serde_json::from_slice(&fs::read(folder().join("expected.json")).expect("a fixture")).expect("JSON")
}

fn templates(name: &str, special: &Value) -> ChatTemplates {
    let source = fs::read_to_string(folder().join(format!("{name}.jinja"))).expect("a fixture");
    let special = special.as_object().expect("texts").iter();
    let special = special.map(|(name, text)| (name.clone(), text.as_str().expect("a text").to_owned()));
    ChatTemplates::new(name, &source).expect("a template").with_special(special)
}

#[test]
fn chats_are_rendered_as_by_transformers() {
    let all = expected();
    let mut errors = 0;
    for (name, cases) in all["rendered"].as_object().expect("templates") {
        let templates = templates(name, &all["special"]);
        for (label, wanted) in cases.as_object().expect("conversations") {
            let mut chat = Chat::parse(label, &all["conversations"][label].to_string()).expect("a chat");
            let with = wanted["with"].as_str();
            let without = match (with, wanted["prompt"].as_str()) {
                (Some(with), Some(prompt)) => with.strip_suffix(prompt),
                _ => wanted["without"].as_str(),
            };
            for (prompt, wanted) in [(true, with), (false, without)] {
                chat.add_generation_prompt = prompt;
                match (templates.render(&chat), wanted) {
                    (Ok(found), Some(wanted)) => assert_eq!(found, wanted, "{name}, {label}"),
                    (Err(error), None) => {
                        errors += 1;
                        let text = error.to_string();
                        assert!(text.starts_with(&format!("chat template of {name}, line ")), "{text}");
                    }
                    (found, wanted) => panic!("{name}, {label}: {found:?} for {wanted:?}"),
                }
            }
        }
    }
    assert!(errors > 20, "some templates refuse some conversations: {errors}");
}

#[test]
fn smollm2s_own_chat() {
    let texts =
        fs::read(Fixture::new("real_smollm2_135m_gguf").path().join("texts.json")).expect("a fixture");
    let texts: Value = serde_json::from_slice(&texts).expect("JSON");
    let templates = templates("smollm2", &Value::Object(Default::default()));
    let mut chat = Chat::parse("chat", &texts["conversations"][0].to_string()).expect("a chat");
    assert_eq!(templates.render(&chat).expect("a prompt"), texts["rendered"][0].as_str().expect("a text"));
    chat.add_generation_prompt = false;
    let wanted = texts["rendered_without_generation_prompt"][0].as_str().expect("a text");
    assert_eq!(templates.render(&chat).expect("a prompt"), wanted);
}
