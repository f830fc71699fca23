//! The records that one call names, read before it is decided.

use smallvec::SmallVec;

use tollgate::backend::{BucketId, BucketRecord, BucketStore};
use tollgate::clock::Timestamp;

/// The records that one call names, at the time of the call. The algorithm works on them, and the
/// store then writes what has changed.
#[derive(Debug)]
pub struct Draft<'w> {
    now: Timestamp,
    /// In the order of their ids.
    entries: SmallVec<[DraftEntry<'w>; 1]>,
}

/// One bucket of a draft.
#[derive(Debug)]
pub struct DraftEntry<'w> {
    id: BucketId<'w>,
    before: Option<BucketRecord>,
    after: Option<BucketRecord>,
}

impl DraftEntry<'_> {
    /// The record that the call leaves; `None` if the bucket is absent then.
    pub const fn after(&self) -> Option<&BucketRecord> {
        self.after.as_ref()
    }

    pub fn has_changed(&self) -> bool {
        self.before != self.after
    }
}

impl<'w> Draft<'w> {
    pub fn new(now: Timestamp) -> Self {
        Self { now, entries: SmallVec::new() }
    }

    /// Adds a record. They come in the order of their ids, each of which is named once.
    pub fn add(&mut self, id: BucketId<'w>, record: Option<BucketRecord>) {
        self.entries.push(DraftEntry { id, before: record, after: record });
    }

    /// The entries, in the order in which their records were [added](Self::add).
    pub fn entries(&self) -> &[DraftEntry<'w>] {
        &self.entries
    }

    /// Whether the call has to store anything.
    pub fn has_changed(&self) -> bool {
        self.entries.iter().any(DraftEntry::has_changed)
    }

    fn entry(&mut self, id: BucketId<'_>) -> Option<&mut DraftEntry<'w>> {
        let place = self.entries.binary_search_by(|entry| entry.id.cmp(&id)).ok()?;
        self.entries.get_mut(place)
    }
}

impl BucketStore for Draft<'_> {
    fn now(&mut self) -> Timestamp {
        self.now
    }

    fn read(&mut self, id: BucketId<'_>) -> Option<BucketRecord> {
        self.entry(id).and_then(|entry| entry.after)
    }

    fn write(&mut self, id: BucketId<'_>, record: BucketRecord) {
        if let Some(entry) = self.entry(id) {
            entry.after = Some(record);
        }
    }

    fn forget(&mut self, id: BucketId<'_>) {
        if let Some(entry) = self.entry(id) {
            entry.after = None;
        }
    }
}
