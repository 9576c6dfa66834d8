//! What templates find around them: transformers' settings, functions and filters, and Python's methods.

use jiff::{
    ZonedDateTime,
    fmt::strtime::{BrokenDownTime, Config},
};
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, Output, State, Value, escape_formatter, syntax::SyntaxConfig,
    value::{StringInput, ValueKind},
};
use minijinja_contrib::pycompat;

use super::python;

/// Steps that every template may take. One creates at most 64 bytes, so this also bounds memory.
pub const LEAST_FUEL: u64 = 2_000_000;
/// How deep templates may nest what they run; a macro that calls itself counts for ten or so.
const DEEPEST: usize = 200;

/// An environment in which templates of transformers render as there.
pub fn environment() -> Result<Environment<'static>, Error> {
    let mut env = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
    env.set_syntax(syntax);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_recursion_limit(DEEPEST);
    env.set_formatter(format);
    env.set_unknown_method_callback(method);
    env.add_filter("tojson", python::tojson);
    env.add_filter("trim", trim);
    env.add_function("raise_exception", raise_exception);
    env.add_function("strftime_now", |format: &str| strftime(&ZonedDateTime::now(), format));
    Ok(env)
}

/// Numbers as Python prints them; the rest is the same.
fn format(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    if value.kind() == ValueKind::Number && !value.is_integer() {
        return out.write_str(&python::float(f64::try_from(value.clone())?)).map_err(Error::from);
    }
    escape_formatter(out, state, value)
}

/// Python's methods of strings, lists and objects.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if let (Some(text), [] | [_]) = (value.as_str(), args)
        && args.iter().all(Value::is_none)
    {
        match name {
            "strip" => return Ok(text.trim_matches(python::is_space).into()),
            "lstrip" => return Ok(text.trim_start_matches(python::is_space).into()),
            "rstrip" => return Ok(text.trim_end_matches(python::is_space).into()),
            "split" => {
                let words = text.split(python::is_space).filter(|word| !word.is_empty());
                return Ok(words.map(Value::from).collect());
            }
            _ => {}
        }
    }
    pycompat::unknown_method_callback(state, value, name, args)
}

/// The filter `trim`: `str.strip`.
fn trim(text: StringInput<'_>, characters: Option<&str>) -> String {
    match characters {
        Some(characters) => text.as_str().trim_matches(|c| characters.contains(c)).into(),
        None => text.as_str().trim_matches(python::is_space).into(),
    }
}

fn raise_exception(message: &str) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.to_owned()))
}

/// Python's `strftime`; what it does not know stays as it is.
fn strftime(time: &ZonedDateTime, format: &str) -> Result<String, Error> {
    let mut text = String::new();
    BrokenDownTime::from(time)
        .format_with_config(&Config::new().lenient(true), format, &mut text)
        .map_err(|e| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {e}")))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_pythons() {
        let time = "2024-07-05T09:03:01+00:00[UTC]".parse().unwrap();
        let cases = [
            ("%d %b %Y", "05 Jul 2024"),
            ("%Y-%m-%d %H:%M:%S", "2024-07-05 09:03:01"),
            ("%A, %B %-d", "Friday, July 5"),
            ("%I:%M %p %j %y %%", "09:03 AM 187 24 %"),
            ("%Q é", "%Q é"),
        ];
        for (format, wanted) in cases {
            assert_eq!(strftime(&time, format).unwrap(), wanted, "{format}");
        }
    }
}
