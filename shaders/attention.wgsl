//! permute X f32 f16
//! permute Y f32 f16
//! permute D4 1 3 8 16 32 64
//! permute BIAS 0 1
//! permute STAGED 0 1
// Attention over packed sequences; one thread a query row, online softmax in f32 (Milakov and
// Gimelshein, Online normalizer calculation for softmax, 2018). Keys are walked from the sequence's first row in
// blocks, so a result never depends on the neighbours in the batch. Works on any adapter.
// Grid: x = tiles, y = heads. STAGED keeps key and value blocks in workgroup memory; without it they are read
// directly, for software adapters.
#import counts

struct Params {
    heads: u32,
    group: u32,        // query heads a key head
    cols4: u32,        // columns of qkv / 4
    key4: u32,         // first key column / 4
    value4: u32,       // first value column / 4
    before: u32,       // largest i - j; 0xffffffff for none
    after: u32,        // largest j - i
    radius: u32,       // of the bias table
    scale: f32,
}
@group(0) @binding(0) var<uniform> params: Params;

#buffer qkv $X
#raw tiles array<vec4<u32>>
#if BIAS
#raw bias array<f32>
#endif
#buffer y $Y write

const D4: u32 = $D4u;
const BLOCK: u32 = 32u;
#if STAGED
const STAGE: u32 = min(BLOCK, 512u / D4); // 16 KiB for keys and values together
var<workgroup> keys: array<vec4<f32>, STAGE * D4>;
var<workgroup> values: array<vec4<f32>, STAGE * D4>;
#else
const STAGE: u32 = BLOCK;
#endif

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    if group.x >= counts.z {
        return;
    }
    let tile = tiles[group.x];
    let head = group.y;
    let kv_head = head / params.group;
    let row = min(tile.x + thread, tile.y - 1u);
    var q: array<vec4<f32>, D4>;
    var out: array<vec4<f32>, D4>;
    let q_at = row * params.cols4 + head * D4;
    for (var c = 0u; c < D4; c++) {
        q[c] = load_qkv(q_at + c) * params.scale;
        out[c] = vec4(0.0);
    }
    var largest = -1e30;
    var total = 0.0;
    // Keys that some row of the tile may see; blocks stay aligned to the sequence's start.
    let before = min(params.before, 0x3fffffffu);
    let first = tile.z + (max(tile.x, tile.z + before) - before - tile.z) / STAGE * STAGE;
    let end = min(tile.w, tile.y + min(params.after, 0x3fffffffu));
    for (var block = first; block < end; block += STAGE) {
        let count = min(STAGE, end - block);
#if STAGED
        workgroupBarrier();
        for (var i = thread; i < count * D4; i += 64u) {
            let at = (block + i / D4) * params.cols4 + kv_head * D4 + i % D4;
            keys[i] = load_qkv(at + params.key4);
            values[i] = load_qkv(at + params.value4);
        }
        workgroupBarrier();
#endif
        for (var j = 0u; j < count; j++) {
            let key = block + j;
            if select(row - key > params.before, key - row > params.after, key > row) {
                continue;
            }
#if !STAGED
            let at = key * params.cols4 + kv_head * D4;
#endif
            var score = 0.0;
            for (var c = 0u; c < D4; c++) {
#if STAGED
                score += dot(q[c], keys[j * D4 + c]);
#else
                score += dot(q[c], load_qkv(at + params.key4 + c));
#endif
            }
#if BIAS
            let offset = clamp(i32(key) - i32(row), -i32(params.radius), i32(params.radius)) + i32(params.radius);
            score += bias[head * (2u * params.radius + 1u) + u32(offset)];
#endif
            if score > largest {
                let shrink = exp(max(largest - score, -80.0));
                total *= shrink;
                for (var c = 0u; c < D4; c++) {
                    out[c] *= shrink;
                }
                largest = score;
            }
            let p = exp(max(score - largest, -80.0));
            total += p;
            for (var c = 0u; c < D4; c++) {
#if STAGED
                out[c] += p * values[j * D4 + c];
#else
                out[c] += p * load_qkv(at + params.value4 + c);
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
