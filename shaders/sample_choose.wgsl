//! permute TARGETS 0 1
//! permute ROUNDS 1 2 4
// The second half of sampling: a workgroup chooses one sequence's token, counts it and makes it the next row.
//
// A greedy choice is the best of the chunks' best. Else top-k, top-p and min-p each keep the tokens above some logit.
// First a bound is found above which no more than HELD tokens lie but all that stay: those are gathered in workgroup
// memory, where each is ranked against all others. Only if more than HELD tokens stay is the logit itself searched, by
// halving the interval of its bits. The draw inverts the cumulative distribution in order of ids.
//
// All that happens between two barriers is a stage: invocations bring something together, and what comes out decides
// the next stage. So there are few barriers in the text, of which software adapters make coroutines.
#import counts

#raw scratch array<vec4<f32>>
#buffer logits f32
#raw settings array<u32>
#raw tokens array<vec4<u32>> write
#if TARGETS
#raw targets array<vec4<u32>>
#endif
#raw seen array<u32> write
#buffer y f32 write
#import sample

const HELD: u32 = 512u;
// Held tokens of an invocation.
const OWN: u32 = 2u;
// Groups of four that an invocation loads at once.
#define LOADS 8

// Chunks are brought together.
const BEST: u32 = 0u;
const SUMS: u32 = 1u;
// A bound for top-k: the k-th best of the chunks' best; or step by step further from the top.
const BOUND: u32 = 2u;
const STRIDES: u32 = 3u;
// The lower end of the searched interval is looked at, then its middles.
const LOWER: u32 = 4u;
const MIDDLE: u32 = 5u;
// What stays is counted.
const COUNT: u32 = 6u;
// What may stay is gathered, put in order, ranked for top-k, summed up and ranked for top-p.
const GATHER: u32 = 7u;
const ORDER: u32 = 8u;
const PLACE: u32 = 9u;
const RANK_K: u32 = 10u;
const MASS: u32 = 11u;
const RANK_P: u32 = 12u;
// The distribution's parts are laid out: of held tokens, of chunks, of the tokens of a chunk. Which one is hit; the token.
const PARTS: u32 = 13u;
const CHUNKS: u32 = 14u;
const WITHIN: u32 = 15u;
const HIT: u32 = 16u;
const TOKEN: u32 = 17u;
const DONE: u32 = 18u;

// Where the sequence stands: row of tokens, position, slot.
var<workgroup> place: vec4<u32>;
var<workgroup> held: array<f32, HELD>;
var<workgroup> held_ids: array<u32, HELD>;
var<workgroup> held_count: atomic<u32>;
// Parts of the distribution, or the chunks' best.
var<workgroup> parts: array<f32, THREADS>;

// First word of pcg4d (Jarzynski and Olano, Hash Functions for GPU Rendering, JCGT 2020).
fn pcg4d(seed: vec4<u32>) -> u32 {
    var v = seed * 1664525u + 1013904223u;
    for (var round = 0u; round < 2u; round++) {
        if round == 1u {
            v ^= v >> vec4(16u);
        }
        v.x += v.y * v.w;
        v.y += v.z * v.x;
        v.z += v.x * v.y;
        v.w += v.y * v.z;
    }
    return v.x;
}

// Bits in the order of the numbers, and back.
fn key_of(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    return select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u);
}

fn of_key(key: u32) -> f32 {
    return bitcast<f32>(select(~key, key & 0x7fffffffu, (key & 0x80000000u) != 0u));
}

// How many of an invocation's logits are at least `least`, and the sum of their exponentials relative to `top`. `keeps`
// also puts them among the held ones, in any order.
fn scan(first: u32, least: f32, top: f32, keeps: bool, thread: u32) -> vec4<f32> {
    let blocks = params.chunks * $ROUNDSu;
    var sums = vec4(0.0);
    for (var block = 0u; block < blocks; block += $LOADSu) {
        var x: array<vec4<f32>, $LOADS>;
        #unroll i $LOADS
        x[$i] = scratch[first + min(block + $iu, blocks - 1u) * THREADS + thread];
        #end
        for (var i = 0u; i < min($LOADSu, blocks - block); i++) {
            let stays = x[i] >= vec4(least);
            if any(stays) {
                sums.x += sum4(select(vec4(0.0), vec4(1.0), stays));
                sums.y += sum4(select(vec4(0.0), fall4(x[i] - top), stays));
                for (var c = 0u; keeps && c < 4u; c++) {
                    if stays[c] {
                        let at = atomicAdd(&held_count, 1u);
                        if at < HELD {
                            held[at] = x[i][c];
                            held_ids[at] = ((block + i) * THREADS + thread) * 4u + c;
                        }
                    }
                }
            }
        }
    }
    return sums;
}

// The sum of exponentials of `groups` groups of four logits that are at least `least`.
fn mass_of(at: u32, groups: u32, least: f32, top: f32, last: f32) -> f32 {
    var mass = 0.0;
    for (var i = 0u; i < groups; i++) {
        let x = scratch[at + i];
        mass += sum4(select(vec4(0.0), fall4((x - top) * last), x >= vec4(least)));
    }
    return mass;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let s = group.x;
    if s >= counts[params.count] {
        return;
    }
    if thread == 0u {
#if TARGETS
        place = targets[s];
#else
        place = vec4(s, tokens[s].yzw);
#endif
        atomicStore(&held_count, 0u);
    }
    let here = workgroupUniformLoad(&place);
    let slot = here.w;
    let position = here.y + 1u;
    let words = slot * SETTING_WORDS;
    let temperature = setting(slot, TEMPERATURE);
    let k = settings[words + TOP_K];
    let p = setting(slot, TOP_P);
    let min_p = setting(slot, MIN_P);
    // What logits are multiplied by before the draw.
    let last = select(1.0, 1.0 / temperature, (settings[words + FLAGS] & LATE) != 0u);
    let seed = vec4(settings[words + SEED_LOW], settings[words + SEED_HIGH], settings[words + CHOICE], position);
    let uniform_number = f32(pcg4d(seed) >> 8u) / 16777216.0;
    let first = s * params.chunks * $ROUNDSu * THREADS;

    // An invocation a chunk: its best token, its sums.
    var chunk_best = NO_BEST;
    var chunk_sums = vec4(0.0);
    if thread < params.chunks {
        let at = params.known + (s * params.chunks + thread) * 2u;
        chunk_best = scratch[at];
        chunk_sums = scratch[at + 1u];
    }
    // Held tokens on their way to their place; how many lie above each and the sum of their exponentials.
    var logit: array<f32, OWN>;
    var id: array<u32, OWN>;
    var rank: array<u32, OWN>;
    var above: array<vec2<f32>, OWN>;

    // The same in all invocations from here on.
    var stage = BEST;
    var best = NO_BEST;
    var raw_total = 0.0;
    var token = 0.0;
    var wants_k = false;
    var wants_p = false;
    // Tokens that stay so far: the least logit, number, sum of exponentials.
    var least = LEAST;
    var count = 0.0;
    var mass = 0.0;
    // The searched interval as keys, what lies above its lower end, and the logit looked at.
    var low = 0u;
    var high = 0u;
    var at_low = vec4(0.0);
    var look = LEAST;
    var stride = 8.0;
    var held_now = 0u;
    // The draw: the target, what lies before the part that is hit, that part; a chunk before a token of it.
    var goal = 0.0;
    var before = 0.0;
    var hit = 0u;
    var chunk_hit = 0u;
    var from_chunks = false;
    var in_chunk = false;

    loop {
        if stage == DONE {
            break;
        }
        var own = Brought(vec4(0.0), NO_BEST);
        switch stage {
            case BEST: {
                own.best = chunk_best;
                parts[thread] = chunk_best.x;
            }
            case SUMS: {
                let flat = select(0.0, fall(chunk_best.x - best.x), chunk_best.x > LEAST);
                own.sums = vec4(fall(chunk_best.z - best.z) * chunk_sums.x, 0.0, flat * chunk_sums.z, chunk_sums.w);
            }
            case BOUND: {
                var place_of = 0u;
                for (var i = 0u; i < params.chunks; i++) {
                    let other = parts[i];
                    place_of += select(0u, 1u, other > chunk_best.x || (other == chunk_best.x && i < thread));
                }
                if thread < params.chunks && place_of == k - 1u {
                    own.best.x = chunk_best.x;
                }
            }
            case STRIDES, LOWER, MIDDLE, COUNT, GATHER: {
                own.sums = scan(first, look, best.x, stage == GATHER, thread);
            }
            case ORDER: {
                for (var i = 0u; i < OWN; i++) {
                    let at = thread + i * THREADS;
                    rank[i] = 0u;
                    if at < held_now {
                        logit[i] = held[at];
                        id[i] = held_ids[at];
                        for (var j = 0u; j < held_now; j++) {
                            rank[i] += select(0u, 1u, held_ids[j] < id[i]);
                        }
                    }
                }
            }
            case PLACE: {
                for (var i = 0u; i < OWN; i++) {
                    if thread + i * THREADS < held_now {
                        held[rank[i]] = logit[i];
                        held_ids[rank[i]] = id[i];
                    }
                }
            }
            case RANK_K: {
                for (var i = 0u; i < OWN; i++) {
                    let at = thread + i * THREADS;
                    above[i] = vec2(0.0);
                    if at < held_now {
                        let x = held[at];
                        for (var j = 0u; j < held_now; j++) {
                            let other = held[j];
                            if other > x {
                                above[i] += vec2(1.0, fall(other - best.x));
                            }
                        }
                        // The least logit with fewer than k above it.
                        if above[i].x < f32(k) {
                            own.best.x = max(own.best.x, -x);
                        }
                    }
                }
            }
            case MASS: {
                for (var i = 0u; i < OWN; i++) {
                    let at = thread + i * THREADS;
                    if at < held_now && held[at] >= least {
                        own.sums.x += fall(held[at] - best.x);
                    }
                }
            }
            case RANK_P: {
                own.best.x = -best.x;
                for (var i = 0u; i < OWN; i++) {
                    let at = thread + i * THREADS;
                    if at < held_now && above[i].y < p * mass {
                        own.best.x = max(own.best.x, -held[at]);
                    }
                }
            }
            case PARTS: {
                for (var i = 0u; i < OWN; i++) {
                    let at = thread * OWN + i;
                    if at < held_now && held[at] >= least {
                        own.sums.x += fall((held[at] - best.x) * last);
                    }
                }
                parts[thread] = own.sums.x;
            }
            case CHUNKS: {
                if least > LEAST {
                    if thread < params.chunks && chunk_best.x >= least {
                        let size = $ROUNDSu * THREADS;
                        own.sums.x = mass_of(first + thread * size, size, least, best.x, last);
                    }
                } else if chunk_best.x > LEAST {
                    own.sums.x = fall((chunk_best.x - best.x) * last) * chunk_sums.y;
                }
                parts[thread] = own.sums.x;
            }
            case WITHIN: {
                let at = first + (chunk_hit * THREADS + thread) * $ROUNDSu;
                parts[thread] = mass_of(at, $ROUNDSu, least, best.x, last);
            }
            case HIT: {
                // The last part that begins at or before the target.
                var sum = before;
                for (var i = 0u; i < thread; i++) {
                    sum += parts[i];
                }
                if sum <= goal && parts[thread] > 0.0 {
                    own.best = vec4(f32(thread), sum, 0.0, 0.0);
                }
            }
            case TOKEN: {
                if thread == hit {
                    // Likewise.
                    var sum = before;
                    if from_chunks {
                        let at = (chunk_hit * THREADS + thread) * $ROUNDSu;
                        for (var i = 0u; i < 4u * $ROUNDSu; i++) {
                            let x = scratch[first + at + i / 4u][i % 4u];
                            if x >= least && sum <= goal {
                                sum += fall((x - best.x) * last);
                                own.best = vec4(0.0, f32(at * 4u + i), 0.0, 0.0);
                            }
                        }
                    } else {
                        for (var i = 0u; i < OWN; i++) {
                            let at = thread * OWN + i;
                            if at < held_now && held[at] >= least && sum <= goal {
                                sum += fall((held[at] - best.x) * last);
                                own.best = vec4(0.0, f32(held_ids[at]), 0.0, 0.0);
                            }
                        }
                    }
                }
            }
            default: {}
        }
        let all = bring(own, thread);

        // What a search or a filter leads to is decided below: 0 nothing, 1 a search goes on, 2 it begins for top-p,
        // 3 top-k and top-p are done.
        var decides = 0u;
        switch stage {
            case BEST: {
                best = all.best;
                token = best.y;
                stage = SUMS;
            }
            case SUMS: {
                raw_total = all.sums.x;
                mass = all.sums.z;
                count = all.sums.w;
                stage = DONE;
                if temperature > 0.0 && best.x > LEAST {
                    wants_k = k > 0u && f32(k) < count;
                    wants_p = p < 1.0;
                    high = key_of(best.x) + 1u;
                    low = key_of(LEAST);
                    if wants_k {
                        look = best.x - stride;
                        stage = select(STRIDES, BOUND, k <= params.chunks);
                    } else {
                        decides = select(3u, 2u, wants_p);
                    }
                }
            }
            case BOUND: {
                look = max(all.best.x, LEAST);
                low = key_of(look);
                stage = LOWER;
            }
            case STRIDES: {
                if all.sums.x >= f32(k) || !(look > LEAST) || stride > 1e29 {
                    low = key_of(look);
                    at_low = all.sums;
                    decides = 1u;
                } else {
                    high = key_of(look);
                    stride *= 4.0;
                    look = max(best.x - stride, LEAST);
                }
            }
            case LOWER: {
                at_low = all.sums;
                decides = 1u;
            }
            case MIDDLE: {
                let enough = select(all.sums.y >= p * mass, all.sums.x >= f32(k), wants_k);
                if enough {
                    low = key_of(look);
                    at_low = all.sums;
                } else {
                    high = key_of(look);
                }
                decides = 1u;
            }
            case COUNT: {
                count = all.sums.x;
                stage = select(CHUNKS, GATHER, count <= f32(HELD));
            }
            case GATHER: {
                held_now = min(u32(all.sums.x), HELD);
                stage = ORDER;
            }
            case ORDER: {
                stage = PLACE;
            }
            case PLACE: {
                stage = select(PARTS, RANK_K, wants_k || wants_p);
            }
            case RANK_K: {
                stage = RANK_P;
                if wants_k {
                    least = -all.best.x;
                    stage = MASS;
                }
            }
            case MASS: {
                mass = all.sums.x;
                stage = select(PARTS, RANK_P, wants_p);
            }
            case RANK_P: {
                least = max(least, -all.best.x);
                stage = PARTS;
            }
            case PARTS: {
                goal = uniform_number * all.sums.x;
                stage = HIT;
            }
            case CHUNKS: {
                goal = uniform_number * all.sums.x;
                from_chunks = true;
                stage = HIT;
            }
            case WITHIN: {
                in_chunk = true;
                stage = HIT;
            }
            case HIT: {
                hit = u32(max(all.best.x, 0.0));
                before = select(before, all.best.y, all.best.x >= 0.0);
                stage = TOKEN;
                if from_chunks && !in_chunk {
                    chunk_hit = hit;
                    stage = WITHIN;
                }
            }
            default: {
                token = all.best.y;
                stage = DONE;
            }
        }
        if decides == 1u {
            look = of_key(low + (high - low) / 2u);
            stage = MIDDLE;
            if at_low.x <= f32(HELD) || high - low <= 1u {
                look = of_key(low);
                stage = GATHER;
                if at_low.x > f32(HELD) {
                    // More than can be held, but found exactly.
                    least = max(least, look);
                    if wants_k {
                        mass = at_low.y;
                        count = at_low.x;
                    }
                    decides = select(3u, 2u, wants_k && wants_p);
                    wants_p = wants_k && wants_p;
                    wants_k = false;
                }
            }
        }
        let lowest_share = select(LEAST, best.x + log(clamp(min_p, 1e-30, 1.0)), min_p > 0.0);
        if decides == 2u {
            // What lies below this bound is less than what top-p leaves out.
            let dropped = log(max((1.0 - p) * mass / count, 1e-30)) - 1e-3;
            look = max(least, best.x + min(dropped, 0.0));
            low = key_of(look);
            high = key_of(best.x) + 1u;
            stage = LOWER;
        } else if decides == 3u {
            least = max(least, lowest_share);
            look = least;
            stage = select(COUNT, select(CHUNKS, GATHER, count <= f32(HELD)), least == LEAST);
        }
        if stage == PARTS {
            least = max(least, lowest_share);
        }
    }
    if thread != 0u {
        return;
    }
    // Where logits are not numbers, there may be none.
    let chosen = min(u32(token), params.vocab - 1u);
    var log_probability = -3.4028234e38;
    var result = 0u;
    if best.x > LEAST {
        result = chosen;
        log_probability = load_logits(s * params.logits4 + chosen / 4u)[chosen % 4u] - best.z - log(raw_total);
    }
    store_y(s, vec4(f32(result), log_probability, f32(position), 0.0));
    if (settings[words + FLAGS] & STILL) != 0u {
        return;
    }
    let counted = slot * params.cols4 * 4u + result;
    seen[counted] += select(0u, 2u, seen[counted] < 0xfffffffeu);
    var next = vec4(result, position, 0u, slot);
    for (var i = 0u; i < min(settings[words + STOP_COUNT], MOST_STOPS); i++) {
        if settings[words + STOPS + i] == result {
            // The sequence ends: what was submitted ahead works on nobody's slot.
            next = vec4(result, 0u, 0u, params.slots - 1u);
        }
    }
    tokens[here.x] = next;
}
