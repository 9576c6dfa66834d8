//! Formats of 32 values with one scale. Of 16 bytes of nibbles, byte `i` holds value `i` in its low half and value
//! `i + 16` in its high half.

use super::{IQ4_VALUES, MXFP4_VALUES, NO_MIN, Unpacked, half};

/// One group of 32.
fn set(out: &mut Unpacked, scale: f32, min: f32) {
    (out.group, out.len) = (32, 32);
    (out.scale[0], out.min[0]) = (scale, min);
}

fn nibbles(bytes: &[u8], q: &mut [i8; 256], value: impl Fn(u8) -> i8) {
    for (i, byte) in bytes.iter().enumerate() {
        q[i] = value(byte & 15);
        q[i + 16] = value(byte >> 4);
    }
}

/// Nibbles, and the fifth bits in one word.
fn five_bits(nibbles: &[u8], high: &[u8], q: &mut [i8; 256], less: i8) {
    for (i, byte) in nibbles.iter().enumerate() {
        let bit = |at: usize| (high[at / 8] >> (at % 8) & 1) << 4;
        q[i] = (byte & 15 | bit(i)) as i8 - less;
        q[i + 16] = (byte >> 4 | bit(i + 16)) as i8 - less;
    }
}

/// d, 32 × i8.
pub fn q8_0(b: &[u8; 34], out: &mut Unpacked) {
    set(out, half(b, 0), NO_MIN);
    for (q, byte) in out.q.iter_mut().zip(&b[2..]) {
        *q = *byte as i8;
    }
}

/// d, nibbles.
pub fn q4_0(b: &[u8; 18], out: &mut Unpacked) {
    set(out, half(b, 0), NO_MIN);
    nibbles(&b[2..], &mut out.q, |q| q as i8 - 8);
}

/// d, m, nibbles.
pub fn q4_1(b: &[u8; 20], out: &mut Unpacked) {
    set(out, half(b, 0), half(b, 2));
    nibbles(&b[4..], &mut out.q, |q| q as i8);
}

/// d, fifth bits, nibbles.
pub fn q5_0(b: &[u8; 22], out: &mut Unpacked) {
    set(out, half(b, 0), NO_MIN);
    five_bits(&b[6..], &b[2..6], &mut out.q, 16);
}

/// d, m, fifth bits, nibbles.
pub fn q5_1(b: &[u8; 24], out: &mut Unpacked) {
    set(out, half(b, 0), half(b, 2));
    five_bits(&b[8..], &b[4..8], &mut out.q, 0);
}

/// d, nibbles.
pub fn iq4_nl(b: &[u8; 18], out: &mut Unpacked) {
    set(out, half(b, 0), NO_MIN);
    nibbles(&b[2..], &mut out.q, |q| IQ4_VALUES[usize::from(q)]);
}

/// Exponent, nibbles.
pub fn mxfp4(b: &[u8; 17], out: &mut Unpacked) {
    set(out, mxfp4_scale(b[0]), NO_MIN);
    nibbles(&b[1..], &mut out.q, |q| MXFP4_VALUES[usize::from(q)]);
}

/// `2^(e - 128)`: the exponent's power of two, halved since the values are doubled.
fn mxfp4_scale(e: u8) -> f32 {
    // Below the smallest normal number there is no exponent to write.
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (u32::from(e) - 1) << 23 })
}
