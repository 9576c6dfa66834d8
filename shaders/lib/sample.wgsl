// What the two kernels of sampling share: the words of a slot's settings (engine/src/op/decoder.rs), and how the first
// leaves its results to the second in scratch memory, as groups of four:
// [sequences][chunks][ROUNDS][THREADS] logits, then [sequences][chunks][2] of what is known of a chunk.
const THREADS: u32 = 256u;

const FLAGS: u32 = 0u;
const SEED_LOW: u32 = 1u;
const SEED_HIGH: u32 = 2u;
const CHOICE: u32 = 3u;
const TEMPERATURE: u32 = 4u;
const TOP_K: u32 = 5u;
const TOP_P: u32 = 6u;
const MIN_P: u32 = 7u;
const REPETITION: u32 = 8u;
const FREQUENCY: u32 = 9u;
const PRESENCE: u32 = 10u;
const STOP_COUNT: u32 = 12u;
const STOPS: u32 = 13u;
const MOST_STOPS: u32 = 8u;
const SETTING_WORDS: u32 = 24u;

const LATE: u32 = 1u;
const USES_MASK: u32 = 2u;
const USES_BIAS: u32 = 4u;
const STILL: u32 = 8u;

// More than any token's id.
const NO_ID: f32 = 1e9;
// The logit of a token that cannot be chosen, and a bound that no other logit is below.
const MASKED: f32 = -1e30;
const LEAST: f32 = -1e29;

struct Params {
    vocab: u32,
    logits4: u32,      // columns of the logits / 4
    cols4: u32,        // columns of counts and bias / 4
    mask_words: u32,   // words of a slot's mask
    chunks: u32,       // THREADS at most
    known: u32,        // where what is known of chunks begins
    count: u32,        // which count bounds the sequences
    slots: u32,
}
@group(0) @binding(0) var<uniform> params: Params;

fn setting(slot: u32, word: u32) -> f32 {
    return bitcast<f32>(settings[slot * SETTING_WORDS + word]);
}

// exp of what is 0 at most.
fn fall(x: f32) -> f32 {
    return exp(max(x, -80.0));
}

fn fall4(x: vec4<f32>) -> vec4<f32> {
    return exp(max(x, vec4(-80.0)));
}

fn sum4(v: vec4<f32>) -> f32 {
    return (v.x + v.y) + (v.z + v.w);
}

fn max4(v: vec4<f32>) -> f32 {
    return max(max(v.x, v.y), max(v.z, v.w));
}

// What invocations bring together: sums, and the best of (value, id, another value): the larger value, of equals the
// lower id; of the other values the largest.
struct Brought {
    sums: vec4<f32>,
    best: vec4<f32>,
}

const NO_BEST: vec4<f32> = vec4<f32>(MASKED, NO_ID, MASKED, 0.0);

var<workgroup> sums_of: array<vec4<f32>, THREADS>;
var<workgroup> best_of: array<vec4<f32>, THREADS>;
var<workgroup> few: array<Brought, 16>;
var<workgroup> outcome: Brought;

fn better(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    let second = b.x > a.x || (b.x == a.x && b.y < a.y);
    return vec4(select(a.xy, b.xy, second), max(a.z, b.z), 0.0);
}

// Brings the workgroup's together in a fixed order. It begins and ends with a barrier.
fn bring(own: Brought, thread: u32) -> Brought {
    sums_of[thread] = own.sums;
    best_of[thread] = own.best;
    workgroupBarrier();
    if thread < 16u {
        var all = Brought(sums_of[thread * 16u], best_of[thread * 16u]);
        for (var i = 1u; i < 16u; i++) {
            all.sums += sums_of[thread * 16u + i];
            all.best = better(all.best, best_of[thread * 16u + i]);
        }
        few[thread] = all;
    }
    workgroupBarrier();
    if thread == 0u {
        var all = few[0];
        for (var i = 1u; i < 16u; i++) {
            all.sums += few[i].sums;
            all.best = better(all.best, few[i].best);
        }
        outcome = all;
    }
    return workgroupUniformLoad(&outcome);
}
