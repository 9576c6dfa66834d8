// What every linear kernel shares: parameters, buffers, epilogue.
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
}
@group(0) @binding(0) var<uniform> params: Params;

#buffer x $X
#buffer w $W
#if BIAS
#buffer bias f32
#endif
#if RESIDUAL != none
#buffer residual $RESIDUAL
#endif
#buffer y $Y write

// Four neighbouring outputs of one row; col is absolute.
fn finish(row: u32, col: u32, sum: vec4<f32>) {
    var v = sum;
#if BIAS
    v += load_bias(col / 4u);
#endif
    v = activate(v);
    let at = row * params.out4 + col / 4u;
#if RESIDUAL != none
    v += load_residual(at);
#endif
    store_y(at, v);
}

// The same for gate and up sums.
fn finish_gated(row: u32, col: u32, gate_sum: vec4<f32>, up_sum: vec4<f32>) {
    var gate = gate_sum;
    var up = up_sum;
#if BIAS
    gate += load_bias(col / 4u);
    up += load_bias(params.out4 + col / 4u);
#endif
    store_y(row * params.out4 + col / 4u, activate(gate) * up);
}
