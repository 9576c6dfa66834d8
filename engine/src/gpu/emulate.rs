//! Kernels on cooperative matrices rewritten to plain arithmetic, so that adapters without such matrices can test all
//! of a kernel but the matrix unit itself. Slow, and for tests only: subgroups are 32 neighbouring invocations, and
//! everything that they do together is in control flow that is uniform in the workgroup.

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};

/// An invocation holds the row `lane / 2` of A, all of B, and half of the row `lane / 2` of C.
const TYPES: [(&str, &str); 3] = [
    ("coop_mat16x16<f16, A>", "array<f16, 16>"),
    ("coop_mat16x16<f16, B>", "array<f16, 256>"),
    ("coop_mat16x16<f32, C>", "array<f32, 8>"),
];

/// What subgroups do becomes what the workgroup does; that a flag is raised in any subgroup, kernels may take for all.
const CALLS: [(&str, &str); 4] = [
    ("subgroupBarrier()", "workgroupBarrier()"),
    ("subgroupShuffleXor(", "emulated_exchange("),
    ("subgroupAny(", "emulated_any("),
    ("coopMultiplyAdd(", "emulated_multiply("),
];

const HELPERS: &str = "
var<private> emulated_index: u32;
var<private> emulated_lane: u32;
var<workgroup> emulated_values: array<f32, 256>;
var<workgroup> emulated_flags: array<u32, 256>;

fn emulated_exchange(value: f32, mask: u32) -> f32 {
    workgroupBarrier();
    emulated_values[emulated_index] = value;
    workgroupBarrier();
    return emulated_values[emulated_index ^ mask];
}

fn emulated_any(flag: bool) -> bool {
    workgroupBarrier();
    emulated_flags[emulated_index] = select(0u, 1u, flag);
    workgroupBarrier();
    var any = 0u;
    for (var i = 0u; i < 128u; i++) {
        any |= emulated_flags[i];
    }
    return any != 0u;
}

fn emulated_multiply(a: array<f16, 16>, b: array<f16, 256>, c: array<f32, 8>) -> array<f32, 8> {
    var x = a;
    var w = b;
    var sum = c;
    for (var k = 0u; k < 16u; k++) {
        for (var j = 0u; j < 8u; j++) {
            sum[j] += f32(x[k]) * f32(w[k * 16u + emulated_lane % 2u * 8u + j]);
        }
    }
    return sum;
}
";

/// Rewrites the text of a kernel.
pub fn matrices(wgsl: &str) -> String {
    let mut text = wgsl.replace("enable wgpu_cooperative_matrix;\n", "");
    for (matrix, array) in TYPES {
        text = text.replace(matrix, array);
    }
    for (call, helper) in CALLS {
        text = text.replace(call, helper);
    }
    let mut used = Vec::new();
    for call in ["coopLoadT<FragA>(&", "coopLoadT<FragB>(&", "coopLoad<FragB>(&", "coopLoadT<FragC>(&"] {
        text = renamed(&text, call, &mut used);
    }
    text = stores(&text, &mut used);
    let start = text.find("fn main(").unwrap_or(text.len());
    if let Some(body) = text[start..].find("{\n") {
        text.insert_str(start + body + 2, "    emulated_index = lane;\n    emulated_lane = lane % 32u;\n");
    }
    text += HELPERS;
    used.sort();
    used.dedup();
    for (function, array) in used {
        text += &helper(&function, &array);
    }
    text
}

/// `coopLoadT<FragA>(&name[index], stride)` becomes `load_row_a_name(index, stride)`.
fn renamed(text: &str, call: &str, used: &mut Vec<(String, String)>) -> String {
    let kind = match call {
        "coopLoadT<FragA>(&" => "a",
        "coopLoadT<FragB>(&" => "b",
        "coopLoad<FragB>(&" => "b_columns",
        _ => "c",
    };
    let mut parts = text.split(call);
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let Some((name, index, rest)) = element(part) else { continue };
        used.push((kind.into(), name.into()));
        out += &format!("emulated_{kind}_{name}({index}{rest}");
    }
    out
}

/// `coopStoreT(fragment, &name[index], stride)` becomes `emulated_store_name(fragment, index, stride)`.
fn stores(text: &str, used: &mut Vec<(String, String)>) -> String {
    let mut parts = text.split("coopStoreT(");
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let Some((fragment, pointer)) = part.split_once(", &") else { continue };
        let Some((name, index, rest)) = element(pointer) else { continue };
        used.push(("store".into(), name.into()));
        out += &format!("emulated_store_{name}({fragment}, {index}{rest}");
    }
    out
}

/// Name, index and what follows of `name[index]…`.
fn element(text: &str) -> Option<(&str, &str, &str)> {
    let open = text.find('[')?;
    let mut depth = 0;
    for (at, c) in text[open..].char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            let end = open + at;
            return Some((&text[..open], &text[open + 1..end], &text[end + 1..]));
        }
    }
    None
}

fn helper(function: &str, array: &str) -> String {
    let (arguments, result, body) = match function {
        "a" => (
            "at: u32, stride: u32",
            "array<f16, 16>",
            "    var v: array<f16, 16>;
    for (var k = 0u; k < 16u; k++) {
        v[k] = NAME[at + emulated_lane / 2u * stride + k / 4u][k % 4u];
    }
    return v;",
        ),
        "b" | "b_columns" => (
            "at: u32, stride: u32",
            "array<f16, 256>",
            if function == "b" {
                "    var v: array<f16, 256>;
    for (var i = 0u; i < 256u; i++) {
        v[i] = NAME[at + i / 16u * stride + i % 16u / 4u][i % 4u];
    }
    return v;"
            } else {
                "    var v: array<f16, 256>;
    for (var i = 0u; i < 256u; i++) {
        v[i] = NAME[at + i % 16u * stride + i / 64u][i / 16u % 4u];
    }
    return v;"
            },
        ),
        "c" => (
            "at: u32, stride: u32",
            "array<f32, 8>",
            "    var v: array<f32, 8>;
    for (var j = 0u; j < 8u; j++) {
        v[j] = NAME[at + emulated_lane / 2u * stride + emulated_lane % 2u * 2u + j / 4u][j % 4u];
    }
    return v;",
        ),
        _ => (
            "fragment: array<f32, 8>, at: u32, stride: u32",
            "",
            "    let first = at + emulated_lane / 2u * stride + emulated_lane % 2u * 2u;
    NAME[first] = vec4(fragment[0], fragment[1], fragment[2], fragment[3]);
    NAME[first + 1u] = vec4(fragment[4], fragment[5], fragment[6], fragment[7]);",
        ),
    };
    let arrow = if result.is_empty() { String::new() } else { format!(" -> {result}") };
    format!("fn emulated_{function}_{array}({arguments}){arrow} {{\n{}\n}}\n", body.replace("NAME", array))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_become_functions_of_the_array() {
        let text = "fn main(lane: u32) {\n let a = coopLoadT<FragA>(&xs[(f + 1u) * S[0]], S + 1u);\n\
                    coopStoreT(acc[0][1], &stage[slot], 4u);\n}";
        let out = matrices(text);
        assert!(out.contains("let a = emulated_a_xs((f + 1u) * S[0], S + 1u);"), "{out}");
        assert!(out.contains("emulated_store_stage(acc[0][1], slot, 4u);"), "{out}");
        assert!(out.contains("emulated_lane = lane % 32u;"), "{out}");
        assert!(!out.contains("coop"), "{out}");
    }
}
