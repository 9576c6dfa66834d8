//! permute Y f32 f16
//! permute RESIDUAL none f32 f16
// What a row's experts made of it, times their weights, in order, plus a residual.
// Grid: x = ceil(columns / 256), y = rows (z folds large counts).
#import counts

struct Params {
    cols4: u32,        // columns / 4
    used: u32,
    count: u32,        // which count bounds the rows
    grid_y: u32,
}
@group(0) @binding(0) var<uniform> params: Params;

// A row for each pair of a row and an expert that it uses.
#raw products array<vec4<f32>>
#raw routes array<f32>
#if RESIDUAL != none
#buffer residual $RESIDUAL
#endif
#buffer y $Y write

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group.z * params.grid_y + group.y;
    let c = group.x * 64u + thread;
    if row >= counts[params.count] || c >= params.cols4 {
        return;
    }
    let shares = row * ((params.used + 1u) / 2u) * 4u + params.used;
    var sum = vec4(0.0);
    for (var i = 0u; i < params.used; i++) {
        sum += routes[shares + i] * products[(row * params.used + i) * params.cols4 + c];
    }
    let at = row * params.cols4 + c;
#if RESIDUAL != none
    sum += load_residual(at);
#endif
    store_y(at, sum);
}
