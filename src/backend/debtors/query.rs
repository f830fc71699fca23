//! What a store is asked to list.

use std::collections::HashSet;

use super::kind::DebtorKind;
use super::report::Debtor;
use super::stored_key::StoredKey;
use crate::algebra::{Bucket, State};
use crate::backend::{BucketId, BucketRecord, Key};
use crate::clock::Timestamp;

/// A request for buckets of one limit that are in debt or blocked: see
/// [`Backend::debtors`](crate::backend::Backend::debtors).
///
/// # Examples
///
/// A store goes through its records, and lets the query judge each:
///
/// ```
/// use tollgate::algebra::{Bucket, State};
/// use tollgate::backend::{BucketRecord, DebtorQuery};
/// use tollgate::{Key, MINUTE, Quota, Timestamp};
///
/// let bucket = Bucket::new(&Quota::token_bucket(60, MINUTE))?;
/// let query = DebtorQuery::new("login", &bucket).max(100);
///
/// let (earlier, now) = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH + MINUTE);
/// let key = Key::from("alice");
/// let owing = |tokens: i64, ts| {
///     BucketRecord::new(&bucket, State { value: -tokens * 1_000_000, ts })
/// };
/// let debtor = query.debtor(key.clone(), 0, &owing(3, now), now).unwrap();
/// assert!(!debtor.is_blocked());
///
/// // A minute ago, it owed no more than a minute brings.
/// assert_eq!(query.debtor(key.clone(), 0, &owing(60, earlier), now), None);
/// let blocked = query.debtor(key, 0, &owing(1, now + MINUTE), now).unwrap();
/// assert!(blocked.is_blocked());
/// # Ok::<(), tollgate::quota::QuotaError>(())
/// ```
#[derive(Clone, Debug)]
pub struct DebtorQuery {
    limit: Box<str>,
    bucket: Bucket,
    earlier: HashSet<Bucket>,
    kind: Option<DebtorKind>,
    max: usize,
    after: Option<String>,
}

impl DebtorQuery {
    /// How many buckets a page has at most unless [`max`](Self::max) says otherwise.
    pub const MAX: usize = 100;

    /// Asks for buckets of the limit of this name, judged by these numbers: those of one shard.
    #[must_use]
    pub fn new(limit: &str, bucket: &Bucket) -> Self {
        Self {
            limit: limit.into(),
            bucket: *bucket,
            earlier: HashSet::new(),
            kind: None,
            max: Self::MAX,
            after: None,
        }
    }

    /// Names other numbers in which buckets of this limit may still be counted: those that it had
    /// before. A store that keeps no names finds the buckets of a limit by them.
    #[must_use]
    pub fn earlier(mut self, buckets: impl IntoIterator<Item = Bucket>) -> Self {
        self.earlier.extend(buckets);
        self
    }

    /// Asks for blocked buckets only, which gain nothing until an instant that is still to come.
    #[must_use]
    pub fn only_blocked(mut self) -> Self {
        self.kind = Some(DebtorKind::Blocked);
        self
    }

    /// Asks only for buckets in debt that are not blocked.
    #[must_use]
    pub fn only_in_debt(mut self) -> Self {
        self.kind = Some(DebtorKind::InDebt);
        self
    }

    /// Sets how many buckets a page has at most; [`MAX`](Self::MAX) if not set, and at least one.
    #[must_use]
    pub fn max(mut self, max: usize) -> Self {
        self.max = max.max(1);
        self
    }

    /// Asks for what comes behind a page, by its `next`; for the first page if not set.
    #[must_use]
    pub fn after(mut self, cursor: impl Into<Option<String>>) -> Self {
        self.after = cursor.into();
        self
    }

    /// The same request by other numbers.
    pub(crate) fn with_bucket(&self, bucket: &Bucket) -> Self {
        Self { bucket: *bucket, ..self.clone() }
    }

    /// The same request by other numbers: what each of its numbers becomes.
    #[doc(hidden)]
    #[must_use]
    pub fn map_buckets(&self, map: impl Fn(&Bucket) -> Bucket) -> Self {
        let earlier = self.earlier.iter().map(&map).collect();
        Self { bucket: map(&self.bucket), earlier, ..self.clone() }
    }

    /// The name of the limit.
    #[must_use]
    pub const fn limit(&self) -> &str {
        &self.limit
    }

    /// The numbers of each of its buckets.
    #[must_use]
    pub const fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// Whether buckets of the limit may be counted in these numbers: they are those that it has, or
    /// has had [before](Self::earlier).
    #[must_use]
    pub fn counts_in(&self, bucket: &Bucket) -> bool {
        self.bucket == *bucket || self.earlier.contains(bucket)
    }

    /// The largest number of buckets in a page.
    #[must_use]
    pub const fn get_max(&self) -> usize {
        self.max
    }

    /// Where the page begins; `None` for the first page.
    #[must_use]
    pub fn get_after(&self) -> Option<&str> {
        self.after.as_deref()
    }

    /// The kind of a bucket in this state, if it is asked for.
    fn kind_of(&self, state: State, now: Timestamp) -> Option<DebtorKind> {
        let is_wanted = |kind: &DebtorKind| self.kind.is_none_or(|wanted| wanted == *kind);
        DebtorKind::of(state, now).filter(is_wanted)
    }

    /// How a store that keeps no names counts a bucket with this record; `None` if it does not.
    #[cfg(feature = "memory")]
    pub(in crate::backend) fn count(
        &self,
        record: &BucketRecord,
        now: Timestamp,
    ) -> Option<DebtorKind> {
        let state = record.state_without_key(&self.bucket, now)?;
        self.kind_of(self.bucket.refresh(state, now), now)
    }

    /// What to list of a bucket with this record, at the time of the store; `None` if it is not on
    /// the list.
    ///
    /// A record by other numbers of the limit is [rescaled](crate::algebra::rescale), as for a
    /// charge.
    #[must_use]
    pub fn debtor(
        &self,
        key: Key,
        shard: u32,
        record: &BucketRecord,
        now: Timestamp,
    ) -> Option<Debtor> {
        let id = BucketId::new(&self.limit, &key).shard(shard);
        let state = record.state_in(id, &self.bucket, now)?;
        self.judge(StoredKey::Key(key), shard, state, record, now)
    }

    /// The same of a bucket of which the store has only a digest of the key: see
    /// [`Debtor::key_text`].
    ///
    /// The phase of new windows is not known then: they begin with those of the record.
    #[must_use]
    pub fn debtor_by_digest(
        &self,
        digest: &str,
        shard: u32,
        record: &BucketRecord,
        now: Timestamp,
    ) -> Option<Debtor> {
        let state = record.state_without_key(&self.bucket, now)?;
        self.judge(StoredKey::Digest(digest.into()), shard, state, record, now)
    }

    fn judge(
        &self,
        key: StoredKey,
        shard: u32,
        state: State,
        record: &BucketRecord,
        now: Timestamp,
    ) -> Option<Debtor> {
        let state = self.bucket.refresh(state, now);
        let kept = record.is_kept_from(&self.bucket, now).then_some(*record);
        self.kind_of(state, now)?;
        Some(Debtor::stored(key, shard, &self.bucket, state, now).with_kept(kept))
    }
}
