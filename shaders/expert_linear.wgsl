//! permute X f32 f16 q8
//! permute W f32 f16 q8_0 q8_1 q8_f q4_0 q4_1 q2_k q3_k q4_k q5_k q6_k iq4_xs
//! permute Y f32 f16
//! permute RESIDUAL none f32 f16
// The sum of what each chosen expert of a row makes of its own columns of x, times the expert's weight, plus a residual.
// Grid: x = ceil(n / 4), y = rows (z folds large counts).
#define SUMS 1
#define COLS 4
#import experts

#if RESIDUAL != none
#buffer residual $RESIDUAL
#endif
#buffer y $Y write

@compute @workgroup_size($THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group.z * params.grid_y + group.y;
    if row >= counts[params.count] {
        return;
    }
    let lane = thread % $LANESu;
    let column = min(group.x * $COLSu + thread / $LANESu, params.n - 1u);
    var sum = 0.0;
    for (var i = 0u; i < params.used; i++) {
        let w_row = expert_of(row, i) * params.n + column;
        sum += share_of(row, i) * part_of(w_row, row, params.used * params.k4, i * params.k4, lane);
    }
    sums[thread] = sum;
    add_up(thread);
    if thread == 0u {
        let at = row * params.n / 4u + group.x;
        var v = four_of(0u, 0u);
#if RESIDUAL != none
        v += load_residual(at);
#endif
        store_y(at, v);
    }
}
