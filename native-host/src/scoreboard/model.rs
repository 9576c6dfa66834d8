//! BERT models of real shapes with random weights: their speed is that of the real ones.

use std::{collections::HashMap, fs, path::Path};

use inferencelayer_engine::testing::Random;
use safetensors::{Dtype, tensor::TensorView};
use serde_json::json;

use crate::{Error, Result};

/// A model's sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub name: &'static str,
    pub layers: usize,
    pub hidden: usize,
    pub heads: usize,
    pub intermediate: usize,
    pub vocabulary: usize,
    pub positions: usize,
}

/// sentence-transformers/all-MiniLM-L6-v2.
pub const MINILM: Shape = Shape {
    name: "minilm",
    layers: 6,
    hidden: 384,
    heads: 12,
    intermediate: 1536,
    vocabulary: 30_522,
    positions: 512,
};

/// bert-base-uncased.
pub const BERT_BASE: Shape = Shape {
    name: "bert-base",
    layers: 12,
    hidden: 768,
    heads: 12,
    intermediate: 3072,
    vocabulary: 30_522,
    positions: 512,
};

/// So small that everything around the model shows.
pub const TINY: Shape = Shape {
    name: "tiny",
    layers: 1,
    hidden: 64,
    heads: 2,
    intermediate: 128,
    vocabulary: 30_522,
    positions: 512,
};

pub const ALL: [Shape; 3] = [MINILM, BERT_BASE, TINY];

impl Shape {
    /// Names and shapes of the checkpoint's tensors.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (h, f) = (self.hidden, self.intermediate);
        let mut all = vec![
            ("embeddings.word_embeddings.weight".to_string(), vec![self.vocabulary, h]),
            ("embeddings.position_embeddings.weight".to_string(), vec![self.positions, h]),
            ("embeddings.token_type_embeddings.weight".to_string(), vec![2, h]),
        ];
        let norm = |all: &mut Vec<(String, Vec<usize>)>, name: String| {
            all.push((format!("{name}.weight"), vec![h]));
            all.push((format!("{name}.bias"), vec![h]));
        };
        norm(&mut all, "embeddings.LayerNorm".into());
        for layer in 0..self.layers {
            let prefix = format!("encoder.layer.{layer}");
            let linears = [
                ("attention.self.query", h, h),
                ("attention.self.key", h, h),
                ("attention.self.value", h, h),
                ("attention.output.dense", h, h),
                ("intermediate.dense", f, h),
                ("output.dense", h, f),
            ];
            for (name, outputs, inputs) in linears {
                all.push((format!("{prefix}.{name}.weight"), vec![outputs, inputs]));
                all.push((format!("{prefix}.{name}.bias"), vec![outputs]));
            }
            norm(&mut all, format!("{prefix}.attention.output.LayerNorm"));
            norm(&mut all, format!("{prefix}.output.LayerNorm"));
        }
        all
    }

    /// Values of all weights.
    pub fn parameters(&self) -> usize {
        self.tensors().iter().map(|(_, shape)| shape.iter().product::<usize>()).sum()
    }

    /// Writes config.json, model.safetensors (f32) and a tokenizer of numbered words into an existing folder.
    ///
    /// # Errors
    /// `Io`.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let config = json!({
            "architectures": ["BertModel"],
            "model_type": "bert",
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": self.intermediate,
            "hidden_act": "gelu",
            "hidden_dropout_prob": 0.1,
            "attention_probs_dropout_prob": 0.1,
            "max_position_embeddings": self.positions,
            "type_vocab_size": 2,
            "initializer_range": 0.02,
            "layer_norm_eps": 1e-12,
            "pad_token_id": 0,
            "position_embedding_type": "absolute",
            "use_cache": true,
        });
        write(&folder.join("config.json"), config.to_string().as_bytes())?;
        write(&folder.join("tokenizer.json"), self.tokenizer().to_string().as_bytes())?;
        self.write_weights(&folder.join("model.safetensors"))
    }

    /// Words `w0`, `w1` …, split at white space.
    fn tokenizer(&self) -> serde_json::Value {
        let mut words: serde_json::Map<String, serde_json::Value> =
            (0..self.vocabulary - 1).map(|i| (format!("w{i}"), i.into())).collect();
        words.insert("[UNK]".into(), (self.vocabulary - 1).into());
        json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": [],
            "normalizer": null,
            "pre_tokenizer": { "type": "WhitespaceSplit" },
            "post_processor": null,
            "decoder": null,
            "model": { "type": "WordLevel", "vocab": words, "unk_token": "[UNK]" },
        })
    }

    fn write_weights(&self, path: &Path) -> Result<()> {
        let mut random = Random::named(self.name);
        let values: Vec<(String, Vec<usize>, Vec<u8>)> = self
            .tensors()
            .into_iter()
            .map(|(name, shape)| {
                let (center, spread) = match name.as_str() {
                    n if n.ends_with("LayerNorm.weight") => (1.0, 0.1),
                    n if n.ends_with("bias") => (0.0, 0.02),
                    // Large enough that attention and activations are not nearly linear.
                    _ => (0.0, 0.08),
                };
                let values = random.values(shape.iter().product(), center, spread);
                let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                (name, shape, bytes)
            })
            .collect();
        let wrong = |e: safetensors::SafeTensorError| Error::Input(format!("{}: {e}", path.display()));
        let mut views = Vec::new();
        for (name, shape, bytes) in &values {
            views.push((name, TensorView::new(Dtype::F32, shape.clone(), bytes).map_err(wrong)?));
        }
        let about = HashMap::from([("format".to_string(), "pt".to_string())]);
        safetensors::serialize_to_file(views, Some(about), path).map_err(wrong)
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).map_err(Error::io(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_the_real_numbers_of_parameters() {
        // Those of the checkpoints without their poolers.
        assert_eq!(MINILM.parameters(), 22_713_216 - 384 * 385);
        assert_eq!(BERT_BASE.parameters(), 109_482_240 - 768 * 769);
    }
}
