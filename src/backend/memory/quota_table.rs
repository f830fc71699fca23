//! The numbers that the buckets of a shard count in, each kept once.

use std::num::NonZeroU32;

use crate::algebra::Bucket;

/// The few different [`Bucket`]s of a shard, so that a slot names its numbers in four bytes.
///
/// The first one is in the shard's own cache lines, and usually it is the only one.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct QuotaTable {
    usual: Option<Bucket>,
    others: Vec<QuotaRow>,
    /// The slots that name one of the others.
    unusual: usize,
}

#[derive(Debug)]
struct QuotaRow {
    bucket: Bucket,
    /// The slots that name it; at zero its place may be given to other numbers.
    slots: usize,
}

/// The name of the usual numbers; those of the others follow.
const USUAL: NonZeroU32 = NonZeroU32::MIN;

impl QuotaTable {
    /// The numbers of this name.
    pub(super) fn get(&self, name: NonZeroU32) -> Option<&Bucket> {
        if name == USUAL {
            return self.usual.as_ref();
        }
        self.others.get(place(name)?).map(|row| &row.bucket)
    }

    /// The name of these numbers, for one more slot beside those that are `taken`.
    ///
    /// `None` after four billion different quotas in one shard.
    pub(super) fn enter(&mut self, bucket: &Bucket, taken: usize) -> Option<NonZeroU32> {
        if self.usual.as_ref() == Some(bucket) {
            return Some(USUAL);
        }
        let known = |row: &QuotaRow| row.slots > 0 && row.bucket == *bucket;
        let index = match self.others.iter().position(known) {
            Some(index) => index,
            // No slot counts in the usual numbers any more.
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

    /// One slot less uses these numbers.
    pub(super) fn leave(&mut self, name: NonZeroU32) {
        if let Some(row) = place(name).and_then(|index| self.others.get_mut(index)) {
            row.slots = row.slots.saturating_sub(1);
            self.unusual = self.unusual.saturating_sub(1);
        }
    }

    /// The names that slots count in, and how many do; `all` slots altogether.
    pub(super) fn counts(&self, all: usize) -> impl Iterator<Item = (NonZeroU32, usize)> {
        let others = self.others.iter().enumerate();
        let others = others.filter_map(|(place, row)| Some((name(place)?, row.slots)));
        let usual = (USUAL, self.count(USUAL, all));
        std::iter::once(usual).chain(others).filter(|&(_, slots)| slots > 0)
    }

    /// How many slots count in this name; `all` slots altogether.
    pub(super) fn count(&self, name: NonZeroU32, all: usize) -> usize {
        match place(name) {
            None => all.saturating_sub(self.unusual),
            Some(place) => self.others.get(place).map_or(0, |row| row.slots),
        }
    }

    /// The most slots that count in one name, of those with fewer than `below`.
    pub(super) fn most(&self, below: usize, all: usize) -> Option<usize> {
        let others = self.others.iter().map(|row| row.slots);
        let counts = std::iter::once(self.count(USUAL, all)).chain(others);
        counts.filter(|&slots| (1..below).contains(&slots)).max()
    }

    /// A place that no slot names.
    fn vacancy(&mut self, bucket: &Bucket) -> usize {
        self.others.iter().position(|row| row.slots == 0).unwrap_or_else(|| {
            self.others.push(QuotaRow { bucket: *bucket, slots: 0 });
            self.others.len().saturating_sub(1)
        })
    }
}

/// A place for each name, the usual one first.
pub(super) fn index(name: NonZeroU32) -> usize {
    // A `usize` has 32 bits at least, where there are sockets.
    usize::try_from(name.get().saturating_sub(1)).unwrap_or(0)
}

/// Where the numbers of this name are, unless they are the usual ones.
fn place(name: NonZeroU32) -> Option<usize> {
    usize::try_from(name.get().checked_sub(2)?).ok()
}

fn name(place: usize) -> Option<NonZeroU32> {
    NonZeroU32::new(u32::try_from(place.checked_add(2)?).ok()?)
}
