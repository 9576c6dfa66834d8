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

// The workgroup calls it in uniform control flow; it ends with a barrier.
fn freshen(place: Place, writes: bool, thread: u32) {
    let d4 = params.d4;
    let half4 = d4 / 2u;
    let which = thread / half4;
    let i = thread % half4;
    let there = which < $GROUPu + 2u;
    var at = place.row * params.q_cols4 + i;
    if which < $GROUPu {
        at += (place.head + min(which, place.heads - 1u)) * d4;
    } else {
        at += (params.heads + place.kv_head) * d4 + select(0u, params.value4, which > $GROUPu);
    }
    // Before what may have to be waited for. A run past the end of a slot's room stays inside the table.
    let angle = min(place.position, params.positions - 1u) * d4 + i;
    var a = vec4(0.0);
    var b = vec4(0.0);
    var c = vec4(0.0);
    var s = vec4(0.0);
    if there {
        a = load_q(at);
        b = load_q(at + half4);
        c = load_rope(angle);
        s = load_rope(angle + half4);
    }
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
            a *= inverse * load_q_norm(i);
            b *= inverse * load_q_norm(i + half4);
        }
#endif
#if K_NORM
        if which == $GROUPu {
            let inverse = inverseSqrt(mean + params.k_eps);
            a *= inverse * load_k_norm(i);
            b *= inverse * load_k_norm(i + half4);
        }
#endif
    }
#endif
    if which <= $GROUPu {
        let turned = a * c - b * s;
        b = b * c + a * s;
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
