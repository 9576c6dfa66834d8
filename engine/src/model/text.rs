//! What embeds text: an encoder, or a decoder's layers over whole sequences.

use alloc::{format, string::String};

use super::{
    Bucket, Encoder, EncoderConfig, Positions, Stage,
    decoder::{Decoder, DecoderConfig, DecoderStage, Rows, Wanted},
};
use crate::{
    Error, Result,
    checkpoint::Loader,
    program::{BufferId, Recorder},
};

/// What a model takes and gives, whatever lies between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextShape {
    pub model_type: String,
    /// Token ids are below this.
    pub vocab: usize,
    /// Values of a token's hidden state.
    pub hidden: usize,
    /// Most tokens of one sequence.
    pub max_tokens: usize,
    pub positions: Positions,
    /// Entries of the token type table; 0 if there is none.
    pub token_types: usize,
}

impl EncoderConfig {
    pub fn shape(&self) -> TextShape {
        TextShape {
            model_type: self.model_type.clone(),
            vocab: self.vocab,
            hidden: self.hidden,
            max_tokens: self.max_tokens(),
            positions: self.positions,
            token_types: self.token_types,
        }
    }
}

impl DecoderConfig {
    pub fn shape(&self) -> TextShape {
        TextShape {
            model_type: self.model_type.clone(),
            vocab: self.vocab,
            hidden: self.hidden,
            max_tokens: self.max_positions,
            positions: Positions { first: 0, uncounted: None },
            token_types: 0,
        }
    }
}

/// A configuration, as [`read_text`](super::arch::read_text) gives it.
#[derive(Debug, Clone, PartialEq)]
pub enum TextConfig {
    Encoder(EncoderConfig),
    Decoder(DecoderConfig),
}

impl TextConfig {
    pub fn shape(&self) -> TextShape {
        match self {
            TextConfig::Encoder(config) => config.shape(),
            TextConfig::Decoder(config) => config.shape(),
        }
    }
}

/// A model with its weights in a backend's memory, all layers of it.
#[derive(Debug)]
pub enum TextModel {
    Encoder(Encoder),
    Decoder(Decoder),
}

impl From<Encoder> for TextModel {
    fn from(encoder: Encoder) -> Self {
        TextModel::Encoder(encoder)
    }
}

impl From<Decoder> for TextModel {
    fn from(decoder: Decoder) -> Self {
        TextModel::Decoder(decoder)
    }
}

impl TextModel {
    /// Loads all layers, for sequences of at most `most_tokens`, or of what the model takes if that is less.
    ///
    /// # Errors
    /// `Config` for an impossible geometry, and those of [`Loader::weight`].
    pub async fn load(config: TextConfig, most_tokens: usize, loader: &mut Loader<'_>) -> Result<Self> {
        Ok(match config {
            TextConfig::Encoder(config) => {
                let layers = 0..config.layers.len();
                Encoder::load_layers(config, layers, loader).await?.into()
            }
            TextConfig::Decoder(config) => {
                let context = most_tokens.clamp(1, config.max_positions);
                Decoder::load_trunk(config, context, loader).await?.into()
            }
        })
    }

    pub fn shape(&self) -> TextShape {
        match self {
            TextModel::Encoder(encoder) => encoder.config().shape(),
            TextModel::Decoder(decoder) => decoder.config().shape(),
        }
    }

    /// Checks that sequences of `tokens`, if the model takes such, can be run.
    ///
    /// # Errors
    /// `Input` if the model was loaded for shorter ones.
    pub(crate) fn check_tokens(&self, tokens: usize) -> Result<()> {
        let TextModel::Decoder(decoder) = self else { return Ok(()) };
        let (context, needed) = (decoder.context(), tokens.min(decoder.config().max_positions));
        if context < needed {
            let why =
                format!("runs of {needed} tokens of a model that was loaded for sequences of {context}");
            return Err(Error::Input(why));
        }
        Ok(())
    }

    /// Records all layers for at most `bucket` rows and returns the buffer of last hidden states.
    ///
    /// # Errors
    /// `Input` if not all layers are loaded.
    pub(crate) fn record(
        &self,
        recorder: &mut Recorder,
        bucket: Bucket,
        tokens: BufferId,
        tiles: BufferId,
    ) -> Result<BufferId> {
        match self {
            TextModel::Encoder(encoder) => {
                encoder.record(recorder, bucket, encoder.layers(), Stage { tokens, tiles, hidden: None })
            }
            TextModel::Decoder(decoder) => {
                let layout = Rows::Packed { tiles };
                let stage =
                    DecoderStage { rows: bucket.tokens, tokens, layout, hidden: None, wanted: Wanted::All };
                let x = decoder.record(recorder, decoder.layers(), stage)?;
                let Some(x) = x else { return Err(Error::Input("no layer is loaded".into())) };
                decoder.record_final_norm(recorder, x)
            }
        }
    }
}
