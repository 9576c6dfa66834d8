//! The shader template language: WGSL plus a few line directives. Shared by the build script, which validates every
//! permutation, and by the engine, which fills in a kernel's imports and definitions.
//!
//! | line | meaning |
//! | --- | --- |
//! | `#import name` | the text of `shaders/lib/name.wgsl`, once |
//! | `#if KEY`, `#if !KEY`, `#if KEY == word`, `#if KEY != word`, `#elif …`, `#else`, `#endif` | conditional lines; a key is false when undefined or `0` |
//! | `#unroll i COUNT` … `#end` | the lines COUNT times, `$i` (or `$iu`) being 0, 1, …; COUNT and numbers in conditions on `$i` may use `*`, `/`, `-`, from left to right |
//! | `#define KEY value` | a further definition for the lines below; arithmetic as in COUNT is done |
//! | `#macro name` … `#endmacro`, `#use name` | lines to be repeated |
//! | `#buffer name f32\|f16\|$KEY [write]` | storage buffer of vec4 groups at the next binding; defines `load_name(i) -> vec4<f32>` and, with `write`, `store_name(i, v)`; `i` counts groups of four values |
//! | `#buffer name q8 [write]` | storage buffer `array<u32>` of rows of 8-bit blocks, for `lib/q8.wgsl` to read and write |
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
#[derive(Debug, Clone, Default)]
pub struct Expanded {
    pub wgsl: String,
    pub bindings: Vec<Access>,
}

/// First binding number of the storage buffers.
pub const FIRST_STORAGE: u32 = 2;

/// A template without what is there for people alone: comments, indentation and empty lines.
pub fn strip(template: &str) -> String {
    let code = template.lines().map(|line| line.split("//").next().unwrap_or_default().trim());
    code.filter(|line| !line.is_empty()).fold(String::new(), |text, line| text + line + "\n")
}

/// Fills in a template; `library` is the names and texts that it may import.
///
/// # Errors
/// The offending line.
pub fn expand<'t>(
    template: &'t str,
    library: &[Definition<'t>],
    definitions: &[Definition<'t>],
) -> Result<Expanded, String> {
    let mut lines = Vec::new();
    import(template, library, &mut Vec::new(), &mut lines)?;
    let definitions = definitions.iter().map(|(k, v)| (*k, String::from(*v))).collect();
    let mut expansion = Expansion { definitions, macros: Vec::new(), out: Expanded::default() };
    expansion.lines(&lines, &[])?;
    Ok(expansion.out)
}

/// Collects the lines of a text and of what it imports, each import once.
fn import<'t>(
    text: &'t str,
    library: &[Definition<'t>],
    seen: &mut Vec<&'t str>,
    lines: &mut Vec<&'t str>,
) -> Result<(), String> {
    for line in text.lines() {
        match line.strip_prefix("#import ").map(str::trim) {
            Some(name) if seen.contains(&name) => {}
            Some(name) => {
                let found =
                    library.iter().find(|(n, _)| *n == name).ok_or(format!("unknown import: {line}"))?;
                seen.push(name);
                import(found.1, library, seen, lines)?;
            }
            None => lines.push(line),
        }
    }
    Ok(())
}

/// An expansion under way.
struct Expansion<'t> {
    definitions: Vec<(&'t str, String)>,
    macros: Vec<(&'t str, Vec<&'t str>)>,
    out: Expanded,
}

impl<'t> Expansion<'t> {
    /// Expands lines; `counters` are the enclosing `#unroll` variables.
    fn lines(&mut self, lines: &[&'t str], counters: &[(&str, usize)]) -> Result<(), String> {
        let mut at = 0;
        while let Some(line) = lines.get(at) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["#if", ..] => {
                    let end = block_end(lines, at, "#if", "#endif")?;
                    self.conditional(&lines[at..end], counters)?;
                    at = end;
                }
                ["#unroll", name, ref count @ ..] => {
                    let end = block_end(lines, at, "#unroll", "#end")?;
                    let count = self.value(&count.concat(), counters)?;
                    for value in 0..count {
                        let inner: Vec<_> = counters.iter().copied().chain([(name, value)]).collect();
                        self.lines(&lines[at + 1..end], &inner)?;
                    }
                    at = end;
                }
                ["#define", key, ref value @ ..] => {
                    let text = self.substitute(&value.join(" "), counters)?;
                    let text = self.value(&text, counters).map_or(text, |number| format!("{number}"));
                    self.definitions.push((key, text));
                }
                ["#macro", name] => {
                    let end = block_end(lines, at, "#macro", "#endmacro")?;
                    self.macros.push((name, lines[at + 1..end].to_vec()));
                    at = end;
                }
                ["#use", name] => {
                    let found = self.macros.iter().rev().find(|(n, _)| *n == name);
                    let body = found.ok_or_else(|| format!("unknown macro: {line}"))?.1.clone();
                    self.lines(&body, counters)?;
                }
                [word, ..] if word.starts_with('#') => {
                    let line = self.substitute(line, counters)?;
                    declare(line.trim_start().trim_start_matches('#'), &mut self.out)?;
                }
                _ => {
                    let line = self.substitute(line, counters)?;
                    self.out.wgsl.push_str(&line);
                    self.out.wgsl.push('\n');
                }
            }
            at += 1;
        }
        Ok(())
    }

    /// Expands the branch of `#if` … `#elif` … `#else` that holds; `lines` ends before `#endif`.
    fn conditional(&mut self, lines: &[&'t str], counters: &[(&str, usize)]) -> Result<(), String> {
        let mut depth = 0;
        // Starts of the branches: the lines #if, #elif and #else of this block.
        let mut starts = Vec::new();
        for (i, line) in lines.iter().enumerate() {
            match line.split_whitespace().next() {
                Some("#if") if depth == 0 => {
                    starts.push(i);
                    depth = 1;
                }
                Some("#if") => depth += 1,
                Some("#endif") => depth -= 1,
                Some("#elif" | "#else") if depth == 1 => starts.push(i),
                _ => {}
            }
        }
        for (n, start) in starts.iter().enumerate() {
            let end = starts.get(n + 1).copied().unwrap_or(lines.len());
            let condition = lines[*start].split_whitespace().skip(1).collect::<Vec<_>>();
            let holds =
                lines[*start].trim_start().starts_with("#else") || self.holds(&condition, counters)?;
            if holds {
                return self.lines(&lines[start + 1..end], counters);
            }
        }
        Ok(())
    }

    /// The last definition of a key.
    fn lookup(&self, key: &str) -> Option<&str> {
        self.definitions.iter().rev().find(|(k, _)| *k == key).map(|(_, v)| v.as_str())
    }

    fn holds(&self, condition: &[&str], counters: &[(&str, usize)]) -> Result<bool, String> {
        let defined = |key: &str| !matches!(self.lookup(key), None | Some("0"));
        let equal = |key: &str, words: &[&str]| -> Result<bool, String> {
            if let Some(found) = self.lookup(key) {
                return Ok(words == [found]);
            }
            if !key.starts_with('$') {
                return Ok(false);
            }
            Ok(self.value(key, counters)? == self.value(&words.concat(), counters)?)
        };
        match condition {
            [key, "==", words @ ..] => equal(key, words),
            [key, "!=", words @ ..] => Ok(!equal(key, words)?),
            [key] => Ok(key.strip_prefix('!').map_or_else(|| defined(key), |key| !defined(key))),
            _ => Err(format!("unknown condition {condition:?}")),
        }
    }

    /// A number: integers, definitions and counters joined by `*`, `/` and `-`, from left to right.
    fn value(&self, text: &str, counters: &[(&str, usize)]) -> Result<usize, String> {
        let text = self.substitute(text, counters)?;
        let (mut total, mut rest) = (0usize, text.as_str());
        let mut operator = '+';
        loop {
            let end = rest.find(['*', '/', '-']).unwrap_or(rest.len());
            let number: usize = rest[..end].trim().parse().map_err(|_| format!("not a number: {text}"))?;
            total = match operator {
                '+' => Some(number),
                '*' => total.checked_mul(number),
                '/' => total.checked_div(number),
                _ => total.checked_sub(number),
            }
            .ok_or_else(|| format!("impossible number: {text}"))?;
            match rest[end..].chars().next() {
                Some(next) => (operator, rest) = (next, &rest[end + 1..]),
                None => return Ok(total),
            }
        }
    }

    fn substitute(&self, line: &str, counters: &[(&str, usize)]) -> Result<String, String> {
        let mut parts = line.split('$');
        let mut out = String::from(parts.next().unwrap_or_default());
        for part in parts {
            // Counters are lower case and may be followed by the suffix of an unsigned literal.
            let counter = counters.iter().rev().find(|(name, _)| {
                let rest = part.strip_prefix(name).map(|r| r.strip_prefix('u').unwrap_or(r));
                rest.is_some_and(|r| !r.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
            });
            if let Some((name, value)) = counter {
                out.push_str(&format!("{value}{}", &part[name.len()..]));
                continue;
            }
            let is_key = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
            let end = part.find(|c: char| !is_key(c)).unwrap_or(part.len());
            let value = self.lookup(&part[..end]);
            out.push_str(value.ok_or_else(|| format!("undefined ${part}: {line}"))?);
            out.push_str(&part[end..]);
        }
        Ok(out)
    }
}

/// Index of the line that closes the block opened at `start`.
fn block_end(lines: &[&str], start: usize, open: &str, close: &str) -> Result<usize, String> {
    let mut depth = 0;
    for (i, line) in lines.iter().enumerate().skip(start) {
        match line.split_whitespace().next() {
            Some(word) if word == open => depth += 1,
            Some(word) if word == close => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Ok(i);
        }
    }
    Err(format!("{open} without {close}: {}", lines[start]))
}

fn declare(directive: &str, out: &mut Expanded) -> Result<(), String> {
    let Expanded { wgsl, bindings } = out;
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
        (_, "q8") => "array<u32>".into(),
        _ => return Err(format!("unknown element type in #{directive}")),
    };
    wgsl.push_str(&format!("@group(0) @binding({binding}) var<storage, {mode}> {name}: {ty};\n"));
    if words[0] == "buffer" && element != "q8" {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn wgsl(template: &str, definitions: &[Definition<'_>]) -> String {
        expand(template, &[], definitions).unwrap_or_else(|e| panic!("{e}")).wgsl
    }

    #[test]
    fn conditions_nest_and_choose_one_branch() {
        let text = "#if A\na\n#if B == x\nbx\n#elif B == y\nby\n#else\nb\n#endif\n#else\nnot a\n#endif\nend";
        assert_eq!(wgsl(text, &[("A", "1"), ("B", "x")]), "a\nbx\nend\n");
        assert_eq!(wgsl(text, &[("A", "1"), ("B", "y")]), "a\nby\nend\n");
        assert_eq!(wgsl(text, &[("A", "1")]), "a\nb\nend\n");
        assert_eq!(wgsl(text, &[("A", "0")]), "not a\nend\n");
    }

    #[test]
    fn loops_and_macros_unroll() {
        let text =
            "#macro m\nuse $iu $N\n#endmacro\n#unroll i $N/2\n#if $i == $N/2 - 1\nlast\n#endif\n#use m\n#end";
        assert_eq!(wgsl(text, &[("N", "4")]), "use 0u 4\nlast\nuse 1u 4\n");
    }

    #[test]
    fn definitions_follow_from_others() {
        let text = "#if TILE == big\n#define N 8\n#else\n#define N 4\n#endif\n#define HALF $N/2\n#define W a b\n$HALFu $W";
        assert_eq!(wgsl(text, &[("TILE", "big")]), "4u a b\n");
        assert_eq!(wgsl(text, &[("TILE", "small")]), "2u a b\n");
    }

    #[test]
    fn buffers_get_bindings_in_order() {
        let expanded = expand("#buffer x $X\n#raw t array<u32> write", &[], &[("X", "f16")]).unwrap();
        assert_eq!(expanded.bindings, [Access::Read, Access::Write]);
        assert!(expanded.wgsl.contains("@binding(2) var<storage, read> x: array<vec2<u32>>"));
        assert!(expanded.wgsl.contains("@binding(3) var<storage, read_write> t: array<u32>"));
    }

    #[test]
    fn imports_come_once() {
        let library = [("a", "#import b\na"), ("b", "b")];
        let expanded = expand("#import a\n#import b\n#import a\nend", &library, &[]).unwrap();
        assert_eq!(expanded.wgsl, "b\na\nend\n");
    }

    #[test]
    fn what_is_for_people_is_stripped() {
        assert_eq!(strip("//! permute A 0 1\n// why\n\n    a / b; // what\n#if A\n"), "a / b;\n#if A\n");
    }

    #[test]
    fn mistakes_name_the_line() {
        for (text, part) in [
            ("#if A", "#endif"),
            ("$NONE", "NONE"),
            ("#use nothing", "nothing"),
            ("#unroll i x\n#end", "x"),
            ("#frob", "frob"),
            ("#import frob", "frob"),
        ] {
            let error = expand(text, &[], &[]).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
