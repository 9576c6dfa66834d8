//! permute X f32 f16
//! permute Y f32 f16 q8
//! permute NORM layer rms
//! permute WIDE 0 1
// y = norm(x), one workgroup a row (y folds large counts).
#import counts
// WIDE: for few long rows, where a thread's own loop would take all the time.
#if WIDE
#define NORM_THREADS 256
#else
#define NORM_THREADS 64
#endif
#import norm
#define Q8_THREADS $NORM_THREADS
#import q8

struct Params {
    cols4: u32,      // columns / 4
    norm_bias: u32,  // 1 if biases follow the norm weights
    eps: f32,
    count: u32,      // which count bounds the rows
    grid_x: u32,
}
@group(0) @binding(0) var<uniform> params: Params;

#buffer x $X
#buffer norm f32
#buffer y $Y write

@compute @workgroup_size(NORM_THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group.y * params.grid_x + group.x;
    if row >= counts[params.count] {
        return;
    }
    let base = row * params.cols4;
    let n = f32(params.cols4 * 4u);
    var mean = 0.0;
#if NORM == layer
    var sum = 0.0;
    for (var c = thread; c < params.cols4; c += NORM_THREADS) {
        sum += sum4(load_x(base + c));
    }
    mean = workgroup_sum(sum, thread) / n;
#endif
    var square = 0.0;
    for (var c = thread; c < params.cols4; c += NORM_THREADS) {
        let d = load_x(base + c) - mean;
        square += dot(d, d);
    }
    let inverse = inverseSqrt(workgroup_sum(square, thread) / n + params.eps);
#if Y == q8
    for (var first = 0u; first < params.cols4; first += NORM_THREADS) {
        let c = min(first + thread, params.cols4 - 1u);
#else
    for (var c = thread; c < params.cols4; c += NORM_THREADS) {
#endif
        var v = (load_x(base + c) - mean) * inverse * load_norm(c);
        if params.norm_bias == 1u {
            v += load_norm(params.cols4 + c);
        }
#if Y == q8
        store_q8(row, params.cols4, c, thread, first + thread < params.cols4, v);
#else
        store_y(base + c, v);
#endif
    }
}
