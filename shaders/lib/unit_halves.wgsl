// Units of weights in blocks (lib/units.wgsl) as f16 values, for matrix units. Integers become f16 without conversion,
// which GPUs do slowly: put into the low bits of 1024, they count up its last bits.
#if BITS == 8
#define FLIP 0x64806480u
const ORIGIN: f16 = 1152.0h;
#else
#define FLIP 0x64006400u
const ORIGIN: f16 = f16(1024 + $OFFSET);
#endif

// The four integers of a word of first_half or second_half.
fn integers_of(word: u32) -> vec4<f16> {
    let even = vec2<f16>(unpack2x16float((word & 0x00ff00ffu) ^ $FLIP));
    let odd = vec2<f16>(unpack2x16float(((word >> 8u) & 0x00ff00ffu) ^ $FLIP));
    return vec4(even.x, odd.x, even.y, odd.y) - ORIGIN;
}

// Scales and minima of a unit's halves; four_of gives the values of four integers of a half. f16 scales multiply as they
// are. Those that are products themselves would be rounded, the same way for all values of a group: f32 it is.
#if SCALES == half
const ZERO: f16 = 0.0h;

fn unit_scales(w: UnitW) -> vec4<f16> {
    return vec4<f16>(vec4(unpack2x16float(w.scales).x, 0.0, 0.0, 0.0).xyxy);
}

fn four_of(word: u32, scale: vec2<f16>) -> vec4<f16> {
    return integers_of(word) * scale.x;
}
#elif SCALES == half_min
const ZERO: f16 = 0.0h;

fn unit_scales(w: UnitW) -> vec4<f16> {
    return vec4<f16>(unpack2x16float(w.scales).xyxy);
}

fn four_of(word: u32, scale: vec2<f16>) -> vec4<f16> {
    return fma(integers_of(word), vec4(scale.x), vec4(scale.y));
}
#else
const ZERO: f32 = 0.0;

fn unit_scales(w: UnitW) -> vec4<f32> {
#if SCALES == float
    return vec4(bitcast<f32>(w.scales), 0.0, 0.0, 0.0).xyxy;
#elif SCALES == byte
    let s = vec2<f32>(multiples(w)) * unpack2x16float(w.steps).x;
    return vec4(s.x, 0.0, s.y, 0.0);
#else
    let d = unpack2x16float(w.steps);
    return vec4<f32>(multiples(w)) * vec4(d.x, -d.y, d.x, -d.y);
#endif
}

fn four_of(word: u32, scale: vec2<f32>) -> vec4<f16> {
#if SCALES == float
    return vec4<f16>(clamp(vec4<f32>(integers_of(word)) * scale.x, vec4(-65504.0), vec4(65504.0)));
#elif SCALES == byte
    return vec4<f16>(vec4<f32>(integers_of(word)) * scale.x);
#else
    return vec4<f16>(fma(vec4<f32>(integers_of(word)), vec4(scale.x), vec4(scale.y)));
#endif
}
#endif

// All that was loaded of a unit: a kernel that looks at it has the loads where it put them.
fn unit_bits(w: UnitW) -> vec4<u32> {
    var bits = w.low + w.scales;
#if BITS == 8
    bits += w.high;
#elif BITS == 6
    bits += w.pairs.xyxy;
#endif
#if SCALES == byte
    bits += w.steps;
#elif SCALES == byte_min
    bits += w.steps;
#endif
    return bits;
}
