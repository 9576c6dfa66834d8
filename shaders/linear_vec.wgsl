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
//! permute AHEAD 0 1
//! permute SUBGROUPS 0 1
//! permute NORM none layer rms
//! permute SOURCE f32 f16
//! permute HELD 1 2 4
//! permute HALVES 2 128
//! permute TAPS 0 2 3 4 8
//! permute EXPERTS none gated linear
//! permute SCORING given softmax sigmoid
//! permute R_BIAS 0 1
//! permute NORMALIZE 0 1
// Linear for few rows, where all time goes into reading w: LANES neighbouring invocations make OUTS neighbouring
// outputs of ROWS rows, with UNROLL units of each row of w on their way before the first is used; AHEAD: those of the next
// turn, too. Nothing that the first of them do not need is waited for before they are asked for.
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
//
// EXPERTS: of ROWS = 1. gated: w's rows are each expert's gate and up rows, y has the chosen experts' outputs side by
// side. linear: y is the sum of the chosen experts' outputs for their parts of x, times their weights. SCORING: the
// choice is made here, by a router's logits, and left in `routes`; or it is given there.
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
#if EXPERTS != none
#define OF_EXPERTS 1
#if SCORING != given
#define CHOOSES 1
#endif
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
#if CHOOSES
#raw logits array<f32>
#if R_BIAS
#raw router_bias array<f32>
#endif
#buffer routes f32 write
#define CHOOSE_THREADS $THREADS
#import choose

fn expert_of(row: u32, i: u32) -> u32 {
    return u32(chosen[i].x);
}

fn share_of(row: u32, i: u32) -> f32 {
    return chosen[i].y;
}
#elif OF_EXPERTS
#raw routes array<f32>

// The i-th expert of a row, and its weight.
fn expert_of(row: u32, i: u32) -> u32 {
    return min(u32(max(routes[row * ((params.used + 1u) / 2u) * 4u + i], 0.0)), params.experts - 1u);
}

fn share_of(row: u32, i: u32) -> f32 {
    return routes[row * ((params.used + 1u) / 2u) * 4u + params.used + i];
}
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
    let m0 = group.z * $ROWSu;
    let n_first = (group.y * params.row_grid + group.x) * $OUTPUTSu;
    if n_first >= params.n {
        return;
    }
#if HOLDS
    let asked = ask(m0, thread);
#endif
    let rows = counts[params.count];
#if CHOOSES
    if m0 >= rows {
        return;
    }
#endif
    let k4 = params.k4;
    let lane = thread % $LANESu;
#if CHOOSES
    for (var e = thread; e < params.experts; e += $THREADSu) {
        scores[e] = logits[m0 * ((params.experts + 3u) & ~3u) + e];
    }
    let scale = choose(thread);
    if group.x == 0u && group.y == 0u && thread < route_cols4() {
        store_routes(m0 * route_cols4() + thread, route_group(thread, scale));
    }
#endif
    let units = k4 / $UNIT4u;
#if EXPERTS == linear
    let all4 = k4 * params.used;
    let all_units = units * params.used;
#else
    let all4 = k4;
    let all_units = units;
#endif
#if HOLDS
    for (var n0 = n_first; n0 < params.n; n0 += params.row_grid * $OUTPUTSu) {
#else
    let n0 = n_first;
#endif
    // Rows and outputs past the end repeat the last one; their sums are dropped.
    #unroll o $OUTS
    let col$o = min(n0 + thread / $LANESu * $OUTSu + $ou, params.n - 1u);
#if EXPERTS == gated
    let expert$o = expert_of(m0, col$o / params.width);
    let first$o = expert$o * 2u * params.width + col$o % params.width;
#elif EXPERTS == none
    let first$o = col$o;
#endif
#if EXPERTS != linear
    #unroll s $SIDES
    let w$s$o = row_w(first$o + $su * params.up_rows, k4);
    #end
#endif
    #end

#macro load_units
        #unroll t $UNROLL
        {
            let i = min($FROM + $tu * $LANESu + lane, all_units - 1u);
#if EXPERTS == linear
            let expert = expert_of(m0, i / units);
            #unroll o $OUTS
            #unroll s $SIDES
            ahead[($t * $OUTS + $o) * $SIDES + $s] = load_unit_w(row_w(expert * params.n + col$o, k4), k4, i % units);
            #end
            #end
#else
            #unroll o $OUTS
            #unroll s $SIDES
            ahead[($t * $OUTS + $o) * $SIDES + $s] = load_unit_w(w$s$o, k4, i);
            #end
            #end
#endif
        }
        #end
#endmacro
    var ahead: array<UnitW, $UNROLL * $OUTS * $SIDES>;
#define FROM 0u
#use load_units
    if m0 >= rows {
        return;
    }

    // The quad of outputs that this invocation finishes; what it adds is asked for ahead.
    let row = m0 + thread / $QUADSu;
    let column = params.n_first + n0 + thread % $QUADSu * 4u;
    let finishes = thread < $QUADSu * $ROWSu && row < rows && column < params.n_first + params.n;
#if TAPS
    var kept: array<vec4<f32>, $KEPT>;
    var factors: array<vec4<f32>, $TAPS>;
    let token = tokens[min(row, rows - 1u)];
    let state_at = token.w * $KEPTu * params.out4 + column / 4u;
    if finishes {
        #unroll j $KEPT
        // Nothing lies before position 0.
        if token.y + $ju >= $KEPTu {
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

#if HOLDS
    if n0 == n_first {
        hold(asked, m0, rows, thread);
    }
#endif
    #unroll r $ROWS
#if HOLDS
    let x$r = $ru * $HALVESu;
#elif ROWS == 1
    let x$r = row_x(m0, all4);
#else
    let x$r = row_x(min(m0 + $ru, rows - 1u), all4);
#endif
    #end
    var acc: array<f32, $SUMS>;
    for (var first = 0u;;) {
        let units_now = ahead;
        let next = first + $LANESu * $UNROLLu;
#if AHEAD
        if next < all_units {
#define FROM next
#use load_units
        }
#endif
        #unroll t $UNROLL
        let i$t = min(first + $tu * $LANESu + lane, all_units - 1u);
        let there$t = first + $tu * $LANESu + lane < all_units;
#if EXPERTS == linear
        let share$t = share_of(m0, i$t / units);
#endif
        #unroll r $ROWS
        {
            let unit = load_unit_x(x$r, all4, i$t);
            #unroll o $OUTS
            #unroll s $SIDES
            acc[($o * $ROWS + $r) * $SIDES + $s] += select(0.0, unit_dot(units_now[($t * $OUTS + $o) * $SIDES + $s], unit), there$t)
#if EXPERTS == linear
                * share$t
#endif
                ;
            #end
            #end
        }
        #end
        #end
        if next >= all_units {
            break;
        }
        first = next;
#if !AHEAD
#define FROM first
#use load_units
#endif
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
