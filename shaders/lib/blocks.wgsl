// Weights as rows of any element type: f32, f16, or planes of integers and scales (engine/src/gpu/blocks.rs has the
// layouts of the planes). Where they are used:
//
// #define W_BUFFER name
// #define FORMAT f32|f16|q8_0|...
// #use weight_rows
//
// declares the buffer at the next binding and, with k4 = columns / 4,
// - row_NAME(row, k4) -> u32: where a row begins;
// - at_NAME(row_at, k4, k) -> vec4<f32>: values 4k to 4k + 3 of the row that begins there, exact.

// How formats keep their integers (BITS, their OFFSET, values of a GROUP) and SCALES.
#macro block_format
#if FORMAT == q8_0
#define BITS 8
#define OFFSET 0
#define GROUP 32
#define SCALES half
#elif FORMAT == q8_1
#define BITS 8
#define OFFSET 0
#define GROUP 32
#define SCALES half_min
#elif FORMAT == q8_f
#define BITS 8
#define OFFSET 0
#define GROUP 32
#define SCALES float
#elif FORMAT == q4_0
#define BITS 4
#define OFFSET 8
#define GROUP 32
#define SCALES half
#elif FORMAT == q4_1
#define BITS 4
#define OFFSET 0
#define GROUP 32
#define SCALES half_min
#elif FORMAT == q2_k
#define BITS 4
#define OFFSET 0
#define GROUP 16
#define SCALES byte_min
#elif FORMAT == q3_k
#define BITS 4
#define OFFSET 4
#define GROUP 16
#define SCALES byte
#elif FORMAT == q4_k
#define BITS 4
#define OFFSET 0
#define GROUP 32
#define SCALES byte_min
#elif FORMAT == q5_k
#define BITS 8
#define OFFSET 0
#define GROUP 32
#define SCALES byte_min
#elif FORMAT == q6_k
#define BITS 6
#define OFFSET 32
#define GROUP 16
#define SCALES byte
#elif FORMAT == iq4_xs
#define BITS 8
#define OFFSET 0
#define GROUP 32
#define SCALES byte
#else
#define BITS 0
#endif
#endmacro

#macro weight_rows
#use block_format
#if BITS == 0
#buffer $W_BUFFER $FORMAT
fn row_$W_BUFFER(row: u32, k4: u32) -> u32 {
    return row * k4;
}
fn at_$W_BUFFER(row_at: u32, k4: u32, k: u32) -> vec4<f32> {
    return load_$W_BUFFER(row_at + k);
}
#else
#raw $W_BUFFER array<vec4<u32>>
#use block_planes

// In words.
fn row_$W_BUFFER(row: u32, k4: u32) -> u32 {
    return row * row_words(k4);
}

fn word_$W_BUFFER(i: u32) -> u32 {
    return $W_BUFFER[i / 4u][i % 4u];
}

fn at_$W_BUFFER(row_at: u32, k4: u32, k: u32) -> vec4<f32> {
#if BITS == 8
    let q = vec4<f32>(unpack4xI8(word_$W_BUFFER(row_at + k)));
#else
    // Half a block of 32 is four groups: byte i of a block holds values i and i + 16.
    var bits = (word_$W_BUFFER(row_at + k / 8u * 4u + k % 4u) >> (k & 4u)) & 0x0f0f0f0fu;
#if BITS == 6
    let high = word_$W_BUFFER(row_at + high_plane(k4) + k / 4u) >> (k % 4u * 2u);
    bits |= (high & 0x03030303u) << 4u;
#endif
    let q = vec4<f32>(unpack4xU8(bits)) - $OFFSET.0;
#endif
    let s = scale_$W_BUFFER(row_at, k4, k / ($GROUPu / 4u));
    return q * s.x + s.y;
}

// Scale and minimum of a group.
fn scale_$W_BUFFER(row_at: u32, k4: u32, g: u32) -> vec2<f32> {
    let at = row_at + scale_plane(k4);
#if SCALES == half
    return vec2(unpack2x16float(word_$W_BUFFER(at + g / 2u) >> (g % 2u * 16u)).x, 0.0);
#elif SCALES == half_min
    return unpack2x16float(word_$W_BUFFER(at + g));
#elif SCALES == float
    return vec2(bitcast<f32>(word_$W_BUFFER(at + g)), 0.0);
#else
    let block = g / (256u / $GROUPu);
    let steps = row_at + step_plane(k4);
#if SCALES == byte
    let scale = extractBits(bitcast<i32>(word_$W_BUFFER(at + g / 4u)), g % 4u * 8u, 8u);
    let d = unpack2x16float(word_$W_BUFFER(steps + block / 2u) >> (block % 2u * 16u)).x;
    return vec2(f32(scale) * d, 0.0);
#else
    let both = word_$W_BUFFER(at + g / 2u) >> (g % 2u * 16u);
    let d = unpack2x16float(word_$W_BUFFER(steps + block));
    return vec2(f32(both & 0xffu) * d.x, -(f32((both >> 8u) & 0xffu) * d.y));
#endif
#endif
}
#endif
#endmacro

// Where a row's planes begin, in words, and its words in all.
#macro block_planes
fn high_plane(k4: u32) -> u32 {
#if BITS == 8
    return k4;
#else
    return k4 / 2u;
#endif
}

fn scale_plane(k4: u32) -> u32 {
#if BITS == 6
    return high_plane(k4) + k4 / 4u;
#else
    return high_plane(k4);
#endif
}

fn step_plane(k4: u32) -> u32 {
    let groups = k4 / ($GROUPu / 4u);
#if SCALES == half
    return scale_plane(k4) + (groups + 1u) / 2u;
#elif SCALES == byte
    return scale_plane(k4) + groups / 4u;
#elif SCALES == byte_min
    return scale_plane(k4) + groups / 2u;
#else
    return scale_plane(k4) + groups;
#endif
}

fn row_words(k4: u32) -> u32 {
#if SCALES == byte
    let words = step_plane(k4) + (k4 / 64u + 1u) / 2u;
#elif SCALES == byte_min
    let words = step_plane(k4) + k4 / 64u;
#else
    let words = step_plane(k4);
#endif
    return (words + 3u) & ~3u;
}
#endmacro
