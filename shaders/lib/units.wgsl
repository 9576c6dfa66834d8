// Products of a row of w and a row of x, a unit at a time: 32 values of weights in blocks, else 16 bytes of them.
// For kernels that load several units before they use the first. The kernel has defined W_BUFFER w and FORMAT, and
// imported blocks; x is of type $X, or `none` if the kernel reads it by itself: then there are only units of w.
//
// - UnitW, UnitX: what is loaded; row_w, row_x: where a row begins, in the buffer's own elements.
// - load_unit_w(row_at, k4, i), load_unit_x(row_at, k4, i): unit i; unit_dot: their product.
//
// HOLDS: x lies in workgroup memory (lib/held.wgsl), a row HALVES pieces after the one before.
#use block_format
#if BITS == 0
#if FORMAT == f16
#define UNIT4 2
#else
#define UNIT4 1
#endif
#else
#define UNIT4 8
#endif

#if X == q8
struct UnitX {
    low: vec4<u32>,
    high: vec4<u32>,
    scale: f32,
    // Sums of the halves.
    sums: vec2<i32>,
}

#if HOLDS
fn load_unit_x(row_at: u32, k4: u32, i: u32) -> UnitX {
    let at = row_at + i * 2u;
    return UnitX(held[at], held[at + 1u], held_scales[at / 2u], vec2(held_sums[at], held_sums[at + 1u]));
}
#else
#raw x array<vec4<u32>>
fn row_x(row: u32, k4: u32) -> u32 {
    return row * q8_row_words(k4) / 4u;
}

fn load_unit_x(row_at: u32, k4: u32, i: u32) -> UnitX {
    // Two words of a quad: blocks alternate between its halves.
    let at = k4 + i * 2u;
    let scale = x[row_at + at / 4u][at % 4u];
    let sums = bitcast<i32>(x[row_at + at / 4u][at % 4u + 1u]);
    return UnitX(x[row_at + i * 2u], x[row_at + i * 2u + 1u], bitcast<f32>(scale),
        vec2(extractBits(sums, 0u, 16u), sums >> 16u));
}
#endif
#elif X != none
struct UnitX {
    v: array<vec4<f32>, $UNIT4>,
}

#if HOLDS
fn load_unit_x(row_at: u32, k4: u32, i: u32) -> UnitX {
    var unit: UnitX;
    #unroll i $UNIT4
    unit.v[$i] = held_group(row_at * 4u + i * $UNIT4u + $iu);
    #end
    return unit;
}
#else
#buffer x $X
fn row_x(row: u32, k4: u32) -> u32 {
    return row * k4;
}

fn load_unit_x(row_at: u32, k4: u32, i: u32) -> UnitX {
    var unit: UnitX;
    #unroll i $UNIT4
    unit.v[$i] = load_x(row_at + i * $UNIT4u + $iu);
    #end
    return unit;
}
#endif
#endif

#if BITS == 0
#if FORMAT == f16
#raw w array<vec4<u32>>
#else
#raw w array<vec4<f32>>
#endif
fn row_w(row: u32, k4: u32) -> u32 {
    return row * k4 / $UNIT4u;
}

struct UnitW {
#if FORMAT == f16
    v: vec4<u32>,
#else
    v: vec4<f32>,
#endif
}

fn load_unit_w(row_at: u32, k4: u32, i: u32) -> UnitW {
    return UnitW(w[row_at + i]);
}

#if X != none
fn unit_dot(w: UnitW, x: UnitX) -> f32 {
#if FORMAT == f16
    return dot(vec4(unpack2x16float(w.v.x), unpack2x16float(w.v.y)), x.v[0])
        + dot(vec4(unpack2x16float(w.v.z), unpack2x16float(w.v.w)), x.v[1]);
#else
    return dot(w.v, x.v[0]);
#endif
}
#endif
#else
#raw w array<vec4<u32>>
#use block_planes

fn row_w(row: u32, k4: u32) -> u32 {
    return row * (row_words(k4) / 4u);
}

fn word_of_w(row_at: u32, i: u32) -> u32 {
    return w[row_at + i / 4u][i % 4u];
}

struct UnitW {
    // Bytes, or low nibbles for the first half and high ones for the second.
    low: vec4<u32>,
#if BITS == 8
    high: vec4<u32>,
#elif BITS == 6
    // Third pairs of bits.
    pairs: vec2<u32>,
#endif
    // The words with the scales, shifted, and with their scales.
    scales: u32,
#if SCALES == byte
    steps: u32,
#elif SCALES == byte_min
    steps: u32,
#endif
}

fn load_unit_w(row_at: u32, k4: u32, i: u32) -> UnitW {
    var unit: UnitW;
#if BITS == 8
    unit.low = w[row_at + i * 2u];
    unit.high = w[row_at + i * 2u + 1u];
#else
    unit.low = w[row_at + i];
#endif
#if BITS == 6
    let pairs = high_plane(k4) + i * 2u;
    unit.pairs = vec2(word_of_w(row_at, pairs), word_of_w(row_at, pairs + 1u));
#endif
    // Bits of a unit's scales: of 32 values, or of two groups of 16.
#if SCALES == half
#define SCALE_BITS 16
#elif SCALES == byte
#define SCALE_BITS 256/$GROUP
#elif SCALES == byte_min
#define SCALE_BITS 512/$GROUP
#else
#define SCALE_BITS 32
#endif
#if SCALE_BITS == 32
    unit.scales = word_of_w(row_at, scale_plane(k4) + i);
#else
    const EACH = 32u / $SCALE_BITSu;
    unit.scales = word_of_w(row_at, scale_plane(k4) + i / EACH) >> (i % EACH * $SCALE_BITSu);
#endif
#if SCALES == byte
    unit.steps = word_of_w(row_at, step_plane(k4) + i / 16u) >> (i / 8u % 2u * 16u);
#elif SCALES == byte_min
    unit.steps = word_of_w(row_at, step_plane(k4) + i / 8u);
#endif
    return unit;
}

// Integers of the first half and of the second, four in a word; unsigned below 8 bits.
fn first_half(w: UnitW) -> vec4<u32> {
#if BITS == 8
    return w.low;
#elif BITS == 6
    let p = w.pairs.x;
    return (w.low & vec4(0x0f0f0f0fu)) | (vec4(p << 4u, p << 2u, p, p >> 2u) & vec4(0x30303030u));
#else
    return w.low & vec4(0x0f0f0f0fu);
#endif
}

fn second_half(w: UnitW) -> vec4<u32> {
#if BITS == 8
    return w.high;
#elif BITS == 6
    let p = w.pairs.y;
    return ((w.low >> vec4(4u)) & vec4(0x0f0f0f0fu)) | (vec4(p << 4u, p << 2u, p, p >> 2u) & vec4(0x30303030u));
#else
    return (w.low >> vec4(4u)) & vec4(0x0f0f0f0fu);
#endif
}

// Integer multiples of scale and minimum, of the first half and of the second.
#if SCALES == byte
fn multiples(w: UnitW) -> vec2<i32> {
    let bits = bitcast<i32>(w.scales);
#if GROUP == 16
    return vec2(extractBits(bits, 0u, 8u), extractBits(bits, 8u, 8u));
#else
    return vec2(extractBits(bits, 0u, 8u));
#endif
}
#elif SCALES == byte_min
fn multiples(w: UnitW) -> vec4<i32> {
    let bits = vec2(w.scales, w.scales >> 16u);
    let both = vec4(bits.x, bits.x >> 8u, bits.y, bits.y >> 8u) & vec4(0xffu);
#if GROUP == 16
    return vec4<i32>(both);
#else
    return vec4<i32>(both.xyxy);
#endif
}
#endif

#if X == q8
fn integer_dot(a: vec4<u32>, b: vec4<u32>) -> i32 {
    return (dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y)) + (dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w));
}

fn unit_dot(w: UnitW, x: UnitX) -> f32 {
    let first = integer_dot(first_half(w), x.low);
    let second = integer_dot(second_half(w), x.high);
#if SCALES == half
    let sum = first + second - $OFFSET * (x.sums.x + x.sums.y);
    return f32(sum) * (unpack2x16float(w.scales).x * x.scale);
#elif SCALES == half_min
    let d = unpack2x16float(w.scales);
    return x.scale * (d.x * f32(first + second) + d.y * f32(x.sums.x + x.sums.y));
#elif SCALES == float
    return f32(first + second) * (bitcast<f32>(w.scales) * x.scale);
#elif SCALES == byte
    let m = multiples(w);
    let sum = m.x * (first - $OFFSET * x.sums.x) + m.y * (second - $OFFSET * x.sums.y);
    return f32(sum) * (unpack2x16float(w.steps).x * x.scale);
#else
    let m = multiples(w);
    let d = unpack2x16float(w.steps);
    let sum = m.x * first + m.z * second;
    let min = m.y * x.sums.x + m.w * x.sums.y;
    return x.scale * (d.x * f32(sum) - d.y * f32(min));
#endif
}
#elif X != none
fn unit_dot(w: UnitW, x: UnitX) -> f32 {
    // Scales and minima of the halves.
#if SCALES == half
    let s = vec4(unpack2x16float(w.scales).x, 0.0, 0.0, 0.0).xyxy;
#elif SCALES == half_min
    let s = unpack2x16float(w.scales).xyxy;
#elif SCALES == float
    let s = vec4(bitcast<f32>(w.scales), 0.0, 0.0, 0.0).xyxy;
#elif SCALES == byte
    let m = vec2<f32>(multiples(w)) * unpack2x16float(w.steps).x;
    let s = vec4(m.x, 0.0, m.y, 0.0);
#else
    let d = unpack2x16float(w.steps);
    let s = vec4<f32>(multiples(w)) * vec4(d.x, -d.y, d.x, -d.y);
#endif
    let first = first_half(w);
    let second = second_half(w);
    var sum = 0.0;
    #unroll i 4
    sum += dot(integers(first[$i]) * s.x + s.y, x.v[$i]);
    #end
    #unroll i 4
    sum += dot(integers(second[$i]) * s.z + s.w, x.v[4 + $i]);
    #end
    return sum;
}

fn integers(word: u32) -> vec4<f32> {
#if BITS == 8
    return vec4<f32>(unpack4xI8(word));
#else
    return vec4<f32>(unpack4xU8(word)) - $OFFSET.0;
#endif
}
#endif
#endif
