//! The linear ops of experts for many rows, on cooperative matrices: pairs of a row and an expert that it uses are
//! sorted by expert, and each expert multiplies tiles of its pairs.

use alloc::{vec, vec::Vec};

use super::{Binding, Dispatch, Lowering, bind, define, dispatch, fold, linear_coop, weight_word};
use crate::{Result, gpu::kernel, op::Activation, program::BufferId, tensor::Weight};

/// Experts that `expert_lists` can tell apart.
const MOST_EXPERTS: u32 = 512;

/// Fewest rows that are worth sorting.
const LEAST_ROWS: u32 = 16;

/// One of the two ops.
#[derive(Debug, Clone, Copy)]
pub struct Experts<'a> {
    pub x: BufferId,
    pub routes: BufferId,
    pub used: u32,
    pub weight: &'a Weight,
    /// Groups of four columns that go into an expert, and columns that come out.
    pub k4: u32,
    pub n: u32,
    /// The weight has gate rows and up rows, and each row of x serves all of its experts; else each expert has its own
    /// columns of x.
    pub gated: Option<Activation>,
}

impl Experts<'_> {
    fn pairs(&self, l: &Lowering<'_>) -> u32 {
        l.rows(self.x) * self.used
    }

    fn sides(&self) -> u32 {
        if self.gated.is_some() { 2 } else { 1 }
    }

    fn experts(&self) -> u32 {
        self.weight.rows() as u32 / (self.sides() * self.n)
    }

    /// The products of each pair, written to `out` row by row; `None` if other kernels must do it.
    ///
    /// # Errors
    /// `Unsupported` if the weight takes more than one binding.
    pub fn products(&self, l: &Lowering<'_>, out: Binding, y: &str) -> Result<Option<Vec<Dispatch>>> {
        let (experts, pairs) = (self.experts(), self.pairs(l));
        let blocks = self.weight.format().is_block();
        let word = weight_word(self.weight)?;
        let can = l.features.cooperative_matrix
            && l.word(self.x) == "f16"
            && (blocks || word == "f16")
            && l.rows(self.x) >= LEAST_ROWS
            && experts <= MOST_EXPERTS;
        let task = linear_coop::Task {
            blocks,
            gated: self.gated.is_some(),
            // Of one expert.
            rows: pairs.div_ceil(experts.max(1)),
            n: self.n,
            k4: self.k4,
        };
        let Some(choice) = task.for_experts(l.linear_tile).filter(|_| can) else { return Ok(None) };
        let Some(tile) = choice.word else { return Ok(None) };
        // Each expert may end with a tile that is not full.
        let tiles = pairs.div_ceil(choice.rows) + experts.min(pairs);
        if tiles > super::MAX_GRID {
            return Ok(None);
        }
        let lists = Binding::Lists(u64::from(tiles * 4 + pairs) * 4);
        let count = l.count(self.x);
        let sort = dispatch(
            &kernel::EXPERT_LISTS,
            Vec::new(),
            &[self.used, experts, count, choice.rows, tiles],
            vec![Binding::Buffer(self.routes), lists.clone()],
            [1, 1, 1],
        );
        let definitions = define(&[
            ("Y", y),
            ("BIAS", "0"),
            ("RESIDUAL", "none"),
            ("ACT", super::activation_word(self.gated.unwrap_or(Activation::None))),
            ("GATED", &super::flag(self.gated.is_some())),
            ("EXPERT_TILES", "1"),
            ("W", word),
            ("TILE", tile),
        ]);
        let shared_by = if self.gated.is_some() { self.used } else { 1 };
        let grid = [self.n.div_ceil(choice.columns), tiles, 1];
        let params = [
            self.k4,
            self.n,
            0,
            self.n / 4,
            count,
            self.n,
            tiles,
            self.sides() * self.n,
            shared_by,
            tiles * 4,
        ];
        let bindings = vec![Binding::Buffer(self.x), bind(self.weight)?, lists, out];
        let multiply = dispatch(&kernel::LINEAR_COOP, definitions, &params, bindings, grid);
        Ok(Some(vec![sort, multiply]))
    }

    /// The sums of the rows' products, f32 in scratch memory, times the experts' weights, plus a residual; `None` as for
    /// [`Experts::products`].
    ///
    /// # Errors
    /// As [`Experts::products`].
    pub fn sums(
        &self,
        l: &Lowering<'_>,
        residual: Option<BufferId>,
        out: BufferId,
    ) -> Result<Option<Vec<Dispatch>>> {
        let products = Binding::Scratch(u64::from(self.pairs(l)) * u64::from(self.n) * 4);
        let Some(mut all) = self.products(l, products.clone(), "f32")? else { return Ok(None) };
        let [grid_y, grid_z, _] = fold(l.rows(out));
        let cols4 = l.cols4(out);
        let definitions = define(&[("Y", l.word(out)), ("RESIDUAL", residual.map_or("none", |r| l.word(r)))]);
        let mut bindings = vec![products, Binding::Buffer(self.routes)];
        bindings.extend(residual.map(Binding::Buffer));
        bindings.push(Binding::Buffer(out));
        let params = [cols4, self.used, l.count(out), grid_y];
        let grid = [cols4.div_ceil(64), grid_y, grid_z];
        all.push(dispatch(&kernel::EXPERT_SUM, definitions, &params, bindings, grid));
        Ok(Some(all))
    }
}
