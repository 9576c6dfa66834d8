//! A config.json of any bytes: it is refused, or it is a geometry whose sizes are sane.
#![no_main]

use inferencelayer_engine::model::{arch::read_encoder, config::Config};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(config) = Config::parse("fuzz", text) else { return };
    let Ok(encoder) = read_encoder(&config) else { return };
    assert!(encoder.max_tokens() > 0 && encoder.head_dim() * encoder.heads == encoder.hidden);
    assert_eq!(encoder.layers.len(), encoder.names.layers.len());
    assert!(encoder.norm_eps.is_finite());
});
