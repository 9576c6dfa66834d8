// What the linear kernels of experts share: parameters, buffers, and which expert a row takes. A workgroup makes COLS
// columns; LANES invocations share each column's sum, which they add up in a fixed order.
#import counts
#import blocks
#if X == q8
#define Q8_READS 1
#endif
#import q8

struct Params {
    k4: u32,           // columns that go into an expert / 4
    n: u32,            // columns that come out of an expert
    used: u32,
    experts: u32,
    count: u32,        // which count bounds the rows
    grid_y: u32,
}
@group(0) @binding(0) var<uniform> params: Params;

#buffer x $X
#raw routes array<f32>
#define W_BUFFER w
#define FORMAT $W
#use weight_rows

#define THREADS 256
#define LANES 256/$COLS
var<workgroup> sums: array<f32, $THREADS * $SUMS>;

// The i-th expert of a row, and its weight.
fn expert_of(row: u32, i: u32) -> u32 {
    return min(u32(max(routes[row * ((params.used + 1u) / 2u) * 4u + i], 0.0)), params.experts - 1u);
}

fn share_of(row: u32, i: u32) -> f32 {
    return routes[row * ((params.used + 1u) / 2u) * 4u + params.used + i];
}

// Group of four of a row of x, which has x4 of them.
fn x_of(row: u32, x4: u32, group: u32) -> vec4<f32> {
#if X == q8
    return load_q8(row, x4, group);
#else
    return load_x(row * x4 + group);
#endif
}

// The product of a row of w and a row of x from group `first` on, as far as this invocation's groups go.
fn part_of(w_row: u32, row: u32, x4: u32, first: u32, lane: u32) -> f32 {
    let row_at = row_w(w_row, params.k4);
    var sum = 0.0;
    for (var k = lane; k < params.k4; k += $LANESu) {
        sum += dot(x_of(row, x4, first + k), at_w(row_at, params.k4, k));
    }
    return sum;
}

// Adds up the lanes' sums of each column, which end in the columns' first lanes.
fn add_up(thread: u32) {
    workgroupBarrier();
    for (var step = $LANESu / 2u; step > 0u; step /= 2u) {
        if thread % $LANESu < step {
            #unroll i $SUMS
            sums[$iu * $THREADSu + thread] += sums[$iu * $THREADSu + thread + step];
            #end
        }
        workgroupBarrier();
    }
}

// Sums of four neighbouring columns.
fn four_of(which: u32, first: u32) -> vec4<f32> {
    let at = which * $THREADSu + first * $LANESu;
    return vec4(sums[at], sums[at + $LANESu], sums[at + 2u * $LANESu], sums[at + 3u * $LANESu]);
}
