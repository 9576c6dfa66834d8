//! What an op must at least move and multiply.

use inferencelayer_engine::{
    backend::Capabilities,
    program::Count,
    tensor::{DType, Format, WeightUse},
};
use serde::Serialize;

use super::problem::{FIRST_TABLE, Fill, Param, Problem};

/// Element types of an op's float operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Types {
    pub x: DType,
    pub out: DType,
}

/// The least work of one op.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Costs {
    /// Operands and result, each moved once; of tables, the rows that are looked up.
    pub bytes: u64,
    /// Two for each product of a matrix or of attention; nothing else is counted.
    pub flops: u64,
}

/// The formats that a variant's weights are kept in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Formats<'a> {
    pub capabilities: &'a Capabilities,
    /// Blocks in which matrices and the first table come.
    pub blocks: Option<Format>,
}

impl<'a> From<&'a Capabilities> for Formats<'a> {
    fn from(capabilities: &'a Capabilities) -> Self {
        Formats { capabilities, blocks: None }
    }
}

impl Formats<'_> {
    /// The format of a parameter.
    pub fn of(&self, param: &Param) -> Format {
        match (self.blocks, param.usage) {
            _ if param.fill == Fill::Angles => Format::F32,
            (Some(blocks), WeightUse::Matrix) => blocks,
            (Some(blocks), WeightUse::Table) if param.name == FIRST_TABLE => blocks,
            _ => self.capabilities.format_for(param.usage, Format::F32),
        }
    }
}

impl Problem {
    /// Multiplications that are summed: the size of the op's dot products.
    pub fn products(&self) -> u64 {
        match self {
            Problem::Linear(a) => a.rows as u64 * a.inputs as u64 * a.outputs as u64,
            Problem::GatedLinear(a) => 2 * a.rows as u64 * a.inputs as u64 * a.outputs as u64,
            Problem::Attention(a) => {
                let seen: u64 = a.lens.0.iter().map(|len| pairs(*len as u64, a.window)).sum();
                2 * seen * (a.heads * a.head_dim) as u64
            }
            _ => 0,
        }
    }

    /// The least work of the op on weights in these formats.
    pub fn costs<'a>(&self, formats: impl Into<Formats<'a>>, types: Types) -> Costs {
        let formats = formats.into();
        let o = self.operands();
        let (rows, out_rows) = (o.rows[Count::Tokens as usize], o.rows[o.out.0 as usize]);
        let out_bytes = (out_rows * types.out.row_bytes(o.out.1)) as u64;
        let mut bytes = match self {
            // Only the turned heads move, both ways.
            Problem::Rope(a) => (2 * rows * types.x.row_bytes(a.heads * a.head_dim)) as u64,
            Problem::Normalize(a) => (rows * types.x.row_bytes(a.kept())) as u64 + out_bytes,
            _ => (rows * types.x.row_bytes(o.x.unwrap_or(0))) as u64 + out_bytes,
        };
        if o.residual {
            bytes += out_bytes;
        }
        if let Some((_, count, cols)) = o.index {
            bytes += (o.rows[count as usize] * cols * 4) as u64;
        }
        for p in &o.params {
            let moved = if p.usage == WeightUse::Table { p.rows.min(rows) } else { p.rows };
            bytes += (moved * formats.of(p).row_bytes(p.cols)) as u64;
        }
        Costs { bytes, flops: 2 * self.products() }
    }
}

/// Query and key pairs of one sequence that see each other.
fn pairs(len: u64, window: Option<u32>) -> u64 {
    match window.map(u64::from) {
        Some(w) if w + 1 < len => len * (2 * w + 1) - w * (w + 1),
        _ => len * len,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::{
        args::{AttentionArgs, LinearArgs},
        words::Activation,
    };
    use inferencelayer_engine::{backend::Backend as _, reference::Reference};

    #[test]
    fn pairs_are_those_within_the_window() {
        for len in 1..9u64 {
            for w in 0..10u32 {
                let seen = (0..len).flat_map(|i| (0..len).map(move |j| i.abs_diff(j)));
                assert_eq!(pairs(len, Some(w)), seen.filter(|d| *d <= u64::from(w)).count() as u64);
            }
            assert_eq!(pairs(len, None), len * len);
        }
    }

    #[test]
    fn a_linear_op_moves_each_operand_once() {
        let act = Activation::Gelu;
        let problem =
            Problem::Linear(LinearArgs { rows: 10, inputs: 8, outputs: 4, act, residual: true, bias: true });
        let half = Reference::with_formats(DType::F16, Format::F16);
        let types = Types { x: DType::F16, out: DType::F32 };
        let costs = problem.costs(half.capabilities(), types);
        assert_eq!(costs.flops, 2 * 10 * 8 * 4);
        assert_eq!(costs.bytes, 10 * 8 * 2 + 10 * 4 * 4 * 2 + 4 * 8 * 2 + 4 * 4);
    }

    #[test]
    fn attention_counts_both_products() {
        let lens = "2x10".parse().unwrap();
        let problem = Problem::Attention(AttentionArgs {
            lens,
            heads: 3,
            kv_heads: Some(1),
            head_dim: 8,
            window: None,
            bias_radius: None,
        });
        let full = Reference::new();
        let costs = problem.costs(full.capabilities(), Types { x: DType::F32, out: DType::F32 });
        assert_eq!(costs.flops, 4 * 200 * 24);
        assert_eq!(costs.bytes, 4 * (20 * 40 + 20 * 24 + 2 * 4));
    }
}
