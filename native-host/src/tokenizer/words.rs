//! Words that came before: their ids are looked up instead of made again.
//!
//! Where a tokenizer cuts at white space before it does anything else that looks beyond a character, the ids of a text
//! are those of its words one after the other. Normalizing with offsets and matching pieces take some ten times as long
//! as finding a word again, and most words of a language come again soon.

use std::{
    collections::HashMap,
    fmt,
    sync::{PoisonError, RwLock},
};

use tokenizers::{
    Encoding, Model, ModelWrapper, NormalizerWrapper, OffsetType, PreTokenizer, PreTokenizerWrapper, Token,
    TruncationDirection, TruncationParams,
};

/// White space at which texts are cut.
const SPACES: [char; 4] = [' ', '\t', '\n', '\r'];

/// Longer words are not kept.
const LONGEST: usize = 48;

/// Words that are kept, some 4 MB of them; then all are forgotten.
const MOST: usize = 32_768;

/// The ids of words.
pub struct Words(RwLock<HashMap<Box<str>, Box<[u32]>>>);

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Words")
    }
}

/// A copy begins empty.
impl Clone for Words {
    fn clone(&self) -> Self {
        Words(RwLock::default())
    }
}

impl Words {
    /// For tokenizers whose words do not depend on their neighbours: those of BERT.
    pub fn of(tokenizer: &tokenizers::Tokenizer) -> Option<Self> {
        let normalizer = match tokenizer.get_normalizer() {
            None => true,
            Some(NormalizerWrapper::Sequence(steps)) => steps.as_ref().iter().all(by_character),
            Some(step) => by_character(step),
        };
        let cuts = matches!(tokenizer.get_pre_tokenizer(), Some(PreTokenizerWrapper::BertPreTokenizer(_)));
        let pieces = matches!(tokenizer.get_model(), ModelWrapper::WordPiece(_));
        let whole = |text: &String| !text.contains(SPACES);
        let added = tokenizer.get_added_tokens_decoder().values().all(|token| whole(&token.content));
        (normalizer && cuts && pieces && added).then(|| Words(RwLock::default()))
    }

    /// Encodes a text with the template for one text, cut to the tokenizer's limit.
    ///
    /// # Errors
    /// Those of the tokenizer.
    pub fn encode(&self, tokenizer: &tokenizers::Tokenizer, text: &str) -> tokenizers::Result<Encoding> {
        let enough = match tokenizer.get_truncation() {
            Some(TruncationParams { max_length, direction: TruncationDirection::Right, .. }) => *max_length,
            _ => usize::MAX,
        };
        let mut ids: Vec<u32> = Vec::with_capacity(text.len() / 4);
        let mut new: Vec<(&str, Vec<u32>)> = Vec::new();
        {
            let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
            for word in text.split(SPACES).filter(|word| !word.is_empty()) {
                if let Some(found) = known.get(word) {
                    ids.extend_from_slice(found);
                } else {
                    let made = pieces(tokenizer, word)?;
                    ids.extend_from_slice(&made);
                    if word.len() <= LONGEST {
                        new.push((word, made));
                    }
                }
                // What is beyond is cut off: one more says that there is something.
                if ids.len() > enough {
                    break;
                }
            }
        }
        if !new.is_empty() {
            let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
            if known.len() + new.len() > MOST {
                known.clear();
            }
            known.extend(new.into_iter().take(MOST).map(|(word, ids)| (word.into(), ids.into())));
        }
        let tokens = ids.into_iter().map(|id| Token { id, value: String::new(), offsets: (0, 0) }).collect();
        tokenizer.post_process(Encoding::from_tokens(tokens, 0), None, true)
    }
}

/// Whether a step looks at characters, and marks that follow them, alone.
fn by_character(step: &NormalizerWrapper) -> bool {
    matches!(
        step,
        NormalizerWrapper::BertNormalizer(_)
            | NormalizerWrapper::Lowercase(_)
            | NormalizerWrapper::StripAccents(_)
    )
}

/// The ids of a word, without template and limit.
fn pieces(tokenizer: &tokenizers::Tokenizer, word: &str) -> tokenizers::Result<Vec<u32>> {
    let mut text = tokenizer.get_added_vocabulary().extract_and_normalize(tokenizer.get_normalizer(), word);
    if let Some(cut) = tokenizer.get_pre_tokenizer() {
        cut.pre_tokenize(&mut text)?;
    }
    text.tokenize(|part| tokenizer.get_model().tokenize(part.get()))?;
    Ok(text.into_encoding(None, 0, OffsetType::None)?.get_ids().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What texts are made of: words, marks that could join what is around them, special tokens, odd spaces.
    const PARTS: [&str; 36] = [
        "the",
        "Cat",
        "sat",
        "unaffable",
        "ÀÉÎ",
        "e\u{301}",
        "\u{301}",
        "\u{327}\u{301}",
        "İ",
        "ΣΑΣ",
        "ß",
        "ﬁ",
        "日本語",
        "한국어",
        "\u{0}",
        "\u{7f}",
        "\u{200b}",
        "\u{200d}",
        "\u{a0}",
        "\u{3000}",
        "\u{2028}",
        "\t",
        "\r\n",
        "  ",
        "[MASK]",
        "[mask]",
        "[SEP]",
        "[",
        "]",
        "...",
        "don't",
        "x-y",
        "1234567",
        "😀",
        "\u{fffd}",
        "\u{85}",
    ];

    #[test]
    fn nothing_changes() {
        for name in ["bert", "distilbert", "mpnet"] {
            let file = format!("{}/../tests/fixtures/{name}/tokenizer.json", env!("CARGO_MANIFEST_DIR"));
            let mut tokenizer = tokenizers::Tokenizer::from_file(file).unwrap();
            tokenizer.with_padding(None);
            let words = Words::of(&tokenizer).unwrap();
            let mut random = inferencelayer_engine::testing::Random::named(name);
            for turn in 0..3000 {
                let direction = [TruncationDirection::Right, TruncationDirection::Left][turn % 2];
                let max_length = 3 + random.below(20) as usize;
                let limit = TruncationParams { max_length, direction, ..TruncationParams::default() };
                tokenizer.with_truncation((turn % 3 != 0).then_some(limit)).unwrap();
                let mut text = String::new();
                for _ in 0..random.below(16) {
                    text += PARTS[random.below(PARTS.len()) as usize];
                    text += ["", " ", " "][random.below(3) as usize];
                }
                let (found, wanted) = (
                    words.encode(&tokenizer, &text).unwrap(),
                    tokenizer.encode_fast(text.as_str(), true).unwrap(),
                );
                assert_eq!(found.get_ids(), wanted.get_ids(), "{name}: {text:?}");
                assert_eq!(found.get_type_ids(), wanted.get_type_ids(), "{name}: {text:?}");
                let cut = |e: &Encoding| e.get_overflowing().is_empty();
                assert_eq!(cut(&found), cut(&wanted), "{name}: {text:?}");
            }
        }
    }

    #[test]
    fn memory_is_bounded() {
        let file = format!("{}/../tests/fixtures/bert/tokenizer.json", env!("CARGO_MANIFEST_DIR"));
        let tokenizer = tokenizers::Tokenizer::from_file(file).unwrap();
        let words = Words::of(&tokenizer).unwrap();
        let all: String = (0..2 * MOST).map(|i| format!("w{i} ")).collect();
        words.encode(&tokenizer, &all).unwrap();
        words.encode(&tokenizer, &"x".repeat(LONGEST + 1)).unwrap();
        let known = words.0.read().unwrap();
        assert!(known.len() <= MOST && known.keys().all(|word| word.len() <= LONGEST));
    }

    #[test]
    fn other_tokenizers_are_left_alone() {
        for name in ["roberta", "modernbert", "xlmr"] {
            let file = format!("{}/../tests/fixtures/{name}/tokenizer.json", env!("CARGO_MANIFEST_DIR"));
            assert!(Words::of(&tokenizers::Tokenizer::from_file(file).unwrap()).is_none(), "{name}");
        }
    }
}
