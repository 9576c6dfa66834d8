//! Kernels on cooperative matrices rewritten to plain arithmetic, so that adapters without such matrices can test all
//! of a kernel but the matrix unit itself. Slow, and for tests only: subgroups are 32 neighbouring invocations, and
//! everything that they do together is in control flow that is uniform in the workgroup.

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};

/// An invocation holds the row `lane / 2` of A and half of that row of C. Of B it holds where it lies, so kernels must
/// multiply before they write there again: by-value copies would take compilers minutes.
const TYPES: [(&str, &str); 3] = [
    ("coop_mat16x16<f16, A>", "array<vec4<f16>, 4>"),
    ("coop_mat16x16<f16, B>", "vec3<u32>"),
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
// 4, which a compiler cannot know, so that it unrolls no loop.
var<private> emulated_quads: u32;
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
    for (var i = 0u; i < 32u * emulated_quads; i++) {
        any |= emulated_flags[i];
    }
    return any != 0u;
}

fn emulated_multiply(a: array<vec4<f16>, 4>, b: vec3<u32>, c: array<f32, 8>) -> array<f32, 8> {
    var x = a;
    var sum = c;
    for (var q = 0u; q < emulated_quads; q++) {
        let v = vec4<f32>(x[q]);
        for (var j = 0u; j < 2u * emulated_quads; j++) {
            sum[j] += dot(v, emulated_column(b, q, emulated_lane % 2u * 8u + j));
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
    for (call, kind) in [
        ("coopLoadT<FragA>(&", "a"),
        ("coopLoadT<FragB>(&", "rows"),
        ("coopLoad<FragB>(&", "columns"),
        ("coopLoadT<FragC>(&", "c"),
    ] {
        text = loads(&text, call, kind, &mut used);
    }
    text = stores(&text, &mut used);
    let start = text.find("fn main(").unwrap_or(text.len());
    if let Some(body) = text[start..].find("{\n") {
        text.insert_str(
            start + body + 2,
            "    emulated_index = lane;\n    emulated_lane = lane % 32u;\n    emulated_quads = 4u + min(counts.x, 0u);\n",
        );
    }
    text += HELPERS;
    used.sort();
    used.dedup();
    for (id, (kind, array)) in used.iter().enumerate() {
        text += &helper(kind, array, id);
    }
    text += &column(&used);
    text
}

/// `coopLoadT<FragA>(&name[index], stride)` becomes `emulated_a_name(index, stride)`.
fn loads(text: &str, call: &str, kind: &'static str, used: &mut Vec<(&'static str, String)>) -> String {
    let mut parts = text.split(call);
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let Some((name, index, rest)) = element(part) else { continue };
        used.push((kind, name.into()));
        out += &format!("emulated_{kind}_{name}({index}{rest}");
    }
    out
}

/// `coopStoreT(fragment, &name[index], stride)` becomes `emulated_store_name(fragment, index, stride)`.
fn stores(text: &str, used: &mut Vec<(&'static str, String)>) -> String {
    let mut parts = text.split("coopStoreT(");
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let Some((fragment, pointer)) = part.split_once(", &") else { continue };
        let Some((name, index, rest)) = element(pointer) else { continue };
        used.push(("store", name.into()));
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

fn helper(kind: &str, array: &str, id: usize) -> String {
    let text = match kind {
        "a" => {
            "fn emulated_a_NAME(at: u32, stride: u32) -> array<vec4<f16>, 4> {
    let first = at + emulated_lane / 2u * stride;
    return array(NAME[first], NAME[first + 1u], NAME[first + 2u], NAME[first + 3u]);
}
"
        }
        "rows" | "columns" => {
            "fn emulated_KIND_NAME(at: u32, stride: u32) -> vec3<u32> {
    return vec3(IDu, at, stride);
}
"
        }
        "c" => {
            "fn emulated_c_NAME(at: u32, stride: u32) -> array<f32, 8> {
    let first = at + emulated_lane / 2u * stride + emulated_lane % 2u * 2u;
    let v = NAME[first];
    let w = NAME[first + 1u];
    return array(v.x, v.y, v.z, v.w, w.x, w.y, w.z, w.w);
}
"
        }
        _ => {
            "fn emulated_store_NAME(fragment: array<f32, 8>, at: u32, stride: u32) {
    let first = at + emulated_lane / 2u * stride + emulated_lane % 2u * 2u;
    NAME[first] = vec4(fragment[0], fragment[1], fragment[2], fragment[3]);
    NAME[first + 1u] = vec4(fragment[4], fragment[5], fragment[6], fragment[7]);
}
"
        }
    };
    text.replace("NAME", array).replace("KIND", kind).replace("ID", &id.to_string())
}

/// Rows `4q` to `4q + 3` of a column of B, wherever that lies.
fn column(used: &[(&str, String)]) -> String {
    let mut text = String::from("\nfn emulated_column(b: vec3<u32>, q: u32, column: u32) -> vec4<f32> {\n");
    for (id, (kind, array)) in used.iter().enumerate() {
        let value = match *kind {
            "columns" => format!("vec4<f32>({array}[b.y + column * b.z + q])"),
            "rows" => {
                let row = |i| format!("f32({array}[b.y + (q * 4u + {i}u) * b.z + column / 4u][column % 4u])");
                format!("vec4({}, {}, {}, {})", row(0), row(1), row(2), row(3))
            }
            _ => continue,
        };
        text += &format!("    if b.x == {id}u {{\n        return {value};\n    }}\n");
    }
    text + "    return vec4(0.0);\n}\n"
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
