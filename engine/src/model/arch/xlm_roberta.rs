//! XLM-RoBERTa: RoBERTa with another vocabulary.

use super::roberta;
use crate::{
    Result,
    model::{EncoderConfig, config::Config},
};

pub fn read(config: &Config) -> Result<EncoderConfig> {
    roberta::read(config)
}
