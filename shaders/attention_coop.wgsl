//! needs f16 coop subgroups
//! permute Y f32 f16
//! permute HEAD_DIM 32 64 128
//! permute BIAS 0 1
//! permute WINDOW 0 1
// Bidirectional attention over packed sequences on cooperative matrices (tensor cores): qkv f16, scores, softmax and
// sums f32, probabilities f16. Subgroups are 32 wide.
//
// A workgroup takes a tile of at most 64 query rows and one head; each of its 4 subgroups 16 rows. Keys are walked
// from the sequence's first row in blocks of 32, so a result never depends on the neighbours in the batch. Softmax
// is online (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018), relative to a reference that
// is raised only when a row's maximum exceeds it by SLACK, so sums rarely need rescaling (Dao, FlashAttention, 2022,
// rescales every block).
// Grid: x = heads, y = tiles.
#import counts
#define BLOCK 32
#define K_STEPS $BLOCK/16
#define D_STEPS $HEAD_DIM/16
#define OCTETS $HEAD_DIM/8
#define LOADS $BLOCK*$OCTETS/128
#define Q_LOADS $OCTETS/2
// Score columns that are staged at once; few enough that a multiprocessor holds several workgroups.
#if HEAD_DIM == 128
#define S_COLS 16
#define S_PAD 0
#else
#define S_COLS 32
#define S_PAD 2
#endif
#define S_FRAGS $S_COLS/16
#define CHUNKS $BLOCK/$S_COLS
// Quads of keys of a chunk that an invocation holds.
#define QUADS $S_COLS/8

struct Params {
    heads: u32,
    group: u32,        // query heads a key head
    cols4: u32,        // columns of qkv / 4
    key4: u32,         // first key column / 4
    value4: u32,       // first value column / 4
    before: u32,       // WINDOW: largest i - j, below 2^31
    after: u32,        // WINDOW: largest j - i, below 2^31
    radius: u32,       // BIAS: of the bias table
    scale: f32,
}
@group(0) @binding(0) var<uniform> params: Params;

#raw qkv array<vec4<u32>>
#raw tiles array<vec4<u32>>
#if BIAS
#raw bias array<f32>
#endif
#buffer y $Y write

alias FragA = coop_mat16x16<f16, A>;
alias FragB = coop_mat16x16<f16, B>;
alias FragC = coop_mat16x16<f32, C>;

const MASKED: f32 = -1e30;
// In powers of two; a probability is then at most 2^SLACK, which f16 holds.
const SLACK: f32 = 8.0;
const LOG2_E: f32 = 1.4426950408889634;

// Groups of four values in a row; padding puts the 8 rows that a fragment load reads at a time into different banks.
// Arrays start at multiples of 16 bytes, as fragment loads want.
const STRIDE: u32 = $HEAD_DIM / 4u + 2u;
const S_STRIDE: u32 = $S_COLS / 4u + $S_PADu;
const S_SIZE: u32 = 16u * S_STRIDE;
const P_STRIDE: u32 = 6u;
const P_SIZE: u32 = 16u * P_STRIDE;
const VALUES: u32 = $BLOCKu * STRIDE;
const LINES: u32 = 128u / $OCTETSu;
// Queries first, then keys and values.
var<workgroup> kv: array<vec4<f16>, 64u * STRIDE>;
var<workgroup> scores: array<vec4<f32>, 4u * S_SIZE>;
var<workgroup> probabilities: array<vec4<f16>, 4u * P_SIZE>;

fn halves(a: u32, b: u32) -> vec4<f16> {
    return vec4<f16>(vec2<f16>(unpack2x16float(a)), vec2<f16>(unpack2x16float(b)));
}

fn largest_of(v: vec4<f32>) -> f32 {
    return max(max(v.x, v.y), max(v.z, v.w));
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if group.y >= counts.z {
        return;
    }
    let tile = tiles[group.y];
    let q_start = tile.x;
    let q_end = tile.y;
    let k_start = tile.z;
    let k_end = tile.w;
    let head = group.x;
    let kv_head = head / params.group;
    let octets = params.cols4 / 2u;
    let q_column = head * $OCTETSu;
    let k_column = params.key4 / 2u + kv_head * $OCTETSu;
    let v_column = params.value4 / 2u + kv_head * $OCTETSu;
    let subgroup = lane / 32u;
    let local = lane % 32u;
    // 16 bytes of a row an invocation and load.
    let octet = lane % $OCTETSu;
    let line = lane / $OCTETSu;

    // Rows past the tile repeat its last one; their results are dropped.
    #unroll i $Q_LOADS
    {
        let row = $iu * LINES + line;
        let v = qkv[min(q_start + row, q_end - 1u) * octets + q_column + octet];
        kv[row * STRIDE + octet * 2u] = halves(v.x, v.y);
        kv[row * STRIDE + octet * 2u + 1u] = halves(v.z, v.w);
    }
    #end
    workgroupBarrier();
    var q: array<FragA, $D_STEPS>;
    #unroll d $D_STEPS
    q[$d] = coopLoadT<FragA>(&kv[subgroup * 16u * STRIDE + $du * 4u], STRIDE);
    #end
    var o: array<FragC, $D_STEPS>;

    // Blocks stay aligned to the sequence's start.
    var begin = k_start;
    var end = k_end;
#if WINDOW
    begin += (max(q_start - k_start, params.before) - params.before) / $BLOCKu * $BLOCKu;
    end = min(k_end, q_end + params.after);
#endif

    // Two invocations a row, which share its keys by quads.
    let row = local / 2u;
    let half = local % 2u;
    let q_row = q_start + subgroup * 16u + row;
    let s_row = subgroup * S_SIZE + row * S_STRIDE;
    let p_row = subgroup * P_SIZE + row * P_STRIDE;
    let scale = params.scale * LOG2_E;
    var reference = -1e20;
    var total = 0.0;

    // The block on its way.
    var pk: array<vec4<u32>, $LOADS>;
    var pv: array<vec4<u32>, $LOADS>;
    #macro load_block
    #unroll i $LOADS
    {
        // Keys past the sequence repeat its last one; they are masked.
        let row_at = min(at + $iu * LINES + line, k_end - 1u) * octets + octet;
        pk[$i] = qkv[row_at + k_column];
        pv[$i] = qkv[row_at + v_column];
    }
    #end
    #endmacro
    {
        let at = begin;
        #use load_block
    }
    for (var key = begin;; key += $BLOCKu) {
        workgroupBarrier();
        #unroll i $LOADS
        {
            let to = ($iu * LINES + line) * STRIDE + octet * 2u;
            kv[to] = halves(pk[$i].x, pk[$i].y);
            kv[to + 1u] = halves(pk[$i].z, pk[$i].w);
            kv[VALUES + to] = halves(pv[$i].x, pv[$i].y);
            kv[VALUES + to + 1u] = halves(pv[$i].z, pv[$i].w);
        }
        #end
        {
            let at = key + $BLOCKu;
            #use load_block
        }
        workgroupBarrier();

        var f: array<FragC, $K_STEPS>;
        #unroll d $D_STEPS
        #unroll j $K_STEPS
        f[$j] = coopMultiplyAdd(q[$d], coopLoad<FragB>(&kv[$ju * 16u * STRIDE + $du * 4u], STRIDE), f[$j]);
        #end
        #end
        // Scores, times log2 e; then probabilities.
        var s: array<array<vec4<f32>, $QUADS>, $CHUNKS>;
        #unroll h $CHUNKS
        #unroll j $S_FRAGS
        coopStoreT(f[$h * $S_FRAGS + $j], &scores[subgroup * S_SIZE + $ju * 4u], S_STRIDE);
        #end
        subgroupBarrier();
        #unroll c $QUADS
        s[$h][$c] = scores[s_row + $cu * 2u + half] * scale;
        #end
        subgroupBarrier();
        #end
#if BIAS
        #unroll h $CHUNKS
        #unroll c $QUADS
        {
            let offset = i32(key + $hu * $S_COLSu + ($cu * 2u + half) * 4u) - i32(q_row);
            let r = i32(params.radius);
            let base = head * (2u * params.radius + 1u);
            s[$h][$c] += LOG2_E * vec4(
                bias[base + u32(clamp(offset, -r, r) + r)],
                bias[base + u32(clamp(offset + 1, -r, r) + r)],
                bias[base + u32(clamp(offset + 2, -r, r) + r)],
                bias[base + u32(clamp(offset + 3, -r, r) + r)]);
        }
        #end
        #end
#endif
#if WINDOW
        {
#else
        if key + $BLOCKu > k_end {
#endif
            #unroll h $CHUNKS
            #unroll c $QUADS
            {
                let at = vec4(key + $hu * $S_COLSu + ($cu * 2u + half) * 4u) + vec4(0u, 1u, 2u, 3u);
                var keep = at < vec4(k_end);
#if WINDOW
                keep = keep & (at + params.before >= vec4(q_row)) & (at <= vec4(q_row + params.after));
#endif
                s[$h][$c] = select(vec4(MASKED), s[$h][$c], keep);
            }
            #end
            #end
        }
        var top = MASKED;
        #unroll h $CHUNKS
        #unroll c $QUADS
        top = max(top, largest_of(s[$h][$c]));
        #end
        #end
        top = max(top, subgroupShuffleXor(top, 1u));
        let raised = top > reference + SLACK;
        let rescale = subgroupAny(raised);
        var shrink = 1.0;
        if raised {
            shrink = exp2(max(reference - top, -200.0));
            reference = top;
        }
        var sum = 0.0;
        #unroll h $CHUNKS
        #unroll c $QUADS
        s[$h][$c] = exp2(s[$h][$c] - reference);
        sum += (s[$h][$c].x + s[$h][$c].y) + (s[$h][$c].z + s[$h][$c].w);
        #end
        #end
        total = total * shrink + sum;
        loop {
            // Uniform in the subgroup, which is what the operations below need; of an `if` the validator wants more.
            if !rescale {
                break;
            }
            #unroll j $D_STEPS
            coopStoreT(o[$j], &scores[subgroup * S_SIZE], S_STRIDE);
            subgroupBarrier();
            scores[s_row + half] *= shrink;
            scores[s_row + 2u + half] *= shrink;
            subgroupBarrier();
            o[$j] = coopLoadT<FragC>(&scores[subgroup * S_SIZE], S_STRIDE);
            subgroupBarrier();
            #end
            break;
        }
        #unroll k $K_STEPS
        {
            #unroll c 2
            probabilities[p_row + $cu * 2u + half] = vec4<f16>(s[$k * 2 / $QUADS][($k * 2 + $c) % $QUADS]);
            #end
            subgroupBarrier();
            let a = coopLoadT<FragA>(&probabilities[subgroup * P_SIZE], P_STRIDE);
            subgroupBarrier();
            #unroll j $D_STEPS
            o[$j] = coopMultiplyAdd(a, coopLoadT<FragB>(&kv[VALUES + $ku * 16u * STRIDE + $ju * 4u], STRIDE), o[$j]);
            #end
        }
        #end
        // Left in the middle: a loop that ends at its condition would be unrolled eightfold.
        if key + $BLOCKu >= end {
            break;
        }
    }
    // Never true. It makes the block loaded last a used one; else the compiler moves the loads behind the break, right
    // before their stores, where nothing hides their latency.
    if params.cols4 == 0u {
        var used = vec4(0u);
        #unroll i $LOADS
        used += pk[$i] + pv[$i];
        #end
        scores[lane] = vec4<f32>(used);
    }

    total += subgroupShuffleXor(total, 1u);
    let norm = select(1.0 / total, 0.0, total == 0.0);
    let out_at = (q_row * params.heads + head) * ($HEAD_DIMu / 4u);
    #unroll j $D_STEPS
    subgroupBarrier();
    coopStoreT(o[$j], &scores[subgroup * S_SIZE], S_STRIDE);
    subgroupBarrier();
    if q_row < q_end {
        store_y(out_at + $ju * 4u + half, scores[s_row + half] * norm);
        store_y(out_at + $ju * 4u + 2u + half, scores[s_row + 2u + half] * norm);
    }
    #end
}
