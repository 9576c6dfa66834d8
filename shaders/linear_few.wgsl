//! needs f16 coop
//! permute W q8_0 q8_1 q8_f q4_0 q4_1 q2_k q3_k q4_k q5_k q6_k iq4_xs
//! permute Y f32 f16
//! permute BIAS 0 1
//! permute RESIDUAL none f32 f16
//! permute ACT none gelu gelu_tanh relu silu tanh sigmoid
//! permute GATED 0 1
//! permute TILE_M 16 32 64
//! permute TILE_N 16 32
// Linear on cooperative matrices (tensor cores) for a few dozen rows, where most of the time goes into reading w: x f16,
// w in blocks, sums f32 in 16 x 16 fragments. Subgroups are 32 wide.
//
// A workgroup makes TILE_M x TILE_N sums. Its subgroups share K: of every SPLIT slabs of 64 columns each has one, which
// it makes f16 in workgroup memory of its own, so they wait for nobody until their sums are added up at the end.
// Fragments of x come straight from its buffer.
//
// Contract: k a multiple of 64; n a multiple of 4; any number of rows in buffers of 16 at least. The order of summation
// follows from TILE_N alone. Grid: x = ceil(n / OUT_N), y = ceil(rows / TILE_M); OUT_N is TILE_N, half of it if GATED.
#if GATED
#define TILE_N 32
#endif
#if TILE_N == 16
#define SPLIT 8
#else
#define SPLIT 4
#endif
#define THREADS $SPLIT*32
#define FRAG_M $TILE_M/16
#define FRAG_N $TILE_N/16
// Units of a slab that an invocation has.
#define W_LOADS $TILE_N/16
#if GATED
#define OUT_FRAGS $FRAG_N/2
#define OUT_N $TILE_N/2
#else
#define OUT_FRAGS $FRAG_N
#define OUT_N $TILE_N
#endif

#import blocks
#raw x array<vec4<f16>>
#define X none
#define FORMAT $W
#import units
#import unit_halves
#import linear_epilogue

alias FragA = coop_mat16x16<f16, A>;
alias FragB = coop_mat16x16<f16, B>;
alias FragC = coop_mat16x16<f32, C>;

// Groups of four values in a row of a slab; padding puts the 8 rows that a fragment load reads at a time into different
// banks. Arrays start at multiples of 16 bytes, as fragment loads want.
const STRIDE: u32 = 18u;
const SLAB: u32 = $TILE_Nu * STRIDE;
var<workgroup> ws: array<vec4<f16>, $SPLITu * SLAB>;
// One fragment of sums a subgroup, on its way out.
var<workgroup> stage: array<vec4<f32>, $SPLITu * 64u>;

// The row of w for a column of the tile. GATED: gate rows, then the same outputs' up rows.
fn weight_row(first: u32, column: u32) -> u32 {
    let last = params.n - 1u;
#if GATED
    return min(first + column % 16u, last) + select(0u, params.up_rows, column >= 16u);
#else
    return min(first + column, last);
#endif
}

// The subgroups' sums of a quad of a fragment, added up in order.
fn total(quad: u32) -> vec4<f32> {
    var sum = stage[quad];
    for (var s = 1u; s < $SPLITu; s++) {
        sum += stage[s * 64u + quad];
    }
    return sum;
}

@compute @workgroup_size($THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let rows = counts[params.count];
    let m0 = group.y * $TILE_Mu;
    let n0 = group.x * $OUT_Nu;
    if m0 >= rows {
        return;
    }
    let subgroup = lane / 32u;
    let k4 = params.k4;
    let slabs = k4 / 16u;

    // Two units of a row lie side by side.
    let unit = lane % 2u;
    let line = lane % 32u / 2u;
    var w_at: array<u32, $W_LOADS>;
    #unroll i $W_LOADS
    w_at[$i] = row_w(weight_row(n0, line + $iu * 16u), k4);
    #end
    let slab_at = subgroup * SLAB;
    let store_at = slab_at + line * STRIDE + unit * 8u;
    // The last fragment ends with the last row, so that it reads rows that are there.
    let last_first = max(rows, 16u) - 16u;
    var x_at: array<u32, $FRAG_M>;
    #unroll i $FRAG_M
    x_at[$i] = min(m0 + $iu * 16u, last_first) * k4;
    #end

    // The slab on its way.
    var pw: array<UnitW, $W_LOADS>;
    #macro load_slab
    #unroll i $W_LOADS
    pw[$i] = load_unit_w(w_at[$i], k4, min(at, slabs - 1u) * 2u + unit);
    #end
    #endmacro
    {
        let at = subgroup;
        #use load_slab
    }
    var acc: array<array<FragC, $FRAG_N>, $FRAG_M>;
    for (var slab = subgroup;; slab += $SPLITu) {
        let x_column = min(slab, slabs - 1u) * 16u;
        var a: array<array<FragA, 4>, $FRAG_M>;
        #unroll i $FRAG_M
        #unroll k 4
        a[$i][$k] = coopLoadT<FragA>(&x[x_at[$i] + x_column + $ku * 4u], k4);
        #end
        #end
        subgroupBarrier();
        #unroll i $W_LOADS
        {
            // Past the end, nothing is added.
            let scales = select(vec4(ZERO), unit_scales(pw[$i]), slab < slabs);
            let first = first_half(pw[$i]);
            let second = second_half(pw[$i]);
            #unroll q 4
            ws[store_at + $iu * 16u * STRIDE + $qu] = four_of(first[$q], scales.xy);
            #end
            #unroll q 4
            ws[store_at + $iu * 16u * STRIDE + 4u + $qu] = four_of(second[$q], scales.zw);
            #end
        }
        #end
        {
            let at = slab + $SPLITu;
            #use load_slab
        }
        subgroupBarrier();
        #unroll k 4
        #unroll j $FRAG_N
        {
            let b = coopLoad<FragB>(&ws[slab_at + $ju * 16u * STRIDE + $ku * 4u], STRIDE);
            #unroll i $FRAG_M
            acc[$i][$j] = coopMultiplyAdd(a[$i][$k], b, acc[$i][$j]);
            #end
        }
        #end
        #end
        // Left in the middle: a loop that ends at its condition would be unrolled eightfold. All subgroups go round
        // equally often.
        if slab - subgroup + $SPLITu >= slabs {
            break;
        }
    }
    // Never true. It makes the slab loaded last a used one; else the compiler moves the loads behind the break, right
    // before their stores, where nothing hides their latency.
    if k4 == 0u {
        var used = vec4(0u);
        #unroll i $W_LOADS
        used += unit_bits(pw[$i]);
        #end
        stage[lane] = vec4<f32>(used);
    }

    // The first 64 invocations finish a quad of each fragment.
    let quad = lane % 64u;
    let col0 = params.n_first + n0 + quad % 4u * 4u;
    let end = params.n_first + params.n;
    let finishes = lane < 64u;
    #unroll i $FRAG_M
    {
        let row = min(m0 + $iu * 16u, last_first) + quad / 4u;
        let mine = finishes && row >= m0 + $iu * 16u && row < rows;
        #unroll j $OUT_FRAGS
        {
            let col = col0 + $ju * 16u;
            let there = mine && col < end;
            var sum = vec4(0.0);
            workgroupBarrier();
            coopStoreT(acc[$i][$j], &stage[subgroup * 64u], 4u);
            workgroupBarrier();
            if there {
                sum = total(quad);
            }
#if GATED
            workgroupBarrier();
            coopStoreT(acc[$i][$OUT_FRAGS + $j], &stage[subgroup * 64u], 4u);
            workgroupBarrier();
            if there {
                finish_gated(row, col, sum, total(quad));
            }
#else
            if there {
                finish(row, col, sum);
            }
#endif
        }
        #end
    }
    #end
}
