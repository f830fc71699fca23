//! The quotas of a shard's buckets, each stored once.

use std::num::NonZeroU32;

use crate::algebra::Bucket;

/// The few different [`Bucket`]s (compiled quotas) of a shard. A slot names one of them in four
/// bytes.
///
/// The first, *usual* one lies in the shard's own cache lines. Most shards have no other. The slots
/// of the usual quota are not counted: they are all slots but those of the others.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(super) struct QuotaTable {
    usual: Option<Bucket>,
    others: Vec<QuotaRow>,
    /// How many slots name one of the others.
    unusual: usize,
}

#[derive(Clone, Debug)]
struct QuotaRow {
    bucket: Bucket,
    /// How many slots name it. At zero, its place is free for another quota.
    slots: usize,
}

/// The name of the usual quota. The others have the next names.
const USUAL: NonZeroU32 = NonZeroU32::MIN;

impl QuotaTable {
    /// The quota of this name.
    pub(super) fn get(&self, name: NonZeroU32) -> Option<&Bucket> {
        if name == USUAL {
            return self.usual.as_ref();
        }
        self.others.get(place(name)?).map(|row| &row.bucket)
    }

    /// Counts one more slot with this quota, and returns the quota's name. `taken` is the number of
    /// slots that are taken already.
    ///
    /// `None` after four billion different quotas in one shard.
    pub(super) fn enter(&mut self, bucket: &Bucket, taken: usize) -> Option<NonZeroU32> {
        if self.usual.as_ref() == Some(bucket) {
            return Some(USUAL);
        }
        // The place of a row that no slot names may be given to another quota at any time, so it is
        // not known either.
        let known = |row: &QuotaRow| row.slots > 0 && row.bucket == *bucket;
        let index = match self.others.iter().position(known) {
            Some(index) => index,
            // No slot names the usual quota any more, so this one takes its place.
            // A bucket that changes its quota is among `taken` itself, still under the old one. So
            // this does not replace a quota that its slot names.
            None if self.unusual >= taken => {
                self.usual = Some(*bucket);
                return Some(USUAL);
            }
            None => self.vacancy(bucket),
        };
        let row = self.others.get_mut(index)?;
        row.bucket = *bucket;
        row.slots = row.slots.saturating_add(1);
        self.unusual = self.unusual.saturating_add(1);
        name(index)
    }

    /// Counts one slot less with this quota.
    pub(super) fn leave(&mut self, name: NonZeroU32) {
        if let Some(row) = place(name).and_then(|index| self.others.get_mut(index)) {
            row.slots = row.slots.saturating_sub(1);
            self.unusual = self.unusual.saturating_sub(1);
        }
    }

    /// Each quota that slots name, and how many do. `all` is the number of all slots that are
    /// taken.
    pub(super) fn counts(&self, all: usize) -> impl Iterator<Item = (NonZeroU32, usize)> {
        let others = self.others.iter().enumerate();
        let others = others.filter_map(|(place, row)| Some((name(place)?, row.slots)));
        let usual = (USUAL, self.count(USUAL, all));
        std::iter::once(usual).chain(others).filter(|&(_, slots)| slots > 0)
    }

    /// How many slots name this quota. `all` is the number of all slots that are taken.
    pub(super) fn count(&self, name: NonZeroU32, all: usize) -> usize {
        match place(name) {
            None => all.saturating_sub(self.unusual),
            Some(place) => self.others.get(place).map_or(0, |row| row.slots),
        }
    }

    /// The largest number of slots that name one quota, of the numbers below `below`.
    pub(super) fn most(&self, below: usize, all: usize) -> Option<usize> {
        let others = self.others.iter().map(|row| row.slots);
        let counts = std::iter::once(self.count(USUAL, all)).chain(others);
        counts.filter(|&slots| (1..below).contains(&slots)).max()
    }

    /// A place that no slot names, or a new one.
    fn vacancy(&mut self, bucket: &Bucket) -> usize {
        self.others.iter().position(|row| row.slots == 0).unwrap_or_else(|| {
            self.others.push(QuotaRow { bucket: *bucket, slots: 0 });
            self.others.len().saturating_sub(1)
        })
    }
}

/// A dense index for each name, from 0 for the usual quota.
pub(super) fn index(name: NonZeroU32) -> usize {
    // A `usize` has 32 bits at least, where there are sockets.
    usize::try_from(name.get().saturating_sub(1)).unwrap_or(0)
}

/// The place among the others; `None` for the usual quota.
fn place(name: NonZeroU32) -> Option<usize> {
    usize::try_from(name.get().checked_sub(2)?).ok()
}

fn name(place: usize) -> Option<NonZeroU32> {
    NonZeroU32::new(u32::try_from(place.checked_add(2)?).ok()?)
}
