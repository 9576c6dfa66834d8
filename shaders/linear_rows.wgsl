//! permute X f32 f16
//! permute W f32 f16 q8_0 q8_1 q8_f q4_0 q4_1 q2_k q3_k q4_k q5_k q6_k iq4_xs
//! permute Y f32 f16
//! permute BIAS 0 1
//! permute RESIDUAL none f32 f16
//! permute ACT none gelu gelu_tanh relu silu tanh sigmoid
//! permute GATED 0 1
// Linear for few rows on any real GPU, where latency counts: small tiles, so that there are many workgroups. f32
// arithmetic, no device feature, 9 KiB of workgroup memory. A workgroup makes 16 x 16 sums, an invocation two.
//
// Contract: any shape. Every sum runs over K in order, one fma after the other, as in linear_tiled: both give the
// same bits. Grid: x = ceil(n / OUT_N), y = ceil(rows / 16); OUT_N is 16, or 8 if GATED.
#import linear

#if GATED
const OUT_N: u32 = 8u;
#else
const OUT_N: u32 = 16u;
#endif
const QUADS: u32 = 16u;
// A quad of padding puts neighbouring rows into different banks.
const STRIDE: u32 = QUADS + 1u;
var<workgroup> xs: array<vec4<f32>, 16u * STRIDE>;
var<workgroup> ws: array<vec4<f32>, 16u * STRIDE>;
var<workgroup> sums: array<vec4<f32>, 64>;

// The row of w for a column of the tile. GATED: 8 gate rows, then 8 up rows.
fn weight_row(first: u32, column: u32) -> u32 {
    let last = params.n - 1u;
#if GATED
    return min(first + column % 8u, last) + select(0u, params.up_rows, column >= 8u);
#else
    return min(first + column, last);
#endif
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let rows = counts[params.count];
    let m0 = group.y * 16u;
    let n0 = group.x * OUT_N;
    if m0 >= rows {
        return;
    }
    // Rows past the end repeat the last one; their sums are dropped.
    let quad = lane % QUADS;
    let line = lane / QUADS;
    let x0 = min(m0 + line, rows - 1u) * params.k4 + quad;
    let x1 = min(m0 + line + 8u, rows - 1u) * params.k4 + quad;
    let w0 = row_w(weight_row(n0, line), params.k4);
    let w1 = row_w(weight_row(n0, line + 8u), params.k4);
    // The tile on its way.
    var px0 = vec4(0.0);
    var px1 = vec4(0.0);
    var pw0 = vec4(0.0);
    var pw1 = vec4(0.0);
    if quad < params.k4 {
        px0 = load_x(x0);
        px1 = load_x(x1);
        pw0 = at_w(w0, params.k4, quad);
        pw1 = at_w(w1, params.k4, quad);
    }
    let row = lane / 16u;
    let column = lane % 16u;
    var low = 0.0;
    var high = 0.0;
    for (var k4 = 0u; k4 < params.k4; k4 += QUADS) {
        workgroupBarrier();
        xs[line * STRIDE + quad] = px0;
        xs[(line + 8u) * STRIDE + quad] = px1;
        ws[line * STRIDE + quad] = pw0;
        ws[(line + 8u) * STRIDE + quad] = pw1;
        workgroupBarrier();
        let then = k4 + QUADS;
        if then < params.k4 {
            // Past the end of a row, 0.
            px0 = vec4(0.0);
            px1 = vec4(0.0);
            pw0 = vec4(0.0);
            pw1 = vec4(0.0);
            if then + quad < params.k4 {
                px0 = load_x(x0 + then);
                px1 = load_x(x1 + then);
                pw0 = at_w(w0, params.k4, then + quad);
                pw1 = at_w(w1, params.k4, then + quad);
            }
        }
        for (var q = 0u; q < QUADS; q++) {
            let b = ws[column * STRIDE + q];
            let a0 = xs[row * STRIDE + q];
            let a1 = xs[(row + 8u) * STRIDE + q];
            low = fma(a0.w, b.w, fma(a0.z, b.z, fma(a0.y, b.y, fma(a0.x, b.x, low))));
            high = fma(a1.w, b.w, fma(a1.z, b.z, fma(a1.y, b.y, fma(a1.x, b.x, high))));
        }
    }
    // Quads of neighbouring columns gather for the epilogue.
    workgroupBarrier();
    sums[row * 4u + column / 4u][column % 4u] = low;
    sums[(row + 8u) * 4u + column / 4u][column % 4u] = high;
    workgroupBarrier();
#if GATED
    let out_row = m0 + lane / 2u;
    let out_column = n0 + lane % 2u * 4u;
    if lane < 32u && out_row < rows && out_column < params.n {
        let at = lane / 2u * 4u + lane % 2u;
        finish_gated(out_row, params.n_first + out_column, sums[at], sums[at + 2u]);
    }
#else
    let out_row = m0 + lane / 4u;
    let out_column = n0 + lane % 4u * 4u;
    if lane < 64u && out_row < rows && out_column < params.n {
        finish(out_row, params.n_first + out_column, sums[lane]);
    }
#endif
}
