//! permute BIAS 0 1
//! permute MASK 0 1
//! permute ROUNDS 1 2 4
// The first half of sampling: bias, penalties, mask and temperature, and what is known of each chunk of the
// vocabulary: its best token, the sum of all probabilities, those of tokens that can be chosen. Greedy slots need no
// more, so their logits are not stored. Grid: x = chunks, y = sequences.
#import counts

#buffer logits f32
#raw rows_from array<vec4<u32>>
#raw settings array<u32>
#raw seen array<vec4<u32>>
#if BIAS
#buffer bias f32
#endif
#if MASK
#raw mask array<u32>
#endif
#raw scratch array<vec4<f32>> write
#import sample

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let s = group.y;
    if s >= counts[params.count] {
        return;
    }
    let slot = rows_from[s].w;
    let flags = settings[slot * SETTING_WORDS + FLAGS];
    let temperature = setting(slot, TEMPERATURE);
    let greedy = !(temperature > 0.0);
    let late = (flags & LATE) != 0u;
    let repetition = setting(slot, REPETITION);
    var raw: array<vec4<f32>, $ROUNDS>;
    var x: array<vec4<f32>, $ROUNDS>;
    var best = NO_BEST;
    #unroll i $ROUNDS
    {
        let at = (group.x * $ROUNDSu + $iu) * THREADS + thread;
        let ids = vec4(at * 4u) + vec4(0u, 1u, 2u, 3u);
        var l = vec4(MASKED);
        raw[$i] = vec4(MASKED);
        if ids.x < params.vocab {
            l = load_logits(s * params.logits4 + at);
            l = select(vec4(MASKED), l, ids < vec4(params.vocab));
            raw[$i] = l;
            var allowed = ids < vec4(params.vocab);
#if BIAS
            if (flags & USES_BIAS) != 0u {
                l += load_bias(slot * params.cols4 + at);
            }
#endif
#if MASK
            if (flags & USES_MASK) != 0u {
                let bits = mask[slot * params.mask_words + ids.x / 32u] >> (ids.x % 32u);
                allowed = allowed & ((vec4(bits) & vec4(1u, 2u, 4u, 8u)) != vec4(0u));
            }
#endif
            let times = seen[slot * params.cols4 + at];
            l = select(l, select(l * repetition, l / repetition, l > vec4(0.0)), times > vec4(0u));
            let made = times / 2u;
            let less = setting(slot, FREQUENCY) * vec4<f32>(made) + setting(slot, PRESENCE);
            l = select(l, l - less, made > vec4(0u));
            if !greedy && !late {
                l /= temperature;
            }
            l = select(vec4(MASKED), l, allowed);
        }
        x[$i] = l;
        if !greedy {
            scratch[s * params.chunks * $ROUNDSu * THREADS + at] = l;
        }
        best.z = max(best.z, max4(raw[$i]));
        for (var c = 0u; c < 4u; c++) {
            if l[c] > max(best.x, LEAST) {
                best = vec4(l[c], f32(ids[c]), best.z, 0.0);
            }
        }
    }
    #end
    best = bring(Brought(vec4(0.0), best), thread).best;
    // Sums: of all probabilities, of what can be drawn, of the same before a late temperature, and their number.
    let last = select(1.0, 1.0 / temperature, late && !greedy);
    var sums = vec4(0.0);
    #unroll i $ROUNDS
    {
        let there = raw[$i] > vec4(LEAST);
        sums.x += sum4(select(vec4(0.0), fall4(raw[$i] - best.z), there));
        if !greedy {
            let allowed = x[$i] > vec4(LEAST);
            sums.y += sum4(select(vec4(0.0), fall4((x[$i] - best.x) * last), allowed));
            sums.z += sum4(select(vec4(0.0), fall4(x[$i] - best.x), allowed));
            sums.w += sum4(select(vec4(0.0), vec4(1.0), allowed));
        }
    }
    #end
    sums = bring(Brought(sums, NO_BEST), thread).sums;
    if thread == 0u {
        let at = params.known + (s * params.chunks + group.x) * 2u;
        scratch[at] = best;
        scratch[at + 1u] = sums;
    }
}
