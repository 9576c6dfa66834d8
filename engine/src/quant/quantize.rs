//! Plain rounding into blocks: for tests, and for files of small models. It does not search for better scales.

use alloc::{format, vec::Vec};

use half::f16;
use libm::{fabsf, roundf, truncf};

use crate::{Error, Result, format::Format};

/// Appends the blocks that hold `values`. The 32-value formats get the bits that GGUF's own tools write.
///
/// # Errors
/// `Unsupported` for formats other than Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K; `Shape` unless `values`
/// are whole blocks; `Input` for values that are not finite or too large for the scale's f16.
pub fn quantize(format: Format, values: &[f32], out: &mut Vec<u8>) -> Result<()> {
    let pack: fn(&[f32], &mut Vec<u8>) = match format {
        Format::Q8_0 => q8_0,
        Format::Q4_0 => |x, out| symmetric(x, 8, out),
        Format::Q5_0 => |x, out| symmetric(x, 16, out),
        Format::Q4_1 => |x, out| with_minimum(x, 15, out),
        Format::Q5_1 => |x, out| with_minimum(x, 31, out),
        Format::Q4K => |x, out| scales_and_minima(x, 15, out),
        Format::Q5K => |x, out| scales_and_minima(x, 31, out),
        Format::Q6K => q6_k,
        _ => return Err(Error::Unsupported(format!("quantizing to {format}"))),
    };
    if !values.len().is_multiple_of(format.block()) {
        return Err(Error::Shape {
            what: format!("values to quantize to {format}"),
            expected: format!("a multiple of {}", format.block()),
            found: format!("{}", values.len()),
        });
    }
    // A minimum is kept as f16.
    if let Some(v) = values.iter().find(|v| !v.is_finite() || fabsf(**v) > 65504.0) {
        return Err(Error::Input(format!("{v} cannot be quantized to {format}: values within ±65504 can")));
    }
    for block in values.chunks_exact(format.block()) {
        pack(block, out);
    }
    Ok(())
}

fn push_half(value: f32, out: &mut Vec<u8>) {
    out.extend(f16::from_f32(value).to_le_bytes());
}

/// As f16 keeps it.
fn rounded(value: f32) -> f32 {
    f16::from_f32(value).to_f32()
}

/// `1 / d`, or 0 where `d` is 0 or so small that f16 makes it 0.
fn inverse(d: f32) -> f32 {
    let inverse = 1.0 / d;
    if inverse.is_finite() { inverse } else { 0.0 }
}

/// The value of largest magnitude, the first of them, with its sign.
fn extreme(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |best: f32, v| if fabsf(*v) > fabsf(best) { *v } else { best })
}

fn range(x: &[f32]) -> (f32, f32) {
    x.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), v| (low.min(*v), high.max(*v)))
}

fn q8_0(x: &[f32], out: &mut Vec<u8>) {
    let d = fabsf(extreme(x)) / 127.0;
    let id = inverse(d);
    push_half(d, out);
    out.extend(x.iter().map(|v| roundf(v * id) as i8 as u8));
}

/// Fifth bits if there are any (`top` > 15), then nibbles.
fn push_bits(q: [u8; 32], top: u8, out: &mut Vec<u8>) {
    if top > 15 {
        let high = q.iter().enumerate().fold(0u32, |bits, (i, q)| bits | u32::from(q >> 4) << i);
        out.extend(high.to_le_bytes());
    }
    out.extend((0..16).map(|i| q[i] & 15 | q[i + 16] << 4));
}

/// Q4_0 and Q5_0: integers less `half`; the value of largest magnitude becomes `-half`.
fn symmetric(x: &[f32], half: u8, out: &mut Vec<u8>) {
    let d = extreme(x) / -f32::from(half);
    let (id, top) = (inverse(d), 2 * half - 1);
    push_half(d, out);
    let q = core::array::from_fn(|i| (truncf(x[i] * id + (f32::from(half) + 0.5)) as u8).min(top));
    push_bits(q, top, out);
}

/// Q4_1 and Q5_1.
fn with_minimum(x: &[f32], top: u8, out: &mut Vec<u8>) {
    let (low, high) = range(x);
    let d = (high - low) / f32::from(top);
    let id = inverse(d);
    push_half(d, out);
    push_half(low, out);
    let q = core::array::from_fn(|i| (truncf((x[i] - low) * id + 0.5) as u8).min(top));
    push_bits(q, top, out);
}

/// Nearest of `0..=top`.
fn nearest(value: f32, top: u8) -> u8 {
    roundf(value).clamp(0.0, f32::from(top)) as u8
}

/// Q4_K and Q5_K.
fn scales_and_minima(x: &[f32], top: u8, out: &mut Vec<u8>) {
    let (mut scale, mut min) = ([0f32; 8], [0f32; 8]);
    for (g, x) in x.chunks_exact(32).enumerate() {
        let (low, high) = range(x);
        min[g] = -low.min(0.0);
        scale[g] = (high.max(0.0) + min[g]) / f32::from(top);
    }
    let d = rounded(range(&scale).1 / 63.0);
    let dmin = rounded(range(&min).1 / 63.0);
    let scale = scale.map(|s| nearest(s * inverse(d), 63));
    let min = min.map(|m| nearest(m * inverse(dmin), 63));
    push_half(d, out);
    push_half(dmin, out);
    out.extend((0..4).map(|g| scale[g] | scale[g + 4] >> 4 << 6));
    out.extend((0..4).map(|g| min[g] | min[g + 4] >> 4 << 6));
    out.extend((4..8).map(|g| scale[g] & 15 | min[g] << 4));

    let q: [u8; 256] = core::array::from_fn(|i| {
        let g = i / 32;
        nearest((x[i] + dmin * f32::from(min[g])) * inverse(d * f32::from(scale[g])), top)
    });
    if top > 15 {
        out.extend((0..32).map(|l| (0..8).fold(0, |bits, g| bits | q[32 * g + l] >> 4 << g)));
    }
    out.extend((0..128).map(|i| {
        let at = i / 32 * 64 + i % 32;
        q[at] & 15 | q[at + 32] << 4
    }));
}

fn q6_k(x: &[f32], out: &mut Vec<u8>) {
    let mut scale = [0f32; 16];
    for (scale, x) in scale.iter_mut().zip(x.chunks_exact(16)) {
        *scale = extreme(x) / -32.0;
    }
    let d = rounded(extreme(&scale) / -128.0);
    let scale = scale.map(|s| roundf(s * inverse(d)).clamp(-128.0, 127.0) as i8);
    let q: [u8; 256] =
        core::array::from_fn(|i| nearest(x[i] * inverse(d * f32::from(scale[i / 16])) + 32.0, 63));
    for h in [0, 128] {
        out.extend((0..64).map(|i| q[h + i] & 15 | q[h + i + 64] << 4));
    }
    for h in [0, 128] {
        out.extend((0..32).map(|i| (0..4).fold(0, |bits, k| bits | q[h + 32 * k + i] >> 4 << (2 * k))));
    }
    out.extend(scale.map(|s| s as u8));
    push_half(d, out);
}
