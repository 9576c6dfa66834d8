//! Formats of 256 values in groups of 16 or 32, whose scales are integers times one f16.

use super::{IQ4_VALUES, NO_MIN, Unpacked, half};

fn set(out: &mut Unpacked, group: usize, d: f32, dmin: f32) {
    (out.group, out.len, out.d, out.dmin) = (group, 256, d, dmin);
}

/// The scale of a group, without a minimum.
fn set_scale(out: &mut Unpacked, g: usize, scale: i8) {
    (out.steps[g], out.scale[g], out.min[g]) = ((scale, 0), out.d * f32::from(scale), NO_MIN);
}

/// Scale and minimum of a group.
fn set_both(out: &mut Unpacked, g: usize, scale: u8, min: u8) {
    out.steps[g] = (scale as i8, min);
    (out.scale[g], out.min[g]) = (out.d * f32::from(scale), -(out.dmin * f32::from(min)));
}

/// Two values of each byte: of each 32 bytes the low halves, then the high halves.
fn nibbles(bytes: &[u8], q: &mut [i8; 256]) {
    for (bytes, q) in bytes.chunks_exact(32).zip(q.chunks_exact_mut(64)) {
        for (i, byte) in bytes.iter().enumerate() {
            q[i] = (byte & 15) as i8;
            q[i + 32] = (byte >> 4) as i8;
        }
    }
}

/// Four values of each byte: of each 32 bytes the lowest two bits, then the next two, and so on.
fn pairs(bytes: &[u8], q: &mut [i8; 256]) {
    for (bytes, q) in bytes.chunks_exact(32).zip(q.chunks_exact_mut(128)) {
        for (k, q) in q.chunks_exact_mut(32).enumerate() {
            for (q, byte) in q.iter_mut().zip(bytes) {
                *q = (byte >> (2 * k) & 3) as i8;
            }
        }
    }
}

/// 16 scales and minima, 64 bytes of pairs, d, dmin.
pub fn q2_k(b: &[u8; 84], out: &mut Unpacked) {
    set(out, 16, half(b, 80), half(b, 82));
    for (g, byte) in b[..16].iter().enumerate() {
        set_both(out, g, byte & 15, byte >> 4);
    }
    pairs(&b[16..80], &mut out.q);
}

/// 32 bytes of third bits, 64 bytes of pairs, 12 bytes of scales, d.
pub fn q3_k(b: &[u8; 110], out: &mut Unpacked) {
    set(out, 16, half(b, 108), 0.0);
    let (high, scales) = (&b[..32], &b[96..108]);
    for g in 0..16 {
        let low = scales[g % 8] >> (4 * (g / 8)) & 15;
        let top = scales[8 + g % 4] >> (2 * (g / 4)) & 3;
        set_scale(out, g, (low | top << 4) as i8 - 32);
    }
    pairs(&b[32..96], &mut out.q);
    for (k, q) in out.q.chunks_exact_mut(32).enumerate() {
        for (q, high) in q.iter_mut().zip(high) {
            *q += ((high >> k & 1) << 2) as i8 - 4;
        }
    }
}

/// Q4_K's and Q5_K's d, dmin, and 12 bytes of eight 6-bit scales and minima.
fn scales_and_minima(b: &[u8], out: &mut Unpacked) {
    set(out, 32, half(b, 0), half(b, 2));
    let s = &b[4..16];
    for g in 0..8 {
        let (scale, min) = if g < 4 {
            (s[g] & 63, s[g + 4] & 63)
        } else {
            (s[g + 4] & 15 | s[g - 4] >> 6 << 4, s[g + 4] >> 4 | s[g] >> 6 << 4)
        };
        set_both(out, g, scale, min);
    }
}

/// d, dmin, scales and minima, 128 bytes of nibbles.
pub fn q4_k(b: &[u8; 144], out: &mut Unpacked) {
    scales_and_minima(b, out);
    nibbles(&b[16..], &mut out.q);
}

/// d, dmin, scales and minima, 32 bytes of fifth bits, 128 bytes of nibbles.
pub fn q5_k(b: &[u8; 176], out: &mut Unpacked) {
    scales_and_minima(b, out);
    nibbles(&b[48..], &mut out.q);
    for (g, q) in out.q.chunks_exact_mut(32).enumerate() {
        for (q, high) in q.iter_mut().zip(&b[16..48]) {
            *q |= ((high >> g & 1) << 4) as i8;
        }
    }
}

/// 128 bytes of low nibbles, 64 of pairs of high bits, 16 scales, d.
pub fn q6_k(b: &[u8; 210], out: &mut Unpacked) {
    set(out, 16, half(b, 208), 0.0);
    for (g, scale) in b[192..208].iter().enumerate() {
        set_scale(out, g, *scale as i8);
    }
    let halves = b[..128].chunks_exact(64).zip(b[128..192].chunks_exact(32));
    for (q, (low, high)) in out.q.chunks_exact_mut(128).zip(halves) {
        for i in 0..32 {
            let bits = |nibble: u8, k: usize| (nibble | (high[i] >> (2 * k) & 3) << 4) as i8 - 32;
            q[i] = bits(low[i] & 15, 0);
            q[i + 32] = bits(low[i + 32] & 15, 1);
            q[i + 64] = bits(low[i] >> 4, 2);
            q[i + 96] = bits(low[i + 32] >> 4, 3);
        }
    }
}

/// d, 16 bits of the scales' upper parts, 4 bytes of their lower parts, 16 bytes of nibbles for each 32 values.
pub fn iq4_xs(b: &[u8; 136], out: &mut Unpacked) {
    set(out, 32, half(b, 0), 0.0);
    let (top, low) = (u16::from_le_bytes([b[2], b[3]]), &b[4..8]);
    for g in 0..8 {
        let scale = (low[g / 2] >> (4 * (g % 2)) & 15) | ((top >> (2 * g) & 3) as u8) << 4;
        set_scale(out, g, scale as i8 - 32);
    }
    for (q, bytes) in out.q.chunks_exact_mut(32).zip(b[8..].chunks_exact(16)) {
        for (i, byte) in bytes.iter().enumerate() {
            q[i] = IQ4_VALUES[usize::from(byte & 15)];
            q[i + 16] = IQ4_VALUES[usize::from(byte >> 4)];
        }
    }
}
