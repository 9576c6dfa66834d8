//! Products on cooperative matrices: which kernel and tile.

use super::linear::Choice;
use crate::gpu::kernel;

/// So many workgroups occupy a GPU well enough that smaller tiles, which read more, do not pay.
const ENOUGH_WORKGROUPS: u32 = 64;

/// Of a large GPU. One workgroup at a time of tile 64w runs on each, or two of tile 128.
const MULTIPROCESSORS: u32 = 132;

/// Up to so many output columns, the tile with the finer grain.
const FEW_COLUMNS: u32 = 640;

/// From 16 rows, the least that a fragment has, up to so many, `linear_few` multiplies blocks.
const FEW_ROWS: u32 = 64;

/// A tile of `linear_coop`.
#[derive(Debug, Clone, Copy)]
struct Tile {
    word: &'static str,
    rows: u32,
    /// Rows of the weight.
    columns: u32,
    /// It takes so many columns of its rows at a time.
    step: u32,
    /// There is one for weights in blocks.
    blocks: bool,
}

const fn tile(word: &'static str, rows: u32, columns: u32, step: u32, blocks: bool) -> Tile {
    Tile { word, rows, columns, step, blocks }
}

const TILES: [Tile; 8] = [
    tile("128", 128, 128, 64, true),
    tile("128n", 128, 128, 64, true),
    tile("64w", 64, 128, 64, true),
    tile("64", 64, 64, 64, true),
    tile("32", 32, 32, 128, false),
    tile("32s", 32, 32, 64, false),
    tile("16", 16, 16, 128, false),
    tile("16s", 16, 16, 64, false),
];

/// A product of f16 by f16 or by blocks.
#[derive(Debug, Clone, Copy)]
pub struct Task {
    pub blocks: bool,
    pub gated: bool,
    pub rows: u32,
    /// Output columns.
    pub n: u32,
    pub k4: u32,
}

impl Task {
    fn choice(&self, tile: Tile) -> Choice {
        // Gate and up columns share a tile, which is twice as wide where it would be but one fragment.
        let columns = match (self.gated, tile.columns) {
            (true, 16) => 16,
            (true, columns) => columns / 2,
            (false, columns) => columns,
        };
        Choice::new(&kernel::LINEAR_COOP, Some(tile.word), tile.rows, columns)
    }

    fn takes(&self, tile: Tile) -> bool {
        (self.k4 * 4).is_multiple_of(tile.step) && (tile.blocks || !self.blocks)
    }

    /// The tile of `linear_few`. Its columns, which the order of summation follows from, do not depend on the rows.
    fn few(&self) -> Choice {
        let (word, tile) = match self.rows {
            0..=16 => ("16", 16),
            17..=32 => ("32", 32),
            _ => ("64", 64),
        };
        // Half of the 32 columns are gate rows. Few columns are cut finer, so that there are enough workgroups.
        let columns = if self.gated || self.n <= 4096 { 16 } else { 32 };
        Choice::new(&kernel::LINEAR_FEW, Some(word), tile, columns)
    }

    /// The tile of `linear_coop` for pairs of experts, of which there are about `rows` for each.
    pub fn for_experts(&self, forced: Option<&str>) -> Option<Choice> {
        let usual = if self.rows >= 256 { "128" } else { "64w" };
        let tile = |word| TILES.into_iter().find(|t| t.blocks && t.word == word);
        let tile = forced.and_then(tile).or_else(|| tile(usual))?;
        self.takes(tile).then(|| self.choice(tile))
    }

    /// The kernel and its tile; `forced` is the tile of `linear_coop` to take wherever it can be. `None` if no kernel
    /// on cooperative matrices can do it.
    pub fn choose(&self, forced: Option<&str>) -> Option<Choice> {
        let tiles = TILES.into_iter().filter(|t| self.takes(*t));
        if let Some(tile) = tiles.clone().find(|t| forced == Some(t.word)) {
            return Some(self.choice(tile));
        }
        if !self.k4.is_multiple_of(16) {
            return None;
        }
        if self.blocks && (16..=FEW_ROWS).contains(&self.rows) {
            return Some(self.few());
        }
        // Steps of a tile take about as long whether one of its workgroups runs on a multiprocessor or two: what counts
        // is how many rounds of workgroups there are, and how many values a round has.
        let fits = |tile: &Tile| {
            let choice = self.choice(*tile);
            let workgroups = self.n.div_ceil(choice.columns) * self.rows.div_ceil(choice.rows);
            match tile.word {
                "128" => self.n > FEW_COLUMNS && workgroups >= MULTIPROCESSORS,
                "128n" => self.n <= FEW_COLUMNS && workgroups >= ENOUGH_WORKGROUPS,
                "64w" => (ENOUGH_WORKGROUPS..=MULTIPROCESSORS).contains(&workgroups),
                _ => workgroups >= ENOUGH_WORKGROUPS,
            }
        };
        // Else the one with the fewest rows, and the longest step.
        let least = || tiles.clone().max_by_key(|t| (core::cmp::Reverse(t.rows), t.step));
        tiles.clone().find(fits).or_else(least).map(|tile| self.choice(tile))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(blocks: bool, rows: u32, n: u32, k4: u32) -> Option<&'static str> {
        Task { blocks, gated: false, rows, n, k4 }.choose(None).and_then(|c| c.word)
    }

    #[test]
    fn tiles_shrink_with_the_work() {
        assert_eq!(word(false, 16384, 768, 192), Some("128"));
        assert_eq!(word(false, 16384, 384, 384), Some("128n"));
        assert_eq!(word(false, 512, 2048, 2048), Some("64w"));
        assert_eq!(word(false, 512, 3072, 512), Some("64"));
        assert_eq!(word(false, 512, 768, 192), Some("64"));
        assert_eq!(word(false, 128, 768, 192), Some("32"));
        assert_eq!(word(false, 128, 768, 176), Some("32s"));
        assert_eq!(word(false, 16, 1152, 96), Some("16"));
        assert_eq!(word(false, 16, 384, 96), Some("16"));
        assert_eq!(word(false, 16, 1152, 16), Some("16s"));
        assert_eq!(word(false, 16, 1152, 17), None);
    }

    #[test]
    fn blocks_have_the_large_tiles_and_a_kernel_for_few_rows() {
        let kernel = |rows, n| Task { blocks: true, gated: false, rows, n, k4: 512 }.choose(None).unwrap();
        assert_eq!((kernel(512, 8192).kernel.name, kernel(512, 8192).word), ("linear_coop", Some("128")));
        assert_eq!((kernel(65, 256).kernel.name, kernel(65, 256).word), ("linear_coop", Some("64")));
        assert_eq!((kernel(15, 256).kernel.name, kernel(15, 256).word), ("linear_coop", Some("64")));
        for rows in 16..=64 {
            assert_eq!(kernel(rows, 256).kernel.name, "linear_few");
            assert_eq!(kernel(rows, 256).columns, 16);
            assert_eq!(kernel(rows, 65536).columns, 32);
            assert!(kernel(rows, 256).rows >= rows);
        }
    }

    #[test]
    fn experts_with_few_pairs_take_a_low_tile() {
        let word = |rows, k4| {
            let task = Task { blocks: true, gated: true, rows, n: 1792, k4 };
            task.for_experts(None).and_then(|c| c.word)
        };
        assert_eq!((word(64, 512), word(256, 512), word(64, 9)), (Some("64w"), Some("128"), None));
    }

    #[test]
    fn a_forced_tile_is_taken_where_it_can_be() {
        let task = Task { blocks: false, gated: true, rows: 100, n: 768, k4: 192 };
        for tile in TILES {
            let choice = task.choose(Some(tile.word)).unwrap();
            assert_eq!(choice.word, Some(tile.word));
        }
        assert_eq!(Task { blocks: true, ..task }.choose(Some("32")).and_then(|c| c.word), Some("64"));
    }
}
