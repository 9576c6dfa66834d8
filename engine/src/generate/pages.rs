//! Pages of the key-value caches: which are free, and which a slot has.

use alloc::{format, vec::Vec};

use crate::{Error, Result, op::PAGE};

/// Hands out pages. Page 0 is nobody's.
#[derive(Debug)]
pub struct PagePool {
    free: Vec<u32>,
    total: usize,
}

impl PagePool {
    pub fn new(pages: usize) -> Self {
        PagePool { free: (1..=pages as u32).rev().collect(), total: pages }
    }

    /// Extends a slot's pages so that they hold `positions`; says whether any were added.
    ///
    /// # Errors
    /// `Input` if there are not enough; none are taken then.
    pub fn reserve(&mut self, pages: &mut Vec<u32>, positions: usize) -> Result<bool> {
        let missing = positions.div_ceil(PAGE).saturating_sub(pages.len());
        if missing > self.free.len() {
            return Err(Error::Input(format!(
                "the caches are full: {missing} more pages of {PAGE} tokens are needed, {} of {} are free; finish \
                 other sequences, or make the caches larger",
                self.free.len(),
                self.total
            )));
        }
        let rest = self.free.len() - missing;
        pages.extend(self.free.drain(rest..).rev());
        Ok(missing > 0)
    }

    /// Takes a slot's pages back.
    pub fn release(&mut self, pages: &mut Vec<u32>) {
        self.free.append(pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_lent_and_come_back() {
        let mut pool = PagePool::new(4);
        let (mut a, mut b) = (Vec::new(), Vec::new());
        assert!(pool.reserve(&mut a, 1).unwrap());
        assert!(!pool.reserve(&mut a, PAGE).unwrap());
        assert!(pool.reserve(&mut b, 3 * PAGE).unwrap());
        assert_eq!((a.len(), b.len()), (1, 3));
        assert!(!a.contains(&0) && !b.contains(&0) && !b.contains(&a[0]));
        let error = pool.reserve(&mut a, 2 * PAGE).unwrap_err();
        assert!(matches!(&error, Error::Input(why) if why.contains("0 of 4 are free")), "{error}");
        pool.release(&mut b);
        assert!(pool.reserve(&mut a, 4 * PAGE).unwrap());
        let mut all = a.clone();
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3, 4]);
    }
}
