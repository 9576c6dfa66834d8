//! Packed blocks against the engine's decoding, on every instruction set that this machine has.

use inferencelayer_engine::{
    format::Format,
    op::Activation,
    quant::{self, Unpacked, q8},
    testing::{Random, random_blocks},
};

use super::{
    pack::{Layout, PackedBlocks},
    q8::{ToQ8, read_row},
    tile::Factor,
};
use crate::{
    gemm::linear::{BlocksProduct, Linear, Output, Product},
    isa::Isa,
    simd::{Kernel, Simd},
};

fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.available())
}

/// A weight and its values.
fn weight(isa: Isa, format: Format, rows: usize, cols: usize) -> (PackedBlocks, Vec<f32>) {
    let blocks = random_blocks(&mut Random::named(format.name()), format, rows * cols / format.block(), 1.0);
    let mut values = Vec::new();
    quant::decode_f32(format, &blocks, &mut values).unwrap();
    let mut packed = PackedBlocks::zeroed(isa, Layout::of(format).unwrap(), rows, cols);
    let mut unpacked = Unpacked::default();
    for (row, blocks) in blocks.chunks(format.row_bytes(cols)).enumerate() {
        packed.set_row(row, format, blocks, &mut unpacked).unwrap();
    }
    (packed, values)
}

#[test]
fn rows_come_back_bit_for_bit() {
    for isa in isas() {
        for format in Format::BLOCKS {
            let (rows, cols) = (37, 3 * format.block());
            let (packed, values) = weight(isa, format, rows, cols);
            for (row, wanted) in values.chunks(cols).enumerate() {
                let mut found = vec![0.0; cols];
                packed.add_row(row, &mut found);
                assert_eq!(found, wanted, "{isa} {format} row {row}");
            }
        }
    }
}

#[test]
fn formats_that_can_do_not_grow() {
    for format in [Format::Q8_0, Format::Q4_0, Format::Q4_1, Format::Q4K] {
        let packed = PackedBlocks::zeroed(Isa::detect(), Layout::of(format).unwrap(), 64, 2048);
        let (held, file) = (packed.bytes(), 64 * format.row_bytes(2048));
        assert!(held <= file + file / 32, "{format}: {held} for {file}");
    }
}

/// Exact products of blocks with rows of a single one give the weight's values, whatever lies beside.
#[test]
fn exact_products_are_exact() {
    for isa in isas() {
        for format in Format::BLOCKS {
            let (outputs, inputs) = (40, 2 * format.block());
            let (packed, values) = weight(isa, format, outputs, inputs);
            let rows = inputs;
            let mut x = vec![0f32; rows * inputs];
            (0..rows).for_each(|row| x[row * inputs + row] = 1.0);
            let mut out = vec![f32::NAN; rows * outputs];
            let product = Product::Blocks(BlocksProduct {
                x: Factor::F32(x.as_ptr(), inputs),
                weight: &packed,
                bias: None,
            });
            multiply(isa, product, &mut out, rows, outputs);
            for (row, out) in out.chunks(outputs).enumerate() {
                for (n, y) in out.iter().enumerate() {
                    assert_eq!(*y, values[n * inputs + row], "{isa} {format}: input {row}, output {n}");
                }
            }
        }
    }
}

fn multiply(isa: Isa, product: Product<'_>, out: &mut [f32], rows: usize, outputs: usize) {
    let output = Output {
        out: out.as_mut_ptr(),
        cols: outputs,
        activation: Activation::None,
        residual: core::ptr::null(),
        gated: false,
    };
    let panels = 0..outputs.div_ceil(isa.geometry().panel);
    // SAFETY: the instruction set is available and every operand has its whole size.
    unsafe { isa.run(Linear { product, output, rows: 0..rows, panels }) };
}

struct ReadRows<'a>(&'a [u32], &'a mut [f32], usize);

impl Kernel for ReadRows<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (row, out) in self.1.chunks_mut(self.2).enumerate() {
            // SAFETY: the words hold every row.
            unsafe { read_row(self.0[row * q8::row_words(self.2)..].as_ptr(), out) };
        }
    }
}

/// Rows as 8-bit blocks, and what they then hold.
fn rounded(isa: Isa, x: &[f32], cols: usize) -> (Vec<u32>, Vec<f32>) {
    let rows = x.len() / cols;
    let mut words = vec![0u32; rows * q8::row_words(cols)];
    let to_q8 = ToQ8 { x: x.as_ptr(), cols, rows: 0..rows, out: words.as_mut_ptr() };
    // SAFETY: the instruction set is available and the rows have their size.
    unsafe { isa.run(to_q8) };
    let mut held = vec![0.0; x.len()];
    // SAFETY: as above.
    unsafe { isa.run(ReadRows(&words, &mut held, cols)) };
    (words, held)
}

#[test]
fn activations_round_as_in_the_engine() {
    let (cols, mut random) = (96, Random::named("q8"));
    let mut x = random.values(5 * cols, 0.0, 3.0);
    x[cols..2 * cols].fill(0.0);
    x[2 * cols] = 1e4;
    x[3 * cols..3 * cols + 32].fill(1e-35);
    for isa in isas() {
        let (words, held) = rounded(isa, &x, cols);
        let mut wanted = x.clone();
        wanted.chunks_mut(cols).for_each(q8::round);
        assert_eq!(held, wanted, "{isa}");
        for words in words.chunks(q8::row_words(cols)) {
            let q: Vec<i8> =
                words[..cols / 4].iter().flat_map(|w| w.to_le_bytes().map(|b| b as i8)).collect();
            for (block, q) in q.chunks(16).enumerate() {
                let both = words[cols / 4 + 2 * (block / 2) + 1];
                let sum: i16 = q.iter().map(|q| i16::from(*q)).sum();
                assert_eq!((both >> (16 * (block % 2))) as i16, sum, "{isa}, half {block}");
            }
        }
    }
}

#[test]
fn integer_products_match_loops_for_any_number_of_rows() {
    for isa in isas() {
        for format in Format::BLOCKS {
            // More inputs than scales are made ready for at a time.
            let (outputs, inputs) = (70, if format.block() == 256 { 1280 } else { 1056 });
            let (packed, values) = weight(isa, format, outputs, inputs);
            let most = 51;
            let x = Random::named("x").values(most * inputs, 0.1, 1.0);
            let (words, held) = rounded(isa, &x, inputs);
            let ld = q8::row_words(inputs);
            let product = Product::Blocks(BlocksProduct {
                x: Factor::Q8(words.as_ptr(), words[inputs / 4..].as_ptr(), ld),
                weight: &packed,
                bias: None,
            });
            let mut all = vec![f32::NAN; most * outputs];
            multiply(isa, product, &mut all, most, outputs);
            for (row, out) in all.chunks(outputs).enumerate() {
                for (n, y) in out.iter().enumerate() {
                    let terms = held[row * inputs..][..inputs].iter().zip(&values[n * inputs..][..inputs]);
                    let terms = terms.map(|(x, w)| f64::from(*x) * f64::from(*w));
                    let (wanted, size) = (terms.clone().sum::<f64>(), terms.map(f64::abs).sum::<f64>());
                    let off = (f64::from(*y) - wanted).abs();
                    // A group's integers and minimum may be large beside their sum.
                    assert!(
                        off <= 4e-6 * size + 1e-6,
                        "{isa} {format} row {row} output {n}: {y} for {wanted}"
                    );
                }
            }
            for rows in [1, 2, 3, 4, 5, 7, 11, 13, 24, 50] {
                let mut some = vec![f32::NAN; rows * outputs];
                multiply(isa, product, &mut some, rows, outputs);
                assert_eq!(some, all[..rows * outputs], "{isa} {format}: {rows} rows");
            }
        }
    }
}
