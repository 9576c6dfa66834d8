//! What decoders' configurations have in common.

use alloc::format;

use crate::{
    Result,
    model::{
        config::Config,
        decoder::{RopeConfig, RopeScaling},
    },
};

/// The rotary embedding: `rope_parameters`, or `rope_theta` and `rope_scaling` in older files.
///
/// # Errors
/// `Config` for a kind that is not supported.
pub fn rope(config: &Config, default_theta: f64) -> Result<RopeConfig> {
    let nested = config.opt_object("rope_parameters")?;
    let theta = match &nested {
        Some(parameters) => parameters.opt_positive("rope_theta")?,
        None => None,
    };
    let theta = match theta {
        Some(theta) => Some(theta),
        None => config.opt_positive("rope_theta")?,
    };
    let theta = theta.map_or(default_theta, f64::from);
    let scaling = match nested {
        Some(parameters) => Some(parameters),
        None => config.opt_object("rope_scaling")?,
    };
    let scaling = match scaling {
        Some(parameters) => scaling_of(config, &parameters)?,
        None => RopeScaling::None,
    };
    Ok(RopeConfig { theta, scaling })
}

fn scaling_of(config: &Config, parameters: &Config) -> Result<RopeScaling> {
    let kind = match parameters.opt_string("rope_type")? {
        Some(kind) => Some(kind),
        None => parameters.opt_string("type")?,
    };
    let number = |key: &str| parameters.positive(key).map(f64::from);
    let original = || match parameters.opt_positive("original_max_position_embeddings")? {
        Some(original) => Ok(f64::from(original)),
        None => config.positive("max_position_embeddings").map(f64::from),
    };
    if parameters.opt_positive("partial_rotary_factor")?.is_some_and(|f| f != 1.0) {
        return Err(parameters.wrong("partial_rotary_factor", "is not 1, which is not supported"));
    }
    Ok(match kind.as_deref() {
        None | Some("default") => RopeScaling::None,
        Some("linear") => RopeScaling::Linear { factor: number("factor")? },
        Some("llama3") => RopeScaling::Llama3 {
            factor: number("factor")?,
            low: number("low_freq_factor")?,
            high: number("high_freq_factor")?,
            original: original()?,
        },
        Some("yarn") => RopeScaling::Yarn {
            factor: number("factor")?,
            attention_factor: parameters.opt_positive("attention_factor")?.map(f64::from),
            fast: parameters.opt_positive("beta_fast")?.map_or(32.0, f64::from),
            slow: parameters.opt_positive("beta_slow")?.map_or(1.0, f64::from),
            original: original()?,
        },
        Some(other) => {
            let why = format!("is `{other}`, which is not supported; default, linear, llama3 and yarn are");
            return Err(parameters.wrong("rope_type", &why));
        }
    })
}
