//! One compiled template.

use std::borrow::Cow;

use minijinja::{Environment, Error as JinjaError, ErrorKind, Value};

use super::environment::{LEAST_FUEL, environment};
use crate::{Error, Result};

/// Longest source of a template, in bytes.
const LONGEST: usize = 1 << 20;
/// The template's name in its environment.
const NAME: &str = "chat";

/// A template that was read and understood.
#[derive(Debug, Clone)]
pub struct Template {
    env: Environment<'static>,
    /// For errors: where it came from.
    name: String,
}

impl Template {
    /// Compiles a template; `name` says in errors where it came from.
    ///
    /// # Errors
    /// `Template`, naming the line.
    pub fn new(name: impl Into<String>, source: &str) -> Result<Self> {
        let name = name.into();
        if source.len() > LONGEST {
            let why = format!("{} bytes are more than the {LONGEST} that a template may have", source.len());
            return Err(Error::Template { name, line: None, why });
        }
        let compile = || {
            let mut env = environment()?;
            env.add_template_owned(NAME, plain(source).into_owned())?;
            Ok(env)
        };
        match compile() {
            Ok(env) => Ok(Template { env, name }),
            Err(error) => Err(explain(&name, &error)),
        }
    }

    /// Renders the template with these variables; `size` is about how many bytes they hold.
    ///
    /// # Errors
    /// `Template`, naming the line: what the template raises itself, what it misses, and that it does too much.
    pub fn render(&self, variables: &Value, size: usize) -> Result<String> {
        let mut env = self.env.clone();
        // Copying the variables a few times is no excess, however long the chat.
        env.set_fuel(Some(LEAST_FUEL + size as u64));
        let rendered = env.get_template(NAME).and_then(|template| template.render(variables.clone()));
        rendered.map_err(|error| explain(&self.name, &error))
    }
}

/// What a user can do something with: the innermost place and its reason.
fn explain(name: &str, error: &JinjaError) -> Error {
    let mut cause = error;
    while let Some(inner) = std::error::Error::source(cause).and_then(|e| e.downcast_ref::<JinjaError>()) {
        cause = inner;
    }
    let why = match (cause.kind(), cause.detail()) {
        (ErrorKind::OutOfFuel, _) => "does too much: it loops, or makes too large a text".into(),
        (_, Some(detail)) => detail.to_owned(),
        (kind, None) => kind.to_string(),
    };
    Error::Template { name: name.into(), line: cause.line().or(error.line()), why }
}

/// The template without `{% generation %}` and `{% endgeneration %}`, which mark answers for training: conditions that
/// always hold take their place, so that whitespace and lines stay as they are.
fn plain(source: &str) -> Cow<'_, str> {
    if !source.contains("endgeneration") {
        return source.into();
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        out.push_str(before);
        let inner = tag.find("%}").map_or("", |end| &tag[..end]);
        let word = inner.trim_matches(|c: char| c == '-' || c == '+' || c.is_whitespace());
        let instead = match word {
            "generation" => "if true",
            "endgeneration" => "endif",
            _ => word,
        };
        if instead == word {
            rest = tag;
            continue;
        }
        out.push_str(&inner.replacen(word, instead, 1));
        rest = &tag[inner.len()..];
    }
    out.push_str(rest);
    out.into()
}

#[cfg(test)]
mod tests;
