//! The shader template language: WGSL plus a few line directives. Shared by the build script, which expands
//! imports and validates every permutation, and by the engine, which fills in a kernel's definitions.
//!
//! | line | meaning |
//! | --- | --- |
//! | `#import name` | the text of `shaders/lib/name.wgsl`, once (build time) |
//! | `#if KEY`, `#if !KEY`, `#if KEY == word`, `#if KEY != word`, `#else`, `#endif` | conditional lines; a key is false when undefined or `0` |
//! | `#buffer name f32\|f16\|$KEY [write]` | storage buffer of vec4 groups at the next binding; defines `load_name(i) -> vec4<f32>` and, with `write`, `store_name(i, v)`; `i` counts groups of four values |
//! | `#raw name type [write]` | storage buffer of a WGSL type at the next binding |
//! | `$KEY` | the definition's text |
//! | `//! permute KEY a b c` | the words a definition may take (build time) |
//! | `//! needs f16 coop subgroups` | device features the kernel uses |
//!
//! Bindings 0 and 1 are the uniform `params` and `counts`; storage buffers follow in order of declaration.

use alloc::{format, string::String, vec::Vec};

/// A key and its text.
pub type Definition<'a> = (&'a str, &'a str);

/// How one storage binding is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    Read,
    Write,
}

/// WGSL ready for a shader compiler, and its storage bindings from binding 2 on.
#[derive(Debug, Clone)]
pub struct Expanded {
    pub wgsl: String,
    pub bindings: Vec<Access>,
}

/// First binding number of the storage buffers.
pub const FIRST_STORAGE: u32 = 2;

/// Fills in a template whose imports are expanded.
///
/// # Errors
/// The offending line.
pub fn expand(template: &str, definitions: &[Definition<'_>]) -> Result<Expanded, String> {
    let mut wgsl = String::with_capacity(template.len());
    let mut bindings = Vec::new();
    // For each open #if: whether its current branch is taken.
    let mut taken: Vec<bool> = Vec::new();
    for line in template.lines() {
        let trimmed = line.trim_start();
        if let Some(condition) = trimmed.strip_prefix("#if ") {
            taken.push(holds(condition, definitions));
        } else if trimmed.starts_with("#else") {
            let top = taken.last_mut().ok_or_else(|| format!("#else without #if: {line}"))?;
            *top = !*top;
        } else if trimmed.starts_with("#endif") {
            taken.pop().ok_or_else(|| format!("#endif without #if: {line}"))?;
        } else if taken.iter().all(|t| *t) && !trimmed.starts_with("//!") {
            let line = substitute(line, definitions)?;
            match line.trim_start().strip_prefix('#') {
                Some(directive) => declare(directive, &mut wgsl, &mut bindings)?,
                None => {
                    wgsl.push_str(&line);
                    wgsl.push('\n');
                }
            }
        }
    }
    if taken.is_empty() { Ok(Expanded { wgsl, bindings }) } else { Err("#if without #endif".into()) }
}

fn lookup<'a>(key: &str, definitions: &[Definition<'a>]) -> Option<&'a str> {
    definitions.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)
}

fn holds(condition: &str, definitions: &[Definition<'_>]) -> bool {
    let words: Vec<&str> = condition.split_whitespace().collect();
    match words[..] {
        [key, "==", word] => lookup(key, definitions) == Some(word),
        [key, "!=", word] => lookup(key, definitions) != Some(word),
        [key] => match key.strip_prefix('!') {
            Some(key) => matches!(lookup(key, definitions), None | Some("0")),
            None => !matches!(lookup(key, definitions), None | Some("0")),
        },
        _ => false,
    }
}

fn substitute(line: &str, definitions: &[Definition<'_>]) -> Result<String, String> {
    let mut parts = line.split('$');
    let mut out = String::from(parts.next().unwrap_or_default());
    for part in parts {
        let end = part
            .find(|c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit() && c != '_')
            .unwrap_or(part.len());
        let value = lookup(&part[..end], definitions)
            .ok_or_else(|| format!("undefined ${}: {line}", &part[..end]))?;
        out.push_str(value);
        out.push_str(&part[end..]);
    }
    Ok(out)
}

fn declare(directive: &str, wgsl: &mut String, bindings: &mut Vec<Access>) -> Result<(), String> {
    let words: Vec<&str> = directive.split_whitespace().collect();
    let binding = FIRST_STORAGE + bindings.len() as u32;
    let (name, element, access) = match words[..] {
        ["buffer" | "raw", name, element] => (name, element, Access::Read),
        ["buffer" | "raw", name, element, "write"] => (name, element, Access::Write),
        _ => return Err(format!("unknown directive #{directive}")),
    };
    let mode = if access == Access::Read { "read" } else { "read_write" };
    let ty = match (words[0], element) {
        ("raw", ty) => String::from(ty),
        (_, "f32") => "array<vec4<f32>>".into(),
        (_, "f16") => "array<vec2<u32>>".into(),
        _ => return Err(format!("unknown element type in #{directive}")),
    };
    wgsl.push_str(&format!("@group(0) @binding({binding}) var<storage, {mode}> {name}: {ty};\n"));
    if words[0] == "buffer" {
        let load = match element {
            "f32" => format!("return {name}[i];"),
            _ => format!("let p = {name}[i]; return vec4(unpack2x16float(p.x), unpack2x16float(p.y));"),
        };
        wgsl.push_str(&format!("fn load_{name}(i: u32) -> vec4<f32> {{ {load} }}\n"));
        if access == Access::Write {
            let store = match element {
                "f32" => "v",
                _ => "vec2(pack2x16float(v.xy), pack2x16float(v.zw))",
            };
            wgsl.push_str(&format!("fn store_{name}(i: u32, v: vec4<f32>) {{ {name}[i] = {store}; }}\n"));
        }
    }
    bindings.push(access);
    Ok(())
}
