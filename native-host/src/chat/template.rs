//! One compiled template.

use minijinja::{Environment, Error as JinjaError, ErrorKind, Value};

use super::{
    environment::{LEAST_FUEL, environment},
    source::prepare,
};
use crate::{Error, Result};

/// Longest source of a template, in bytes.
const LONGEST: usize = 256 << 10;
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
        let source = match prepare(source) {
            Ok(source) => source,
            Err((line, why)) => return Err(Error::Template { name, line: Some(line), why: why.into() }),
        };
        let compile = || {
            let mut env = environment()?;
            env.add_template_owned(NAME, source)?;
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

#[cfg(test)]
mod tests;
