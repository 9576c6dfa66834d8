//! A safetensors file of any bytes: it is refused, or every tensor it lists can be read and loaded.
#![no_main]

use inferencelayer_engine::{
    checkpoint::{Element, Loader, MemoryFile, Part, Safetensors, TensorSource},
    reference::Reference,
    task::block_on,
    tensor::WeightUse,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let file = MemoryFile::new("fuzz", bytes.to_vec());
    let Ok(source) = block_on(Safetensors::open(Box::new(file))) else { return };
    let backend = Reference::new();
    for name in source.names() {
        let info = source.tensor(name).expect("a listed tensor");
        assert!(info.offset + info.bytes <= bytes.len() as u64, "{name} reaches beyond the file");
        let values: usize = info.shape.iter().product();
        let part = Part::new(name, info.shape.clone());
        let loaded = block_on(Loader::new(&source, &backend).weight(WeightUse::Vector, (1, values), &[part]));
        assert_eq!(loaded.is_ok(), matches!(info.element, Element::Weight(_)), "{name}: {loaded:?}");
    }
});
