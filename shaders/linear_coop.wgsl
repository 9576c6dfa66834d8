//! needs f16 coop
//! permute W f16 q8_0 q8_1 q8_f q4_0 q4_1 q2_k q3_k q4_k q5_k q6_k iq4_xs
//! permute Y f32 f16
//! permute BIAS 0 1
//! permute RESIDUAL none f32 f16
//! permute ACT none gelu gelu_tanh relu silu tanh sigmoid
//! permute GATED 0 1
//! permute EXPERT_TILES 0 1
//! permute TILE 128 128n 64w 64 32 32s 16 16s
// Linear on cooperative matrices (tensor cores): x and w f16, sums f32 in 16 x 16 fragments. Subgroups are 32 wide.
//
// A workgroup makes TILE_M x TILE_N sums. It stages TILE_K columns of its rows of x and w in workgroup memory; while
// these are multiplied the next ones travel to registers. w in blocks travels as it is, in units of 32 columns, and
// becomes f16 on its way to workgroup memory: once for TILE_M rows of x.
//
// EXPERT_TILES: a tile's rows are pairs of a row and an expert that it uses, all of one expert, as expert_lists has put them.
// Such a pair has a row of y; w has the experts one after the other.
//
// Contract: k a multiple of 64 (128 for tiles 32 and 16); n a multiple of 4; any number of rows. Every sum runs over
// K in order, 16 at a time, in one accumulator, whatever the tile: all tiles give the same bits.
// Grid: x = ceil(n / OUT_N), y = ceil(rows / TILE_M), or tiles of pairs; OUT_N is TILE_N, half of it if GATED.
//
// Workgroup memory decides how many workgroups a multiprocessor runs at once (NVIDIA's Vulkan driver grants 48 KiB
// in all), so a tile holds as little as it can: at most 24 KiB lets two run, one filling the other's gaps.
//
// Blocks have the large tiles alone: few rows of them go to linear_few.
#if W != f16
#if TILE == 32
#define TILE 64
#elif TILE == 32s
#define TILE 64
#elif TILE == 16
#define TILE 64
#elif TILE == 16s
#define TILE 64
#endif
#endif
#if TILE == 128
#define TILE_M 128
#define TILE_N 128
#define TILE_K 32
#define SG_M 2
#define SG_N 2
#define COPIES 1
#elif TILE == 128n
// One workgroup at a time, with larger steps: its finer grain pays where there are few columns of tiles.
#define TILE_M 128
#define TILE_N 128
#define TILE_K 64
#define SG_M 2
#define SG_N 4
#define COPIES 1
#elif TILE == 64w
// As many subgroups, for where there is not one of the larger tiles for each multiprocessor.
#define TILE_M 64
#define TILE_N 128
#define TILE_K 64
#define SG_M 2
#define SG_N 4
#define COPIES 1
#elif TILE == 64
#define TILE_M 64
#define TILE_N 64
#define TILE_K 64
#define SG_M 2
#define SG_N 2
#define COPIES 1
#else
// Few rows: latency counts.
#if TILE == 32
#define TILE_K 128
#elif TILE == 16
#define TILE_K 128
#else
#define TILE_K 64
#endif
#if TILE == 32
#define TILE_M 32
#elif TILE == 32s
#define TILE_M 32
#else
#define TILE_M 16
#endif
#if GATED
#define TILE_N 32
#define SG_N 1
#elif TILE_M == 32
#define TILE_N 32
#define SG_N 2
#else
#define TILE_N 16
#define SG_N 1
#endif
#if TILE_M == 32
#define SG_M 2
#else
#define SG_M 1
#endif
#if SG_N == 2
#define COPIES 1
#else
#define COPIES 2
#endif
#endif
#define SUBGROUPS $SG_M*$SG_N
#define THREADS $SUBGROUPS*$COPIES*32
#define FRAG_M $TILE_M/$SG_M/16
#define FRAG_N $TILE_N/$SG_N/16
#define OCTETS $TILE_K/8
#define X_LOADS $TILE_M*$OCTETS/$THREADS
#if W == f16
#define W_LOADS $TILE_N*$OCTETS/$THREADS
#else
// Units of a row of the tile, and those of the tile that an invocation has.
#define UNITS $TILE_K/32
#define W_LOADS $TILE_N*$UNITS/$THREADS
#endif
#if GATED
#define OUT_FRAGS $FRAG_N/2
#define OUT_N $TILE_N/2
#else
#define OUT_FRAGS $FRAG_N
#define OUT_N $TILE_N
#endif
// Rows of a fragment that an invocation finishes.
#define TURNS 2/$COPIES

#import blocks
#raw x array<vec4<u32>>
#if W == f16
#raw w array<vec4<u32>>
#else
#define X none
#define FORMAT $W
#import units
#import unit_halves
#endif
#if EXPERT_TILES
#define BIAS 0
#define RESIDUAL none
// Tiles of pairs, four words each: expert, first pair, past the last one, 0; then pairs.
#raw lists array<u32>
#endif
#import linear_epilogue

alias FragA = coop_mat16x16<f16, A>;
alias FragB = coop_mat16x16<f16, B>;
alias FragC = coop_mat16x16<f32, C>;

// Groups of four values in a row of the tiles. Rows are padded by 8 values, so that the 8 rows that a fragment load
// reads at a time lie in different banks. Arrays start at multiples of 16 bytes, as fragment loads want.
const STRIDE: u32 = $TILE_K / 4u + 2u;
const LINES: u32 = $THREADS / $OCTETSu;
#if W != f16
const UNIT_LINES: u32 = $THREADS / $UNITSu;
#endif
var<workgroup> xs: array<vec4<f16>, $TILE_Mu * STRIDE>;
var<workgroup> ws: array<vec4<f16>, $TILE_Nu * STRIDE>;
// One fragment of sums a subgroup, on its way out.
var<workgroup> stage: array<vec4<f32>, $SUBGROUPSu * 64u>;

fn halves(a: u32, b: u32) -> vec4<f16> {
    return vec4<f16>(vec2<f16>(unpack2x16float(a)), vec2<f16>(unpack2x16float(b)));
}

// The row of x for a row of the tiles, and the row of y.
fn x_row(row: u32) -> u32 {
#if EXPERT_TILES
    return lists[params.pairs_at + row] / params.shared_by;
#else
    return row;
#endif
}

fn y_row(row: u32) -> u32 {
#if EXPERT_TILES
    return lists[params.pairs_at + row];
#else
    return row;
#endif
}

// The row of w for a column of the tile. GATED: each subgroup's columns are gate rows, then the same outputs' up rows.
fn weight_row(first: u32, column: u32) -> u32 {
    let last = params.n - 1u;
#if GATED
    const WIDTH = $FRAG_Nu * 16u;
    let within = column % WIDTH;
    let output = min(first + (column / WIDTH) * (WIDTH / 2u) + within % (WIDTH / 2u), last);
    return output + select(0u, params.up_rows, within >= WIDTH / 2u);
#else
    return min(first + column, last);
#endif
}

@compute @workgroup_size($THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
#if EXPERT_TILES
    let first_w = lists[group.y * 4u] * params.expert_rows;
    let m0 = lists[group.y * 4u + 1u];
    let rows = lists[group.y * 4u + 2u];
#else
    const first_w = 0u;
    let rows = counts[params.count];
    let m0 = group.y * $TILE_Mu;
#endif
    let n0 = group.x * $OUT_Nu;
    if m0 >= rows {
        return;
    }
    // Where there are few fragments, copies of the subgroups help to load, and repeat the multiplications.
    let subgroup = (lane / 32u) % $SUBGROUPSu;
    let copy = lane / ($SUBGROUPSu * 32u);
    let sg_m = (subgroup / $SG_Nu) * ($FRAG_Mu * 16u);
    let sg_n = (subgroup % $SG_Nu) * ($FRAG_Nu * 16u);

    // An invocation loads 16 bytes of a row at a time. Rows past the end repeat the last one; their sums are dropped.
    let octets = params.k4 / 2u;
    let octet = lane % $OCTETSu;
#if TILE_K == 32
    // Rows 0, 4, 1, 5, 2, 6, 3, 7 of every 8: then the 8 stores served at a time lie in different banks.
    let line = (lane / 32u) * 8u + ((lane / 4u) & 1u) * 4u + ((lane / 8u) & 3u);
#else
    let line = lane / $OCTETSu;
#endif
    var x_at: array<u32, $X_LOADS>;
    var w_at: array<u32, $W_LOADS>;
    #unroll i $X_LOADS
    x_at[$i] = x_row(min(m0 + line + $iu * LINES, rows - 1u)) * octets + octet;
    #end
    #unroll i $W_LOADS
#if W == f16
    w_at[$i] = (first_w + weight_row(n0, line + $iu * LINES)) * octets + octet;
#else
    w_at[$i] = row_w(first_w + weight_row(n0, lane / $UNITSu + $iu * UNIT_LINES), params.k4);
#endif
    #end
#if W != f16
    let unit = lane % $UNITSu;
    let unit_at = lane / $UNITSu * STRIDE + unit * 8u;
#endif
    let store_at = line * STRIDE + octet * 2u;

    // The tile on its way.
    var px: array<vec4<u32>, $X_LOADS>;
#if W == f16
    var pw: array<vec4<u32>, $W_LOADS>;
#else
    var pw: array<UnitW, $W_LOADS>;
#endif
    #macro load_tile
    #unroll i $X_LOADS
    px[$i] = x[x_at[$i] + at];
    #end
    #unroll i $W_LOADS
#if W == f16
    pw[$i] = w[w_at[$i] + at];
#else
    pw[$i] = load_unit_w(w_at[$i], params.k4, at / 4u + unit);
#endif
    #end
    #endmacro
    #macro store_tile
    #unroll i $X_LOADS
    xs[store_at + $iu * LINES * STRIDE] = halves(px[$i].x, px[$i].y);
    xs[store_at + $iu * LINES * STRIDE + 1u] = halves(px[$i].z, px[$i].w);
    #end
    #unroll i $W_LOADS
#if W == f16
    ws[store_at + $iu * LINES * STRIDE] = halves(pw[$i].x, pw[$i].y);
    ws[store_at + $iu * LINES * STRIDE + 1u] = halves(pw[$i].z, pw[$i].w);
#else
    {
        let scales = unit_scales(pw[$i]);
        let first = first_half(pw[$i]);
        let second = second_half(pw[$i]);
        #unroll q 4
        ws[unit_at + $iu * UNIT_LINES * STRIDE + $qu] = four_of(first[$q], scales.xy);
        #end
        #unroll q 4
        ws[unit_at + $iu * UNIT_LINES * STRIDE + 4u + $qu] = four_of(second[$q], scales.zw);
        #end
    }
#endif
    #end
    #endmacro

    let steps = octets / $OCTETSu;
    {
        let at = 0u;
        #use load_tile
    }
    #use store_tile
    workgroupBarrier();
    var acc: array<array<FragC, $FRAG_N>, $FRAG_M>;
    for (var step = 1u;; step++) {
        // The last step loads its own tile again.
        {
            let at = min(step, steps - 1u) * $OCTETSu;
            #use load_tile
        }
        #unroll k $TILE_K/16
        {
            var a: array<FragA, $FRAG_M>;
            #unroll i $FRAG_M
            a[$i] = coopLoadT<FragA>(&xs[(sg_m + $iu * 16u) * STRIDE + $ku * 4u], STRIDE);
            #end
            #unroll j $FRAG_N
            {
                let b = coopLoad<FragB>(&ws[(sg_n + $ju * 16u) * STRIDE + $ku * 4u], STRIDE);
                #unroll i $FRAG_M
                acc[$i][$j] = coopMultiplyAdd(a[$i], b, acc[$i][$j]);
                #end
            }
            #end
        }
        #end
        // Left in the middle: a loop that ends at its condition would be unrolled eightfold.
        if step >= steps {
            break;
        }
        workgroupBarrier();
        #use store_tile
        workgroupBarrier();
    }
    // Never true. It makes the tile loaded last a used one; else the compiler moves the loads behind the break, right
    // before their stores, where nothing hides their latency.
    if params.k4 == 0u {
        var used = vec4(0u);
        #unroll i $X_LOADS
        used += px[$i];
        #end
        #unroll i $W_LOADS
#if W == f16
        used += pw[$i];
#else
        used += unit_bits(pw[$i]);
#endif
        #end
        stage[lane % $SUBGROUPSu] = vec4<f32>(used);
    }

    // Out by way of `stage`, since fragments show no elements: an invocation takes a quad of columns, 8 rows apart.
    let quad = lane % 4u;
    let row0 = m0 + sg_m + (lane % 32u) / 4u + copy * 8u;
    let slot = subgroup * 64u;
    let read_at = slot + ((lane % 32u) / 4u + copy * 8u) * 4u + quad;
    let end = params.n_first + params.n;
    let col0 = params.n_first + n0 + (subgroup % $SG_Nu) * ($OUT_FRAGSu * 16u) + quad * 4u;
    #macro fragment
#if COPIES == 2
    workgroupBarrier();
#else
    subgroupBarrier();
#endif
    #endmacro
    var bias: array<vec4<f32>, $OUT_FRAGS>;
#if GATED
    var up_bias: array<vec4<f32>, $OUT_FRAGS>;
#endif
    #unroll j $OUT_FRAGS
    bias[$j] = bias_of(min(col0 + $ju * 16u, end - 4u));
#if GATED
    up_bias[$j] = up_bias_of(min(col0 + $ju * 16u, end - 4u));
#endif
    #end
    #unroll i $FRAG_M
    {
#if RESIDUAL != none
        // Asked for ahead, so that their latencies overlap.
        var add: array<array<vec4<f32>, $TURNS>, $OUT_FRAGS>;
        #unroll j $OUT_FRAGS
        #unroll t $TURNS
        add[$j][$t] = residual_of(min(row0 + $iu * 16u + $tu * 8u, rows - 1u), min(col0 + $ju * 16u, end - 4u));
        #end
        #end
#endif
        #unroll j $OUT_FRAGS
        {
            #use fragment
            coopStoreT(acc[$i][$j], &stage[slot], 4u);
            #use fragment
            var sum: array<vec4<f32>, $TURNS>;
            #unroll t $TURNS
            sum[$t] = activate(stage[read_at + $tu * 32u] + bias[$j]);
            #end
#if GATED
            #use fragment
            coopStoreT(acc[$i][$OUT_FRAGS + $j], &stage[slot], 4u);
            #use fragment
            #unroll t $TURNS
            sum[$t] *= stage[read_at + $tu * 32u] + up_bias[$j];
            #end
#endif
            let col = col0 + $ju * 16u;
            #unroll t $TURNS
            if row0 + $iu * 16u + $tu * 8u < rows && col < end {
#if RESIDUAL != none
                sum[$t] += add[$j][$t];
#endif
                store_y(y_row(row0 + $iu * 16u + $tu * 8u) * params.out4 + col / 4u, sum[$t]);
            }
            #end
        }
        #end
    }
    #end
}
