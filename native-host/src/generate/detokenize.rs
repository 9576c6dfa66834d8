//! Tokens become text as they come.

use crate::{Result, tokenizer::Tokenizer};

/// A character has at most four bytes, and a token at least one: so many tokens that make no whole character never
/// will.
const MOST_HELD: usize = 8;

/// Turns a sequence of tokens into pieces of text that never end within a character.
///
/// A token's text may depend on those before it (a first word has no space before it), so a few are decoded again
/// each time: those of the piece before.
#[derive(Debug, Default)]
pub struct Detokenizer {
    ids: Vec<u32>,
    /// First token that is decoded again, and first whose text was not given out.
    context: usize,
    given: usize,
}

impl Detokenizer {
    /// Adds a token and returns the text that is certain now, which may be none.
    ///
    /// # Errors
    /// `Tokenizer` for an id that it does not know.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> Result<String> {
        self.ids.push(id);
        let text = self.pending(tokenizer)?;
        // The replacement character at the end stands for a character's first bytes.
        if text.is_empty() || (text.ends_with('\u{fffd}') && self.ids.len() - self.given < MOST_HELD) {
            return Ok(String::new());
        }
        self.context = self.given;
        self.given = self.ids.len();
        if self.context > 64 {
            self.ids.drain(..self.context);
            self.given -= self.context;
            self.context = 0;
        }
        Ok(text)
    }

    /// What is left at the end, be it a whole character or not.
    ///
    /// # Errors
    /// As [`Detokenizer::push`].
    pub fn finish(&mut self, tokenizer: &Tokenizer) -> Result<String> {
        let text = self.pending(tokenizer)?;
        *self = Detokenizer::default();
        Ok(text)
    }

    /// Text of the tokens that were not given out.
    fn pending(&self, tokenizer: &Tokenizer) -> Result<String> {
        let before = tokenizer.decode(&self.ids[self.context..self.given])?;
        let all = tokenizer.decode(&self.ids[self.context..])?;
        Ok(all.get(before.len()..).unwrap_or_default().to_owned())
    }
}
