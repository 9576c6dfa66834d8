//! RoBERTa: BERT whose positions begin after the padding token's id and skip padding.

use super::bert;
use crate::{
    Result,
    model::{EncoderConfig, Positions, config::Config},
};

pub fn read(config: &Config) -> Result<EncoderConfig> {
    let bert = bert::read(config)?;
    // Absent in some old files; 1 in every released checkpoint and in the architecture's own defaults.
    let pad = config.opt_id("pad_token_id")?.unwrap_or(1);
    if pad as usize >= bert.max_positions {
        return Err(config.wrong("pad_token_id", "leaves no position for a token"));
    }
    Ok(EncoderConfig { positions: Positions { first: pad + 1, uncounted: Some(pad) }, ..bert })
}
