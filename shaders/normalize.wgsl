//! permute X f32 f16
//! permute Y f32 f16
//! permute UNIT 0 1
// y = x / max(|x|, 1e-12) over the first columns of each row; without UNIT it truncates only.
// Grid: one workgroup a row (y folds large counts).
#import counts
#import norm

struct Params {
    x_cols4: u32,    // columns of x / 4
    y_cols4: u32,    // columns of y / 4
    count: u32,      // which count bounds the rows
    grid_x: u32,
}
@group(0) @binding(0) var<uniform> params: Params;

#buffer x $X
#buffer y $Y write

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
        let v = load_x(row * params.x_cols4 + c);
        square += dot(v, v);
    }
    inverse = 1.0 / max(sqrt(workgroup_sum(square, thread)), 1e-12);
#endif
    for (var c = thread; c < params.y_cols4; c += NORM_THREADS) {
        store_y(row * params.y_cols4 + c, load_x(row * params.x_cols4 + c) * inverse);
    }
}
