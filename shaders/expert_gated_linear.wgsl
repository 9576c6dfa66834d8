//! permute X f32 f16 q8
//! permute W f32 f16 q8_0 q8_1 q8_f q4_0 q4_1 q2_k q3_k q4_k q5_k q6_k iq4_xs
//! permute Y f32 f16 q8
//! permute ACT none gelu gelu_tanh relu silu tanh sigmoid
//! permute COLS 4 32
// Gated linear by each chosen expert of each row: y = act(gate) * up, where an expert's rows of w are its n gate rows,
// then its n up rows. Grid: x = ceil(n / COLS), y = rows * used (z folds large counts).
#define SUMS 2
#define Q8_THREADS 256
#import experts
#import activation

#buffer y $Y write

@compute @workgroup_size($THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let index = group.z * params.grid_y + group.y;
    let row = index / params.used;
    if row >= counts[params.count] {
        return;
    }
    let lane = thread % $LANESu;
    // Columns past the end repeat the last one.
    let column = min(group.x * $COLSu + thread / $LANESu, params.n - 1u);
    let gate = expert_of(row, index % params.used) * 2u * params.n + column;
    sums[thread] = part_of(gate, row, params.k4, 0u, lane);
    sums[$THREADSu + thread] = part_of(gate + params.n, row, params.k4, 0u, lane);
    add_up(thread);
    let first = min(thread, $COLSu / 4u - 1u) * 4u;
    let there = thread < $COLSu / 4u && group.x * $COLSu + first < params.n;
    let v = activate(four_of(0u, first)) * four_of(1u, first);
    // Groups of columns of all experts of the row.
    let at = (index % params.used * params.n + group.x * $COLSu + first) / 4u;
    let cols4 = params.used * params.n / 4u;
#if Y == q8
    store_q8(row, cols4, at, thread, there, v);
#else
    if there {
        store_y(row * cols4 + at, v);
    }
#endif
}
