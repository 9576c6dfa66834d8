//! Panics of the `tokenizers` crate become errors: it trusts what its files say.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Deserialize;
use serde_json::Value;

/// Runs a call of the crate; a panic is an error with the panic's words. What the call may have left half-changed is
/// not used afterwards: encoding takes the tokenizer by shared reference, loading gives none.
pub fn guarded<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(done) => done.map_err(|e| e.to_string()),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
            Err(format!("the tokenizer's files contradict themselves ({words})"))
        }
    }
}

/// Checks what the crate would allocate for without looking: the length that a precompiled map of characters
/// announces.
///
/// # Errors
/// What is wrong with the map.
pub fn check_charsmaps(tokenizer_json: &[u8]) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Normalizer {
        #[serde(default)]
        normalizer: Value,
    }
    // What is no JSON is the crate's to report.
    serde_json::from_slice(tokenizer_json).map_or(Ok(()), |json: Normalizer| check_charsmap(&json.normalizer))
}

fn check_charsmap(normalizer: &Value) -> Result<(), String> {
    for inner in normalizer["normalizers"].as_array().into_iter().flatten() {
        check_charsmap(inner)?;
    }
    let Some(map) = normalizer["precompiled_charsmap"].as_str() else { return Ok(()) };
    // Its first 4 bytes, the length of a trie in little-endian, are in its first 6 characters.
    let start = map.as_bytes().first_chunk::<6>().and_then(|start| {
        start
            .iter()
            .try_fold(0u64, |bits, c| BASE64.iter().position(|d| d == c).map(|d| bits << 6 | d as u64))
    });
    let Some(start) = start else {
        return Err("precompiled_charsmap is no base64 of 4 bytes or more".into());
    };
    let (announced, there) = (u64::from(((start >> 4) as u32).swap_bytes()), map.len() as u64 / 4 * 3);
    if announced + 4 > there {
        return Err(format!("precompiled_charsmap announces {announced} bytes and has {there}"));
    }
    Ok(())
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_are_errors() {
        assert_eq!(guarded(|| Ok(1)), Ok(1));
        let why = guarded::<()>(|| panic!("no {}", "bottom")).unwrap_err();
        assert!(why.contains("no bottom"), "{why}");
    }

    #[test]
    fn announced_lengths_are_checked() {
        let json = |map: &str| {
            let inner = format!(r#"{{"type":"Precompiled","precompiled_charsmap":"{map}"}}"#);
            format!(r#"{{"model":{{}},"normalizer":{{"normalizers":[{inner}]}}}}"#)
        };
        // 8 bytes announced: 08 00 00 00 and then those.
        assert_eq!(check_charsmaps(json("CAAAAAECAwQFBgcI").as_bytes()), Ok(()));
        for (bad, why) in [
            ("/////wAA", "4294967295 bytes"),
            ("CAAAAAEC", "announces 8"),
            ("CA==", "base64"),
            ("", "base64"),
        ] {
            let error = check_charsmaps(json(bad).as_bytes()).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
        assert_eq!(check_charsmaps(b"{}"), Ok(()));
        assert_eq!(check_charsmaps(b"["), Ok(()));
    }
}
