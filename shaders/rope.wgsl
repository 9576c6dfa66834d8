//! permute X f32 f16
// Rotary position embedding in place, NeoX pairs (i, i + d/2), on the first heads of each row.
// One thread rotates four pairs. Grid: x folds to y after 65535 workgroups of 64.
#import counts

struct Params {
    cols4: u32,      // columns of x / 4
    heads: u32,
    half4: u32,      // head_dim / 8
    grid_x: u32,
}
@group(0) @binding(0) var<uniform> params: Params;

#raw tokens array<vec4<u32>>
#buffer table f32
#buffer x $X write

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let index = (group.y * params.grid_x + group.x) * 64u + thread;
    let per_row = params.heads * params.half4;
    let row = index / per_row;
    if row >= counts.x {
        return;
    }
    let within = index % per_row;
    let head = within / params.half4;
    let i = within % params.half4;
    let angle = tokens[row].y * 2u * params.half4 + i;
    let c = load_table(angle);
    let s = load_table(angle + params.half4);
    let at = row * params.cols4 + head * 2u * params.half4 + i;
    let a = load_x(at);
    let b = load_x(at + params.half4);
    store_x(at, a * c - b * s);
    store_x(at + params.half4, b * c + a * s);
}
