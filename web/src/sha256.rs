//! SHA-256 in pieces, which browsers' own cryptography does not offer.

use sha2::{Digest, Sha256 as Hasher};
use wasm_bindgen::prelude::wasm_bindgen;

/// A hash under way.
#[wasm_bindgen]
#[derive(Debug, Default)]
pub struct Sha256(Hasher);

#[wasm_bindgen]
impl Sha256 {
    #[wasm_bindgen(constructor)]
    pub fn new() -> Self {
        Self::default()
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash in hexadecimal; begins anew.
    pub fn finish(&mut self) -> String {
        self.0.finalize_reset().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
