//! permute TABLES 1 2 3
//! permute T0 f32 f16 q8_0 q8_1 q8_f q4_0 q4_1 q2_k q3_k q4_k q5_k q6_k iq4_xs
//! permute T1 f32 f16
//! permute T2 f32 f16
//! permute Y f32 f16
//! permute NORM none layer rms
// Sum of one to three table rows for each token, then an optional norm.
// Grid: one workgroup a token (y folds large counts). The first table may be split by rows over several
// dispatches: each takes the tokens whose row lies in its piece.
#import counts
#define NORM_THREADS 64
#import norm
#import blocks

struct Params {
    cols4: u32,       // columns / 4
    first_row: u32,   // of this piece of table 0
    piece_rows: u32,
    fields: u32,      // token field of table 0, 1, 2: a byte each
    norm_bias: u32,   // 1 if biases follow the norm weights
    eps: f32,
    grid_x: u32,
}
@group(0) @binding(0) var<uniform> params: Params;

#raw tokens array<vec4<u32>>
#define W_BUFFER table0
#define FORMAT $T0
#use weight_rows
#if TABLES != 1
#buffer table1 $T1
#endif
#if TABLES == 3
#buffer table2 $T2
#endif
#if NORM != none
#buffer norm f32
#endif
#buffer y $Y write

fn summed(token: vec4<u32>, c: u32) -> vec4<f32> {
    let entry = token[params.fields & 0xffu] - params.first_row;
    var v = at_table0(row_table0(entry, params.cols4), params.cols4, c);
#if TABLES != 1
    v += load_table1(token[(params.fields >> 8u) & 0xffu] * params.cols4 + c);
#endif
#if TABLES == 3
    v += load_table2(token[(params.fields >> 16u) & 0xffu] * params.cols4 + c);
#endif
    return v;
}

@compute @workgroup_size(NORM_THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group.y * params.grid_x + group.x;
    if row >= counts.x {
        return;
    }
    let token = tokens[row];
    let entry = token[params.fields & 0xffu];
    if entry < params.first_row || entry - params.first_row >= params.piece_rows {
        return;
    }
    let n = f32(params.cols4 * 4u);
#if NORM == none
    for (var c = thread; c < params.cols4; c += NORM_THREADS) {
        store_y(row * params.cols4 + c, summed(token, c));
    }
#else
    var mean = 0.0;
#if NORM == layer
    var sum = 0.0;
    for (var c = thread; c < params.cols4; c += NORM_THREADS) {
        sum += sum4(summed(token, c));
    }
    mean = workgroup_sum(sum, thread) / n;
#endif
    var square = 0.0;
    for (var c = thread; c < params.cols4; c += NORM_THREADS) {
        let d = summed(token, c) - mean;
        square += dot(d, d);
    }
    let inverse = inverseSqrt(workgroup_sum(square, thread) / n + params.eps);
    for (var c = thread; c < params.cols4; c += NORM_THREADS) {
        var v = (summed(token, c) - mean) * inverse * load_norm(c);
        if params.norm_bias == 1u {
            v += load_norm(params.cols4 + c);
        }
        store_y(row * params.cols4 + c, v);
    }
#endif
}
