//! Cases of the ops that work row by row or on ranges of rows.

use alloc::{format, string::String, vec, vec::Vec};

use super::{Case, Suite, Work, build::Builder, build::Sizes};
use crate::{
    Result,
    op::{Embed, Norm, NormKind, NormParams, Normalize, Op, Pool, PoolMode, Rope, TokenField},
    program::Count,
    tensor::DType,
};

/// Rows and columns, plus rows that the program has to spare.
fn shapes(suite: &Suite) -> Vec<(usize, usize, usize)> {
    let mut all = vec![(1, 4, 0), (3, 12, 0), (17, 36, 7), (5, 48, 11), (3, 64, 1)];
    if suite.full {
        all.extend([(64, 384, 0), (65, 128, 63), (130, 100, 62), (3, 768, 1), (2, 1536, 0), (7, 1028, 0)]);
    }
    all
}

/// The same for buffers of 8-bit blocks.
fn q8_shapes(suite: &Suite) -> Vec<(usize, usize, usize)> {
    let mut all = vec![(1, 32, 0), (3, 96, 1), (2, 288, 7)];
    if suite.full {
        all.extend([(65, 64, 3), (2, 2048, 0)]);
    }
    all
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum NormOption {
    None,
    Layer,
    LayerBias,
    Rms,
}

impl NormOption {
    const ALL: [NormOption; 4] = [Self::None, Self::Layer, Self::LayerBias, Self::Rms];

    fn params(self, b: &mut Builder, cols: usize, eps: f32) -> Result<Option<NormParams>> {
        let (kind, rows) = match self {
            NormOption::None => return Ok(None),
            NormOption::Layer => (NormKind::Layer, 1),
            NormOption::LayerBias => (NormKind::Layer, 2),
            NormOption::Rms => (NormKind::Rms, 1),
        };
        Ok(Some(NormParams { kind, weight: b.vector(rows, cols, 1.0)?, eps }))
    }
}

pub fn embed(suite: &Suite, all: &mut Vec<Case>) {
    for (rows, cols, spare) in shapes(suite) {
        for tables in 1..=3 {
            for norm in NormOption::ALL {
                // Options vary on the small shapes only.
                if cols > 64 && norm != NormOption::LayerBias {
                    continue;
                }
                for &out in suite.dtypes() {
                    let work = if norm == NormOption::None { Work::Copy } else { Work::Rows };
                    let name = format!("embed {rows}+{spare}x{cols} tables={tables} norm={norm:?} {out:?}");
                    let tolerance = suite.tolerance(work, DType::F32, out);
                    all.push(Case::new(name, Sizes::rows(rows, spare), tolerance, move |b| {
                        embed_graph(b, rows, cols, tables, norm, out)
                    }));
                }
            }
        }
    }
}

fn embed_graph(
    b: &mut Builder,
    rows: usize,
    cols: usize,
    tables: usize,
    norm: NormOption,
    out: DType,
) -> Result<()> {
    let sizes = [37, 19, 2];
    let mut tokens: Vec<[u32; 4]> =
        (0..rows).map(|_| [b.random.below(37), b.random.below(19), b.random.below(2), 0]).collect();
    // The first and the last entry of every table.
    tokens[0] = [36, 18, 1, 0];
    tokens[rows - 1] = if rows > 1 { [0, 0, 0, 0] } else { tokens[0] };
    let fields = [TokenField::Id, TokenField::Position, TokenField::Type];
    let mut used = Vec::new();
    for (field, size) in fields.into_iter().zip(sizes).take(tables) {
        used.push((b.table(size, cols)?, field));
    }
    let tokens = b.tokens(&tokens);
    let norm = norm.params(b, cols, 1e-5)?;
    let result = b.result(out, Count::Tokens, cols);
    b.push(Op::Embed(Embed { tokens, tables: used, norm, out: result }))?;
    b.read_back(out, Count::Tokens, cols, result)
}

/// A norm of rows of these element types.
#[derive(Debug, Clone, Copy)]
struct NormCase {
    sizes: Sizes,
    cols: usize,
    option: NormOption,
    types: (DType, DType),
    values: Rows,
}

impl NormCase {
    fn plain(rows: usize, cols: usize, spare: usize, option: NormOption, types: (DType, DType)) -> Self {
        NormCase { sizes: Sizes::rows(rows, spare), cols, option, types, values: Rows::Plain }
    }

    /// Pushed under the name of its shape.
    fn push_plain(self, suite: &Suite, all: &mut Vec<Case>) {
        let NormCase { sizes, cols, option, types: (x, out), .. } = self;
        let (rows, spare) = (sizes.real[0], sizes.bucket[0] - sizes.real[0]);
        let name = format!("norm {option:?} {rows}+{spare}x{cols} {x:?}->{out:?}");
        self.push(name, suite.tolerance(Work::Rows, x, out), all);
    }

    fn push(self, name: String, tolerance: f32, all: &mut Vec<Case>) {
        let NormCase { sizes, cols, option, types: (x, out), values } = self;
        all.push(Case::new(name, sizes, tolerance, move |b| {
            let given = values.values(b, sizes.real[0] * cols, cols);
            let x = b.given(x, Count::Tokens, cols, &given)?;
            let Some(params) = option.params(b, cols, values.eps())? else { return Ok(()) };
            let result = b.result(out, Count::Tokens, cols);
            b.push(Op::Norm(Norm { x, params, out: result }))?;
            b.read_back(out, Count::Tokens, cols, result)
        }));
    }
}

/// The one that a quick check has.
pub fn quick_norm(suite: &Suite, all: &mut Vec<Case>) {
    let types = (suite.preferred(), suite.preferred());
    NormCase::plain(17, 36, 7, NormOption::LayerBias, types).push_plain(suite, all);
}

pub fn norm(suite: &Suite, all: &mut Vec<Case>) {
    let f32s = (DType::F32, DType::F32);
    for (rows, cols, spare) in shapes(suite) {
        for option in NormOption::ALL.into_iter().skip(1) {
            for types in suite.pairs() {
                NormCase::plain(rows, cols, spare, option, types).push_plain(suite, all);
            }
        }
    }
    if suite.factors().contains(&DType::Q8) {
        for (rows, cols, spare) in q8_shapes(suite) {
            for option in NormOption::ALL.into_iter().skip(1) {
                let name = format!("norm {option:?} {rows}+{spare}x{cols} to 8-bit blocks");
                let (x, out) = (suite.preferred(), DType::Q8);
                let tolerance = suite.tolerance(Work::Rows, x, out);
                NormCase::plain(rows, cols, spare, option, (x, out)).push(name, tolerance, all);
            }
        }
    }
    for option in NormOption::ALL.into_iter().skip(1) {
        // A mean a hundred times the deviation: E[x²] − mean² would lose it all.
        let name = format!("norm {option:?} offset rows");
        let offset = NormCase { values: Rows::Offset, ..NormCase::plain(5, 64, 2, option, f32s) };
        offset.push(name, 2e-4, all);
        let name = format!("norm {option:?} zero row, eps 1e-12");
        let tolerance = suite.tolerance(Work::Rows, DType::F32, DType::F32);
        let zero = NormCase { values: Rows::ZeroFirst, ..NormCase::plain(4, 48, 0, option, f32s) };
        zero.push(name, tolerance, all);
    }
}

/// What the rows given to a norm look like.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Rows {
    Plain,
    Offset,
    ZeroFirst,
}

impl Rows {
    fn values(self, b: &mut Builder, n: usize, cols: usize) -> Vec<f32> {
        let center = if self == Rows::Offset { 100.0 } else { 0.3 };
        let mut values = b.random.values(n, center, 1.5);
        if self == Rows::ZeroFirst {
            values[..cols].fill(0.0);
        }
        values
    }

    fn eps(self) -> f32 {
        if self == Rows::ZeroFirst { 1e-12 } else { 1e-5 }
    }
}

pub fn normalize(suite: &Suite, all: &mut Vec<Case>) {
    for (rows, cols, spare) in shapes(suite) {
        for (x, out) in suite.pairs() {
            for unit in [true, false] {
                for kept in [cols, (cols / 8) * 4].into_iter().filter(|k| *k > 0) {
                    let work = if unit { Work::Rows } else { Work::Copy };
                    let name =
                        format!("normalize {rows}+{spare}x{cols} kept={kept} unit={unit} {x:?}->{out:?}");
                    let tolerance = suite.tolerance(work, x, out);
                    all.push(Case::new(name, Sizes::rows(rows, spare), tolerance, move |b| {
                        let mut values = b.random.values(rows * cols, 0.0, 3.0);
                        if rows > 2 {
                            // A zero vector stays zero.
                            values[cols..2 * cols].fill(0.0);
                        }
                        let x = b.given(x, Count::Tokens, cols, &values)?;
                        let result = b.result(out, Count::Tokens, kept);
                        b.push(Op::Normalize(Normalize { x, unit, out: result }))?;
                        b.read_back(out, Count::Tokens, kept, result)
                    }));
                }
            }
        }
    }
}

/// Rows rounded to 8-bit blocks and back.
pub fn q8(suite: &Suite, all: &mut Vec<Case>) {
    if !suite.factors().contains(&DType::Q8) {
        return;
    }
    for (rows, cols, spare) in q8_shapes(suite) {
        let name = format!("8-bit blocks of {rows}+{spare}x{cols}");
        let tolerance = suite.tolerance(Work::Copy, DType::F32, DType::F32);
        all.push(Case::new(name, Sizes::rows(rows, spare), tolerance, move |b| {
            let x = b.uniform(DType::Q8, Count::Tokens, cols, 1.0)?;
            let kept = if cols > 32 { cols - 32 } else { cols };
            let out = b.output(Count::Tokens, kept, None);
            b.push(Op::Normalize(Normalize { x, unit: false, out }))
        }));
        let name = format!("normalize {rows}+{spare}x{cols} of 8-bit blocks");
        let tolerance = suite.tolerance(Work::Rows, DType::F32, DType::F32);
        all.push(Case::new(name, Sizes::rows(rows, spare), tolerance, move |b| {
            let x = b.uniform(DType::Q8, Count::Tokens, cols, 1.0)?;
            let out = b.output(Count::Tokens, cols, None);
            b.push(Op::Normalize(Normalize { x, unit: true, out }))
        }));
    }
}

pub fn pool(suite: &Suite, all: &mut Vec<Case>) {
    let mut modes: Vec<Vec<PoolMode>> = PoolMode::ALL.iter().map(|m| vec![*m]).collect();
    modes.push(PoolMode::ALL.to_vec());
    modes.push(vec![PoolMode::Cls, PoolMode::Mean]);
    let mut layouts = vec![(vec![[0, 1]], 1, 4), (vec![[3, 9], [0, 3], [9, 9], [1, 10]], 11, 12)];
    layouts.push((vec![[0, 17], [17, 18], [18, 20]], 20, 64));
    if suite.full {
        layouts.push((vec![[0, 130], [130, 131], [131, 131], [131, 195], [195, 260]], 260, 384));
        layouts.push(((0..21).map(|i| [i * 3, i * 3 + 3]).collect(), 63, 36));
    }
    for (ranges, rows, cols) in layouts {
        for modes in &modes {
            for &x in suite.dtypes() {
                for spare in [0, 3] {
                    let real = [rows, ranges.len(), 1];
                    let sizes = Sizes { bucket: [rows + spare, ranges.len() + spare, 1], real };
                    let names: Vec<_> = modes.iter().map(|m| format!("{m:?}")).collect();
                    let name = format!(
                        "pool {} of {}+{spare} ranges over {rows}x{cols} {x:?}",
                        names.join("+"),
                        ranges.len()
                    );
                    let (ranges, modes) = (ranges.clone(), modes.clone());
                    let tolerance = suite.tolerance(Work::Rows, x, DType::F32);
                    all.push(Case::new(name, sizes, tolerance, move |b| {
                        // Away from 0, so that a maximum of −∞ or 0 at the start shows.
                        let values = b.random.values(rows * cols, -2.0, 1.5);
                        let x = b.given(x, Count::Tokens, cols, &values)?;
                        let ranges = b.ranges(&ranges);
                        let out = b.output(Count::Sequences, modes.len() * cols, None);
                        b.push(Op::Pool(Pool { x, ranges, modes: modes.clone(), out }))
                    }));
                }
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct RopeCase {
    rows: usize,
    /// Of queries and keys.
    heads: [usize; 2],
    head_dim: usize,
    /// Heads in the buffer.
    total: usize,
    norms: [bool; 2],
}

pub fn rope(suite: &Suite, all: &mut Vec<Case>) {
    let layout = |rows, heads, head_dim, total| RopeCase { rows, heads, head_dim, total, norms: [false; 2] };
    let mut layouts = vec![
        layout(1, [1, 0], 8, 1),
        layout(3, [2, 0], 16, 3),
        layout(17, [2, 1], 32, 5),
        layout(5, [1, 1], 64, 6),
        layout(2, [2, 1], 80, 4),
        layout(2, [1, 1], 256, 3),
    ];
    for norms in [[true, true], [true, false], [false, true]] {
        layouts.push(RopeCase { norms, ..layout(7, [4, 2], 24, 8) });
        layouts.push(RopeCase { norms, ..layout(5, [2, 1], 64, 4) });
    }
    if suite.full {
        layouts.extend([
            layout(65, [4, 0], 64, 6),
            layout(130, [1, 1], 128, 4),
            layout(64, [12, 12], 64, 36),
        ]);
        layouts.push(RopeCase { norms: [true, true], ..layout(65, [16, 8], 64, 32) });
    }
    for case in layouts {
        for spare in [0, 5] {
            let RopeCase { rows, heads: [heads, kv_heads], head_dim, total, norms } = case;
            let x = suite.preferred();
            let name = format!("rope {case:?} and {spare} spare rows {x:?}");
            let tolerance = suite.tolerance(Work::Rows, x, x);
            all.push(Case::new(name, Sizes::rows(rows, spare), tolerance, move |b| {
                let (entries, cols) = (23, total * head_dim);
                let mut tokens: Vec<[u32; 4]> =
                    (0..rows).map(|_| [7, b.random.below(entries), 0, 0]).collect();
                tokens[rows - 1][1] = entries as u32 - 1;
                let tokens = b.tokens(&tokens);
                let half = head_dim / 2;
                let angle = |at: usize| {
                    let (position, i) = (at / head_dim, at % head_dim);
                    let angle = position as f32 * 0.9 / (1 + i % half) as f32;
                    if i < half { libm::cosf(angle) } else { libm::sinf(angle) }
                };
                let table: Vec<f32> = (0..entries * head_dim).map(angle).collect();
                let table = b.angles((entries, head_dim), &table)?;
                let x_buffer = b.uniform(x, Count::Tokens, cols, 2.0)?;
                let mut norm = |used: bool, eps: f32| -> Result<Option<NormParams>> {
                    let weight = b.vector(1, head_dim, 1.0)?;
                    Ok(used.then_some(NormParams { kind: NormKind::Rms, weight, eps }))
                };
                let (q_norm, k_norm) = (norm(norms[0], 1e-6)?, norm(norms[1], 0.3)?);
                let op = Rope { x: x_buffer, tokens, q_norm, k_norm, table, heads, kv_heads, head_dim };
                b.push(Op::Rope(op))?;
                let out = b.output(Count::Tokens, cols, None);
                b.push(Op::Normalize(Normalize { x: x_buffer, unit: false, out }))
            }));
        }
    }
}
