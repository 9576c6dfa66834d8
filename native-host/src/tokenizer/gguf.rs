//! Tokenizers in GGUF files: byte-level BPE, built from the file's vocabulary and merges.
//!
//! GGUF names a pre-tokenizer where `tokenizer.json` describes it; what the names mean is in llama.cpp
//! (`src/llama-vocab.cpp`).

use inferencelayer_engine::checkpoint::gguf::Metadata;
use serde_json::{Map, Value, json};

use super::{SpecialTokens, Tokenizer};
use crate::{Error, Result};

/// Words of Llama 3 and LFM2: numbers in groups of up to three digits.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Words of Qwen2 and Qwen3: digits one by one.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// What a name of `tokenizer.ggml.pre` stands for.
struct Splitting {
    names: &'static [&'static str],
    /// A pattern that words match; `None` for GPT-2's, which the byte-level step has itself.
    words: Option<&'static str>,
    /// Digits are words of their own, whatever the pattern says.
    digits: bool,
    nfc: bool,
    /// A word that is in the vocabulary is taken whole, though no merges may lead to it.
    whole_words: bool,
    /// Texts begin with the beginning-of-sequence token unless the file says otherwise.
    begins: bool,
}

const SPLITTINGS: [Splitting; 4] = [
    Splitting {
        names: &["llama3", "llama-v3", "llama-bpe", "lfm2"],
        words: Some(LLAMA3),
        digits: false,
        nfc: false,
        whole_words: true,
        begins: true,
    },
    Splitting {
        names: &["qwen2", "deepseek-r1-qwen"],
        words: Some(QWEN2),
        digits: false,
        nfc: true,
        whole_words: false,
        begins: false,
    },
    Splitting {
        names: &["smollm"],
        words: None,
        digits: true,
        nfc: false,
        whole_words: false,
        begins: false,
    },
    Splitting {
        names: &["gpt-2", "gpt2", "default"],
        words: None,
        digits: false,
        nfc: false,
        whole_words: false,
        begins: false,
    },
];

/// Kinds of tokens in `tokenizer.ggml.token_type`.
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;

/// Builds the tokenizer of a GGUF file; `None` if the file has no vocabulary, or says so (`none`).
///
/// # Errors
/// `Config` naming the key: one that is missing or does not fit the others, or a kind of tokenizer that is not
/// supported.
pub fn from_gguf(metadata: &Metadata) -> Result<Option<Tokenizer>> {
    let Some(model) = metadata.opt_string("tokenizer.ggml.model")?.filter(|m| *m != "none") else {
        return Ok(None);
    };
    let wrong = |key: &str, why: String| Error::from(metadata.wrong(key, &why));
    if model != "gpt2" {
        let why = format!(
            "is `{model}`; tokenizers by byte-level BPE (`gpt2`) are supported. The original model's folder, with its \
             tokenizer.json, works; so do token ids"
        );
        return Err(wrong("tokenizer.ggml.model", why));
    }
    let pre = metadata.opt_string("tokenizer.ggml.pre")?.unwrap_or("default");
    let Some(splitting) = SPLITTINGS.iter().find(|s| s.names.contains(&pre)) else {
        let known: Vec<&str> = SPLITTINGS.iter().flat_map(|s| s.names.iter().copied()).collect();
        let why = format!("is `{pre}`, which is not supported; supported are {}", known.join(", "));
        return Err(wrong("tokenizer.ggml.pre", why));
    };
    let tokens = metadata.strings("tokenizer.ggml.tokens")?;
    let merges = metadata.strings("tokenizer.ggml.merges")?;
    let types = metadata.opt_i32s("tokenizer.ggml.token_type")?;
    if let Some(types) = &types
        && types.len() != tokens.len()
    {
        let why = format!("has {} entries for {} tokens", types.len(), tokens.len());
        return Err(wrong("tokenizer.ggml.token_type", why));
    }
    let mut vocab = Map::new();
    let mut added = Vec::new();
    for (id, token) in tokens.iter().enumerate() {
        vocab.insert(token.to_owned(), json!(id));
        let kind = types.as_ref().map_or(1, |t| t[id]);
        if kind == CONTROL || kind == USER_DEFINED {
            added.push(json!({
                "id": id, "content": token, "special": kind == CONTROL, "single_word": false,
                "lstrip": false, "rstrip": false, "normalized": false
            }));
        }
    }
    let bos = metadata.opt_id("tokenizer.ggml.bos_token_id")?;
    let eos = metadata.opt_id("tokenizer.ggml.eos_token_id")?;
    for (key, id) in [("tokenizer.ggml.bos_token_id", bos), ("tokenizer.ggml.eos_token_id", eos)] {
        if let Some(id) = id
            && id as usize >= tokens.len()
        {
            return Err(wrong(key, format!("is {id} of {} tokens", tokens.len())));
        }
    }
    let text_of = |id: u32| tokens.get(id as usize).unwrap_or_default().to_owned();
    let begins = metadata.opt_bool("tokenizer.ggml.add_bos_token")?.unwrap_or(splitting.begins);
    let ends = metadata.opt_bool("tokenizer.ggml.add_eos_token")?.unwrap_or(false);
    let (first, last) = (bos.filter(|_| begins), eos.filter(|_| ends));
    let mut steps = Vec::new();
    if splitting.digits {
        steps.push(json!({"type": "Digits", "individual_digits": true}));
    }
    if let Some(words) = splitting.words {
        let pattern = json!({"Regex": words});
        steps.push(json!({"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": false}));
    }
    let own_words = splitting.words.is_none();
    let bytes =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": own_words});
    steps.push(bytes.clone());
    let merges: Vec<&str> = merges.iter().collect();
    let description = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": if splitting.nfc { json!({"type": "NFC"}) } else { Value::Null },
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": template(first.map(|id| (id, text_of(id))), last.map(|id| (id, text_of(id)))),
        "decoder": bytes,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": splitting.whole_words, "vocab": vocab, "merges": merges
        }
    });
    let built = Tokenizer::from_bytes(description.to_string().as_bytes(), None)
        .map_err(|e| wrong("tokenizer.ggml.tokens", format!("make no tokenizer: {e}")))?;
    let special = SpecialTokens { bos, eos, ..SpecialTokens::default() };
    Ok(Some(Tokenizer { special, ..built }))
}

/// Puts tokens before and after each text.
fn template(first: Option<(u32, String)>, last: Option<(u32, String)>) -> Value {
    if first.is_none() && last.is_none() {
        return Value::Null;
    }
    let special = |token: &(u32, String)| json!({"SpecialToken": {"id": token.1, "type_id": 0}});
    let around = |sequences: &[&str]| -> Vec<Value> {
        let mut all: Vec<Value> = first.iter().map(special).collect();
        all.extend(sequences.iter().map(|id| json!({"Sequence": {"id": id, "type_id": 0}})));
        all.extend(last.iter().map(special));
        all
    };
    let tokens: Map<String, Value> = first
        .iter()
        .chain(&last)
        .map(|(id, text)| (text.clone(), json!({"id": text, "ids": [id], "tokens": [text]})))
        .collect();
    json!({
        "type": "TemplateProcessing", "single": around(&["A"]), "pair": around(&["A", "B"]), "special_tokens": tokens
    })
}
