//! permute Y f32 f16 q8
// Puts the parts of attention together that workgroups made of the splits of each row's keys. A thread has four columns
// of a row. Grid: x = ceil(columns / 256), y = rows (z folds large counts).
#import counts
#define Q8_THREADS 64
#import q8

struct Params {
    heads: u32,
    d4: u32,           // head_dim / 4
    split: u32,        // keys of a split
    splits: u32,
    sums: u32,         // first index of maxima and sums
    count: u32,        // which count bounds the rows
    grid_y: u32,
}
@group(0) @binding(0) var<uniform> params: Params;

#raw tokens array<vec4<u32>>
#raw joint array<vec4<f32>>
#buffer y $Y write

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group.z * params.grid_y + group.y;
    if row >= counts[params.count] {
        return;
    }
    let cols4 = params.heads * params.d4;
    let there = group.x * 64u + thread < cols4;
    let c = min(group.x * 64u + thread, cols4 - 1u);
    let used = min(tokens[row].y / params.split + 1u, params.splits);
    let first = row * params.splits * params.heads + c / params.d4;
    var top = -1e30;
    for (var s = 0u; s < used; s++) {
        top = max(top, joint[params.sums + first + s * params.heads].x);
    }
    var sum = vec4(0.0);
    var total = 0.0;
    for (var s = 0u; s < used; s++) {
        let part = first + s * params.heads;
        let of_part = joint[params.sums + part];
        let share = exp2(max(of_part.x - top, -200.0));
        total += share * of_part.y;
        sum += share * joint[part * params.d4 + c % params.d4];
    }
    let result = sum / total;
#if Y == q8
    store_q8(row, cols4, c, thread, there, result);
#else
    if there {
        store_y(row * cols4 + c, result);
    }
#endif
}
