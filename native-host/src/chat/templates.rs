//! A checkpoint's templates, wherever it keeps them.

use inferencelayer_engine::checkpoint::{Folder, gguf::Metadata, read_text};
use minijinja::value::Serde;
use serde_json::{Map, Value};

use super::{Chat, Template};
use crate::{
    Error, Result,
    folder::{self, describe},
};

/// Special tokens whose texts templates know by these names.
const SPECIAL: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
/// The template where a checkpoint has several, and the one for chats with tools.
const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";

/// The templates of a checkpoint, and the special tokens' texts that they refer to.
#[derive(Debug, Clone, Default)]
pub struct ChatTemplates {
    named: Vec<(String, Template)>,
    special: Vec<(String, String)>,
}

impl ChatTemplates {
    /// One template and no special tokens.
    ///
    /// # Errors
    /// `Template`, naming the line.
    pub fn new(name: &str, source: &str) -> Result<Self> {
        let named = vec![(DEFAULT.into(), Template::new(name, source)?)];
        Ok(ChatTemplates { named, special: Vec::new() })
    }

    /// With the text of special tokens, by name (`bos_token`, `eos_token`, …).
    pub fn with_special(mut self, special: impl IntoIterator<Item = (String, String)>) -> Self {
        self.special.extend(special);
        self
    }

    /// Reads a folder's templates: `chat_template.jinja` (and `additional_chat_templates/tool_use.jinja`), else
    /// `chat_template` in `tokenizer_config.json`, else `chat_template.json`. `None` if it has none.
    ///
    /// # Errors
    /// `Malformed` or `Template`, naming the file.
    pub async fn from_folder(files: &dyn Folder) -> Result<Option<Self>> {
        let config: Map<String, Value> =
            folder::json(files, "tokenizer_config.json").await?.unwrap_or_default();
        let older: Map<String, Value> =
            folder::json(files, "special_tokens_map.json").await?.unwrap_or_default();
        let text_of = |name: &str| {
            let value = [&config, &older].into_iter().filter_map(|m| m.get(name)).find(|v| !v.is_null())?;
            Some(value.as_str().or_else(|| value["content"].as_str())?.to_owned())
        };
        let special = SPECIAL.iter().filter_map(|name| Some(((*name).to_owned(), text_of(name)?))).collect();
        let mut found = ChatTemplates { named: Vec::new(), special };
        let alone = [
            (DEFAULT, "chat_template.jinja".to_owned()),
            (TOOL_USE, format!("additional_chat_templates/{TOOL_USE}.jinja")),
        ];
        for (name, file) in alone {
            if let Some(source) = read_text(files, &file).await? {
                found.add(name, &describe(files, &file), &source)?;
            }
        }
        if found.named.is_empty()
            && let Some(value) = config.get("chat_template")
        {
            found.add_value(&describe(files, "tokenizer_config.json"), value)?;
        }
        if found.named.is_empty() {
            let file = "chat_template.json";
            let older: Map<String, Value> = folder::json(files, file).await?.unwrap_or_default();
            if let Some(value) = older.get("chat_template") {
                found.add_value(&describe(files, file), value)?;
            }
        }
        Ok((!found.named.is_empty()).then_some(found))
    }

    /// Reads a GGUF file's templates: `tokenizer.chat_template`, and those that `tokenizer.chat_templates` names.
    /// `None` if it has none.
    ///
    /// # Errors
    /// `Config` naming the key; `Template` naming the file.
    pub fn from_gguf(metadata: &Metadata) -> Result<Option<Self>> {
        let mut found = ChatTemplates::default();
        let key = "tokenizer.chat_template";
        if let Some(source) = metadata.opt_string(key)? {
            found.add(DEFAULT, metadata.file(), source)?;
        }
        for name in
            metadata.opt_strings("tokenizer.chat_templates")?.into_iter().flat_map(|names| names.iter())
        {
            if let Some(source) = metadata.opt_string(&format!("{key}.{name}"))? {
                found.add(name, &format!("{} (`{name}`)", metadata.file()), source)?;
            }
        }
        let tokens = metadata.opt_strings("tokenizer.ggml.tokens")?;
        let names = ["bos", "eos", "unknown", "seperator", "padding", "cls", "mask"];
        for (name, ggml) in SPECIAL.iter().zip(names) {
            let id = metadata.opt_id(&format!("tokenizer.ggml.{ggml}_token_id"))?;
            if let Some(text) = id.and_then(|id| tokens?.get(id as usize)) {
                found.special.push(((*name).to_owned(), text.to_owned()));
            }
        }
        Ok((!found.named.is_empty()).then_some(found))
    }

    fn add(&mut self, name: &str, file: &str, source: &str) -> Result<()> {
        self.named.push((name.to_owned(), Template::new(file, source)?));
        Ok(())
    }

    /// A template, or a list of objects with `name` and `template`.
    fn add_value(&mut self, file: &str, value: &Value) -> Result<()> {
        let wrong = || {
            let why = "chat_template is neither a string nor a list of objects with `name` and `template`";
            Error::malformed(file, why)
        };
        match value {
            Value::Null => Ok(()),
            Value::String(source) => self.add(DEFAULT, file, source),
            Value::Array(list) => list.iter().try_for_each(|entry| {
                let (name, source) = (entry["name"].as_str(), entry["template"].as_str());
                let (name, source) = name.zip(source).ok_or_else(wrong)?;
                self.add(name, &format!("{file} (`{name}`)"), source)
            }),
            _ => Err(wrong()),
        }
    }

    /// The names of all templates.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.iter().map(|(name, _)| name.as_str())
    }

    fn choose(&self, tools: bool) -> Result<&Template> {
        let by_name = |wanted: &str| self.named.iter().find(|(name, _)| name == wanted).map(|(_, t)| t);
        let special = if tools { by_name(TOOL_USE) } else { None };
        special.or_else(|| by_name(DEFAULT)).ok_or_else(|| {
            let names: Vec<&str> = self.names().collect();
            Error::Input(format!("the model has chat templates, but no default one: {}", names.join(", ")))
        })
    }

    /// The prompt of a chat, special tokens included as text.
    ///
    /// # Errors
    /// `Template`, naming the template and the line: what it raises itself (roles in an order that the model does not
    /// know), what it misses in the messages, or that it does too much. `Input` for no messages.
    pub fn render(&self, chat: &Chat) -> Result<String> {
        if chat.messages.is_empty() {
            return Err(Error::Input("a chat without messages".into()));
        }
        let template = self.choose(!chat.tools.is_empty())?;
        let mut variables = Map::new();
        variables.extend(self.special.iter().map(|(name, text)| (name.clone(), text.clone().into())));
        variables.extend(chat.variables.clone());
        let messages: Vec<Value> = chat.messages.iter().map(|m| m.to_map().into()).collect();
        variables.insert("messages".into(), messages.into());
        let tools = if chat.tools.is_empty() { Value::Null } else { chat.tools.clone().into() };
        variables.insert("tools".into(), tools);
        variables.entry("documents").or_insert(Value::Null);
        variables.insert("add_generation_prompt".into(), chat.add_generation_prompt.into());
        let size = variables.iter().map(|(_, v)| size(v)).sum();
        template.render(&Serde(&variables).into(), size)
    }
}

/// About how many bytes a value holds.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(size).sum::<usize>() + list.len(),
        Value::Object(map) => map.iter().map(|(key, v)| key.len() + size(v)).sum(),
        _ => 8,
    }
}

#[cfg(test)]
mod tests;
