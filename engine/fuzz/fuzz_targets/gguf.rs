#![no_main]

#[path = "../targets.rs"]
#[allow(dead_code)] // Each binary is one of the targets.
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::gguf(data));
