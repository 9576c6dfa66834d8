//! The order of things, by one sort for all that need one: each sort of another type would be code of its own.

use alloc::vec::Vec;

/// The indices of keys, from the least key on; of equal keys, the first first.
pub fn sorted(keys: impl Iterator<Item = [u64; 2]>) -> Vec<usize> {
    let mut all: Vec<([u64; 2], usize)> = keys.enumerate().map(|(at, key)| (key, at)).collect();
    all.sort_unstable();
    all.into_iter().map(|(_, at)| at).collect()
}

/// Things from the one with the least key on.
pub fn in_order<T>(things: Vec<T>, key: impl Fn(&T) -> [u64; 2]) -> impl Iterator<Item = T> {
    let order = sorted(things.iter().map(key));
    let mut things: Vec<Option<T>> = things.into_iter().map(Some).collect();
    order.into_iter().filter_map(move |at| things[at].take())
}

#[cfg(test)]
mod tests {
    use alloc::{vec, vec::Vec};

    use super::*;

    #[test]
    fn equal_keys_keep_their_order() {
        assert_eq!(sorted([[2, 0], [1, 5], [2, 0], [1, 4]].into_iter()), [3, 1, 0, 2]);
        let found: Vec<&str> = in_order(vec!["c", "a", "b"], |s| [u64::from(s.as_bytes()[0]), 0]).collect();
        assert_eq!(found, ["a", "b", "c"]);
    }
}
