//! The fuzz targets: each takes any bytes and must return.

use std::str;

use inferencelayer::{
    Error,
    chat::{Chat, ChatTemplates},
};

/// A template, a zero byte, and a chat in JSON. It compiles and renders, or says in which line it does not.
pub fn chat_template(data: &[u8]) {
    let mut parts = data.splitn(2, |b| *b == 0);
    let (Some(template), chat) = (parts.next(), parts.next().unwrap_or_default()) else { return };
    let (Ok(template), Ok(chat)) = (str::from_utf8(template), str::from_utf8(chat)) else { return };
    let chat = Chat::parse("chat", chat)
        .unwrap_or_else(|_| Chat::parse("chat", r#"[{"role": "user", "content": "a"}]"#).expect("a chat"));
    let rendered = ChatTemplates::new("template", template).and_then(|templates| {
        let first = templates.render(&chat);
        if let (Ok(first), Ok(second)) = (&first, templates.render(&chat)) {
            assert!(
                *first == second || template.contains("strftime_now"),
                "the same chat gives another prompt"
            );
        }
        first
    });
    match rendered {
        Ok(_) | Err(Error::Template { .. }) => {}
        Err(other) => panic!("{other}"),
    }
}
