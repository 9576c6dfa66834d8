//! permute X f32 f16
//! permute W f32 f16 q8_0 q8_1 q8_f q4_0 q4_1 q2_k q3_k q4_k q5_k q6_k iq4_xs
//! permute Y f32 f16
//! permute BIAS 0 1
//! permute RESIDUAL none f32 f16
//! permute ACT none gelu gelu_tanh relu silu tanh sigmoid
//! permute GATED 0 1
// Linear for many rows on any real GPU: f32 arithmetic, no device feature, 16 KiB of workgroup memory. A workgroup
// makes 64 x 64 sums, an invocation 4 x 4 of them.
//
// Contract: any shape. Every sum runs over K in order, one fma after the other, as in linear_rows: both give the same
// bits. Grid: x = ceil(n / OUT_N), y = ceil(rows / 64); OUT_N is 64, or 32 if GATED.
#import linear

#if GATED
const OUT_N: u32 = 32u;
#else
const OUT_N: u32 = 64u;
#endif
// [k][quad of rows], a quad's four rows in a vector. A k's quads are permuted by `turn`, so that the transposing
// stores of neighbouring invocations lie in different banks.
const STEP: u32 = 32u;
var<workgroup> xs: array<vec4<f32>, STEP * 16u>;
var<workgroup> ws: array<vec4<f32>, STEP * 16u>;

fn turn(k: u32) -> u32 {
    return (k / 4u) & 7u;
}

// The row of w for a column of the tile. GATED: quads of columns alternate between gate and up rows.
fn weight_row(first: u32, column: u32) -> u32 {
    let last = params.n - 1u;
#if GATED
    let output = min(first + column / 8u * 4u + column % 4u, last);
    return output + select(0u, params.up_rows, (column & 4u) != 0u);
#else
    return min(first + column, last);
#endif
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let rows = counts[params.count];
    let m0 = group.y * 64u;
    let n0 = group.x * OUT_N;
    if m0 >= rows {
        return;
    }
    // Half of the invocations load x, half w: 4 rows x 4 columns of it each. Rows past the end repeat the last one;
    // their sums are dropped.
    let loads_w = lane >= 128u;
    let k_quad = lane % 8u;
    let row_quad = (lane % 128u) / 8u;
    var at: array<u32, 4>;
    for (var i = 0u; i < 4u; i++) {
        if loads_w {
            at[i] = row_w(weight_row(n0, row_quad * 4u + i), params.k4);
        } else {
            at[i] = min(m0 + row_quad * 4u + i, rows - 1u) * params.k4;
        }
    }
    let my_rows = lane / 16u;
    let my_columns = lane % 16u;
    var acc: array<vec4<f32>, 4>;
    // The tile on its way.
    var next: array<vec4<f32>, 4>;
    for (var i = 0u; i < 4u; i++) {
        next[i] = fetch(loads_w, at[i], k_quad);
    }
    for (var k4 = 0u; k4 < params.k4; k4 += STEP / 4u) {
        workgroupBarrier();
        for (var e = 0u; e < 4u; e++) {
            let k = k_quad * 4u + e;
            let v = vec4(next[0][e], next[1][e], next[2][e], next[3][e]);
            if loads_w {
                ws[k * 16u + (row_quad ^ turn(k))] = v;
            } else {
                xs[k * 16u + (row_quad ^ turn(k))] = v;
            }
        }
        workgroupBarrier();
        if k4 + STEP / 4u < params.k4 {
            for (var i = 0u; i < 4u; i++) {
                next[i] = fetch(loads_w, at[i], k4 + STEP / 4u + k_quad);
            }
        }
        for (var k = 0u; k < STEP; k++) {
            let a = xs[k * 16u + (my_rows ^ turn(k))];
            let b = ws[k * 16u + (my_columns ^ turn(k))];
            acc[0] = fma(vec4(a.x), b, acc[0]);
            acc[1] = fma(vec4(a.y), b, acc[1]);
            acc[2] = fma(vec4(a.z), b, acc[2]);
            acc[3] = fma(vec4(a.w), b, acc[3]);
        }
    }
    let row = m0 + my_rows * 4u;
#if GATED
    // Up sums go to the neighbour, who has the gate sums.
    let gate = (my_columns & 1u) == 0u;
    let slot = lane / 2u * 4u;
    workgroupBarrier();
    if !gate {
        for (var i = 0u; i < 4u; i++) {
            xs[slot + i] = acc[i];
        }
    }
    workgroupBarrier();
    let column = n0 + my_columns / 2u * 4u;
    if gate && column < params.n {
        for (var i = 0u; i < 4u && row + i < rows; i++) {
            finish_gated(row + i, params.n_first + column, acc[i], xs[slot + i]);
        }
    }
#else
    let column = n0 + my_columns * 4u;
    if column < params.n {
        for (var i = 0u; i < 4u && row + i < rows; i++) {
            finish(row + i, params.n_first + column, acc[i]);
        }
    }
#endif
}

// Four values of a row of x or w, 0 past its end.
fn fetch(from_w: bool, row_at: u32, k4: u32) -> vec4<f32> {
    if k4 >= params.k4 {
        return vec4(0.0);
    }
    if from_w {
        return at_w(row_at, params.k4, k4);
    }
    return load_x(row_at + k4);
}
