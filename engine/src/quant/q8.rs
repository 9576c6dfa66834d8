//! Activations as 8-bit integers: rows of [`DType::Q8`](crate::tensor::DType::Q8) buffers.
//!
//! A block of 32 values is `scale · q` with `scale = max|x| / 127` in f32 and `q` the nearest integers, as llama.cpp
//! rounds to Q8_0. A row is its integers, four in a word with the first in the lowest byte; then for each block two
//! words, the scale and the sums of the integers of its halves as two 16-bit integers, first half low (weights with an
//! offset need them); then zeros up to a multiple of 16 bytes. `shaders/lib/q8.wgsl` writes such rows.

/// Values that share a scale; a row has whole blocks.
pub const BLOCK: usize = 32;

/// Blocks without a value of this magnitude become zero: the inverse of their scale may be infinite.
const LEAST: f32 = 1e-30;

/// 32-bit words of a row of `cols` values.
pub const fn row_words(cols: usize) -> usize {
    (cols / 4 + cols.div_ceil(BLOCK) * 2).next_multiple_of(4)
}

/// A block's scale and integers, from at most [`BLOCK`] values.
pub fn quantize(block: &[f32]) -> (f32, [i8; BLOCK]) {
    let mut q = [0; BLOCK];
    let largest = block.iter().fold(0f32, |m, v| m.max(libm::fabsf(*v)));
    if largest < LEAST {
        return (0.0, q);
    }
    let scale = largest / 127.0;
    let inverse = 1.0 / scale;
    for (q, v) in q.iter_mut().zip(block) {
        *q = libm::rintf(*v * inverse) as i8;
    }
    (scale, q)
}

/// Makes a row what a buffer of 8-bit blocks holds of it.
pub fn round(row: &mut [f32]) {
    for block in row.chunks_mut(BLOCK) {
        let (scale, q) = quantize(block);
        block.iter_mut().zip(q).for_each(|(v, q)| *v = scale * f32::from(q));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_words_of_four_and_two_a_block() {
        assert_eq!([32, 64, 96, 2048].map(row_words), [12, 20, 32, 640]);
    }

    #[test]
    fn values_round_to_the_nearest_integer() {
        let mut block = [0.0; BLOCK];
        (block[0], block[1], block[2], block[31]) = (-254.0, 3.1, 2.9, 253.0);
        let (scale, q) = quantize(&block);
        assert_eq!((scale, q[0], q[1], q[2], q[3], q[31]), (2.0, -127, 2, 1, 0, 126));
        round(&mut block);
        assert_eq!((block[0], block[1], block[2], block[31]), (-254.0, 4.0, 2.0, 252.0));
    }

    #[test]
    fn blocks_have_scales_of_their_own_and_tiny_ones_are_zero() {
        let mut row = [1.0; 2 * BLOCK];
        row[..BLOCK].fill(1e-31);
        round(&mut row);
        assert_eq!((row[0], row[BLOCK]), (0.0, 1.0));
    }
}
