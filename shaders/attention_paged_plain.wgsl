//! permute X f32 f16
//! permute C f32 f16
//! permute Y f32 f16 split
//! permute GROUP 2 3 4
// Attention of single rows by a paged cache on any adapter. A workgroup takes a page of keys at a time: an invocation
// scores one of them, then adds up values of some columns. Softmax is online (Milakov and Gimelshein, Online normalizer
// calculation for softmax, 2018).
#import paged

fn key_or_value(i: u32) -> vec4<f32> {
#if C == f16
    let v = cache[i / 2u];
    let half = select(v.xy, v.zw, i % 2u == 1u);
    return vec4(unpack2x16float(half.x), unpack2x16float(half.y));
#else
    return cache[i];
#endif
}

// Groups of four columns of all query heads, at most.
#define MOST $GROUP*64
// Such groups of an invocation.
#define ITEMS $GROUP
var<workgroup> queries: array<vec4<f32>, $MOST>;
var<workgroup> scores: array<Heads, 64>;
var<workgroup> shares: array<Heads, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    if group.z >= counts[params.count] {
        return;
    }
    let place = place_of(group);
    if place.first > place.last {
        return;
    }
    let d4 = params.d4;
    for (var i = thread; i < $GROUPu * d4; i += 64u) {
        let head = place.head + min(i / d4, place.heads - 1u);
        queries[i] = load_q(place.row * params.q_cols4 + head * d4 + i % d4) * params.scale;
    }
    var sums: array<vec4<f32>, $ITEMS>;
    var largest = Heads(MASKED);
    var total = Heads(0.0);
    for (var page = place.first; page <= place.last; page += PAGE) {
        let count = min(PAGE, place.last - page + 1u);
        // Keys past the last repeat it; they are masked.
        let row = cache_row(place.slot, page, params.per_slot);
        let at = (row + min(thread, count - 1u)) * params.cache4 + place.kv_head * d4;
        workgroupBarrier();
        var score = Heads(0.0);
        for (var i = 0u; i < d4; i++) {
            let key = key_or_value(at + i);
            #unroll h $GROUP
            score[$h] += dot(queries[$hu * d4 + i], key);
            #end
        }
        scores[thread] = select(Heads(MASKED), score, thread < count);
        workgroupBarrier();
        var top = largest;
        for (var j = 0u; j < count; j++) {
            top = max(top, scores[j]);
        }
        let shrink = exp2(max(largest - top, Heads(-200.0)));
        largest = top;
        shares[thread] = exp2(max(score - top, Heads(-200.0)));
        workgroupBarrier();
        var sum = Heads(0.0);
        for (var j = 0u; j < count; j++) {
            sum += shares[j];
        }
        total = total * shrink + sum;
        #unroll n $ITEMS
        {
            let item = thread + $nu * 64u;
            let h = item / d4;
            if h < $GROUPu {
                var v = sums[$n] * shrink[h];
                for (var j = 0u; j < count; j++) {
                    let value = (row + j) * params.cache4 + params.value4 + place.kv_head * d4 + item % d4;
                    v += shares[j][h] * key_or_value(value);
                }
                sums[$n] = v;
            }
        }
        #end
    }
    #unroll n $ITEMS
    {
        let item = thread + $nu * 64u;
        let h = item / d4;
        if h < place.heads {
#if Y == split
            let part = (place.row * params.splits + place.split) * params.heads + place.head;
            joint[part * d4 + item] = sums[$n];
            if item % d4 == 0u {
                joint[params.sums + part + h] = vec4(largest[h], total[h], 0.0, 0.0);
            }
#else
            store_y((place.row * params.heads + place.head) * d4 + item, sums[$n] / total[h]);
#endif
        }
    }
    #end
}
