//! permute X f32 f16
//! permute MODE cls max mean mean_sqrt_len weighted_mean last_token
// Pools a row range of x into one row of y, one mode a dispatch.
// Grid: x = ceil(columns/4 / 16), y = sequences (z folds large counts). 16 column groups × 16 row slices a
// workgroup; the slices are summed in order.
#import counts

struct Params {
    cols4: u32,      // columns of x / 4
    out4: u32,       // columns of y / 4
    out_first4: u32, // first column group of this mode in y
    grid_y: u32,
}
@group(0) @binding(0) var<uniform> params: Params;

#buffer x $X
#raw ranges array<vec2<u32>>
#buffer y f32 write

var<workgroup> partial: array<vec4<f32>, 256>;

@compute @workgroup_size(16, 16)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let sequence = group.z * params.grid_y + group.y;
    if sequence >= counts.y {
        return;
    }
    let col = min(group.x * 16u + local.x, params.cols4 - 1u);
    let range = ranges[sequence];
    let length = range.y - range.x;
#if MODE == max
    var value = vec4(-3.0e38);
#else
    var value = vec4(0.0);
#endif
    for (var i = local.y; i < length; i += 16u) {
        let v = load_x((range.x + i) * params.cols4 + col);
#if MODE == max
        value = max(value, v);
#endif
#if MODE == cls
        if i == 0u { value = v; }
#endif
#if MODE == last_token
        if i == length - 1u { value = v; }
#endif
#if MODE == weighted_mean
        value += v * f32(i + 1u);
#endif
#if MODE == mean
        value += v;
#endif
#if MODE == mean_sqrt_len
        value += v;
#endif
    }
    partial[local.y * 16u + local.x] = value;
    workgroupBarrier();
    if local.y != 0u || group.x * 16u + local.x >= params.cols4 {
        return;
    }
    for (var i = 1u; i < 16u; i++) {
#if MODE == max
        value = max(value, partial[i * 16u + local.x]);
#else
        value += partial[i * 16u + local.x];
#endif
    }
    let n = f32(length);
#if MODE == mean
    value /= max(n, 1.0);
#endif
#if MODE == mean_sqrt_len
    value /= sqrt(max(n, 1.0));
#endif
#if MODE == weighted_mean
    value /= max(n * (n + 1.0) * 0.5, 1.0);
#endif
    if length == 0u {
        value = vec4(0.0);
    }
    store_y(sequence * params.out4 + params.out_first4 + col, value);
}
