//! The modules that follow the transformer, and their config.json files.

use inferencelayer_engine::{
    checkpoint::Folder,
    embed::DenseConfig,
    op::{Activation, PoolMode},
};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    Error, Result,
    folder::{self, describe},
};

/// A step on the pooled vector.
#[derive(Debug, Clone, PartialEq)]
pub enum Module {
    Dense(Dense),
    /// `x / max(‖x‖₂, 1e-12)`
    Normalize,
}

/// How token vectors `[tokens, dimension]` become one vector `[modes · dimension]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Pooling {
    /// Concatenated in this order; never empty.
    pub modes: Vec<PoolMode>,
    /// Whether the prompt's tokens take part.
    pub include_prompt: bool,
    /// Size of the token vectors, if the folder says so.
    pub dimension: Option<usize>,
}

impl Default for Pooling {
    fn default() -> Self {
        Pooling { modes: vec![PoolMode::Mean], include_prompt: true, dimension: None }
    }
}

/// The names of sentence-transformers, with the order in which flags are concatenated.
const MODES: [(&str, &str, PoolMode); 6] = [
    ("cls", "pooling_mode_cls_token", PoolMode::Cls),
    ("max", "pooling_mode_max_tokens", PoolMode::Max),
    ("mean", "pooling_mode_mean_tokens", PoolMode::Mean),
    ("mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", PoolMode::MeanSqrtLen),
    ("weightedmean", "pooling_mode_weightedmean_tokens", PoolMode::WeightedMean),
    ("lasttoken", "pooling_mode_lasttoken", PoolMode::LastToken),
];

/// A pooling mode by its sentence-transformers name.
///
/// # Errors
/// `Input`, listing the names there are.
pub fn parse_pool_mode(name: &str) -> Result<PoolMode> {
    let lower = name.to_ascii_lowercase();
    let found =
        MODES.iter().find(|(short, ..)| *short == lower || short.strip_suffix("_tokens") == Some(&lower));
    found.map(|(.., mode)| *mode).ok_or_else(|| {
        let names: Vec<&str> = MODES.iter().map(|(short, ..)| *short).collect();
        Error::Input(format!("unknown pooling mode `{name}` (known: {})", names.join(", ")))
    })
}

impl Pooling {
    /// Reads `config.json` in `folder`: flags as older versions wrote them, or a name or list of names.
    pub(super) async fn read(files: &dyn Folder, path: &str) -> Result<Self> {
        let name = folder::join(path, "config.json");
        let config: serde_json::Map<String, Value> = folder::required_json(files, &name).await?;
        let malformed = |why: String| Error::malformed(describe(files, &name), why);
        let flag = |key: &str| match config.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(on)) => Ok(Some(*on)),
            Some(other) => Err(malformed(format!("`{key}` must be true or false, found {other}"))),
        };
        let mode = |value: &Value| match value {
            Value::String(text) => parse_pool_mode(text).map_err(|e| malformed(e.to_string())),
            other => Err(malformed(format!("`pooling_mode` must hold names, found {other}"))),
        };
        let mut modes = match config.get("pooling_mode") {
            Some(Value::Array(list)) => list.iter().map(mode).collect::<Result<Vec<_>>>()?,
            Some(Value::Null) | None => {
                let mut on = Vec::new();
                for (_, key, mode) in MODES {
                    if flag(key)? == Some(true) {
                        on.push(mode);
                    }
                }
                on
            }
            Some(one) => vec![mode(one)?],
        };
        if modes.is_empty() {
            modes.push(PoolMode::Mean);
        }
        let dimension =
            ["embedding_dimension", "word_embedding_dimension"].iter().find_map(|key| config.get(*key));
        let dimension = match dimension {
            None | Some(Value::Null) => None,
            Some(value) => {
                let size = value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0);
                Some(size.ok_or_else(|| malformed(format!("the embedding dimension cannot be {value}")))?)
            }
        };
        let include_prompt = flag("include_prompt")?.unwrap_or(true);
        Ok(Pooling { modes, include_prompt, dimension })
    }
}

/// A dense layer. Its tensors stay in their file until the model is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dense {
    pub config: DenseConfig,
    /// The folder inside the model that holds its safetensors.
    pub path: String,
}

#[derive(Deserialize)]
struct DenseFile {
    in_features: usize,
    out_features: usize,
    #[serde(default = "yes")]
    bias: bool,
    activation_function: Option<String>,
    #[serde(default)]
    use_residual: bool,
    module_input_name: Option<String>,
}

fn yes() -> bool {
    true
}

impl Dense {
    pub(super) async fn read(files: &dyn Folder, path: &str) -> Result<Self> {
        let name = folder::join(path, "config.json");
        let config: DenseFile = folder::required_json(files, &name).await?;
        let malformed = |why: String| Err(Error::malformed(describe(files, &name), why));
        if config.in_features == 0 || config.out_features == 0 {
            return malformed("in_features and out_features must not be 0".into());
        }
        if config.module_input_name.as_deref().is_some_and(|input| input != "sentence_embedding") {
            return malformed(
                "a Dense module on anything but `sentence_embedding` is not supported here".into(),
            );
        }
        let activation = match config.activation_function.as_deref() {
            None => Activation::Tanh,
            Some(class) => match class.rsplit('.').next().unwrap_or_default() {
                "Identity" => Activation::None,
                "Tanh" => Activation::Tanh,
                "GELU" => Activation::Gelu,
                "ReLU" => Activation::Relu,
                "SiLU" => Activation::Silu,
                "Sigmoid" => Activation::Sigmoid,
                _ => {
                    return malformed(format!(
                        "activation_function `{class}` is not supported \
                         (known: Identity, Tanh, GELU, ReLU, SiLU, Sigmoid)"
                    ));
                }
            },
        };
        let config = DenseConfig {
            in_features: config.in_features,
            out_features: config.out_features,
            bias: config.bias,
            activation,
            residual: config.use_residual,
        };
        Ok(Dense { config, path: path.to_owned() })
    }
}

/// Module paths come from a file that may be hostile: they must stay inside the model.
pub(super) fn check_path<'a>(files: &dyn Folder, path: &'a str) -> Result<&'a str> {
    let path = path.trim_end_matches('/');
    let inside = path.is_empty()
        || (!path.contains(['\\', ':', '\0'])
            && path.split('/').all(|part| !matches!(part, "" | "." | "..")));
    if inside {
        return Ok(path);
    }
    Err(Error::malformed(
        describe(files, "modules.json"),
        format!("module path `{path}` leaves the model folder"),
    ))
}
