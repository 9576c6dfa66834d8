//! permute Y f32 f16 q8
// Puts the parts of attention together that workgroups made of the splits of each row's keys. Eight neighbouring
// threads have four columns each; 32 such teams share the parts, then join their sums in a fixed order.
// Grid: x = ceil(columns / 32), y = rows (z folds large counts).
#import counts
#define Q8_THREADS 256
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

const TEAMS: u32 = 32u;
// Largest score and sum of shares; sums of values.
var<workgroup> weights: array<vec2<f32>, 256>;
var<workgroup> sums: array<vec4<f32>, 256>;

// What a score of `x` is worth beside one of `top`.
fn worth(x: f32, top: f32) -> f32 {
    return exp2(max(x - top, -200.0));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group.z * params.grid_y + group.y;
    if row >= counts[params.count] {
        return;
    }
    let cols4 = params.heads * params.d4;
    let team = thread / 8u;
    let c = min(group.x * 8u + thread % 8u, cols4 - 1u);
    let used = min(tokens[row].y / params.split + 1u, params.splits);
    let first = row * params.splits * params.heads + c / params.d4;
    var weight = vec2(-1e30, 0.0);
    var sum = vec4(0.0);
    for (var s = team; s < used; s += TEAMS) {
        let part = first + s * params.heads;
        let of_part = joint[params.sums + part];
        let value = joint[part * params.d4 + c % params.d4];
        let top = max(weight.x, of_part.x);
        let shares = vec2(worth(weight.x, top), worth(of_part.x, top));
        weight = vec2(top, dot(shares, vec2(weight.y, of_part.y)));
        sum = shares.x * sum + shares.y * value;
    }
    weights[thread] = weight;
    sums[thread] = sum;
    for (var step = TEAMS / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if team < step {
            let other = weights[thread + step * 8u];
            let top = max(weight.x, other.x);
            let shares = vec2(worth(weight.x, top), worth(other.x, top));
            weight = vec2(top, dot(shares, vec2(weight.y, other.y)));
            sum = shares.x * sum + shares.y * sums[thread + step * 8u];
            weights[thread] = weight;
            sums[thread] = sum;
        }
    }
    let there = thread < 8u && group.x * 8u + thread < cols4;
    let result = sum / weight.y;
#if Y == q8
    store_q8(row, cols4, c, thread, there, result);
#else
    if there {
        store_y(row * cols4 + c, result);
    }
#endif
}
