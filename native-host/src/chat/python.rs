//! How Python writes values: templates are made for it. All of it costs fuel by what is written, since a value may hold
//! another many times, and that one the next: its size says little about the text.

use std::fmt::Write;

use minijinja::{
    Error, ErrorKind, State, Value,
    value::{Kwargs, Tuple, ValueKind},
};

/// Values in values that are written, to this depth.
const DEEPEST: usize = 128;
/// Most spaces that `indent` may ask for.
const WIDEST: i64 = 64;

/// Whether `str.strip` takes a character away.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// `repr` of a float: the shortest digits that read back the same, with an exponent where Python has one.
pub fn float(value: f64) -> String {
    if !value.is_finite() {
        let name = if value.is_nan() { "nan" } else { "inf" };
        return if value < 0.0 { format!("-{name}") } else { name.into() };
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let text = format!("{value}");
    if text.contains('.') { text } else { text + ".0" }
}

/// `str` of a value.
///
/// # Errors
/// Out of fuel; lists deeper than anybody writes them.
pub fn text(state: &State, value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    if value.kind() == ValueKind::String {
        out.push_str(value.as_str().unwrap_or_default());
    } else {
        repr(state, &mut out, value, 0)?;
    }
    Ok(out)
}

fn repr(state: &State, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > DEEPEST {
        let why = format!("a list or mapping has others in it, deeper than {DEEPEST}");
        return Err(Error::new(ErrorKind::InvalidOperation, why));
    }
    state.consume_fuel(1)?;
    let kind = value.kind();
    match kind {
        ValueKind::Number if !value.is_integer() => out.push_str(&float(f64::try_from(value.clone())?)),
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            state.consume_fuel(text.len() as u64 / 64)?;
            quoted(out, text);
        }
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => {
            let (open, close) = match kind {
                ValueKind::Map => ('{', '}'),
                _ if value.downcast_object_ref::<Tuple>().is_some() => ('(', ')'),
                _ => ('[', ']'),
            };
            out.push(open);
            let mut count = 0;
            for item in value.try_iter()? {
                if count > 0 {
                    out.push_str(", ");
                }
                count += 1;
                repr(state, out, &item, depth + 1)?;
                if kind == ValueKind::Map {
                    out.push_str(": ");
                    repr(state, out, &value.get_item(&item)?, depth + 1)?;
                }
            }
            if count == 1 && close == ')' {
                out.push(',');
            }
            out.push(close);
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

/// `repr` of a string.
fn quoted(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        // Writing to a string cannot fail.
        let _ = match c {
            '\n' => write!(out, "\\n"),
            '\r' => write!(out, "\\r"),
            '\t' => write!(out, "\\t"),
            '\\' => write!(out, "\\\\"),
            c if c == quote => write!(out, "\\{c}"),
            c if is_printable(c) => write!(out, "{c}"),
            c if c <= '\u{ff}' => write!(out, "\\x{:02x}", u32::from(c)),
            c if c <= '\u{ffff}' => write!(out, "\\u{:04x}", u32::from(c)),
            c => write!(out, "\\U{:08x}", u32::from(c)),
        };
    }
    out.push(quote);
}

/// `str.isprintable`. Rust's `escape_debug` knows the same characters, and after the first of a text it leaves
/// combining ones alone.
fn is_printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        c if c.is_ascii() => false,
        c => {
            let mut shown = ['a', c].iter().collect::<String>();
            shown = shown.escape_debug().collect();
            shown.chars().nth(1) == Some(c)
        }
    }
}

/// The options of `json.dumps`.
struct Dump<'a, 'e> {
    state: &'a State<'a, 'e>,
    out: String,
    ascii: bool,
    /// What is put before values of a level; `None`: all in one line.
    indent: Option<String>,
    between: String,
    after_key: String,
    sort: bool,
}

/// The filter `tojson` of transformers: `json.dumps` with `ensure_ascii=False`.
///
/// # Errors
/// For options that are not known and values that JSON has no place for.
pub fn tojson(state: &State, value: &Value, ascii: Option<bool>, options: Kwargs) -> Result<String, Error> {
    let indent: Option<Value> = options.get("indent")?;
    let indent = match indent.filter(|v| !v.is_none()) {
        Some(text) if text.as_str().is_some() => Some(text.to_string()),
        Some(count) => {
            let count = bool::try_from(count.clone()).map(i64::from).or_else(|_| i64::try_from(count))?;
            if count > WIDEST {
                let why = format!("tojson: an indent of {count} is more than {WIDEST}");
                return Err(Error::new(ErrorKind::InvalidOperation, why));
            }
            Some(" ".repeat(count.max(0) as usize))
        }
        None => None,
    };
    let separators: Option<Vec<String>> = options.get("separators")?;
    let (between, after_key) = match separators.as_deref() {
        Some([between, after_key]) => (between.clone(), after_key.clone()),
        Some(_) => {
            return Err(Error::new(ErrorKind::InvalidOperation, "tojson: `separators` are two strings"));
        }
        None if indent.is_some() => (",".into(), ": ".into()),
        None => (", ".into(), ": ".into()),
    };
    let ascii = ascii.map_or_else(|| options.get("ensure_ascii"), |v| Ok(Some(v)))?.unwrap_or(false);
    let sort = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    options.assert_all_used()?;
    let mut dump = Dump { state, out: String::new(), ascii, indent, between, after_key, sort };
    dump.value(value, 0)?;
    Ok(dump.out)
}

impl Dump<'_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > DEEPEST {
            let why = format!("tojson: values lie in one another deeper than {DEEPEST}");
            return Err(Error::new(ErrorKind::BadSerialization, why));
        }
        self.state.consume_fuel(1)?;
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value)?,
            ValueKind::String => self.string(value.as_str().unwrap_or_default())?,
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.out.push('[');
                for (i, item) in items.iter().enumerate() {
                    self.begin(i, depth);
                    self.value(item, depth + 1)?;
                }
                self.end(']', items.len(), depth);
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort {
                    keys.sort();
                }
                self.out.push('{');
                for (i, key) in keys.iter().enumerate() {
                    self.begin(i, depth);
                    self.key(key)?;
                    self.out.push_str(&self.after_key);
                    self.value(&value.get_item(key)?, depth + 1)?;
                }
                self.end('}', keys.len(), depth);
            }
            other => {
                let why = format!("tojson: a value of type {other} has no place in JSON");
                return Err(Error::new(ErrorKind::BadSerialization, why));
            }
        }
        Ok(())
    }

    fn begin(&mut self, index: usize, depth: usize) {
        if index > 0 {
            self.out.push_str(&self.between);
        }
        self.new_line(depth + 1);
    }

    fn end(&mut self, bracket: char, items: usize, depth: usize) {
        if items > 0 {
            self.new_line(depth);
        }
        self.out.push(bracket);
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            (0..depth).for_each(|_| self.out.push_str(indent));
        }
    }

    fn number(&mut self, value: &Value) -> Result<(), Error> {
        let text = if value.is_integer() {
            value.to_string()
        } else {
            match f64::try_from(value.clone())? {
                v if v.is_nan() => "NaN".into(),
                v if v.is_infinite() => if v > 0.0 { "Infinity" } else { "-Infinity" }.into(),
                v => float(v),
            }
        };
        self.out.push_str(&text);
        Ok(())
    }

    fn key(&mut self, key: &Value) -> Result<(), Error> {
        match key.kind() {
            ValueKind::String => self.string(key.as_str().unwrap_or_default()),
            ValueKind::Number | ValueKind::Bool | ValueKind::None => {
                self.out.push('"');
                self.value(key, 0)?;
                self.out.push('"');
                Ok(())
            }
            other => {
                let why = format!("tojson: a key of type {other} has no place in JSON");
                Err(Error::new(ErrorKind::BadSerialization, why))
            }
        }
    }

    fn string(&mut self, text: &str) -> Result<(), Error> {
        self.state.consume_fuel(text.len() as u64 / 64)?;
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ascii && c > '~') => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a string cannot fail.
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings() {
        let cases = [
            ("a", "'a'"),
            ("it's", "\"it's\""),
            ("'\"", "'\\'\"'"),
            ("\\\n\t\r\0\x7f", "'\\\\\\n\\t\\r\\x00\\x7f'"),
            (
                "é\u{301}\u{a0}\u{200b}\u{ad}東😀\u{e0001}\u{3000}",
                "'é\u{301}\\xa0\\u200b\\xad東😀\\U000e0001\\u3000'",
            ),
        ];
        for (text, wanted) in cases {
            let mut out = String::new();
            quoted(&mut out, text);
            assert_eq!(out, wanted);
        }
    }

    #[test]
    fn floats() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (5e-324, "5e-324"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ];
        for (value, wanted) in cases {
            assert_eq!(float(value), wanted);
        }
    }
}
