// Normalises one row that a workgroup of NORM_THREADS threads holds, value group by value group.
// The including kernel defines NORM_THREADS, provides load_norm (weights, then biases) and calls row_statistics from uniform
// control flow.
const NORM_THREADS: u32 = $NORM_THREADSu;
var<workgroup> norm_partial: array<f32, NORM_THREADS>;

// Sum over the workgroup in a fixed tree order.
fn workgroup_sum(value: f32, thread: u32) -> f32 {
    workgroupBarrier();
    norm_partial[thread] = value;
    workgroupBarrier();
    for (var step = NORM_THREADS / 2u; step > 0u; step /= 2u) {
        if thread < step {
            norm_partial[thread] += norm_partial[thread + step];
        }
        workgroupBarrier();
    }
    return norm_partial[0];
}

fn sum4(v: vec4<f32>) -> f32 {
    return (v.x + v.y) + (v.z + v.w);
}
