//! An answer as text.

use std::sync::Arc;

use super::{Finish, GenerateSettings, Generation, Session, detokenize::Detokenizer, stop::StopTexts};
use crate::{Result, tokenizer::Tokenizer};

/// What one more token adds to an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    pub id: u32,
    /// Whole characters; empty while a character or a stop text may be under way, and without a tokenizer.
    pub text: String,
    /// Natural logarithm of the token's probability before temperature and filters.
    pub log_probability: f32,
    /// With the last piece.
    pub finish: Option<Finish>,
}

/// An answer under way. Iterate over its pieces; dropping it ends it.
#[derive(Debug)]
pub struct Answer<'a> {
    generation: Option<Generation<'a>>,
    /// Without one, ids are all there is.
    tokenizer: Option<Arc<Tokenizer>>,
    detokenizer: Detokenizer,
    stops: StopTexts,
}

impl<'a> Answer<'a> {
    pub(super) fn new(
        session: &'a mut Session,
        tokenizer: Option<Arc<Tokenizer>>,
        ids: &[u32],
        eos: &[u32],
        settings: &GenerateSettings,
    ) -> Result<Self> {
        let stops = StopTexts::new(&settings.stop)?;
        let mut sampling = settings.sampling.clone();
        if !settings.ignore_eos {
            let new: Vec<u32> = eos.iter().copied().filter(|id| !sampling.stop.contains(id)).collect();
            sampling.stop.extend(new);
        }
        let generation = session.generate(ids, settings.max_tokens, &sampling)?;
        Ok(Answer { generation: Some(generation), tokenizer, detokenizer: Detokenizer::default(), stops })
    }

    /// The next piece; `None` after the last. For where blocking is not possible; else iterate.
    ///
    /// # Errors
    /// The device's and the tokenizer's.
    pub async fn next_async(&mut self) -> Result<Option<Piece>> {
        let Some(generation) = &mut self.generation else { return Ok(None) };
        let token = match generation.next_async().await {
            Ok(Some(token)) => token,
            Ok(None) => {
                self.generation = None;
                return Ok(None);
            }
            Err(error) => {
                self.generation = None;
                return Err(error);
            }
        };
        let mut text = String::new();
        if let Some(tokenizer) = &self.tokenizer {
            text += &self.detokenizer.push(tokenizer, token.id)?;
            if token.finish.is_some() {
                text += &self.detokenizer.finish(tokenizer)?;
            }
        }
        let (mut text, stopped) = self.stops.push(&text);
        let finish = if stopped { Some(Finish::Stop) } else { token.finish };
        if finish.is_some() {
            if !stopped {
                text += &self.stops.finish();
            }
            self.generation = None;
        }
        Ok(Some(Piece { id: token.id, text, log_probability: token.log_probability, finish }))
    }
}

impl Iterator for Answer<'_> {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        inferencelayer_engine::task::block_on(self.next_async()).transpose()
    }
}
