//! A sentence-transformers folder as plain data: which modules run after the transformer, prompts, limits.
//!
//! A folder without `modules.json` is a plain Hugging Face checkpoint and gets mean pooling and normalisation.

mod modules;
mod prompts;

use inferencelayer_engine::checkpoint::Folder;
use serde::Deserialize;

pub use modules::{Dense, Module, Pooling, parse_pool_mode};
pub use prompts::Prompts;

use crate::{
    Error, Result,
    folder::{self, describe},
};

/// What a folder says about how to embed text.
#[derive(Debug, Clone, PartialEq)]
pub struct SentenceTransformer {
    /// Folder of the transformer's config, weights and tokenizer inside the model; empty for the root.
    pub transformer: String,
    /// Most tokens of one text, special tokens included, if the folder says so.
    pub max_seq_length: Option<usize>,
    /// Whether texts are lower-cased before tokenising.
    pub do_lower_case: bool,
    /// How token vectors become one vector.
    pub pooling: Pooling,
    /// What is done to the pooled vector, in order.
    pub head: Vec<Module>,
    pub prompts: Prompts,
    /// Whether `modules.json` was there.
    pub declared: bool,
}

#[derive(Deserialize)]
struct ModuleEntry {
    #[serde(default)]
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TransformerConfig {
    max_seq_length: Option<usize>,
    do_lower_case: bool,
}

/// Names the transformer's settings had over the years; the first that exists counts.
const TRANSFORMER_CONFIGS: [&str; 7] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
];

impl SentenceTransformer {
    /// Reads the json files of a folder. Weights are not touched.
    ///
    /// # Errors
    /// `Malformed`, naming the file, for json that does not parse, and for an unknown module by its name.
    pub async fn read(files: &dyn Folder) -> Result<Self> {
        let prompts = Prompts::read(files).await?;
        let Some(entries) = folder::json::<Vec<ModuleEntry>>(files, "modules.json").await? else {
            let settings = TransformerConfig::read(files, "").await?;
            return Ok(SentenceTransformer {
                transformer: String::new(),
                max_seq_length: settings.max_seq_length,
                do_lower_case: settings.do_lower_case,
                pooling: Pooling::default(),
                head: vec![Module::Normalize],
                prompts,
                declared: false,
            });
        };
        let malformed = |why: String| Err(Error::malformed(describe(files, "modules.json"), why));
        let mut transformer = None;
        let mut pooling = None;
        let mut head = Vec::new();
        for entry in &entries {
            let path = modules::check_path(files, &entry.path)?;
            // The class moved between packages over time; its own name did not change.
            let kind = entry.kind.rsplit('.').next().unwrap_or_default();
            if (kind == "Transformer") != transformer.is_none() {
                return malformed(format!(
                    "module `{}`: the first module, and no other, must be Transformer",
                    entry.kind
                ));
            }
            match kind {
                "Transformer" => transformer = Some(path.to_owned()),
                "Pooling" if pooling.is_none() && head.is_empty() => {
                    pooling = Some(Pooling::read(files, path).await?);
                }
                "Pooling" => return malformed("Pooling must follow Transformer, once".into()),
                "Dense" | "Normalize" if pooling.is_none() => {
                    return malformed(format!(
                        "module `{}` comes before Pooling: a model of token vectors, not of text vectors",
                        entry.kind
                    ));
                }
                "Dense" => head.push(Module::Dense(Dense::read(files, path).await?)),
                "Normalize" => head.push(Module::Normalize),
                _ => {
                    return malformed(format!(
                        "module `{}` is not supported (known: Transformer, Pooling, Dense, Normalize)",
                        entry.kind
                    ));
                }
            }
        }
        let (Some(transformer), Some(pooling)) = (transformer, pooling) else {
            return malformed("needs a Transformer and a Pooling module".into());
        };
        let settings = TransformerConfig::read(files, &transformer).await?;
        Ok(SentenceTransformer {
            max_seq_length: settings.max_seq_length,
            do_lower_case: settings.do_lower_case,
            transformer,
            pooling,
            head,
            prompts,
            declared: true,
        })
    }
}

impl TransformerConfig {
    async fn read(files: &dyn Folder, path: &str) -> Result<Self> {
        for name in TRANSFORMER_CONFIGS {
            let name = folder::join(path, name);
            if let Some(settings) = folder::json::<TransformerConfig>(files, &name).await? {
                if settings.max_seq_length == Some(0) {
                    return Err(Error::malformed(describe(files, &name), "max_seq_length must not be 0"));
                }
                return Ok(settings);
            }
        }
        Ok(Self::default())
    }
}

#[cfg(test)]
mod tests;
