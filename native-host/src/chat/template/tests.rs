use super::*;

fn render(source: &str) -> Result<String> {
    Template::new("t", source)?.render(&Value::from(()), 0)
}

#[test]
fn errors_name_the_line() {
    let cases = [
        ("a\n{% if %}", "chat template of t, line 2: "),
        ("\n\n{{ nobody.name }}", "line 3: undefined value"),
        ("{{ 'a' + 1 }}", "line 1: "),
        ("\n{{ raise_exception('Roles must alternate') }}", "line 2: Roles must alternate"),
        ("{{ 'a' | nothing }}", "line 1: filter nothing is unknown"),
        ("{% include 'x' %}", "line 1: "),
        ("{{ [1] | tojson(indent=1000) }}", "line 1: tojson: an indent of 1000"),
        ("{{ nobody | tojson }}", "tojson: a value of type undefined"),
        ("{{ 1 | tojson(colour=1) }}", "line 1: "),
    ];
    for (source, wanted) in cases {
        let error = render(source).unwrap_err().to_string();
        assert!(error.starts_with("chat template of t") && error.contains(wanted), "{source}: {error}");
    }
    let long = " ".repeat(LONGEST + 1);
    assert!(render(&long).unwrap_err().to_string().contains("262145 bytes"));
}

fn refused(source: &str, wanted: &str) {
    let start = std::time::Instant::now();
    let error = render(source).expect_err(source).to_string();
    let shown: String = source.chars().take(200).collect();
    assert!(error.contains(wanted), "{shown}: {error}");
    println!("{:?} {shown}: {error}", start.elapsed());
}

#[test]
fn templates_that_never_end_are_stopped() {
    let doubled =
        "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = BODY %}{% endfor %}{{ ns.x }}";
    let bodies = [
        "ns.x ~ ns.x",
        "ns.x + ns.x",
        "ns.x * 1000000",
        "ns.x.replace('', ns.x)",
        "ns.x | replace('a', ns.x)",
        "ns.x.join([ns.x, ns.x, ns.x])",
        "[ns.x, ns.x] | join(ns.x)",
        "'%9999999s%9999999s' | format(ns.x, ns.x) + ns.x",
        "(ns.x ~ ns.x) | trim",
        "ns.x | tojson | tojson",
        "[ns.x, ns.x] | tojson",
        "[ns.x, ns.x] | string",
    ];
    for body in bodies {
        refused(&doubled.replace("BODY", body), "line 1: does too much");
    }
    let loops = "{% for i in range(99999) %}{% for j in range(99999) %}BODY{% endfor %}{% endfor %}";
    refused(&loops.replace("BODY", ""), "line 1: does too much");
    refused(&loops.replace("BODY", "x"), "line 1: does too much");
    refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion limit");
    refused("{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}", "recursion limit");
    refused("{% for x in [1] recursive %}{{ loop([x]) }}{% endfor %}", "recursion limit");
}

#[test]
fn values_that_hold_too_much_are_stopped() {
    let inside = "{% set ns = namespace(x=[1]) %}{% for i in range(9999) %}{% set ns.x = BODY %}{% endfor %}";
    for body in
        ["[ns.x, ns.x]", "[ns.x] * 2", "{'a': ns.x, 'b': ns.x}", "(ns.x, ns.x)", "[ns.x, ns.x] | list"]
    {
        let error = render(&inside.replace("BODY", body)).unwrap_err().to_string();
        assert!(error.contains("does too much") || error.contains("too deep"), "{body}: {error}");
    }
    refused(&inside.replace("BODY", "[ns.x]"), "a value lies too deep in others");
    refused(&("{% set x = [1] %}".to_owned() + &"{% set x = [x, x] %}".repeat(99)), "does too much");
    refused("{% set ns = namespace() %}{% set ns.x = ns %}", "a namespace lies in something else");
    refused(
        "{% set ns = namespace() %}{% set ns.x = [1, {'a': ns}] %}",
        "a namespace lies in something else",
    );
    refused("{% set ns = namespace() %}{% set ns = namespace(x=ns) %}", "a namespace lies in something else");
}

#[test]
fn deep_sources_are_refused() {
    let n = 20_000;
    let sources = [
        "{{ ".to_owned() + &"(".repeat(n) + "1" + &")".repeat(n) + " }}",
        "{{ ".to_owned() + &"(".repeat(2000) + "1" + &")".repeat(2000) + " }}",
        "{% if true %}".repeat(n / 2),
        "{{ ".to_owned() + &"[".repeat(n) + "1" + &"]".repeat(n) + " }}",
        "{{ ".to_owned() + &"not ".repeat(n) + "1 }}",
        "{{ ".to_owned() + &"- ".repeat(n) + "1 }}",
        "{{ ".to_owned() + &"1 if 1 else ".repeat(n / 2) + "1 }}",
        "{{ x".to_owned() + &".x".repeat(n) + " }}",
    ];
    for source in sources {
        refused(&source, "chat template of t, line 1: ");
    }
    // As long as tags may be.
    let cases = [
        ("{{ ", "not ", "1 }}"),
        ("{{ ", "-", "1 }}"),
        ("{{ 1", "+1", " }}"),
        ("{{ 1", " if 1 else 1", " }}"),
        ("{{ [1]", "|list", " }}"),
        ("{{ dict(x=1)", ".x", " }}"),
        ("{{ [1]", "[0]", " }}"),
        ("{{ 1", "~1", " }}"),
        ("{{ 1", "**1", " }}"),
        ("{{ 1", "and 1", " }}"),
        ("{{ x", "()", " }}"),
        ("{{ 1", "<1", " }}"),
        ("{{ 1", " is odd", " }}"),
        ("{% if 0 %}", "{% elif 0 %}", "{% endif %}"),
        ("", "{% set x = 1 %}", ""),
        ("", "{% if 0 %}{% endif %}", ""),
    ];
    for (begin, part, end) in cases {
        let tokens =
            part.split_whitespace().count() + part.matches(|c: char| c.is_ascii_punctuation()).count();
        let times = match part {
            "{% elif 0 %}" => 300,
            _ if part.starts_with('{') => 5000,
            _ => 490 / tokens,
        };
        let source = begin.to_owned() + &part.repeat(times) + end;
        match render(&source) {
            Ok(text) => assert!(text.len() < 10_000, "{part}"),
            Err(error) => assert!(error.to_string().contains("line 1"), "{part}: {error}"),
        }
    }
}
