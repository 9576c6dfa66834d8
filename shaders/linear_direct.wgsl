//! permute X f32 f16
//! permute W f32 f16 q8_0 q8_1 q8_f q4_0 q4_1 q2_k q3_k q4_k q5_k q6_k iq4_xs
//! permute Y f32 f16
//! permute BIAS 0 1
//! permute RESIDUAL none f32 f16
//! permute ACT none gelu gelu_tanh relu silu tanh sigmoid
//! permute GATED 0 1
// Linear without workgroup memory: each thread makes 4 rows × 4 columns straight from storage. The kernel for
// software adapters, where barriers are slow. Sums run over K in order.
// Grid: x = ceil(n/4 / 16), y = ceil(rows/4 / 4).
#import linear

// Where four neighbouring rows of w begin.
fn rows_of_w(first: u32) -> vec4<u32> {
    let k4 = params.k4;
    return vec4(row_w(first, k4), row_w(first + 1u, k4), row_w(first + 2u, k4), row_w(first + 3u, k4));
}

fn columns(rows: vec4<u32>, k: u32) -> mat4x4<f32> {
    let k4 = params.k4;
    return mat4x4(at_w(rows.x, k4, k), at_w(rows.y, k4, k), at_w(rows.z, k4, k), at_w(rows.w, k4, k));
}

fn dots(a: vec4<f32>, b: mat4x4<f32>) -> vec4<f32> {
    return vec4(dot(a, b[0]), dot(a, b[1]), dot(a, b[2]), dot(a, b[3]));
}

@compute @workgroup_size(16, 4)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let col = id.x * 4u;
    let row = id.y * 4u;
    let rows = counts[params.count];
    if col >= params.n || row >= rows {
        return;
    }
    let k4 = params.k4;
    // Rows past the end repeat the last one; their sums are dropped.
    let last = rows - 1u;
    let x0 = row * k4;
    let x1 = min(row + 1u, last) * k4;
    let x2 = min(row + 2u, last) * k4;
    let x3 = min(row + 3u, last) * k4;
    let w0 = rows_of_w(col);
    var s0 = vec4(0.0);
    var s1 = vec4(0.0);
    var s2 = vec4(0.0);
    var s3 = vec4(0.0);
#if GATED
    let u0 = rows_of_w(col + params.up_rows);
    var t0 = vec4(0.0);
    var t1 = vec4(0.0);
    var t2 = vec4(0.0);
    var t3 = vec4(0.0);
#endif
    for (var k = 0u; k < k4; k++) {
        let a0 = load_x(x0 + k);
        let a1 = load_x(x1 + k);
        let a2 = load_x(x2 + k);
        let a3 = load_x(x3 + k);
        let b = columns(w0, k);
        s0 += dots(a0, b);
        s1 += dots(a1, b);
        s2 += dots(a2, b);
        s3 += dots(a3, b);
#if GATED
        let up = columns(u0, k);
        t0 += dots(a0, up);
        t1 += dots(a1, up);
        t2 += dots(a2, up);
        t3 += dots(a3, up);
#endif
    }
    let c = params.n_first + col;
#if GATED
    finish_gated(row, c, s0, t0);
    if row + 1u < rows { finish_gated(row + 1u, c, s1, t1); }
    if row + 2u < rows { finish_gated(row + 2u, c, s2, t2); }
    if row + 3u < rows { finish_gated(row + 3u, c, s3, t3); }
#else
    finish(row, c, s0);
    if row + 1u < rows { finish(row + 1u, c, s1); }
    if row + 2u < rows { finish(row + 2u, c, s2); }
    if row + 3u < rows { finish(row + 3u, c, s3); }
#endif
}
