// What the linear kernels of experts share: parameters, buffers, and which expert a row takes. A workgroup makes COLS
// columns; LANES invocations share each column's sum, which they add up in a fixed order.
#import counts

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
#buffer w $W

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

// What a row of w from group `at` on has in common with a row of x, as far as this invocation's groups go.
fn part_of(w_row: u32, x_first: u32, lane: u32) -> f32 {
    var sum = 0.0;
    for (var k = lane; k < params.k4; k += $LANESu) {
        sum += dot(load_x(x_first + k), load_w(w_row * params.k4 + k));
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
