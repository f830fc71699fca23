//! A sorted map that is dense where entries come in order.
//!
//! # Design
//!
//! Entries are kept in runs of up to 32, and the runs in a list. What comes last fills the last run
//! to the brim, where the nodes of a `BTreeMap` would stay half empty; and most waiters come
//! last. A search is one among the runs and one within, and what is moved to make room is a
//! run, or the shorter side of a list which has an entry for each run.

use std::collections::VecDeque;
use std::fmt;

/// The entries of a run, at most.
const FULL: usize = 32;

pub(super) struct SortedMap<K, V = ()> {
    /// None is empty.
    runs: VecDeque<Vec<(K, V)>>,
}

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self { runs: VecDeque::new() }
    }
}

impl<K: Ord + Clone, V> SortedMap<K, V> {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (run, at) = self.find(key)?;
        self.runs.get_mut(run)?.get_mut(at).map(|(_, value)| value)
    }

    pub(super) fn first(&self) -> Option<&(K, V)> {
        self.runs.front()?.first()
    }

    /// The first entry from this key on.
    pub(super) fn first_from(&self, key: &K) -> Option<&(K, V)> {
        self.iter_from(key).next()
    }

    /// The last entry before this key.
    pub(super) fn last_before(&self, key: &K) -> Option<&(K, V)> {
        self.iter_back_from(key).next()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(K, V)> {
        self.runs.iter().flatten()
    }

    /// The entries from this key on.
    pub(super) fn iter_from<'a>(
        &'a self,
        key: &K,
    ) -> impl Iterator<Item = &'a (K, V)> + use<'a, K, V> {
        let index = self.run_of(key);
        let run = self.runs.get(index).map_or(&[][..], |run| {
            let begin = run.partition_point(|(known, _)| known < key);
            run.get(begin..).unwrap_or_default()
        });
        run.iter().chain(self.runs.range(self.end(index.saturating_add(1))..).flatten())
    }

    /// The entries before this key, the last one first.
    pub(super) fn iter_back_from<'a>(
        &'a self,
        key: &K,
    ) -> impl Iterator<Item = &'a (K, V)> + use<'a, K, V> {
        let index = self.run_of(key);
        let run = self.runs.get(index).map_or(&[][..], |run| {
            let end = run.partition_point(|(known, _)| known < key);
            run.get(..end).unwrap_or_default()
        });
        let before = self.runs.range(..self.end(index)).rev();
        run.iter().rev().chain(before.flat_map(|run| run.iter().rev()))
    }

    /// Puts an entry in, in place of what was there for its key.
    pub(super) fn insert(&mut self, key: K, value: V) {
        // What comes after all others belongs to the last run.
        let index = self.run_of(&key).min(self.runs.len().saturating_sub(1));
        let is_last = index.saturating_add(1) == self.runs.len();
        let Some(run) = self.runs.get_mut(index) else {
            self.runs.push_back(vec![(key, value)]);
            return;
        };
        let at = match run.binary_search_by(|(known, _)| known.cmp(&key)) {
            Ok(at) => {
                if let Some(entry) = run.get_mut(at) {
                    entry.1 = value;
                }
                return;
            }
            Err(at) => at,
        };
        if run.len() < FULL {
            grow(run);
            run.insert(at, (key, value));
        } else if is_last && at == FULL {
            self.runs.push_back(vec![(key, value)]);
        } else {
            let mut upper = run.split_off(FULL / 2);
            run.shrink_to_fit();
            match at.checked_sub(FULL / 2) {
                Some(at) => {
                    grow(&mut upper);
                    upper.insert(at, (key, value));
                }
                None => {
                    grow(run);
                    run.insert(at, (key, value));
                }
            }
            self.runs.insert(index.saturating_add(1), upper);
        }
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let (index, at) = self.find(key)?;
        let (_, value) = self.runs.get_mut(index)?.remove(at);
        self.merge_short_runs(index);
        Some(value)
    }

    pub(super) fn pop_first(&mut self) -> Option<(K, V)> {
        let first = self.first()?.0.clone();
        let value = self.remove(&first)?;
        Some((first, value))
    }

    /// Joins a run that has become short with a neighbour, if that is short as well.
    fn merge_short_runs(&mut self, index: usize) {
        if self.len_of(index) == 0 {
            self.runs.remove(index);
            return;
        }
        self.join(index);
        if let Some(before) = index.checked_sub(1) {
            self.join(before);
        }
    }

    /// Joins a run with the next one, if both are short.
    fn join(&mut self, index: usize) {
        let next = index.saturating_add(1);
        if self.len_of(index).saturating_add(self.len_of(next)) <= FULL / 2
            && let Some(mut next) = self.runs.remove(next)
            && let Some(run) = self.runs.get_mut(index)
        {
            run.append(&mut next);
        }
    }

    fn len_of(&self, index: usize) -> usize {
        self.runs.get(index).map_or(FULL, Vec::len)
    }

    /// The run in which a key is, if it is anywhere.
    fn run_of(&self, key: &K) -> usize {
        self.runs.partition_point(|run| run.last().is_some_and(|(last, _)| last < key))
    }

    fn find(&self, key: &K) -> Option<(usize, usize)> {
        let index = self.run_of(key);
        let at = self.runs.get(index)?.binary_search_by(|(known, _)| known.cmp(key)).ok()?;
        Some((index, at))
    }

    fn end(&self, index: usize) -> usize {
        index.min(self.runs.len())
    }
}

/// Makes room for one more, and for some that may follow.
fn grow<T>(run: &mut Vec<T>) {
    if run.len() == run.capacity() {
        run.reserve_exact(run.len().clamp(1, FULL / 4));
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SortedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.runs.iter().flatten().map(|(key, value)| (key, value))).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Few keys, so that runs are split, emptied and joined.
        #[test]
        fn is_like_another_map(
            steps in prop::collection::vec((0_u8..4, 0_u16..300), 0..1_500),
        ) {
            let (mut sorted, mut model) = (SortedMap::default(), BTreeMap::new());
            for (number, (what, key)) in steps.into_iter().enumerate() {
                match what {
                    0 | 1 => {
                        sorted.insert(key, number);
                        model.insert(key, number);
                    }
                    2 => prop_assert_eq!(sorted.remove(&key), model.remove(&key)),
                    _ => prop_assert_eq!(sorted.pop_first(), model.pop_first()),
                }
                prop_assert!(sorted.runs.iter().all(|run| (1..=FULL).contains(&run.len())));
                prop_assert_eq!(sorted.get_mut(&key), model.get_mut(&key));
                prop_assert_eq!(sorted.is_empty(), model.is_empty());
                let pair = |(&key, &value): (&u16, &usize)| (key, value);
                prop_assert!(sorted.iter().copied().eq(model.iter().map(pair)));
                prop_assert!(sorted.iter_from(&key).copied().eq(model.range(key..).map(pair)));
                let back = model.range(..key).rev().map(pair);
                prop_assert!(sorted.iter_back_from(&key).copied().eq(back));
            }
        }
    }

    #[test]
    fn is_dense_where_entries_come_in_order() {
        let mut sorted = SortedMap::default();
        for key in 0..1_000 {
            sorted.insert(key, ());
        }
        assert_eq!(sorted.runs.len(), 1_000_usize.div_ceil(FULL));
        let room: usize = sorted.runs.iter().map(Vec::capacity).sum();
        assert_eq!(room, 1_000);
    }
}
