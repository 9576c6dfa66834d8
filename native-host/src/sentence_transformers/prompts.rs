//! Prompts: texts put before the input, chosen by name.

use std::collections::BTreeMap;

use inferencelayer_engine::checkpoint::Folder;
use serde::Deserialize;

use crate::{
    Error, Result,
    folder::{self, describe},
};

/// The prompts of `config_sentence_transformers.json`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prompts {
    pub by_name: BTreeMap<String, String>,
    /// Used when no name is given.
    pub default: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Config {
    prompts: Option<BTreeMap<String, Option<String>>>,
    default_prompt_name: Option<String>,
}

impl Prompts {
    pub(super) async fn read(files: &dyn Folder) -> Result<Self> {
        let name = "config_sentence_transformers.json";
        let config: Config = folder::json(files, name).await?.unwrap_or_default();
        let mut by_name = BTreeMap::new();
        by_name.extend(config.prompts.into_iter().flatten().filter_map(|(k, v)| Some((k, v?))));
        if let Some(default) = &config.default_prompt_name
            && !by_name.contains_key(default)
        {
            let why = format!("default_prompt_name `{default}` is not among the prompts");
            return Err(Error::malformed(describe(files, name), why));
        }
        Ok(Prompts { by_name, default: config.default_prompt_name })
    }

    /// The text for `name`, or for the default name, or nothing. An empty name asks for no prompt.
    ///
    /// # Errors
    /// `Input` for a name the model does not have, listing those it has.
    pub fn resolve(&self, name: Option<&str>) -> Result<&str> {
        let Some(name) = name.or(self.default.as_deref()) else { return Ok("") };
        if name.is_empty() {
            return Ok("");
        }
        self.by_name.get(name).map(String::as_str).ok_or_else(|| {
            let known: Vec<&str> = self.by_name.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            Error::Input(format!("the model has no prompt `{name}` (it has: {known})"))
        })
    }
}
