//! How Python writes values: templates are made for it.

use std::fmt::Write;

use minijinja::{
    Error, ErrorKind, State, Value,
    value::{Kwargs, ValueKind},
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
        Some(_) => return Err(Error::new(ErrorKind::InvalidOperation, "tojson: `separators` are two strings")),
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
        // A value may hold another many times, and that one the next: only work bounds what is written.
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
