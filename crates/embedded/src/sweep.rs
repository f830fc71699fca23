//! Removing buckets from the file: those that are full again, and more if there are too many.
//!
//! # Design
//!
//! Each commit looks at a lot of the file's buckets, behind those that the last commit looked at.
//! A lot has twice as many buckets as the commit writes, and a few more, so all buckets are looked
//! at before the file can hold twice as many.
//!
//! * A bucket that is full again is removed. An absent one is full as well.
//! * If the file holds more buckets than it may, those of the lot go that have used the smallest
//!   shares of their capacity. A lot then has four times as many buckets as have to go.
//!
//! A bucket that changes while it is removed is written again by the next commit.

use redb::{ReadableTable as _, ReadableTableMetadata as _, StorageError, Table};

use tollgate::backend::BucketRecord;
use tollgate::clock::Timestamp;
use tollgate_kit::stored::decode_record;

/// The place of the sweep in the file.
#[derive(Debug)]
pub(super) struct Sweep {
    /// The first name of the next lot.
    cursor: String,
    max_keys: u64,
    /// Whether full buckets stay, for tests whose clock goes back by more than [`KEEP`].
    #[cfg(test)]
    pub(super) keep_full: bool,
}

/// The least number of buckets in a lot.
const LOT: usize = 16;

/// The largest number of buckets in a lot, which bounds the time that a commit takes.
const MAX_LOT: usize = 16_384;

/// How long a full bucket stays, in microseconds, since the clock may go back by a little: a
/// second, as in memory.
const KEEP: u64 = 1_000_000;

impl Sweep {
    pub(super) const fn new(max_keys: u64) -> Self {
        Self {
            cursor: String::new(),
            max_keys,
            #[cfg(test)]
            keep_full: false,
        }
    }

    /// Looks at the next lot of a table, into which so many buckets were `written`.
    pub(super) fn pass(
        &mut self,
        table: &mut Table<'_, &'static str, &'static [u8]>,
        written: usize,
        now: Timestamp,
    ) -> Result<(), StorageError> {
        let excess = table.len()?.saturating_sub(self.max_keys);
        let excess = usize::try_from(excess).unwrap_or(usize::MAX).min(MAX_LOT / 4);
        let lot = written.saturating_mul(2).max(excess.saturating_mul(4)).saturating_add(LOT);
        let lot = lot.min(MAX_LOT);
        let (mut full, mut others, mut last) = (Vec::new(), Vec::new(), None);
        let mut seen = 0_usize;
        // Behind the last bucket comes the first. A short lot at the end could consist of buckets in
        // debt alone, which would be evicted then.
        let cursor = self.cursor.as_str();
        let lot_entries = table.range::<&str>(cursor..)?.chain(table.range::<&str>(..cursor)?);
        for entry in lot_entries.take(lot) {
            let (name, value) = entry?;
            let name = name.value().to_owned();
            // What is no record stays: it may be of a later version.
            if let Ok(record) = decode_record(value.value()) {
                if self.drops(&record, now) {
                    full.push(name.clone());
                } else if excess > 0 {
                    others.push((used_share(&record, now), name.clone()));
                }
            }
            last = Some(name);
            seen = seen.saturating_add(1);
        }
        self.cursor = match last {
            // No name has a zero byte, so the next one is not skipped.
            Some(last) if seen == lot => last + "\0",
            _ => String::new(),
        };
        others.sort_unstable();
        let evicted = others.into_iter().map(|(_, name)| name);
        let evicted = evicted.take(excess.saturating_sub(full.len()));
        for name in full.into_iter().chain(evicted) {
            table.remove(name.as_str())?;
        }
        Ok(())
    }

    fn drops(&self, record: &BucketRecord, now: Timestamp) -> bool {
        #[cfg(test)]
        if self.keep_full {
            return false;
        }
        record.droppable_at().is_some_and(|at| at.plus_micros(KEEP) <= now)
    }
}

/// The share of its capacity that a bucket has used, in millionths; above that for a bucket in debt,
/// and above all for one that is blocked.
fn used_share(record: &BucketRecord, now: Timestamp) -> i128 {
    if record.state().ts > now {
        return i128::MAX;
    }
    let [_, _, _, _, capacity, _] = record.to_numbers().map(i128::from);
    let used = capacity.saturating_sub(i128::from(record.value_at(now)));
    used.saturating_mul(1_000_000).checked_div(capacity).unwrap_or(i128::MAX)
}
