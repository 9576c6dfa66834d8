//! permute X f32 f16
//! permute C f32 f16
//! permute Y f32 f16
//! permute D4 2 3 8 16 32 64
//! permute STAGE 8 16 32
//! permute STAGED 0 1
// Causal attention of tiles of rows by a paged cache; one thread a query row, online softmax in f32 (Milakov and
// Gimelshein, Online normalizer calculation for softmax, 2018). Keys are walked from position 0 in blocks of STAGE, so a
// row's result does not depend on its tile. Works on any adapter. Grid: x = tiles, y = heads.
// STAGED keeps key and value blocks in workgroup memory; without it they are read directly, for software adapters.
#import counts
#import pages

struct Params {
    heads: u32,
    group: u32,        // query heads a key head
    q_cols4: u32,      // columns of q / 4
    cache4: u32,       // columns of the cache / 4
    value4: u32,       // first value column / 4
    per_slot: u32,     // pages a slot
    scale: f32,        // times log2 e
}
@group(0) @binding(0) var<uniform> params: Params;

#buffer q $X
#raw tokens array<vec4<u32>>
#raw tiles array<vec4<u32>>
#raw pages array<u32>
#buffer cache $C
#buffer y $Y write

const D4: u32 = $D4u;
#if STAGED
var<workgroup> keys: array<vec4<f32>, $STAGE * $D4>;
var<workgroup> values: array<vec4<f32>, $STAGE * $D4>;
#endif

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    if group.x >= counts.z {
        return;
    }
    let tile = tiles[group.x];
    if tile.x >= tile.y {
        return;
    }
    let token = tokens[tile.x];
    let head = group.y;
    let column = head / params.group * D4;
    let row = min(tile.x + thread, tile.y - 1u);
    let position = token.y + (row - tile.x);
    let end = token.y + (tile.y - tile.x);
    var a: array<vec4<f32>, D4>;
    var out: array<vec4<f32>, D4>;
    let q_at = row * params.q_cols4 + head * D4;
    for (var c = 0u; c < D4; c++) {
        a[c] = load_q(q_at + c) * params.scale;
        out[c] = vec4(0.0);
    }
    var largest = -1e30;
    var total = 0.0;
    for (var block = 0u; block < end; block += $STAGEu) {
        let count = min($STAGEu, end - block);
        // A block lies in one page.
        let first = cache_row(token.w, block, params.per_slot) * params.cache4 + column;
#if STAGED
        workgroupBarrier();
        for (var i = thread; i < count * D4; i += 64u) {
            let at = first + i / D4 * params.cache4 + i % D4;
            keys[i] = load_cache(at);
            values[i] = load_cache(at + params.value4);
        }
        workgroupBarrier();
#endif
        for (var j = 0u; j < count; j++) {
            if block + j > position {
                break;
            }
            var score = 0.0;
            for (var c = 0u; c < D4; c++) {
#if STAGED
                score += dot(a[c], keys[j * D4 + c]);
#else
                score += dot(a[c], load_cache(first + j * params.cache4 + c));
#endif
            }
            if score > largest {
                let shrink = exp2(max(largest - score, -200.0));
                total *= shrink;
                for (var c = 0u; c < D4; c++) {
                    out[c] *= shrink;
                }
                largest = score;
            }
            let share = exp2(max(score - largest, -200.0));
            total += share;
            for (var c = 0u; c < D4; c++) {
#if STAGED
                out[c] += share * values[j * D4 + c];
#else
                out[c] += share * load_cache(first + j * params.cache4 + params.value4 + c);
#endif
            }
        }
    }
    if tile.x + thread < tile.y {
        let inverse = select(0.0, 1.0 / total, total > 0.0);
        let y_at = row * params.heads * D4 + head * D4;
        for (var c = 0u; c < D4; c++) {
            store_y(y_at + c, out[c] * inverse);
        }
    }
}
