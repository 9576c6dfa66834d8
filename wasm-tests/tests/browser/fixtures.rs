//! The small checkpoints of `tests/fixtures`, compiled in, and what sentence-transformers computes from them.

use inferencelayer_engine::{checkpoint::MemoryFolder, op::PoolMode};
use safetensors::{Dtype, SafeTensors};

pub struct Fixture {
    pub name: &'static str,
    pub pooling: PoolMode,
    /// Whether the folder's vectors have unit length.
    pub unit: bool,
    config: &'static [u8],
    model: &'static [u8],
    expected: &'static [u8],
}

macro_rules! fixture {
    ($name:literal, $pooling:ident, $unit:literal) => {
        Fixture {
            name: $name,
            pooling: PoolMode::$pooling,
            unit: $unit,
            config: include_bytes!(concat!("../../../tests/fixtures/", $name, "/config.json")),
            model: include_bytes!(concat!("../../../tests/fixtures/", $name, "/model.safetensors")),
            expected: include_bytes!(concat!("../../../tests/fixtures/", $name, "/expected.safetensors")),
        }
    };
}

pub const ALL: [Fixture; 6] = [
    fixture!("bert", Mean, true),
    fixture!("roberta", Mean, false),
    fixture!("xlmr", Cls, true),
    fixture!("mpnet", Mean, true),
    fixture!("distilbert", Mean, true),
    fixture!("modernbert", Mean, true),
];

impl Fixture {
    pub fn folder(&self) -> MemoryFolder {
        let mut folder = MemoryFolder::new(self.name);
        folder.insert("config.json", self.config);
        folder.insert("model.safetensors", self.model);
        folder
    }

    /// Token ids of the fixture's texts.
    pub fn texts(&self) -> Vec<Vec<u32>> {
        let (ids, ends) = (self.ids("encode.token_ids"), self.ids("encode.token_offsets"));
        ends.windows(2).map(|w| ids[w[0] as usize..w[1] as usize].to_vec()).collect()
    }

    /// The texts' vectors, one after the other.
    pub fn embeddings(&self) -> Vec<f32> {
        floats(&self.open(), "encode.embeddings")
    }

    fn ids(&self, name: &str) -> Vec<u32> {
        let file = self.open();
        let tensor = file.tensor(name).expect(name);
        assert_eq!(tensor.dtype(), Dtype::I32, "{name}");
        tensor.data().as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect()
    }

    fn open(&self) -> SafeTensors<'static> {
        SafeTensors::deserialize(self.expected).expect("a safetensors file")
    }
}

/// The texts of a `texts.json`.
pub fn texts(json: &str) -> Vec<String> {
    let json: serde_json::Value = serde_json::from_str(json).expect("texts.json");
    let list = json["texts"].as_array().expect("a list of texts");
    list.iter().map(|t| t.as_str().expect("a text").to_owned()).collect()
}

/// The f32 values of a tensor.
pub fn floats(file: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    let tensor = file.tensor(name).expect(name);
    assert_eq!(tensor.dtype(), Dtype::F32, "{name}");
    tensor.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}
