//! permute X f32 f16 q8
//! permute Y f32 f16 q8
//! permute UNIT 0 1
// y = x / max(|x|, 1e-12) over the first columns of each row; without UNIT it truncates only.
// Grid: one workgroup a row (y folds large counts).
#import counts
#define NORM_THREADS 64
#import norm
#define Q8_THREADS 64
#if X == q8
#define Q8_READS 1
#endif
#import q8

struct Params {
    x_cols4: u32,    // columns of x / 4
    y_cols4: u32,    // columns of y / 4
    count: u32,      // which count bounds the rows
    grid_x: u32,
}
@group(0) @binding(0) var<uniform> params: Params;

#buffer x $X
#buffer y $Y write

// Group of four columns.
fn group_of(row: u32, c: u32) -> vec4<f32> {
#if X == q8
    return load_q8(row, params.x_cols4, c);
#else
    return load_x(row * params.x_cols4 + c);
#endif
}

@compute @workgroup_size(NORM_THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group.y * params.grid_x + group.x;
    if row >= counts[params.count] {
        return;
    }
    var inverse = 1.0;
#if UNIT
    var square = 0.0;
    for (var c = thread; c < params.y_cols4; c += NORM_THREADS) {
        let v = group_of(row, c);
        square += dot(v, v);
    }
    inverse = 1.0 / max(sqrt(workgroup_sum(square, thread)), 1e-12);
#endif
#if Y == q8
    for (var first = 0u; first < params.y_cols4; first += NORM_THREADS) {
        let c = min(first + thread, params.y_cols4 - 1u);
        store_q8(row, params.y_cols4, c, thread, first + thread < params.y_cols4, group_of(row, c) * inverse);
    }
#else
    for (var c = thread; c < params.y_cols4; c += NORM_THREADS) {
        store_y(row * params.y_cols4 + c, group_of(row, c) * inverse);
    }
#endif
}
