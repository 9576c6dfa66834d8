//! permute X f32 f16
//! permute W f32 f16
//! permute Y f32 f16
//! permute BIAS 0 1
//! permute RESIDUAL none f32 f16
//! permute ACT none gelu gelu_tanh relu silu tanh sigmoid
//! permute GATED 0 1
// Linear without workgroup memory: each thread makes 4 rows × 4 columns straight from storage. The kernel for
// software adapters, where barriers are slow. Sums run over K in order.
// Grid: x = ceil(n/4 / 16), y = ceil(rows/4 / 4).
#import linear

fn dots(a: vec4<f32>, i: u32, k: u32) -> vec4<f32> {
    return vec4(dot(a, load_w(i + k)), dot(a, load_w(i + params.k4 + k)), dot(a, load_w(i + 2u * params.k4 + k)),
        dot(a, load_w(i + 3u * params.k4 + k)));
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
    let w0 = col * k4;
    var s0 = vec4(0.0);
    var s1 = vec4(0.0);
    var s2 = vec4(0.0);
    var s3 = vec4(0.0);
#if GATED
    let u0 = (col + params.up_rows) * k4;
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
        let b0 = load_w(w0 + k);
        let b1 = load_w(w0 + k4 + k);
        let b2 = load_w(w0 + 2u * k4 + k);
        let b3 = load_w(w0 + 3u * k4 + k);
        s0 += vec4(dot(a0, b0), dot(a0, b1), dot(a0, b2), dot(a0, b3));
        s1 += vec4(dot(a1, b0), dot(a1, b1), dot(a1, b2), dot(a1, b3));
        s2 += vec4(dot(a2, b0), dot(a2, b1), dot(a2, b2), dot(a2, b3));
        s3 += vec4(dot(a3, b0), dot(a3, b1), dot(a3, b2), dot(a3, b3));
#if GATED
        t0 += dots(a0, u0, k);
        t1 += dots(a1, u0, k);
        t2 += dots(a2, u0, k);
        t3 += dots(a3, u0, k);
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
