// The choice among experts whose logits lie in `scores`, by a workgroup of CHOOSE_THREADS. An expert's place among the
// chosen is the number of those that come before it. SCORING is softmax or sigmoid; with R_BIAS there is `router_bias`.
const MOST: u32 = 512u;
const MOST_USED: u32 = 64u;
// Logits, then exponentials, then scores.
var<workgroup> scores: array<f32, MOST>;
var<workgroup> ranked: array<f32, MOST>;
// Experts and their scores.
var<workgroup> chosen: array<vec2<f32>, MOST_USED>;

// Returns what scores are multiplied by to become weights. The workgroup calls it in uniform control flow.
fn choose(thread: u32) -> f32 {
    if thread < MOST_USED {
        chosen[thread] = vec2(0.0);
    }
    workgroupBarrier();
#if SCORING == softmax
    var top = -1e30;
    for (var e = 0u; e < params.experts; e++) {
        top = max(top, scores[e]);
    }
    workgroupBarrier();
    for (var e = thread; e < params.experts; e += $CHOOSE_THREADSu) {
        scores[e] = exp(max(scores[e] - top, -80.0));
    }
    workgroupBarrier();
    var total = 0.0;
    for (var e = 0u; e < params.experts; e++) {
        total += scores[e];
    }
    workgroupBarrier();
#endif
    for (var e = thread; e < params.experts; e += $CHOOSE_THREADSu) {
#if SCORING == softmax
        let score = scores[e] / total;
#else
        let score = 1.0 / (1.0 + exp(-clamp(scores[e], -80.0, 80.0)));
#endif
        scores[e] = score;
#if R_BIAS
        ranked[e] = score + router_bias[e];
#else
        ranked[e] = score;
#endif
    }
    workgroupBarrier();
    for (var e = thread; e < params.experts; e += $CHOOSE_THREADSu) {
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
#if NORMALIZE
    var sum = 0.0;
    for (var i = 0u; i < params.used; i++) {
        sum += chosen[i].y;
    }
    return params.scale / (sum + params.eps);
#else
    return params.scale;
#endif
}

// Groups of four of a row of routes: the chosen experts, then their weights.
fn route_cols4() -> u32 {
    return (params.used + 1u) / 2u;
}

fn route_group(group: u32, scale: f32) -> vec4<f32> {
    var v = vec4(0.0);
    for (var c = 0u; c < 4u; c++) {
        let at = group * 4u + c;
        if at < params.used {
            v[c] = chosen[at].x;
        } else if at < 2u * params.used {
            v[c] = chosen[at - params.used].y * scale;
        }
    }
    return v;
}
