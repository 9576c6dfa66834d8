//! permute X f32 f16
//! permute W f32 f16
//! permute BIAS 0 1
//! permute SCORING softmax sigmoid
//! permute NORMALIZE 0 1
// Chooses each row's experts and their weights; a workgroup a row. Sixteen invocations, lanes, share the columns of four
// experts at a time.
// Grid: x = rows (y folds large counts).
#import counts

struct Params {
    k4: u32,           // columns of x / 4
    experts: u32,      // MOST at most
    used: u32,         // MOST_USED at most
    scale: f32,
    eps: f32,          // NORMALIZE: added to the sum of weights
    count: u32,        // which count bounds the rows
    grid_x: u32,
}
@group(0) @binding(0) var<uniform> params: Params;

#buffer x $X
#buffer w $W
#if BIAS
#raw router_bias array<f32>
#endif
#buffer y f32 write
#define R_BIAS $BIAS
#define CHOOSE_THREADS 256
#import choose

const THREADS: u32 = 256u;
const LANES: u32 = 16u;
// Experts of a round.
const ROUND: u32 = 64u;
var<workgroup> sums: array<f32, ROUND * (LANES + 1u)>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group.y * params.grid_x + group.x;
    if row >= counts[params.count] {
        return;
    }
    let lane = thread % LANES;
    let quad = thread / LANES;
    let last = params.experts - 1u;
    for (var first = 0u; first < params.experts; first += ROUND) {
        // Experts past the end repeat the last one.
        let at = (vec4(first + quad * 4u) + vec4(0u, 1u, 2u, 3u));
        let rows = min(at, vec4(last)) * params.k4;
        var sum = vec4(0.0);
        for (var k = lane; k < params.k4; k += LANES) {
            let a = load_x(row * params.k4 + k);
            sum += vec4(dot(a, load_w(rows.x + k)), dot(a, load_w(rows.y + k)), dot(a, load_w(rows.z + k)),
                dot(a, load_w(rows.w + k)));
        }
        workgroupBarrier();
        for (var i = 0u; i < 4u; i++) {
            sums[(quad * 4u + i) * (LANES + 1u) + lane] = sum[i];
        }
        workgroupBarrier();
        if thread < ROUND && first + thread < params.experts {
            var logit = 0.0;
            for (var i = 0u; i < LANES; i++) {
                logit += sums[thread * (LANES + 1u) + i];
            }
            scores[first + thread] = logit;
        }
    }
    let scale = choose(thread);
    let cols4 = route_cols4();
    if thread < cols4 {
        store_y(row * cols4 + thread, route_group(thread, scale));
    }
}
