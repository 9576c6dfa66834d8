use super::*;

fn render(source: &str) -> Result<String> {
    Template::new("t", source)?.render(&Value::from(()), 0)
}

#[test]
fn marks_for_training_leave_no_trace() {
    let source = "a\n  {%- generation %}\nb {% generation_kind %}{% if x %}\n  {% endgeneration -%}\nc";
    assert_eq!(
        plain(source),
        "a\n  {%- if true %}\nb {% generation_kind %}{% if x %}\n  {% endif -%}\nc"
    );
    assert_eq!(render("a{% generation %}b{% endgeneration %}c").unwrap(), "abc");
    assert_eq!(plain("{% endgeneration"), "{% endgeneration");
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
    assert!(render(&long).unwrap_err().to_string().contains("1048577 bytes"));
}

#[test]
fn templates_that_never_end_are_stopped() {
    let doubled = "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = BODY %}{% endfor %}";
    let list = "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
    let nested = "{% set ns = namespace(x=0) %}{% for i in range(9999) %}{% for j in range(9999) %}\
                  {% set ns.x = [ns.x] %}{% endfor %}{% endfor %}";
    let cases = [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}".into(),
        "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}".into(),
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}".into(),
        "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}".into(),
        doubled.replace("BODY", "ns.x ~ ns.x"),
        doubled.replace("BODY", "ns.x + ns.x"),
        doubled.replace("BODY", "ns.x * 1000000"),
        doubled.replace("BODY", "ns.x.replace('', ns.x)"),
        doubled.replace("BODY", "ns.x | replace('a', ns.x)"),
        doubled.replace("BODY", "ns.x.join([ns.x, ns.x, ns.x])"),
        doubled.replace("BODY", "[ns.x, ns.x] | join(ns.x)"),
        doubled.replace("BODY", "'%1000000s' % ns.x"),
        doubled.replace("BODY", "(ns.x ~ ns.x) | trim"),
        doubled.replace("BODY", "ns.x | tojson | tojson"),
        doubled.replace("BODY", "[ns.x, ns.x] | tojson"),
        format!("{list}{{{{ ns.x }}}}"),
        format!("{list}{{{{ ns.x | tojson }}}}"),
        format!("{list}{{{{ ns.x | string }}}}"),
        format!("{list}{{{{ ns.x ~ '' }}}}"),
        format!("{list}{{{{ ns.x == ns.x }}}}{{{{ ns.x | sort }}}}"),
        nested.into(),
        format!("{}1{}", "{{ (".repeat(1) + &"(".repeat(50_000), ")".repeat(50_000)),
        "{% if true %}".repeat(20_000),
        format!("{{{{ {}1 }}}}", "[".repeat(100_000)),
        format!("{{{{ {}1 }}}}", "not ".repeat(100_000)),
        format!("{{{{ 1{} }}}}", " + 1".repeat(100_000)),
        format!("{{{{ x{} }}}}", ".x".repeat(100_000)),
        format!("{{{{ x{} }}}}", " | list".repeat(100_000)),
    ];
    for source in cases {
        let start = std::time::Instant::now();
        let shown: String = source.chars().take(160).collect();
        println!("{shown}");
        let result = render(&source);
        println!("  {:?} {:?}", start.elapsed(), result.as_ref().map(String::len));
    }
}
