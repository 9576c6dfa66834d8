// What kernels share in which a workgroup takes one row, a few query heads of one key head, and some of its keys:
// parameters, buffers, where results go. GROUP is the number of query heads of a workgroup, Y where a result goes: to y,
// or with `split`, as one of several parts that attention_combine puts together.
// Grid: x = key heads * parts, y = splits, z = rows.
#import counts
#import pages

struct Params {
    heads: u32,
    group: u32,        // query heads a key head
    parts: u32,        // workgroups that share the query heads of a key head
    d4: u32,           // head_dim / 4
    q_cols4: u32,      // columns of q / 4
    cache4: u32,       // columns of the cache / 4
    value4: u32,       // first value column / 4
    per_slot: u32,     // pages a slot
    split: u32,        // keys of a split
    splits: u32,
    sums: u32,         // split: first index of maxima and sums
    count: u32,        // which count bounds the rows
    scale: f32,        // times log2 e
#if STORE
    positions: u32,    // rows of the RoPE table
    q_eps: f32,
    k_eps: f32,
#endif
}
@group(0) @binding(0) var<uniform> params: Params;

#buffer q $X
#raw tokens array<vec4<u32>>
#raw pages array<u32>
#if STORE
#buffer rope f32
#if Q_NORM
#buffer q_norm f32
#endif
#if K_NORM
#buffer k_norm f32
#endif
#if C == f16
#raw cache array<vec4<u32>> write
#else
#raw cache array<vec4<f32>> write
#endif
#elif C == f16
#raw cache array<vec4<u32>>
#else
#raw cache array<vec4<f32>>
#endif
#if Y == split
#raw joint array<vec4<f32>> write
#else
#buffer y $Y write
#endif

// One head is two of which nobody asks for the second.
#if GROUP == 1
alias Heads = vec2<f32>;
#else
alias Heads = vec$GROUP<f32>;
#endif

// Of a key that is not seen.
const MASKED: f32 = -1e30;

// A workgroup's place.
struct Place {
    row: u32,
    position: u32,
    slot: u32,
    split: u32,
    kv_head: u32,
    // The first query head, and how many there are.
    head: u32,
    heads: u32,
    // The first and the last position.
    first: u32,
    last: u32,
}

fn place_of(group: vec3<u32>) -> Place {
    let token = tokens[group.z];
    let kv_head = group.x / params.parts;
    let within = group.x % params.parts * $GROUPu;
    let first = group.y * params.split;
    let last = min(token.y, first + (params.split - 1u));
    let heads = min($GROUPu, params.group - within);
    return Place(group.z, token.y, token.w, group.y, kv_head, kv_head * params.group + within, heads, first, last);
}
