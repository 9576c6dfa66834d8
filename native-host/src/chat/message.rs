//! What a chat consists of.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Error, Result};

/// What a message says.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Content {
    Text(String),
    /// Parts as the template knows them: `{"type": "text", "text": …}` and others.
    Parts(Vec<Value>),
}

/// One message of a chat. In JSON an object: `role`, `content`, and whatever else the template knows (`tool_calls`,
/// `reasoning_content`, `name`, …).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub struct Message {
    /// `system`, `user`, `assistant`, `tool`, or what the template knows besides.
    pub role: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Message {
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Message { role: role.into(), content: Some(Content::Text(content.into())), extra: Map::new() }
    }

    pub fn system(content: impl Into<String>) -> Self {
        Message::new("system", content)
    }

    pub fn user(content: impl Into<String>) -> Self {
        Message::new("user", content)
    }

    pub fn assistant(content: impl Into<String>) -> Self {
        Message::new("assistant", content)
    }

    /// As templates see it: keys without a value are left out, and reasoning has the names that templates use.
    pub(super) fn to_map(&self) -> Map<String, Value> {
        let reasoning = ["reasoning_content", "thinking", "reasoning"]
            .iter()
            .find_map(|key| self.extra.get(*key).filter(|v| !v.is_null()));
        let mut map = Map::new();
        if let Some(reasoning) = reasoning {
            map.insert("thinking".into(), reasoning.clone());
        }
        map.insert("role".into(), self.role.clone().into());
        match &self.content {
            Some(Content::Text(text)) => map.insert("content".into(), text.clone().into()),
            Some(Content::Parts(parts)) => map.insert("content".into(), parts.clone().into()),
            None => None,
        };
        for (key, value) in self.extra.iter().filter(|(_, v)| !v.is_null()) {
            map.insert(key.clone(), value.clone());
        }
        if let Some(reasoning) = reasoning {
            map.insert("reasoning_content".into(), reasoning.clone());
        }
        map
    }
}

impl TryFrom<Map<String, Value>> for Message {
    type Error = String;

    fn try_from(mut map: Map<String, Value>) -> Result<Self, String> {
        let role = match map.shift_remove("role") {
            Some(Value::String(role)) => role,
            Some(other) => return Err(format!("a message's role is {other}, expected a string")),
            None => return Err("a message has no role".into()),
        };
        let content = match map.shift_remove("content") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(Content::Text(text)),
            Some(Value::Array(parts)) => Some(Content::Parts(parts)),
            Some(other) => {
                return Err(format!(
                    "the content of a message of {role} is {other}, expected a string or a list"
                ));
            }
        };
        Ok(Message { role, content, extra: map })
    }
}

/// A chat that waits for an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Chat {
    pub messages: Vec<Message>,
    /// Functions that the model may call: their JSON schemas.
    pub tools: Vec<Value>,
    /// Whether the prompt ends with the beginning of an answer.
    pub add_generation_prompt: bool,
    /// What the template may ask for besides: `enable_thinking`, `date_string`, `documents`, …
    pub variables: Map<String, Value>,
}

impl From<Vec<Message>> for Chat {
    fn from(messages: Vec<Message>) -> Self {
        Chat { messages, tools: Vec::new(), add_generation_prompt: true, variables: Map::new() }
    }
}

impl Chat {
    /// Reads a JSON list of messages, or an object that has them in `messages`, and may have `tools`,
    /// `add_generation_prompt` and any variables of the template. `name` is for errors.
    ///
    /// # Errors
    /// `Malformed`, naming the message or key at fault.
    pub fn parse(name: &str, json: &str) -> Result<Chat> {
        let wrong = |why: String| Error::malformed(name, why);
        let value: Value = serde_json::from_slice(json.strip_prefix('\u{feff}').unwrap_or(json).as_bytes())
            .map_err(|e| wrong(e.to_string()))?;
        let mut variables = match value {
            Value::Array(messages) => Map::from_iter([("messages".into(), messages.into())]),
            Value::Object(map) => map,
            _ => return Err(wrong("is neither a list of messages nor an object with `messages`".into())),
        };
        let mut messages = Vec::new();
        for (i, message) in
            list(variables.shift_remove("messages"), "messages").map_err(wrong)?.into_iter().enumerate()
        {
            let number = i + 1;
            let Value::Object(map) = message else {
                return Err(wrong(format!("message {number} is no object")));
            };
            messages.push(Message::try_from(map).map_err(|why| wrong(format!("message {number}: {why}")))?);
        }
        if messages.is_empty() {
            return Err(wrong("has no messages".into()));
        }
        let tools = list(variables.shift_remove("tools"), "tools").map_err(wrong)?;
        let add_generation_prompt = match variables.shift_remove("add_generation_prompt") {
            None | Some(Value::Null) => true,
            Some(Value::Bool(yes)) => yes,
            Some(_) => return Err(wrong("add_generation_prompt is neither true nor false".into())),
        };
        Ok(Chat { messages, tools, add_generation_prompt, variables })
    }
}

fn list(value: Option<Value>, key: &str) -> Result<Vec<Value>, String> {
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => Ok(list),
        Some(_) => Err(format!("`{key}` is no list")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_and_objects() {
        let chat = Chat::parse("f", r#"[{"role": "user", "content": "a", "name": "n"}]"#).unwrap();
        assert_eq!(chat.messages[0].extra["name"], "n");
        assert_eq!((chat.tools.len(), chat.add_generation_prompt), (0, true));
        let text = "\u{feff}{\"enable_thinking\": false, \"tools\": [1], \"add_generation_prompt\": false, \
                    \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}, {\"role\": \"x\"}]}";
        let chat = Chat::parse("f", text).unwrap();
        assert_eq!(chat.messages[0].content, Some(Content::Parts(vec![json!({"type": "text"})])));
        assert_eq!(chat.messages[1], Message { content: None, ..Message::new("x", "") });
        assert_eq!(
            (chat.tools, chat.add_generation_prompt, chat.variables["enable_thinking"].clone()),
            (vec![json!(1)], false, json!(false))
        );
        let message: Message =
            serde_json::from_str(r#"{"role": "a", "content": null, "z": 1, "b": 2}"#).unwrap();
        assert_eq!(serde_json::to_string(&message).unwrap(), r#"{"role":"a","z":1,"b":2}"#);
    }

    #[test]
    fn errors_name_the_message() {
        let cases = [
            ("", "EOF"),
            ("5", "neither a list"),
            ("[]", "no messages"),
            ("{}", "no messages"),
            (r#"{"messages": {}}"#, "`messages` is no list"),
            (r#"[{"role": "user", "content": "a"}, 3]"#, "message 2 is no object"),
            (r#"[{"content": "a"}]"#, "message 1: a message has no role"),
            (r#"[{"role": 1}]"#, "role is 1"),
            (r#"[{"role": "user", "content": 1.5}]"#, "the content of a message of user is 1.5"),
            (r#"{"messages": [{"role": "u"}], "tools": {}}"#, "`tools` is no list"),
            (r#"{"messages": [{"role": "u"}], "add_generation_prompt": 1}"#, "neither true nor false"),
        ];
        for (text, wanted) in cases {
            let error = Chat::parse("chat.json", text).unwrap_err().to_string();
            assert!(error.starts_with("chat.json: ") && error.contains(wanted), "{text}: {error}");
        }
    }

    #[test]
    fn templates_see_what_is_there() {
        let text = r#"[{"role": "assistant", "content": null, "x": null, "reasoning": "r"}]"#;
        let map = Chat::parse("f", text).unwrap().messages[0].to_map();
        let keys: Vec<_> = map.keys().collect();
        assert_eq!(keys, ["thinking", "role", "reasoning", "reasoning_content"]);
        assert_eq!(map["reasoning_content"], "r");
    }
}
