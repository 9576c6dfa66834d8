// Sorts the pairs of rows and experts that they use by expert, and cuts each expert's pairs into tiles of at most
// tile_rows. One workgroup. In what order an expert's pairs come is left open; no result depends on it.
#import counts

struct Params {
    used: u32,
    experts: u32,      // MOST at most
    count: u32,        // which count bounds the rows
    tile_rows: u32,
    tiles: u32,        // room for tiles; those that are not needed hold no pairs
}
@group(0) @binding(0) var<uniform> params: Params;

#raw routes array<f32>
// Tiles, four words each: expert, first pair, past the last one, 0; then pairs: row * used + which of its experts.
#raw lists array<u32> write

const THREADS: u32 = 256u;
const MOST: u32 = 512u;
var<workgroup> numbers: array<atomic<u32>, MOST>;
var<workgroup> next: array<atomic<u32>, MOST>;
var<workgroup> used_tiles: u32;

fn expert_of(pair: u32) -> u32 {
    let at = pair / params.used * ((params.used + 1u) / 2u) * 4u + pair % params.used;
    return min(u32(max(routes[at], 0.0)), params.experts - 1u);
}

fn tiles_of(pairs: u32) -> u32 {
    return (pairs + params.tile_rows - 1u) / params.tile_rows;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(local_invocation_index) thread: u32) {
    let pairs = counts[params.count] * params.used;
    for (var e = thread; e < MOST; e += THREADS) {
        atomicStore(&numbers[e], 0u);
    }
    workgroupBarrier();
    for (var pair = thread; pair < pairs; pair += THREADS) {
        atomicAdd(&numbers[expert_of(pair)], 1u);
    }
    workgroupBarrier();
    for (var e = thread; e < params.experts; e += THREADS) {
        var first = 0u;
        var tile = 0u;
        for (var before = 0u; before < e; before++) {
            let number = atomicLoad(&numbers[before]);
            first += number;
            tile += tiles_of(number);
        }
        let end = first + atomicLoad(&numbers[e]);
        atomicStore(&next[e], first);
        for (var at = first; at < end; at += params.tile_rows) {
            lists[tile * 4u] = e;
            lists[tile * 4u + 1u] = at;
            lists[tile * 4u + 2u] = min(at + params.tile_rows, end);
            lists[tile * 4u + 3u] = 0u;
            tile++;
        }
        if e == params.experts - 1u {
            used_tiles = tile;
        }
    }
    workgroupBarrier();
    for (var i = used_tiles * 4u + thread; i < params.tiles * 4u; i += THREADS) {
        lists[i] = 0u;
    }
    for (var pair = thread; pair < pairs; pair += THREADS) {
        lists[params.tiles * 4u + atomicAdd(&next[expert_of(pair)], 1u)] = pair;
    }
}
