// What attention does first if the rows come as projected: it normalises (RMS) and rotates (NeoX pairs) its query heads
// and its key head, and stores the row's key and value in the cache. All of them lie in workgroup memory then, rounded
// as they would have been between two ops.
#if Q_NORM
#define NORM 1
#elif K_NORM
#define NORM 1
#else
#define NORM 0
#endif
// Groups of four of a head, at most, and of its half.
#define MOST4 16*$PIECES
#define MOST_HALF 8*$PIECES
// The query heads, then key and value.
var<workgroup> fresh: array<vec4<f32>, ($GROUP + 2) * $MOST4>;
#if NORM
var<workgroup> fresh_squares: array<f32, ($GROUP + 2) * $MOST_HALF>;
#endif

fn as_x(v: vec4<f32>) -> vec4<f32> {
#if X == f16
    return vec4(unpack2x16float(pack2x16float(v.xy)), unpack2x16float(pack2x16float(v.zw)));
#else
    return v;
#endif
}

// What an invocation turns: two groups of four, half a head apart, and their norm's weights.
struct Asked {
    a: vec4<f32>,
    b: vec4<f32>,
    weight_a: vec4<f32>,
    weight_b: vec4<f32>,
}

// Asks for what does not follow from the row's position. To be done before anything else is asked for.
fn ask(row: u32, kv_head: u32, head: u32, heads: u32, thread: u32) -> Asked {
    let d4 = params.d4;
    let half4 = d4 / 2u;
    let which = thread / half4;
    let i = thread % half4;
    var at = row * params.q_cols4 + i;
    if which < $GROUPu {
        at += (head + min(which, heads - 1u)) * d4;
    } else {
        at += (params.heads + kv_head) * d4 + select(0u, params.value4, which > $GROUPu);
    }
    var asked: Asked;
    if which < $GROUPu + 2u {
        asked.a = load_q(at);
        asked.b = load_q(at + half4);
#if Q_NORM
        if which < $GROUPu {
            asked.weight_a = load_q_norm(i);
            asked.weight_b = load_q_norm(i + half4);
        }
#endif
#if K_NORM
        if which == $GROUPu {
            asked.weight_a = load_k_norm(i);
            asked.weight_b = load_k_norm(i + half4);
        }
#endif
    }
    return asked;
}

// Cosines and sines of an invocation's values. A run past the end of a slot's room stays inside the table.
fn angles(position: u32, thread: u32) -> mat2x4<f32> {
    let half4 = params.d4 / 2u;
    let at = min(position, params.positions - 1u) * params.d4 + thread % half4;
    if thread / half4 > $GROUPu {
        return mat2x4<f32>();
    }
    return mat2x4<f32>(load_rope(at), load_rope(at + half4));
}

// The workgroup calls it in uniform control flow; it ends with a barrier.
fn freshen(place: Place, asked: Asked, angle: mat2x4<f32>, writes: bool, thread: u32) {
    let d4 = params.d4;
    let half4 = d4 / 2u;
    let which = thread / half4;
    let i = thread % half4;
    let there = which < $GROUPu + 2u;
    var a = asked.a;
    var b = asked.b;
#if NORM
    if there {
        fresh_squares[thread] = dot(a, a) + dot(b, b);
    }
    workgroupBarrier();
    if there && which <= $GROUPu {
        var square = 0.0;
        for (var j = 0u; j < half4; j++) {
            square += fresh_squares[thread - i + j];
        }
        let mean = square / f32(4u * d4);
#if Q_NORM
        if which < $GROUPu {
            let inverse = inverseSqrt(mean + params.q_eps);
            a *= inverse * asked.weight_a;
            b *= inverse * asked.weight_b;
        }
#endif
#if K_NORM
        if which == $GROUPu {
            let inverse = inverseSqrt(mean + params.k_eps);
            a *= inverse * asked.weight_a;
            b *= inverse * asked.weight_b;
        }
#endif
    }
#endif
    if which <= $GROUPu {
        let turned = a * angle[0] - b * angle[1];
        b = b * angle[0] + a * angle[1];
        a = turned;
    }
    if which < $GROUPu {
        a = as_x(a);
        b = as_x(b);
    }
    if there {
        fresh[which * d4 + i] = a;
        fresh[which * d4 + i + half4] = b;
    }
    workgroupBarrier();
    // Half the invocations store the key, half the value.
    let octets = d4 / 2u;
    if writes && thread < d4 {
        let value = thread / octets;
        let octet = thread % octets;
        let row = cache_row(place.slot, place.position, params.per_slot);
        let to = row * (params.cache4 / 2u) + value * (params.value4 / 2u) + place.kv_head * octets + octet;
        let stored = fresh_octet($GROUPu + value, octet);
#if C == f16
        cache[to] = stored;
#else
        cache[2u * to] = stored.low;
        cache[2u * to + 1u] = stored.high;
#endif
    }
}

// Eight values of a head, as the cache keeps them.
fn fresh_octet(which: u32, octet: u32) -> Octet {
    let at = which * params.d4 + 2u * octet;
    let a = fresh[at];
    let b = fresh[at + 1u];
#if C == f16
    return vec4(pack2x16float(a.xy), pack2x16float(a.zw), pack2x16float(b.xy), pack2x16float(b.zw));
#else
    return Octet(a, b);
#endif
}
