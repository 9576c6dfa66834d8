//! permute X f32 f16
//! permute Y f32 f16 q8
//! permute NORM layer rms
//! permute WIDE 0 1
//! permute HELD 1 2 4
// y = norm(x), one workgroup a row (y folds large counts).
#import counts
// WIDE: for few rows, where a thread's own loop would take all the time. An invocation has HELD pieces of 16 values,
// and the sums are those of lib/held.wgsl, to the bit.
#if WIDE
#define NORM_THREADS 256
#define THREADS 256
#import wide
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
#if WIDE
    var v: array<vec4<f32>, $HELD * 4>;
    var parts: array<f32, $HELD>;
    #unroll h $HELD
    #unroll j 4
    let column$h$j = ($hu * $THREADSu + thread) * 4u + $ju;
    v[$h * 4 + $j] = load_x(base + min(column$h$j, params.cols4 - 1u));
    #end
    #end
#if NORM == layer
    #unroll h $HELD
    #unroll j 4
    parts[$h] += select(0.0, sum4(v[$h * 4 + $j]), column$h$j < params.cols4);
    #end
    #end
    let mean = wide_sum(parts, thread) / n;
#else
    let mean = 0.0;
#endif
    #unroll h $HELD
    parts[$h] = 0.0;
    #unroll j 4
    let d$h$j = v[$h * 4 + $j] - mean;
    parts[$h] += select(0.0, dot(d$h$j, d$h$j), column$h$j < params.cols4);
    #end
    #end
    let square = wide_sum(parts, thread);
#else
    var mean = 0.0;
#if NORM == layer
    var sum = 0.0;
    for (var c = thread; c < params.cols4; c += NORM_THREADS) {
        sum += sum4(load_x(base + c));
    }
    mean = workgroup_sum(sum, thread) / n;
#endif
    var part = 0.0;
    for (var c = thread; c < params.cols4; c += NORM_THREADS) {
        let d = load_x(base + c) - mean;
        part += dot(d, d);
    }
    let square = workgroup_sum(part, thread);
#endif
    let inverse = inverseSqrt(square / n + params.eps);
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
