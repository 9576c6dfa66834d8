//! Templates' sources, made ready for minijinja: tags of transformers that it does not know, and limits on what
//! variables hold. Lines stay where they are.

use std::borrow::Cow;

/// Most names, numbers and signs in one tag: minijinja's parser recurses for each operator of a chain.
const MOST_TOKENS: usize = 500;
/// Most `{% elif %}` of a template: each lies in the one before.
const MOST_ELIFS: usize = 300;

/// The filters that every assigned value goes through: to a name, and to an attribute.
pub const KEPT: &str = "__kept";
pub const KEPT_INSIDE: &str = "__kept_inside";

/// `{% generation %}` and `{% endgeneration %}`, which mark answers for training, become conditions that always hold;
/// `{% set x = y %}` becomes `{% set x = (y)|__kept %}`.
///
/// # Errors
/// A line, and what is too long there.
pub fn prepare(source: &str) -> Result<String, (usize, &'static str)> {
    let mut out = String::with_capacity(source.len() + source.len() / 4);
    let (mut rest, mut elifs) = (source, 0);
    while let Some(at) = rest.find('{') {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let (length, tokens) = match tag.as_bytes().get(1) {
            Some(b'#') => (tag.find("#}").map_or(tag.len(), |end| end + 2), 0),
            Some(b'{') => end_of(tag, "}}"),
            Some(b'%') => end_of(tag, "%}"),
            _ => (1, 0),
        };
        let line = || source[..source.len() - tag.len()].matches('\n').count() + 1;
        if tokens > MOST_TOKENS {
            return Err((line(), "a tag is too long, or never ends"));
        }
        let (whole, after) = tag.split_at(length);
        rest = after;
        let Some(inner) = whole.strip_prefix("{%").and_then(|t| t.strip_suffix("%}")) else {
            out.push_str(whole);
            continue;
        };
        elifs += usize::from(word(inner).starts_with("elif"));
        if elifs > MOST_ELIFS {
            return Err((line(), "too many conditions"));
        }
        out.push_str("{%");
        out.push_str(&statement(inner));
        out.push_str("%}");
        if word(inner) == "raw" {
            let end = end_of_raw(rest);
            out.push_str(&rest[..end]);
            rest = &rest[end..];
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// What a tag says, without marks for whitespace.
fn word(inner: &str) -> &str {
    inner.trim_matches(|c: char| c == '-' || c == '+' || c.is_whitespace())
}

/// Bytes of a tag up to and with `close`, which may stand in its strings too; and its names, numbers and signs.
fn end_of(tag: &str, close: &str) -> (usize, usize) {
    let bytes = tag.as_bytes();
    let (mut at, mut quote, mut tokens) = (2, None, 0);
    let in_word = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric() || !byte.is_ascii();
    while at < bytes.len() {
        let byte = bytes[at];
        let goes_on = byte.is_ascii_whitespace() || (in_word(byte) && in_word(bytes[at - 1]));
        tokens += usize::from(quote.is_none() && !goes_on);
        match (quote, byte) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if byte == open => quote = None,
            (None, byte @ (b'"' | b'\'')) => quote = Some(byte),
            (None, _) if bytes[at..].starts_with(close.as_bytes()) => return (at + close.len(), tokens),
            _ => {}
        }
        at += 1;
    }
    (tag.len(), tokens)
}

/// Bytes before `{% endraw %}`.
fn end_of_raw(text: &str) -> usize {
    let mut from = 0;
    while let Some(at) = text[from..].find("{%").map(|at| from + at) {
        let inner = text[at + 2..].trim_start_matches(|c: char| c == '-' || c == '+' || c.is_whitespace());
        if inner.starts_with("endraw") {
            return at;
        }
        from = at + 2;
    }
    text.len()
}

fn statement(inner: &str) -> Cow<'_, str> {
    let said = word(inner);
    let replaced = |with: &str| Cow::Owned(inner.replacen(said, with, 1));
    match said {
        "generation" => return replaced("if true"),
        "endgeneration" => return replaced("endif"),
        _ => {}
    }
    if !said.starts_with("set") {
        return inner.into();
    }
    let Some((target, _)) = inner.split_once('=') else { return inner.into() };
    // The block form may have strings with a sign of equality, but none after names alone.
    if !target.chars().all(|c| c.is_alphanumeric() || c.is_whitespace() || "_.,()-+".contains(c)) {
        return inner.into();
    }
    let (target, value) = inner.split_at(target.len() + 1);
    let end = value.trim_end_matches(|c: char| c == '-' || c == '+' || c.is_whitespace()).len();
    let (value, mark) = value.split_at(end);
    let filter = if target.contains('.') { KEPT_INSIDE } else { KEPT };
    format!("{target}({value})|{filter}{mark}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_for_training() {
        let source = "a\n  {%- generation %}\nb {% generation_kind %}{% if x %}\n  {% endgeneration -%}\nc";
        let wanted = "a\n  {%- if true %}\nb {% generation_kind %}{% if x %}\n  {% endif -%}\nc";
        assert_eq!(prepare(source).unwrap(), wanted);
    }

    #[test]
    fn assignments() {
        let cases = [
            ("{% set x = 1 %}", "{% set x =( 1)|__kept %}"),
            (
                "{%- set ns.x = '%}=' ~ \"\\\"%}\" -%}",
                "{%- set ns.x =( '%}=' ~ \"\\\"%}\")|__kept_inside -%}",
            ),
            ("{% set a, b = c == d, 2 %}", "{% set a, b =( c == d, 2)|__kept %}"),
            ("{%set x=[\n1]+%}", "{%set x=([\n1])|__kept+%}"),
        ];
        for (source, wanted) in cases {
            assert_eq!(prepare(source).unwrap(), wanted);
        }
    }

    #[test]
    fn long_tags() {
        let string = format!("{{{{ '{}' }}}}", "x ".repeat(2 * MOST_TOKENS));
        assert_eq!(prepare(&string).unwrap(), string);
        assert_eq!(prepare(&format!("\n\n{{{{ {} }}}}", "- ".repeat(MOST_TOKENS))).unwrap_err().0, 3);
        let many = "{% if x %}\n".to_owned() + &"{% elif y %}\n".repeat(MOST_ELIFS + 1);
        assert_eq!(prepare(&many), Err((MOST_ELIFS + 2, "too many conditions")));
    }

    #[test]
    fn everything_else_stays() {
        let cases = [
            "",
            "{ a } {",
            "{% set x %}y = {% endset %}",
            "{% set x | replace('=', '') %}{% endset %}",
            "{# {% set x = 1 %} #}{{ '{% set x = 1 %}' }}{{ \"}}{% set x = 1 %}\" }}",
            "{%- raw -%}{% set x = 1 %}{{ ' {%- endraw %}",
            "{% raw %}{% set x = 1 %}",
            "{% settle = 1",
            "{{ 'é",
            "{% 'é\\",
            "{%",
            "{%}",
            "{#",
            "{#}",
            "{% if x == 1 %}{% endif %}",
        ];
        for source in cases {
            assert_eq!(prepare(source).unwrap(), source);
        }
    }
}
