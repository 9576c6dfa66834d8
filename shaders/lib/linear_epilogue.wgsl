// What linear kernels share behind the sums: parameters, buffers, epilogue. The kernel declares x and w first.
// y = act(x W^T + bias) + residual, or with GATED act(gate) * up, where W's rows are F gate rows, then F up rows.
#import counts
#import activation

struct Params {
    k4: u32,           // columns of x / 4
    n: u32,            // output columns of this dispatch's piece of W
    n_first: u32,      // first output column of the piece
    out4: u32,         // columns of y / 4
    count: u32,        // which count bounds the rows
    up_rows: u32,      // GATED: rows from a gate row to its up row
    row_grid: u32,     // workgroups along the rows, for kernels that fold the grid
#if HOLDS
    norm_eps: f32,
    norm_bias: u32,    // 1 if biases follow the norm's weights
#endif
#if OF_EXPERTS
    experts: u32,
    used: u32,
    width: u32,        // outputs of an expert
    scale: f32,        // as in route.wgsl
    eps: f32,
#endif
#if EXPERT_TILES
    expert_rows: u32,  // rows of w of an expert
    shared_by: u32,    // pairs that share a row of x
    pairs_at: u32,     // where pairs begin in lists
#endif
}
// Known to the compiler, they need not be waited for.
#if BAKED
const params = Params($BAKED);
#else
@group(0) @binding(0) var<uniform> params: Params;
#endif

#if BIAS
#buffer bias f32
#endif
#if RESIDUAL != none
#buffer residual $RESIDUAL
#endif
#buffer y $Y write

// Biases of four neighbouring columns; col is absolute. GATED: of their gate rows.
fn bias_of(col: u32) -> vec4<f32> {
#if BIAS
    return load_bias(col / 4u);
#else
    return vec4(0.0);
#endif
}

// GATED: biases of the columns' up rows.
fn up_bias_of(col: u32) -> vec4<f32> {
#if BIAS
    return load_bias(params.out4 + col / 4u);
#else
    return vec4(0.0);
#endif
}

fn residual_of(row: u32, col: u32) -> vec4<f32> {
#if RESIDUAL != none
    return load_residual(row * params.out4 + col / 4u);
#else
    return vec4(0.0);
#endif
}

#if Y != q8
// Four neighbouring outputs of one row.
fn finish(row: u32, col: u32, sum: vec4<f32>) {
    store_y(row * params.out4 + col / 4u, activate(sum + bias_of(col)) + residual_of(row, col));
}

// The same for gate and up sums.
fn finish_gated(row: u32, col: u32, gate_sum: vec4<f32>, up_sum: vec4<f32>) {
    let up = up_sum + up_bias_of(col);
    store_y(row * params.out4 + col / 4u, activate(gate_sum + bias_of(col)) * up);
}
#endif
