//! A list that needs no allocation while it is short.

/// Things in the order in which they came.
#[derive(Debug)]
pub(super) struct Few<T> {
    first: [Option<T>; FEW],
    taken: usize,
    more: Vec<T>,
}

/// Transactions over more buckets than this allocate.
const FEW: usize = 8;

impl<T> Few<T> {
    pub(super) const fn new() -> Self {
        Self { first: [const { None }; FEW], taken: 0, more: Vec::new() }
    }

    pub(super) fn push(&mut self, item: T) {
        match self.first.get_mut(self.taken) {
            Some(place) => {
                *place = Some(item);
                self.taken = self.taken.saturating_add(1);
            }
            None => self.more.push(item),
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.taken.saturating_add(self.more.len())
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + Clone {
        let first = self.first.get(..self.taken).unwrap_or(&self.first);
        first.iter().filter_map(Option::as_ref).chain(&self.more)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.first.iter_mut().take(self.taken).filter_map(Option::as_mut).chain(&mut self.more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_stays_in_its_order() {
        for count in [0, 1, FEW, FEW + 1, 3 * FEW] {
            let mut few = Few::new();
            (0..count).for_each(|nth| few.push(nth));
            assert_eq!(few.len(), count);
            assert!(few.iter().copied().eq(0..count));
            assert!(few.iter().rev().copied().eq((0..count).rev()));
            few.iter_mut().for_each(|nth| *nth += 1);
            assert!(few.iter().copied().eq(1..=count));
        }
    }
}
