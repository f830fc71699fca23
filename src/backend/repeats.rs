//! Which items of a list are equal.
//!
//! # Design
//!
//! Most lists have two or three items. Up to [`SHORT`] of them, comparing each pair is the fastest
//! way. In a longer list the time would grow with the square of the length, so a longer list is
//! sorted once. For example, the items `b a b c a …` have the firsts `0 1 0 3 1 …`.

/// The equal items of a list.
#[derive(Debug)]
pub(crate) enum Repeats {
    /// The list is short: compare pairs when asked.
    Short,
    /// No two items are equal.
    Unique,
    /// For each item, the place of the first one that is equal to it.
    Firsts(Vec<usize>),
}

/// The length up to which a list is searched and not sorted.
const SHORT: usize = 8;

impl Repeats {
    /// Finds the items that are equal.
    pub(crate) fn find<T: Ord>(items: impl ExactSizeIterator<Item = T>) -> Self {
        if items.len() <= SHORT {
            return Self::Short;
        }
        let mut firsts: Vec<usize> = (0..items.len()).collect();
        let mut sorted: Vec<(T, usize)> = items.zip(0..).collect();
        sorted.sort_unstable();
        let mut has_repeats = false;
        // Equal items are sorted by their places, so the first of each run is done before the
        // others.
        for pair in sorted.windows(2) {
            if let [(one, before), (next, place)] = pair
                && one == next
                && let Some(&first) = firsts.get(*before)
                && let Some(place) = firsts.get_mut(*place)
            {
                *place = first;
                has_repeats = true;
            }
        }
        if has_repeats { Self::Firsts(firsts) } else { Self::Unique }
    }

    /// The place of the first item that is equal to this one.
    pub(crate) fn first(&self, place: usize, is_same: impl Fn(usize) -> bool) -> usize {
        match self {
            Self::Short => (0..place).find(|&earlier| is_same(earlier)).unwrap_or(place),
            Self::Unique => place,
            Self::Firsts(firsts) => firsts.get(place).copied().unwrap_or(place),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::*;

    thread_local! {
        static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    /// Counts how often it is compared.
    #[derive(Clone, Copy, Debug)]
    struct Counted(usize);

    impl Ord for Counted {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARED.set(COMPARED.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl PartialEq for Counted {
        fn eq(&self, other: &Self) -> bool {
            self.cmp(other).is_eq()
        }
    }

    impl Eq for Counted {}

    fn firsts(items: &[usize]) -> Vec<usize> {
        let repeats = Repeats::find(items.iter());
        let first = |place: usize| repeats.first(place, |other| items[other] == items[place]);
        (0..items.len()).map(first).collect()
    }

    proptest! {
        #[test]
        fn the_first_of_equal_items_is_found(items in prop::collection::vec(0_usize..12, 0..30)) {
            let wanted = items.iter().map(|item| items.iter().position(|one| one == item).unwrap());
            prop_assert_eq!(firsts(&items), wanted.collect::<Vec<_>>());
        }
    }

    /// 8,000 items have 32,000,000 pairs.
    #[test]
    fn a_long_list_is_not_compared_pair_by_pair() {
        for different in [1, 2, 100, 8_000] {
            COMPARED.set(0);
            let items = (0..8_000).map(|nth| Counted(nth * 7 % different));
            let repeats = Repeats::find(items);
            assert!(matches!(repeats, Repeats::Unique) == (different == 8_000));
            assert!(COMPARED.get() < 300_000, "{} of {different}", COMPARED.get());
        }
    }
}
