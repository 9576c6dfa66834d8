//! What templates find around them: transformers' settings, functions and filters, and Python's methods.

use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, Output, State, Value, escape_formatter,
    syntax::SyntaxConfig,
    value::{StringInput, ValueKind},
};
use minijinja_contrib::pycompat;

use super::{
    clock, python,
    source::{KEPT, KEPT_INSIDE},
};

/// Steps that every template may take. One creates at most 64 bytes, so this also bounds memory.
pub const LEAST_FUEL: u64 = 2_000_000;
/// How deep templates may nest what they run; a macro that calls itself counts for ten or so.
const DEEPEST: usize = 200;
/// How deep values may lie in one another that a template assigns. Messages are JSON, which has 128 at most.
const DEEPEST_VALUE: usize = 160;

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
    env.add_filter("e", escape);
    env.add_filter("escape", escape);
    env.add_filter("string", |state: &State, value: &Value| python::text(state, value));
    env.add_filter("trim", trim);
    env.add_filter(KEPT, |state: &State, value: Value| check(state, &value, 0).map(|()| value));
    env.add_filter(KEPT_INSIDE, |state: &State, value: Value| check(state, &value, 1).map(|()| value));
    env.add_function("raise_exception", raise_exception);
    env.add_function("strftime_now", |format: &str| {
        let text = clock::LocalTime::now().strftime(format);
        text.map_err(|e| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {e}")))
    });
    Ok(env)
}

/// Prints values as Python does.
fn format(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Number | ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => {
            out.write_str(&python::text(state, value)?).map_err(Error::from)
        }
        _ => escape_formatter(out, state, value),
    }
}

/// Lets values pass that can be printed, compared and dropped. A loop can put a list into a list many times, or into
/// itself twice; minijinja counts neither what such values hold nor how deep they are.
fn check(state: &State, value: &Value, depth: usize) -> Result<(), Error> {
    state.consume_fuel(1)?;
    let wrong = |why: &str| Err(Error::new(ErrorKind::InvalidOperation, why.to_owned()));
    match value.kind() {
        _ if depth > DEEPEST_VALUE => wrong("a value lies too deep in others"),
        ValueKind::Map if depth > 0 && is_namespace(value) => wrong("a namespace lies in something else"),
        ValueKind::Map => {
            for key in value.try_iter()? {
                check(state, &value.get_item(&key)?, depth + 1)?;
            }
            Ok(())
        }
        ValueKind::Seq | ValueKind::Iterable => {
            value.try_iter()?.try_for_each(|item| check(state, &item, depth + 1))
        }
        _ => Ok(()),
    }
}

fn is_namespace(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"))
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

/// The filter `escape`, with the entities of Python's markupsafe.
fn escape(text: StringInput<'_>) -> String {
    let mut out = String::with_capacity(text.as_str().len());
    for c in text.as_str().chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    out
}

fn raise_exception(message: &str) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.to_owned()))
}
