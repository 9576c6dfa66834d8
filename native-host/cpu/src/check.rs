//! What a run's integers must satisfy before anything is computed from them.

use inferencelayer_engine::{
    Error, Result,
    op::{ATTENTION_TILE, PAGE},
    program::Counts,
};

use super::step::{Home, Place};

/// One condition; `like` has as many rows as are looked at.
#[derive(Debug, PartialEq)]
pub enum Check {
    /// Field `field` of `tokens` is a row of a table of `rows`.
    Entry { tokens: Place, field: usize, rows: usize, name: String, like: Place },
    /// Tiles lie in their sequences, those in `qkv`.
    Tiles { tiles: Place, qkv: Place },
    /// Ranges lie in `x`.
    Ranges { ranges: Place, x: Place },
    /// Every position up to a row's has a page in the cache.
    Pages { tokens: Place, pages: Place, cache_rows: usize, like: Place },
    /// Tiles are rows of one slot.
    QueryTiles { tiles: Place, tokens: Place, like: Place },
    /// Spans lie among the rows, whose slots there are.
    Spans { tokens: Place, spans: Option<Place>, slots: usize, like: Place },
    /// Routes name experts.
    Routes { routes: Place, used: usize, experts: usize },
    /// Slots, and rows of `tokens` to write, are there.
    Targets { tokens: Place, targets: Option<Place>, slots: usize, like: Place },
}

/// A run's integers.
pub struct Integers<'a, F> {
    pub counts: &'a Counts,
    /// The words of a place.
    pub words: F,
}

impl<F: Fn(Place) -> *const u32> Integers<'_, F> {
    fn rows(&self, place: Place) -> usize {
        match place.home {
            Home::State(_) => place.rows,
            _ => self.counts[place.count as usize] as usize,
        }
    }

    /// All real rows.
    pub fn of(&self, place: Place) -> &[u32] {
        // SAFETY: places lie in memory that nothing else uses now.
        unsafe { core::slice::from_raw_parts((self.words)(place), self.rows(place) * place.cols) }
    }

    /// As many rows of `tokens` as `like` has.
    fn tokens(&self, tokens: Place, like: Place) -> &[[u32; 4]] {
        let all = self.of(tokens).as_chunks::<4>().0;
        &all[..self.rows(like).min(all.len())]
    }

    /// # Errors
    /// `Input`, naming what is not as it must be.
    pub fn check(&self, check: &Check) -> Result<()> {
        match check {
            Check::Entry { tokens, field, rows, name, like } => {
                let entries = self.tokens(*tokens, *like).iter().map(|token| token[*field] as usize);
                match entries.into_iter().find(|entry| entry >= rows) {
                    Some(entry) => input(format!("row {entry} of table `{name}`, which has {rows}")),
                    None => Ok(()),
                }
            }
            Check::Tiles { tiles, qkv } => self.tiles(*tiles, *qkv),
            Check::Ranges { ranges, x } => {
                let limit = self.rows(*x);
                for (i, [start, end]) in self.of(*ranges).as_chunks::<2>().0.iter().enumerate() {
                    if start < end && *end as usize > limit {
                        return input(format!("range {i}: {start}..{end} among {limit} rows"));
                    }
                }
                Ok(())
            }
            Check::Pages { tokens, pages, cache_rows, like } => {
                let table = self.of(*pages);
                // What was looked at last.
                let mut seen = (usize::MAX, 0);
                for token in self.tokens(*tokens, *like) {
                    let (position, slot) = (token[1] as usize, token[3] as usize);
                    let page = position / PAGE;
                    if seen.0 == slot && page < seen.1 {
                        continue;
                    }
                    let row = (slot < pages.rows && page < pages.cols)
                        .then(|| &table[slot * pages.cols..][..=page])
                        .filter(|row| row.iter().all(|p| (*p as usize) < cache_rows / PAGE));
                    if row.is_none() {
                        return input(format!("position {position} of slot {slot} has no page in the cache"));
                    }
                    seen = (slot, page + 1);
                }
                Ok(())
            }
            Check::QueryTiles { tiles, tokens, like } => {
                let tokens = self.tokens(*tokens, *like);
                for (i, tile) in self.of(*tiles).as_chunks::<4>().0.iter().enumerate() {
                    let (first, last) = (tile[0] as usize, tile[1] as usize);
                    let rows = tokens.get(first..last).filter(|rows| rows.len() <= ATTENTION_TILE);
                    if rows.is_none_or(|rows| rows.iter().any(|t| t[3] != rows[0][3])) {
                        let limit = tokens.len();
                        return input(format!("tile {i}: rows {first}..{last} of one slot among {limit}"));
                    }
                }
                Ok(())
            }
            Check::Spans { tokens, spans, slots, like } => {
                let tokens = self.tokens(*tokens, *like);
                let fits = |first: usize, end: usize| {
                    if first >= end || end <= tokens.len() && (tokens[first][3] as usize) < *slots {
                        return Ok(());
                    }
                    let slot = tokens.get(first).map_or(0, |token| token[3]);
                    input(format!("slot {slot}, rows {first}..{end} of a convolution"))
                };
                match spans {
                    Some(spans) => {
                        let spans = self.of(*spans).as_chunks::<2>().0;
                        spans.iter().try_for_each(|span| fits(span[0] as usize, span[1] as usize))
                    }
                    None => (0..tokens.len()).try_for_each(|row| fits(row, row + 1)),
                }
            }
            Check::Routes { routes, used, experts } => {
                let rows = self.of(*routes).chunks_exact(routes.cols);
                let found = rows.flat_map(|row| &row[..*used]).map(|bits| f32::from_bits(*bits) as usize);
                match found.into_iter().find(|expert| expert >= experts) {
                    Some(expert) => input(format!("expert {expert} of {experts}")),
                    None => Ok(()),
                }
            }
            Check::Targets { tokens, targets, slots, like } => {
                for (s, token) in self.tokens(targets.unwrap_or(*tokens), *like).iter().enumerate() {
                    let (slot, row) = (token[3] as usize, targets.map_or(s, |_| token[0] as usize));
                    if slot >= *slots || row >= tokens.rows {
                        return input(format!("slot {slot} of {slots}, row {row} of the tokens"));
                    }
                }
                Ok(())
            }
        }
    }

    fn tiles(&self, tiles: Place, qkv: Place) -> Result<()> {
        let limit = self.rows(qkv);
        for (i, tile) in self.of(tiles).as_chunks::<4>().0.iter().enumerate() {
            let [first, last, start, end] = tile.map(|v| v as usize);
            let inside = start <= first && first <= last && last <= end && end <= limit;
            if !inside || last - first > ATTENTION_TILE {
                return input(format!(
                    "tile {i}: queries {first}..{last} of the sequence {start}..{end} among {limit} rows"
                ));
            }
        }
        Ok(())
    }

    /// Whether tiles follow each other without sharing query rows.
    pub fn apart(&self, check: &Check) -> bool {
        let tiles = match check {
            Check::Tiles { tiles, .. } | Check::QueryTiles { tiles, .. } => *tiles,
            _ => return true,
        };
        self.of(tiles).as_chunks::<4>().0.windows(2).all(|pair| pair[0][1] <= pair[1][0])
    }
}

fn input(why: String) -> Result<()> {
    Err(Error::Input(why))
}
