//! permute X f32 f16
//! permute C none f32 f16
//! permute Q_NORM 0 1
//! permute K_NORM 0 1
//! permute HALF4 1 3 8 16 32
// Normalises (RMS) and rotates (NeoX pairs) the query and key heads of a row; queries go back to their place, keys and
// values to their row of the paged cache. C none: keys go back too, and values stay as they are.
// A thread has two groups of four values, a half of a head apart; a workgroup as many whole heads as fit.
// Grid: x = ceil(heads / heads a workgroup), of queries, keys and, with a cache, values; y = rows (z folds large counts).
#import counts
#if C != none
#import pages
#endif

struct Params {
    heads: u32,
    kv_heads: u32,
    cols4: u32,        // columns of qkv / 4
    cache4: u32,       // columns of the cache / 4
    per_slot: u32,     // pages a slot
    positions: u32,    // rows of the RoPE table
    q_eps: f32,
    k_eps: f32,
    count: u32,        // which count bounds the rows
    grid_y: u32,
}
@group(0) @binding(0) var<uniform> params: Params;

#buffer qkv $X write
#raw tokens array<vec4<u32>>
#if C != none
#raw pages array<u32>
#endif
#buffer rope f32
#if Q_NORM
#buffer q_norm f32
#endif
#if K_NORM
#buffer k_norm f32
#endif
#if C == none
#define VALUES 0
#else
#define VALUES 1
#buffer cache $C write
#endif

const HALF4: u32 = $HALF4u;
const HEADS: u32 = 64u / HALF4;
var<workgroup> squares: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group.z * params.grid_y + group.y;
    if row >= counts[params.count] {
        return;
    }
    let head = group.x * HEADS + thread / HALF4;
    let i = thread % HALF4;
    let there = thread < HEADS * HALF4 && head < params.heads + (1u + $VALUESu) * params.kv_heads;
    let is_query = head < params.heads;
    let is_value = head >= params.heads + params.kv_heads;
    let at = row * params.cols4 + head * 2u * HALF4 + i;
    let token = tokens[row];
    var a = vec4(0.0);
    var b = vec4(0.0);
    if there {
        a = load_qkv(at);
        b = load_qkv(at + HALF4);
    }
#if Q_NORM
#define NORM 1
#elif K_NORM
#define NORM 1
#else
#define NORM 0
#endif
#if NORM
    // A head's sum of squares, in a fixed order.
    squares[thread] = dot(a, a) + dot(b, b);
    workgroupBarrier();
    var square = 0.0;
    for (var j = 0u; j < HALF4; j++) {
        square += squares[thread - i + j];
    }
    let mean = square / f32(8u * HALF4);
#endif
#if Q_NORM
    if is_query {
        let inverse = inverseSqrt(mean + params.q_eps);
        a *= inverse * load_q_norm(i);
        b *= inverse * load_q_norm(i + HALF4);
    }
#endif
#if K_NORM
    if !is_query && !is_value {
        let inverse = inverseSqrt(mean + params.k_eps);
        a *= inverse * load_k_norm(i);
        b *= inverse * load_k_norm(i + HALF4);
    }
#endif
    if !there {
        return;
    }
    if !is_value {
        // A run past the end of a slot's room stays inside the tables; nobody looks at its results.
        let angle = min(token.y, params.positions - 1u) * 2u * HALF4 + i;
        let c = load_rope(angle);
        let s = load_rope(angle + HALF4);
        let turned = a * c - b * s;
        b = b * c + a * s;
        a = turned;
    }
#if C == none
    store_qkv(at, a);
    store_qkv(at + HALF4, b);
#else
    if is_query {
        store_qkv(at, a);
        store_qkv(at + HALF4, b);
    } else {
        let to = cache_row(token.w, token.y, params.per_slot) * params.cache4 + (head - params.heads) * 2u * HALF4 + i;
        store_cache(to, a);
        store_cache(to + HALF4, b);
    }
#endif
}
