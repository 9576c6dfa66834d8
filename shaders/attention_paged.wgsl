//! needs subgroups
//! permute X f32 f16
//! permute C f32 f16
//! permute Y f32 f16 q8 split
//! permute PIECES 1 2 3 4
//! permute GROUP 1 2 3 4
//! permute JOIN 1 2 4
//! permute STORE 0 1
//! permute Q_NORM 0 1
//! permute K_NORM 0 1
// Attention of single rows by a paged cache, for adapters with subgroups of at least 8.
//
// Eight neighbouring invocations, a team, take KEYS keys at a time, eight values of each key an invocation, PIECES of
// those 64 values apart; they share nothing with the other teams but the end. So all loads of a step are in flight
// together, keys and values are read once for all query heads of the workgroup, and there is no barrier in the loop.
// Softmax is online in each team (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018); at the end
// the teams' sums are added in a fixed order: JOIN neighbouring teams, which lie in one subgroup, by shuffles, then
// those through workgroup memory. Which team a key belongs to follows from its position.
//
// STORE: q holds all heads as they were projected (lib/fresh.wgsl); the first workgroup of a key head's stores the row's
// key and value, and whoever needs them takes them from workgroup memory. Rows are of different slots.
#define THREADS 256
#define TEAMS 32
#define KEYS 8/$PIECES
#define HALF $KEYS/2
#define QUARTER $KEYS/4
#define OCTETS 2*$PIECES
// Groups of four sums of an invocation, and those left to it after joining.
#if GROUP == 3
#if PIECES == 1
#define UNITS 8
#elif PIECES == 3
#define UNITS 20
#else
#define UNITS $GROUP*$OCTETS
#endif
#elif GROUP == 1
#if PIECES == 1
#define UNITS 4
#elif PIECES == 2
#define UNITS 4
#else
#define UNITS 8
#endif
#else
#define UNITS $GROUP*$OCTETS
#endif
#define UNITS_2 $UNITS/2
#define UNITS_4 $UNITS/4
#define SHARE $UNITS/$JOIN
#define JOINED $TEAMS/$JOIN
#define WIDTH 8*$JOIN
// How many of them go through workgroup memory at a time.
#if SHARE == 1
#define CHUNK 1
#elif SHARE == 3
#define CHUNK 1
#elif SHARE == 5
#define CHUNK 1
#else
#define CHUNK 2
#endif
#define CHUNKS $SHARE/$CHUNK
#define Q8_THREADS $THREADS
#import paged
#import q8

#if C == f16
alias Octet = vec4<u32>;
fn octet_at(i: u32) -> Octet {
    return cache[i];
}
fn low(v: Octet) -> vec4<f32> {
    return vec4(unpack2x16float(v.x), unpack2x16float(v.y));
}
fn high(v: Octet) -> vec4<f32> {
    return vec4(unpack2x16float(v.z), unpack2x16float(v.w));
}
#else
struct Octet {
    low: vec4<f32>,
    high: vec4<f32>,
}
fn octet_at(i: u32) -> Octet {
    return Octet(cache[2u * i], cache[2u * i + 1u]);
}
fn low(v: Octet) -> vec4<f32> {
    return v.low;
}
fn high(v: Octet) -> vec4<f32> {
    return v.high;
}
#endif

#if STORE
#import fresh
#endif

var<workgroup> sums: array<vec4<f32>, $CHUNK * $THREADS>;
var<workgroup> results: array<f32, $GROUP * 64 * $PIECES>;
var<workgroup> maxima: array<Heads, $JOINED>;
var<workgroup> totals: array<Heads, $JOINED>;

@compute @workgroup_size($THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_invocation_id) in_subgroup: u32) {
#if STORE
    let of_group = group.x % params.parts * $GROUPu;
    let kv_of = group.x / params.parts;
    let asked = ask(group.z, kv_of, kv_of * params.group + of_group, min($GROUPu, params.group - of_group), thread);
#endif
    let place = place_of(group);
    if group.z >= counts[params.count] {
        return;
    }
    if place.first > place.last {
        return;
    }
#if STORE
    let angle = angles(place.position, thread);
#endif
    let lane = thread % 8u;
    let team = thread / 8u;
    let octets = params.d4 / 2u;
    var q: array<array<vec4<f32>, $OCTETS>, $GROUP>;
    var o: array<vec4<f32>, $UNITS>;
#if !STORE
    #unroll h $GROUP
    #unroll p $PIECES
    if $hu < place.heads && lane + 8u * $pu < octets {
        let at = place.row * params.q_cols4 + (place.head + $hu) * params.d4 + 2u * (lane + 8u * $pu);
        q[$h][2 * $p] = load_q(at) * params.scale;
        q[$h][2 * $p + 1] = load_q(at + 1u) * params.scale;
    }
    #end
    #end
#endif
    // Invocations past the head's end repeat its last values; their sums are dropped.
    let key_at = place.kv_head * octets;
    let value_at = params.value4 / 2u + key_at;
    var largest = Heads(MASKED);
    var total = Heads(0.0);

    for (var block = place.first;; block += $TEAMSu * $KEYSu) {
        let first = block + team * $KEYSu;
        var k: array<Octet, $KEYS * $PIECES>;
        var v: array<Octet, $KEYS * $PIECES>;
        {
            // A step's keys lie in one page. Keys past the last repeat it; they are masked.
            let start = cache_row(place.slot, min(first, place.last), params.per_slot);
            #unroll j $KEYS
            {
                let row = start + max(min(first + $ju, place.last), first) - first;
                let at = row * (params.cache4 / 2u);
                #unroll p $PIECES
                k[$j * $PIECES + $p] = octet_at(at + key_at + min(lane + 8u * $pu, octets - 1u));
                v[$j * $PIECES + $p] = octet_at(at + value_at + min(lane + 8u * $pu, octets - 1u));
                #end
            }
            #end
        }
#if STORE
        // After the first loads were asked for.
        if block == place.first {
            freshen(place, asked, angle, place.last == place.position && group.x % params.parts == 0u, thread);
            #unroll h $GROUP
            #unroll p $PIECES
            if $hu < place.heads && lane + 8u * $pu < octets {
                let at = $hu * params.d4 + 2u * (lane + 8u * $pu);
                q[$h][2 * $p] = fresh[at] * params.scale;
                q[$h][2 * $p + 1] = fresh[at + 1u] * params.scale;
            }
            #end
            #end
        }
        // The row's own key may not have reached the cache yet.
        if place.last == place.position && first <= place.last && place.last < first + $KEYSu {
            #unroll j $KEYS
            if first + $ju == place.last {
                #unroll p $PIECES
                k[$j * $PIECES + $p] = fresh_octet($GROUPu, min(lane + 8u * $pu, octets - 1u));
                v[$j * $PIECES + $p] = fresh_octet($GROUPu + 1u, min(lane + 8u * $pu, octets - 1u));
                #end
            }
            #end
        }
#endif
        // Said in words: not every compiler clears a variable each time around.
        var s = array<Heads, $KEYS>();
        #unroll j $KEYS
        #unroll p $PIECES
        {
            let a = low(k[$j * $PIECES + $p]);
            let b = high(k[$j * $PIECES + $p]);
            #unroll h $GROUP
            s[$j][$h] += dot(q[$h][2 * $p], a) + dot(q[$h][2 * $p + 1], b);
            #end
        }
        #end
        #end
        // Sums over the team; each invocation keeps those of its own key.
        let upper4 = (lane & 4u) != 0u;
        #unroll j $HALF
        s[$j] = select(s[$j], s[$j + $HALF], upper4) + subgroupShuffleXor(select(s[$j + $HALF], s[$j], upper4), 4u);
        #end
#if KEYS == 2
        s[0] += subgroupShuffleXor(s[0], 2u);
#else
        let upper2 = (lane & 2u) != 0u;
        #unroll j $QUARTER
        s[$j] = select(s[$j], s[$j + $QUARTER], upper2)
            + subgroupShuffleXor(select(s[$j + $QUARTER], s[$j], upper2), 2u);
        #end
#endif
#if KEYS == 8
        let upper1 = (lane & 1u) != 0u;
        s[0] = select(s[0], s[1], upper1) + subgroupShuffleXor(select(s[1], s[0], upper1), 1u);
#else
        s[0] += subgroupShuffleXor(s[0], 1u);
#endif
        let seen = first + lane * $KEYSu / 8u <= place.last;
        let score = select(Heads(MASKED), s[0], seen);
        var top = max(largest, score);
        top = max(top, subgroupShuffleXor(top, 1u));
        top = max(top, subgroupShuffleXor(top, 2u));
        top = max(top, subgroupShuffleXor(top, 4u));
        let shrink = exp2(max(largest - top, Heads(-200.0)));
        let e = select(Heads(0.0), exp2(score - top), seen);
        total = total * shrink + e;
        largest = top;
        #unroll h $GROUP
        #unroll p $OCTETS
        o[$h * $OCTETS + $p] *= shrink[$h];
        #end
        #end
        #unroll j $KEYS
        {
            let share = subgroupShuffle(e, (in_subgroup & ~7u) + $ju * 8u / $KEYSu);
            #unroll p $PIECES
            {
                let a = low(v[$j * $PIECES + $p]);
                let b = high(v[$j * $PIECES + $p]);
                #unroll h $GROUP
                o[$h * $OCTETS + 2 * $p] += share[$h] * a;
                o[$h * $OCTETS + 2 * $p + 1] += share[$h] * b;
                #end
            }
            #end
        }
        #end
        // Left in the middle: a loop that ends at its condition would be unrolled eightfold.
        if block + $TEAMSu * $KEYSu > place.last {
            break;
        }
    }

    // The largest of all teams, and what each team's sums are worth beside it.
    var top = largest;
#if JOIN != 1
    top = max(top, subgroupShuffleXor(top, 8u));
#endif
#if JOIN == 4
    top = max(top, subgroupShuffleXor(top, 16u));
#endif
    if thread % $WIDTHu == 0u {
        maxima[thread / $WIDTHu] = top;
    }
    workgroupBarrier();
    for (var i = 0u; i < $JOINEDu; i++) {
        top = max(top, maxima[i]);
    }
    let shrink = exp2(max(largest - top, Heads(-200.0)));
    // Invocations that share a key have the same e.
    total = select(Heads(0.0), total * shrink, lane % (8u / $KEYSu) == 0u);
    total += subgroupShuffleXor(total, 1u);
    total += subgroupShuffleXor(total, 2u);
    total += subgroupShuffleXor(total, 4u);
#if JOIN != 1
    total += subgroupShuffleXor(total, 8u);
#endif
#if JOIN == 4
    total += subgroupShuffleXor(total, 16u);
#endif
    if thread % $WIDTHu == 0u {
        totals[thread / $WIDTHu] = total;
    }
    #unroll h $GROUP
    #unroll p $OCTETS
    o[$h * $OCTETS + $p] *= shrink[$h];
    #end
    #end
    // Of joined teams, each keeps the sums of a part of the units.
#if JOIN != 1
    let upper8 = (thread & 8u) != 0u;
    #unroll i $UNITS_2
    o[$i] = select(o[$i], o[$i + $UNITS_2], upper8)
        + subgroupShuffleXor(select(o[$i + $UNITS_2], o[$i], upper8), 8u);
    #end
#endif
#if JOIN == 4
    let upper16 = (thread & 16u) != 0u;
    #unroll i $UNITS_4
    o[$i] = select(o[$i], o[$i + $UNITS_4], upper16)
        + subgroupShuffleXor(select(o[$i + $UNITS_4], o[$i], upper16), 16u);
    #end
#endif
    #unroll c $CHUNKS
    #unroll i $CHUNK
    sums[$iu * $THREADSu + thread] = o[$c * $CHUNK + $i];
    #end
    workgroupBarrier();
    // An invocation adds up one value.
    if thread < 4u * $CHUNKu * $WIDTHu {
        let who = thread / 4u % $WIDTHu;
        let i = thread / 4u / $WIDTHu;
        var unit = $cu * $CHUNKu + i;
#if JOIN != 1
        unit += select(0u, $UNITS_2u, (who & 8u) != 0u);
#endif
#if JOIN == 4
        unit += select(0u, $UNITS_4u, (who & 16u) != 0u);
#endif
        let h = unit / $OCTETSu;
        let octet = (who & 7u) + unit % $OCTETSu / 2u * 8u;
        if octet < octets && h < place.heads {
            var sum = 0.0;
            for (var n = 0u; n < $JOINEDu; n++) {
                sum += sums[i * $THREADSu + n * $WIDTHu + who][thread % 4u];
            }
#if Y != split
            var all = 0.0;
            for (var n = 0u; n < $JOINEDu; n++) {
                all += totals[n][h];
            }
            sum /= all;
#endif
            results[(h * params.d4 + 2u * octet + unit % 2u) * 4u + thread % 4u] = sum;
        }
    }
    workgroupBarrier();
    #end
    let there = thread < place.heads * params.d4;
    let at = min(thread, place.heads * params.d4 - 1u) * 4u;
    let result = vec4(results[at], results[at + 1u], results[at + 2u], results[at + 3u]);
#if Y == split
    let part = (place.row * params.splits + place.split) * params.heads + place.head;
    if there {
        joint[part * params.d4 + thread] = result;
    }
    if thread == 0u {
        var all = Heads(0.0);
        for (var n = 0u; n < $JOINEDu; n++) {
            all += totals[n];
        }
        #unroll h $GROUP
        if $hu < place.heads {
            joint[params.sums + part + $hu] = vec4(top[$h], all[$h], 0.0, 0.0);
        }
        #end
    }
#elif Y == q8
    store_q8(place.row, params.heads * params.d4, place.head * params.d4 + thread, thread, there, result);
#else
    if there {
        store_y((place.row * params.heads + place.head) * params.d4 + thread, result);
    }
#endif
}
