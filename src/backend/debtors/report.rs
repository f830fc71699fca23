//! What a store answers.

use super::cursor::DebtorCursor;
use super::kind::DebtorKind;
use super::stored_key::StoredKey;
use crate::algebra::State;
use crate::backend::BucketRecord;
use crate::clock::Timestamp;

/// What a store tells of the buckets of a limit that are in debt or blocked.
///
/// An empty page means that none of the buckets which were looked at is on the list. A store that
/// cannot list says so.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DebtorReport<D = DebtorBucket> {
    /// Some of them, and where to go on.
    Page(DebtorPage<D>),
    /// How many they are. The store keeps no keys, so it cannot name them.
    Count(DebtorCount),
    /// The store cannot tell.
    Unsupported,
}

impl<D> DebtorReport<D> {
    /// Applies `read` to the page, if there is one.
    #[must_use]
    pub fn map_page<E>(self, read: impl FnOnce(DebtorPage<D>) -> DebtorPage<E>) -> DebtorReport<E> {
        match self {
            Self::Page(page) => DebtorReport::Page(read(page)),
            Self::Count(count) => DebtorReport::Count(count),
            Self::Unsupported => DebtorReport::Unsupported,
        }
    }

    /// The page, if there is one.
    #[must_use]
    pub fn into_page(self) -> Option<DebtorPage<D>> {
        match self {
            Self::Page(page) => Some(page),
            Self::Count(_) | Self::Unsupported => None,
        }
    }
}

/// Some of the buckets of a limit that are in debt or blocked.
///
/// A store looks at a bounded number of buckets for a page, so a page may have fewer than were asked
/// for, or none, although more come behind it. The list ends where [`next`](Self::next) is `None`.
///
/// # Examples
///
/// ```
/// use tollgate::Timestamp;
/// use tollgate::backend::{DebtorCursor, DebtorPage};
///
/// let cursor = DebtorCursor::new("b");
/// let page = DebtorPage::new(Timestamp::UNIX_EPOCH, vec!["a", "b"], Some(cursor));
/// assert_eq!(page.debtors(), ["a", "b"]);
/// assert_eq!(page.next().map(DebtorCursor::as_str), Some("b"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebtorPage<D> {
    at: Timestamp,
    debtors: Vec<D>,
    next: Option<DebtorCursor>,
}

impl<D> DebtorPage<D> {
    /// A page as of this time of the store. `next` is `None` if nothing comes behind it.
    #[must_use]
    pub const fn new(at: Timestamp, debtors: Vec<D>, next: Option<DebtorCursor>) -> Self {
        Self { at, debtors, next }
    }

    /// The time of the page, by the store's clock.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// The buckets, in an order of the store's own.
    #[must_use]
    pub fn debtors(&self) -> &[D] {
        &self.debtors
    }

    /// The buckets as values.
    #[must_use]
    pub fn into_debtors(self) -> Vec<D> {
        self.debtors
    }

    /// Where the list goes on; `None` at its end.
    #[must_use]
    pub const fn next(&self) -> Option<&DebtorCursor> {
        self.next.as_ref()
    }
}

/// One bucket that is in debt or blocked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebtorBucket {
    key: StoredKey,
    shard: u32,
    state: State,
    /// The record, if the bucket keeps faster numbers than those that were asked for.
    kept: Option<Box<BucketRecord>>,
}

impl DebtorBucket {
    /// A bucket of this key and shard, in a state of the numbers that were asked for, refreshed to
    /// the time of the page: [`DebtorQuery::debtor`](super::DebtorQuery::debtor) makes it of a
    /// record.
    #[must_use]
    pub const fn new(key: StoredKey, shard: u32, state: State) -> Self {
        Self { key, shard, state, kept: None }
    }

    /// Sets the record of a bucket that keeps faster numbers.
    pub(super) fn with_kept(mut self, record: Option<BucketRecord>) -> Self {
        self.kept = record.map(Box::new);
        self
    }

    /// The record, if the bucket keeps faster numbers.
    pub(crate) fn kept(&self) -> Option<&BucketRecord> {
        self.kept.as_deref()
    }

    /// The key, as the store has it.
    #[must_use]
    pub const fn key(&self) -> &StoredKey {
        &self.key
    }

    /// Which shard of the limit; 0 if it has none.
    #[must_use]
    pub const fn shard_index(&self) -> u32 {
        self.shard
    }

    /// The state of this bucket.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Why it is on the list at `now`; `None` if it is not any more.
    #[must_use]
    pub fn kind(&self, now: Timestamp) -> Option<DebtorKind> {
        DebtorKind::of(self.state, now)
    }
}

/// How many buckets are in debt or blocked, of those that were looked at.
///
/// A store that keeps no names knows a bucket by its numbers: rate, period and capacity. So limits
/// with the same numbers are counted together. To count all, [merge](Self::merge) the counts that
/// follow [`next`](Self::next).
///
/// # Examples
///
/// ```
/// use tollgate::Timestamp;
/// use tollgate::backend::{DebtorCount, DebtorKind};
///
/// let mut count = DebtorCount::new(Timestamp::UNIX_EPOCH);
/// count.add(DebtorKind::Blocked);
/// assert_eq!((count.in_debt(), count.blocked()), (0, 1));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebtorCount {
    at: Timestamp,
    in_debt: u64,
    blocked: u64,
    next: Option<DebtorCursor>,
}

impl DebtorCount {
    /// A count of nothing yet, as of this time of the store.
    #[must_use]
    pub const fn new(at: Timestamp) -> Self {
        Self { at, in_debt: 0, blocked: 0, next: None }
    }

    /// Counts one bucket more.
    pub const fn add(&mut self, kind: DebtorKind) {
        match kind {
            DebtorKind::InDebt => self.in_debt = self.in_debt.saturating_add(1),
            DebtorKind::Blocked => self.blocked = self.blocked.saturating_add(1),
        }
    }

    /// This count and that of the part behind it.
    #[must_use]
    pub fn merge(self, more: Self) -> Self {
        Self {
            at: more.at,
            in_debt: self.in_debt.saturating_add(more.in_debt),
            blocked: self.blocked.saturating_add(more.blocked),
            next: more.next,
        }
    }

    /// Sets where the count goes on.
    #[must_use]
    pub fn with_next(mut self, next: Option<DebtorCursor>) -> Self {
        self.next = next;
        self
    }

    /// The time of the count, by the store's clock.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// How many are in debt, and not blocked.
    #[must_use]
    pub const fn in_debt(&self) -> u64 {
        self.in_debt
    }

    /// How many are blocked.
    #[must_use]
    pub const fn blocked(&self) -> u64 {
        self.blocked
    }

    /// Where the count goes on; `None` if all buckets were looked at.
    #[must_use]
    pub const fn next(&self) -> Option<&DebtorCursor> {
        self.next.as_ref()
    }
}
