//! permute X f32 f16
//! permute W f32 f16
//! permute BIAS 0 1
//! permute SCORING softmax sigmoid
//! permute NORMALIZE 0 1
// Chooses each row's experts and their weights; a workgroup a row. Sixteen invocations, lanes, share the columns of four
// experts at a time. An expert's place among the chosen is the number of those that come before it.
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
#raw bias array<f32>
#endif
#buffer y f32 write

const THREADS: u32 = 256u;
const LANES: u32 = 16u;
// Experts of a round.
const ROUND: u32 = 64u;
const MOST: u32 = 512u;
const MOST_USED: u32 = 64u;
var<workgroup> sums: array<f32, ROUND * (LANES + 1u)>;
// Logits, then exponentials, then scores.
var<workgroup> scores: array<f32, MOST>;
var<workgroup> ranked: array<f32, MOST>;
var<workgroup> chosen: array<vec2<f32>, MOST_USED>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group.y * params.grid_x + group.x;
    if row >= counts[params.count] {
        return;
    }
    let lane = thread % LANES;
    let quad = thread / LANES;
    let last = params.experts - 1u;
    if thread < MOST_USED {
        chosen[thread] = vec2(0.0);
    }
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
    workgroupBarrier();
#if SCORING == softmax
    var top = -1e30;
    for (var e = 0u; e < params.experts; e++) {
        top = max(top, scores[e]);
    }
    workgroupBarrier();
    for (var e = thread; e < params.experts; e += THREADS) {
        scores[e] = exp(max(scores[e] - top, -80.0));
    }
    workgroupBarrier();
    var total = 0.0;
    for (var e = 0u; e < params.experts; e++) {
        total += scores[e];
    }
    workgroupBarrier();
#endif
    for (var e = thread; e < params.experts; e += THREADS) {
#if SCORING == softmax
        let score = scores[e] / total;
#else
        let score = 1.0 / (1.0 + exp(-clamp(scores[e], -80.0, 80.0)));
#endif
        scores[e] = score;
#if BIAS
        ranked[e] = score + bias[e];
#else
        ranked[e] = score;
#endif
    }
    workgroupBarrier();
    for (var e = thread; e < params.experts; e += THREADS) {
        let mine = ranked[e];
        var place = 0u;
        for (var other = 0u; other < params.experts; other++) {
            let its = ranked[other];
            place += select(0u, 1u, its > mine || (its == mine && other < e));
        }
        if place < params.used {
            chosen[place] = vec2(f32(e), scores[e]);
        }
    }
    workgroupBarrier();
    var scale = params.scale;
#if NORMALIZE
    var sum = 0.0;
    for (var i = 0u; i < params.used; i++) {
        sum += chosen[i].y;
    }
    scale /= sum + params.eps;
#endif
    let cols4 = (params.used + 1u) / 2u;
    if thread < cols4 {
        var v = vec4(0.0);
        for (var c = 0u; c < 4u; c++) {
            let at = thread * 4u + c;
            if at < params.used {
                v[c] = chosen[at].x;
            } else if at < 2u * params.used {
                v[c] = chosen[at - params.used].y * scale;
            }
        }
        store_y(row * cols4 + thread, v);
    }
}
