//! Rewrites a fixture's checkpoint the way other checkpoints look.

use std::collections::BTreeMap;

use inferencelayer_engine::checkpoint::MemoryFolder;
use safetensors::{Dtype, SafeTensors, serialize, tensor::TensorView};

/// A tensor that owns its bytes.
#[derive(Debug, Clone)]
pub struct Stored {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

impl Stored {
    /// The same values, rounded to f16.
    pub fn to_f16(&self) -> Self {
        let half = |v: f32| half::f16::from_f32(v).to_le_bytes();
        let bytes = match self.dtype {
            Dtype::F32 => {
                self.bytes.as_chunks().0.iter().flat_map(|b| half(f32::from_le_bytes(*b))).collect()
            }
            other => panic!("{other:?} is not rounded here"),
        };
        Stored { dtype: Dtype::F16, bytes, ..self.clone() }
    }
}

pub type Tensors = BTreeMap<String, Stored>;

pub const WEIGHTS: &str = "model.safetensors";

/// All tensors of a folder's `model.safetensors`.
pub fn tensors(folder: &MemoryFolder) -> Tensors {
    let file = SafeTensors::deserialize(folder.get(WEIGHTS).expect("weights")).expect("a safetensors file");
    file.iter()
        .map(|(name, t)| {
            (name.into(), Stored { dtype: t.dtype(), shape: t.shape().to_vec(), bytes: t.data().to_vec() })
        })
        .collect()
}

/// A safetensors file of these tensors.
pub fn to_file(tensors: &Tensors) -> Vec<u8> {
    let views = tensors.iter().map(|(name, t)| {
        (name.clone(), TensorView::new(t.dtype, t.shape.clone(), &t.bytes).expect("bytes that fit the shape"))
    });
    serialize(views, None).expect("a safetensors file")
}

/// A folder with changed tensors.
pub fn changed(folder: &MemoryFolder, change: impl FnOnce(&mut Tensors)) -> MemoryFolder {
    let (mut folder, mut all) = (folder.clone(), tensors(folder));
    change(&mut all);
    folder.insert(WEIGHTS, to_file(&all));
    folder
}

/// Every name changed.
pub fn renamed(folder: &MemoryFolder, name: impl Fn(&str) -> String) -> MemoryFolder {
    changed(folder, |all| *all = std::mem::take(all).into_iter().map(|(n, t)| (name(&n), t)).collect())
}

/// The tensors spread over several files with an index.
pub fn sharded(folder: &MemoryFolder, count: usize) -> MemoryFolder {
    let (mut folder, all) = (folder.clone(), tensors(folder));
    folder.remove(WEIGHTS);
    let mut files = vec![Tensors::new(); count];
    let mut map = Vec::new();
    for (at, (name, tensor)) in all.into_iter().enumerate() {
        map.push(format!("\"{name}\":\"model-{}.safetensors\"", at % count));
        files[at % count].insert(name, tensor);
    }
    for (at, file) in files.iter().enumerate() {
        folder.insert(format!("model-{at}.safetensors"), to_file(file));
    }
    let index = format!("{{\"metadata\":{{}},\"weight_map\":{{{}}}}}", map.join(","));
    folder.insert("model.safetensors.index.json", index.into_bytes());
    folder
}
