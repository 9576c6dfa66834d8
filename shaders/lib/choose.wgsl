// The choice among experts whose logits lie in `scores`, by a workgroup of CHOOSE_THREADS. An expert's place among the
// chosen is the number of those that come before it. SCORING is softmax or sigmoid; with R_BIAS there is `router_bias`.
const MOST: u32 = 512u;
const MOST_USED: u32 = 64u;
const MOST4: u32 = 128u;
// Logits.
var<workgroup> scores: array<f32, MOST>;
// In groups of four: exponentials of logits, and what decides the order; past the last expert, what is never chosen.
var<workgroup> exponentials: array<vec4<f32>, MOST4>;
var<workgroup> ranked: array<vec4<f32>, MOST4>;
// Experts and their scores.
var<workgroup> chosen: array<vec2<f32>, MOST_USED>;

const NEVER: f32 = -1e30;

fn logits_of(group: u32) -> vec4<f32> {
    let e = vec4(group * 4u) + vec4(0u, 1u, 2u, 3u);
    let at = min(e, vec4(params.experts - 1u));
    return select(vec4(NEVER), vec4(scores[at.x], scores[at.y], scores[at.z], scores[at.w]), e < vec4(params.experts));
}

// Returns what scores are multiplied by to become weights. The workgroup calls it in uniform control flow.
fn choose(thread: u32) -> f32 {
    let groups = (params.experts + 3u) / 4u;
    if thread < MOST_USED {
        chosen[thread] = vec2(0.0);
    }
    workgroupBarrier();
#if SCORING == softmax
    for (var g = thread; g < groups; g += $CHOOSE_THREADSu) {
        ranked[g] = logits_of(g);
    }
    workgroupBarrier();
    var top4 = vec4(NEVER);
    for (var g = 0u; g < groups; g++) {
        top4 = max(top4, ranked[g]);
    }
    let top = max(max(top4.x, top4.y), max(top4.z, top4.w));
    for (var g = thread; g < groups; g += $CHOOSE_THREADSu) {
        exponentials[g] = exp(max(ranked[g] - top, vec4(-80.0)));
    }
    workgroupBarrier();
    var sum4 = vec4(0.0);
    for (var g = 0u; g < groups; g++) {
        sum4 += exponentials[g];
    }
    // Past the last expert there is next to nothing.
    let total = (sum4.x + sum4.y) + (sum4.z + sum4.w);
#else
    for (var g = thread; g < groups; g += $CHOOSE_THREADSu) {
        exponentials[g] = 1.0 / (1.0 + exp(-clamp(logits_of(g), vec4(-80.0), vec4(80.0))));
    }
    let total = 1.0;
#endif
    for (var g = thread; g < groups; g += $CHOOSE_THREADSu) {
        let e = vec4(g * 4u) + vec4(0u, 1u, 2u, 3u);
        var by = exponentials[g] / total;
#if R_BIAS
        let at = min(e, vec4(params.experts - 1u));
        by += vec4(router_bias[at.x], router_bias[at.y], router_bias[at.z], router_bias[at.w]);
#endif
        ranked[g] = select(vec4(NEVER), by, e < vec4(params.experts));
    }
    workgroupBarrier();
    for (var e = thread; e < params.experts; e += $CHOOSE_THREADSu) {
        let mine = ranked[e / 4u][e % 4u];
        var before = vec4(0u);
        for (var g = 0u; g < groups; g++) {
            let its = ranked[g];
            let lower = vec4(g * 4u) + vec4(0u, 1u, 2u, 3u) < vec4(e);
            before += select(vec4(0u), vec4(1u), (its > vec4(mine)) | ((its == vec4(mine)) & lower));
        }
        let place = (before.x + before.y) + (before.z + before.w);
        if place < params.used {
            chosen[place] = vec2(f32(e), exponentials[e / 4u][e % 4u] / total);
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
