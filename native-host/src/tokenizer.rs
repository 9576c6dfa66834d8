//! Text to token ids: `tokenizer.json` read by the `tokenizers` crate, the same natively and in a browser.
//!
//! Loading takes bytes. Truncation and padding stored in `tokenizer.json` are ignored: the maximum length comes
//! from the model's configuration, and the engine packs sequences without padding.

mod gguf;
mod guard;
mod words;

use std::borrow::Cow;

use inferencelayer_engine::checkpoint::{Folder, read_text};
use serde::Deserialize;
use tokenizers::{
    Encoding, NormalizerWrapper, PostProcessor, TruncationDirection, TruncationParams, TruncationStrategy,
    normalizers::{Lowercase, Sequence},
    utils::parallelism::MaybeParallelIterator,
};

use crate::{
    Error, Result,
    folder::{self, describe},
};

pub use gguf::from_gguf;
use guard::{check_charsmaps, guarded};
use words::Words;

/// Bytes of text for each token of the limit, beyond which text is dropped before it is tokenized.
const LONGEST_TOKEN: usize = 1024;

/// One encoded text or pair, special tokens included.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Encoded {
    pub ids: Vec<u32>,
    /// As long as `ids`: 0 for the first text, what the template says for the second.
    pub type_ids: Vec<u32>,
    /// Whether tokens were cut off to keep within the maximum length.
    pub truncated: bool,
}

/// What `tokenizer_config.json` adds to `tokenizer.json`. Unknown keys are ignored.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct TokenizerConfig {
    /// Absent, or an absurdly large number, means no limit.
    model_max_length: Option<f64>,
    truncation_side: Option<String>,
    cls_token: Option<TokenText>,
    sep_token: Option<TokenText>,
    pad_token: Option<TokenText>,
    mask_token: Option<TokenText>,
    unk_token: Option<TokenText>,
    bos_token: Option<TokenText>,
    eos_token: Option<TokenText>,
}

/// A special token is written as its text or as an object that holds it.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum TokenText {
    Plain(String),
    Added { content: String },
}

impl TokenText {
    fn text(&self) -> &str {
        match self {
            TokenText::Plain(text) | TokenText::Added { content: text } => text,
        }
    }
}

/// Ids of the special tokens that the model's files name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpecialTokens {
    pub cls: Option<u32>,
    pub sep: Option<u32>,
    pub pad: Option<u32>,
    pub mask: Option<u32>,
    pub unk: Option<u32>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
}

/// A loaded tokenizer.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    words: Option<Words>,
    model_max_length: Option<usize>,
    direction: TruncationDirection,
    special: SpecialTokens,
}

impl Tokenizer {
    /// Reads `tokenizer.json` and, if given, `tokenizer_config.json`. There is no maximum length until
    /// [`Tokenizer::set_max_length`] sets one.
    ///
    /// # Errors
    /// `Malformed`, naming the file.
    pub fn from_bytes(tokenizer_json: &[u8], config_json: Option<&[u8]>) -> Result<Self> {
        let config = match config_json {
            Some(bytes) => serde_json::from_slice(bytes)
                .map_err(|e| Error::malformed("tokenizer_config.json", e.to_string()))?,
            None => TokenizerConfig::default(),
        };
        Self::build(tokenizer_json, &config, "tokenizer.json")
    }

    /// Reads the tokenizer of a model whose files lie in `path` of a folder (empty for the root).
    ///
    /// # Errors
    /// `Malformed`, naming the file; a missing `tokenizer.json` says how to make one.
    pub async fn from_folder(files: &dyn Folder, path: &str) -> Result<Self> {
        let name = folder::join(path, "tokenizer.json");
        let Some(text) = read_text(files, &name).await? else {
            return Err(Error::malformed(
                describe(files, &name),
                "the file is missing; make one from an older tokenizer with \
                 `AutoTokenizer.from_pretrained(folder).save_pretrained(folder)` of transformers",
            ));
        };
        let config = folder::json(files, &folder::join(path, "tokenizer_config.json")).await?;
        Self::build(text.as_bytes(), &config.unwrap_or_default(), &describe(files, &name))
    }

    fn build(tokenizer_json: &[u8], config: &TokenizerConfig, file: &str) -> Result<Self> {
        check_charsmaps(tokenizer_json).map_err(|why| Error::malformed(file, why))?;
        let mut inner = guarded(|| tokenizers::Tokenizer::from_bytes(tokenizer_json))
            .map_err(|why| Error::malformed(file, why))?;
        inner.with_truncation(None).map_err(|e| Error::malformed(file, e.to_string()))?;
        inner.with_padding(None);
        let direction = match config.truncation_side.as_deref() {
            None | Some("right") => TruncationDirection::Right,
            Some("left") => TruncationDirection::Left,
            Some(other) => {
                let why = format!("truncation_side `{other}` is neither `left` nor `right`");
                return Err(Error::malformed("tokenizer_config.json", why));
            }
        };
        let id = |token: &Option<TokenText>| token.as_ref().and_then(|t| inner.token_to_id(t.text()));
        let special = SpecialTokens {
            cls: id(&config.cls_token),
            sep: id(&config.sep_token),
            pad: id(&config.pad_token),
            mask: id(&config.mask_token),
            unk: id(&config.unk_token),
            bos: id(&config.bos_token),
            eos: id(&config.eos_token),
        };
        // transformers writes 1e30 for "no limit".
        let model_max_length =
            config.model_max_length.filter(|&n| (1.0..1e9).contains(&n)).map(|n| n as usize);
        let words = Words::of(&inner);
        Ok(Tokenizer { inner, words, model_max_length, direction, special })
    }

    /// The limit in `tokenizer_config.json`, if it has one.
    pub fn model_max_length(&self) -> Option<usize> {
        self.model_max_length
    }

    /// The limit in force, special tokens included.
    pub fn max_length(&self) -> Option<usize> {
        self.inner.get_truncation().map(|t| t.max_length)
    }

    pub fn special_tokens(&self) -> SpecialTokens {
        self.special
    }

    /// Whether `id` is a token that marks structure (`[CLS]`, `</s>`, …).
    pub fn is_special(&self, id: u32) -> bool {
        self.inner.get_added_tokens_decoder().get(&id).is_some_and(|token| token.special)
    }

    /// Number of ids, added tokens included.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// Special tokens that the template adds to a text, or to a pair.
    pub fn added_tokens(&self, pair: bool) -> usize {
        self.inner.get_post_processor().map_or(0, |p| p.added_tokens(pair))
    }

    /// Cuts encoded texts to `max_length` tokens, special tokens included and kept; of a pair, the longer text
    /// is cut first. `None` removes the limit.
    ///
    /// # Errors
    /// `Input` if the special tokens alone need more.
    pub fn set_max_length(&mut self, max_length: Option<usize>) -> Result<()> {
        let Some(max_length) = max_length else {
            self.inner.with_truncation(None).map_err(|e| Error::Tokenizer(e.to_string()))?;
            return Ok(());
        };
        self.check_room(max_length, false)?;
        let params = TruncationParams {
            direction: self.direction,
            max_length,
            strategy: TruncationStrategy::LongestFirst,
            stride: 0,
        };
        self.inner.with_truncation(Some(params)).map_err(|e| Error::Tokenizer(e.to_string()))?;
        Ok(())
    }

    fn check_room(&self, max_length: usize, pair: bool) -> Result<()> {
        let added = self.added_tokens(pair);
        if max_length > added {
            return Ok(());
        }
        let what = if pair { "a pair" } else { "a text" };
        Err(Error::Input(format!(
            "a maximum length of {max_length} tokens leaves no room for {what}: its special tokens alone are {added}"
        )))
    }

    /// Lower-cases texts before everything else (`do_lower_case` of sentence-transformers).
    ///
    /// # Errors
    /// `Tokenizer` if the normalizer cannot be replaced.
    pub fn lowercase(&mut self) -> Result<()> {
        let mut steps = vec![NormalizerWrapper::from(Lowercase)];
        steps.extend(self.inner.get_normalizer().cloned());
        self.inner
            .with_normalizer(Some(Sequence::new(steps)))
            .map_err(|e| Error::Tokenizer(e.to_string()))?;
        self.words = Words::of(&self.inner);
        Ok(())
    }

    /// Encodes one text.
    ///
    /// # Errors
    /// `Tokenizer`, for example when the vocabulary lacks its unknown token.
    pub fn encode(&self, text: &str) -> Result<Encoded> {
        let (text, cut) = self.within_reason(text);
        let encoded = guarded(|| match &self.words {
            Some(words) => words.encode(&self.inner, text),
            None => self.inner.encode_fast(text, true),
        });
        let mut encoded = encoded.map(Encoded::from).map_err(Error::Tokenizer)?;
        encoded.truncated |= cut;
        Ok(encoded)
    }

    /// Ids of a text that holds its special tokens already, such as a rendered chat template: none are added, and
    /// nothing is cut.
    ///
    /// # Errors
    /// `Tokenizer`.
    pub fn encode_rendered(&self, text: &str) -> Result<Vec<u32>> {
        let mut whole = Cow::Borrowed(&self.inner);
        if whole.get_truncation().is_some() {
            whole.to_mut().with_truncation(None).map_err(|e| Error::Tokenizer(e.to_string()))?;
        }
        let encoded = guarded(|| whole.encode_fast(text, false)).map_err(Error::Tokenizer)?;
        Ok(encoded.get_ids().to_vec())
    }

    /// Encodes two texts with the template for pairs.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`], and `Input` if the limit leaves no room for a pair.
    pub fn encode_pair(&self, first: &str, second: &str) -> Result<Encoded> {
        if let Some(max_length) = self.max_length() {
            self.check_room(max_length, true)?;
        }
        guarded(|| self.inner.encode_fast((first, second), true)).map(Encoded::from).map_err(Error::Tokenizer)
    }

    /// Encodes many texts, natively on all threads.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_batch(&self, texts: &[&str]) -> Result<Vec<Encoded>> {
        if cfg!(target_arch = "wasm32") {
            return texts.iter().map(|text| self.encode(text)).collect();
        }
        texts.into_maybe_par_iter().map(|text| self.encode(text)).collect()
    }

    /// A text without what lies [`LONGEST_TOKEN`] times the limit away from where tokens are kept, and whether there
    /// was such: tokenizing takes a hundred times the memory of a text, whatever is cut off afterwards.
    fn within_reason<'a>(&self, text: &'a str) -> (&'a str, bool) {
        let most = self.max_length().unwrap_or(usize::MAX).saturating_mul(LONGEST_TOKEN);
        if text.len() <= most {
            return (text, false);
        }
        match self.direction {
            TruncationDirection::Right => (&text[..text.floor_char_boundary(most)], true),
            TruncationDirection::Left => (&text[text.ceil_char_boundary(text.len() - most)..], true),
        }
    }

    /// How many leading tokens of `prompt + text` belong to `prompt`, counted as sentence-transformers does:
    /// the prompt encoded alone, less a closing special token.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn prompt_length(&self, prompt: &str) -> Result<usize> {
        if prompt.is_empty() {
            return Ok(0);
        }
        let ids = self.encode(prompt)?.ids;
        let closing = ids.last().is_some_and(|&id| self.is_special(id));
        Ok(ids.len() - usize::from(closing))
    }

    /// Text of `ids`, special tokens left out.
    ///
    /// # Errors
    /// `Tokenizer` if the decoder fails.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        guarded(|| self.inner.decode(ids, true)).map_err(Error::Tokenizer)
    }
}

impl From<Encoding> for Encoded {
    fn from(encoding: Encoding) -> Self {
        Encoded {
            ids: encoding.get_ids().to_vec(),
            type_ids: encoding.get_type_ids().to_vec(),
            truncated: !encoding.get_overflowing().is_empty(),
        }
    }
}
