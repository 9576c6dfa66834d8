//! needs subgroups
//! permute X f32 f16 q8
//! permute W f32 f16 q8_0 q8_1 q8_f q4_0 q4_1 q2_k q3_k q4_k q5_k q6_k iq4_xs
//! permute Y f32 f16 q8
//! permute BIAS 0 1
//! permute RESIDUAL none f32 f16
//! permute ACT none gelu gelu_tanh relu silu tanh sigmoid
//! permute GATED 0 1
//! permute ROWS 1 2 4 8
//! permute LANES 8 16 32
//! permute OUTS 1 2 4
//! permute UNROLL 1 2 4 8
//! permute SUBGROUPS 0 1
//! permute NORM none layer rms
//! permute SOURCE f32 f16
//! permute HELD 1 2 4
//! permute HALVES 2 128
//! permute TAPS 0 2 3 4 8
// Linear for few rows, where all time goes into reading w: LANES neighbouring invocations make OUTS neighbouring
// outputs of ROWS rows, with UNROLL units of each row of w on their way before the first is used.
//
// Contract: k a multiple of a unit (lib/units.wgsl); any rows and n. An invocation sums units LANES apart in order,
// then the LANES sums are added: the order depends on LANES and SUBGROUPS alone. SUBGROUPS: subgroups are at least as
// wide as LANES. For y in 8-bit blocks a workgroup makes 32 outputs.
// Grid: x and y = the workgroups for n folded by row_grid, z = ceil(rows / ROWS).
//
// NORM: x is what that makes of `source`. A workgroup normalises its rows itself, into workgroup memory, while the
// first weights are on their way; to do so less often, it makes the outputs of every row_grid-th workgroup too.
//
// TAPS: w's rows are the thirds B, C and x of a gated short convolution (short_conv.wgsl), which makes the outputs of
// them; rows are of different slots. Without GATED, biases, activation and residual.
#if X == q8
// 8-bit blocks multiply blocks alone.
#if W == f32
#define X f32
#elif W == f16
#define X f32
#endif
#endif
#if Y == q8
#define OUTPUTS 32
#define THREADS 32/$OUTS*$LANES
#else
#define THREADS 128
#define OUTPUTS 128/$LANES*$OUTS
#endif
#define QUADS $OUTPUTS/4
#if TAPS
#define SIDES 3
#define KEPT $TAPS-1
#elif GATED
#define SIDES 2
#else
#define SIDES 1
#endif
#if NORM != none
#define HOLDS 1
#endif
#define SUMS $ROWS*$OUTS*$SIDES
#define Q8_THREADS $THREADS

#import blocks
#import q8
#define FORMAT $W
#if HOLDS
#import held
#endif
#import units
#import linear_epilogue
#if TAPS
#raw tokens array<vec4<u32>>
#buffer taps f32
#buffer state f32 write
#endif

// Sums by side, row and output.
var<workgroup> sums: array<f32, $SIDES * $ROWS * $OUTPUTS>;

#if !SUBGROUPS
var<workgroup> parts: array<f32, $THREADS>;
#endif

// Sum over LANES neighbouring invocations, for the first of them at least.
fn over_lanes(value: f32, thread: u32) -> f32 {
    var sum = value;
#if SUBGROUPS
    for (var step = $LANESu / 2u; step > 0u; step /= 2u) {
        sum += subgroupShuffleXor(sum, step);
    }
#else
    workgroupBarrier();
    parts[thread] = value;
    workgroupBarrier();
    if thread % $LANESu == 0u {
        for (var i = 1u; i < $LANESu; i++) {
            sum += parts[thread + i];
        }
    }
#endif
    return sum;
}

@compute @workgroup_size($THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let rows = counts[params.count];
    let m0 = group.z * $ROWSu;
    let n_first = (group.y * params.row_grid + group.x) * $OUTPUTSu;
    if m0 >= rows || n_first >= params.n {
        return;
    }
    let k4 = params.k4;
    let lane = thread % $LANESu;
    #unroll r $ROWS
#if HOLDS
    let x$r = $ru * $HALVESu;
#else
    let x$r = row_x(min(m0 + $ru, rows - 1u), k4);
#endif
    #end

#if HOLDS
    for (var n0 = n_first; n0 < params.n; n0 += params.row_grid * $OUTPUTSu) {
#else
    let n0 = n_first;
#endif
    // Rows and outputs past the end repeat the last one; their sums are dropped.
    #unroll o $OUTS
    let col$o = min(n0 + thread / $LANESu * $OUTSu + $ou, params.n - 1u);
    #unroll s $SIDES
    let w$s$o = row_w(col$o + $su * params.up_rows, k4);
    #end
    #end

    // The quad of outputs that this invocation finishes; what it adds is asked for ahead.
    let row = m0 + thread / $QUADSu;
    let column = params.n_first + n0 + thread % $QUADSu * 4u;
    let finishes = thread < $QUADSu * $ROWSu && row < rows && column < params.n_first + params.n;
#if TAPS
    var kept: array<vec4<f32>, $KEPT>;
    var factors: array<vec4<f32>, $TAPS>;
    let state_at = tokens[min(row, rows - 1u)].w * $KEPTu * params.out4 + column / 4u;
    if finishes {
        #unroll j $KEPT
        // Nothing lies before position 0.
        if tokens[row].y + $ju >= $KEPTu {
            kept[$j] = load_state(state_at + $ju * params.out4);
        }
        #end
        #unroll j $TAPS
        factors[$j] = load_taps($ju * params.out4 + column / 4u);
        #end
    }
#else
    var bias = vec4(0.0);
    var other = vec4(0.0);
    if finishes {
        bias = bias_of(column);
#if GATED
        other = up_bias_of(column);
#else
        other = residual_of(row, column);
#endif
    }
#endif

    var acc: array<f32, $SUMS>;
    let units = k4 / $UNIT4u;
    for (var first = 0u; first < units; first += $LANESu * $UNROLLu) {
        #unroll t $UNROLL
        let i$t = min(first + $tu * $LANESu + lane, units - 1u);
        #unroll o $OUTS
        #unroll s $SIDES
        let w$s$o$t = load_unit_w(w$s$o, k4, i$t);
        #end
        #end
        #end
#if HOLDS
        if first == 0u && n0 == n_first {
            hold(m0, rows, thread);
        }
#endif
        #unroll t $UNROLL
        let there$t = first + $tu * $LANESu + lane < units;
        #unroll r $ROWS
        {
            let unit = load_unit_x(x$r, k4, i$t);
            #unroll o $OUTS
            #unroll s $SIDES
            acc[($o * $ROWS + $r) * $SIDES + $s] += select(0.0, unit_dot(w$s$o$t, unit), there$t);
            #end
            #end
        }
        #end
        #end
    }

    #unroll o $OUTS
    #unroll r $ROWS
    #unroll s $SIDES
    {
        let sum = over_lanes(acc[($o * $ROWS + $r) * $SIDES + $s], thread);
        if lane == 0u {
            sums[($s * $ROWS + $r) * $OUTPUTS + thread / $LANESu * $OUTSu + $ou] = sum;
        }
    }
    #end
    #end
    #end
    workgroupBarrier();
    let at = min(thread, $QUADSu * $ROWSu - 1u) * 4u;
    #unroll s $SIDES
    let at$s = at + $su * $ROWSu * $OUTPUTSu;
    let sum$s = vec4(sums[at$s], sums[at$s + 1u], sums[at$s + 2u], sums[at$s + 3u]);
    #end
#if TAPS
    let u = sum0 * sum2;
    var v = vec4(0.0);
    #unroll j $KEPT
    v += factors[$j] * kept[$j];
    #end
    v = (v + factors[$KEPT] * u) * sum1;
    if finishes {
        #unroll j $KEPT
#if $j != 0
        store_state(state_at + ($ju - 1u) * params.out4, kept[$j]);
#endif
        #end
        store_state(state_at + ($KEPTu - 1u) * params.out4, u);
    }
#elif GATED
    let v = activate(sum0 + bias) * (sum1 + other);
#else
    let v = activate(sum0 + bias) + other;
#endif
#if Y == q8
    store_q8(row, params.out4, column / 4u, thread, finishes, v);
#else
    if finishes {
        store_y(row * params.out4 + column / 4u, v);
    }
#endif
#if HOLDS
    workgroupBarrier();
    }
#endif
}
