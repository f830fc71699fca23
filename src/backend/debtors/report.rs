//! What a store answers.

use super::kind::DebtorKind;
use super::stored_key::StoredKey;
use crate::algebra::{Bucket, State, Tokens};
use crate::backend::{BucketRecord, Key};
use crate::clock::Timestamp;

/// What a store tells of the buckets of a limit that are in debt or blocked.
///
/// A store looks at a bounded number of buckets for a part of its answer, so more may come behind it:
/// `next` says where the list [goes on](super::DebtorQuery::after), and is `None` at its end. It is
/// printable ASCII, of which only the store knows the meaning. So it can go through a client and come
/// back: through a query of a URL, say, where it has to be percent-encoded. A store reads no bucket of
/// another limit for it, whatever it says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DebtorReport<S = ()> {
    /// Some of them: fewer than were asked for, or none, although more may come behind them.
    Page {
        /// The time of the page, by the store's clock.
        at: Timestamp,
        /// The buckets, in an order of the store's own.
        debtors: Vec<Debtor<S>>,
        /// Where the list goes on.
        next: Option<String>,
    },
    /// How many they are, of those that were looked at. The store keeps no keys, so it cannot name
    /// them.
    ///
    /// It knows a bucket by its numbers: rate, period and capacity. So limits with the same numbers
    /// are counted together. To count all, add up the counts that follow `next`.
    Count {
        /// The time of the count, by the store's clock.
        at: Timestamp,
        /// How many are in debt, and not blocked.
        in_debt: u64,
        /// How many are blocked.
        blocked: u64,
        /// Where the count goes on.
        next: Option<String>,
    },
    /// The store cannot tell. An empty page would say that none is on the list.
    Unsupported,
}

impl<S> DebtorReport<S> {
    /// The buckets of a page; `None` if it is none.
    #[must_use]
    pub fn into_debtors(self) -> Option<Vec<Debtor<S>>> {
        match self {
            Self::Page { debtors, .. } => Some(debtors),
            Self::Count { .. } | Self::Unsupported => None,
        }
    }
}

/// A bucket that is in debt or blocked.
///
/// `S` says how the limit stands for its key: a [`Snapshot`](crate::Snapshot) if a limiter was asked,
/// and nothing yet if a store was. See [`RateLimiter::debtors`](crate::RateLimiter::debtors) for an
/// example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Debtor<S = ()> {
    key: StoredKey,
    shard: u32,
    state: State,
    tokens: Tokens,
    kind: DebtorKind,
    /// The record, if the bucket keeps faster numbers than those that were asked for.
    kept: Option<Box<BucketRecord>>,
    snapshot: S,
}

impl Debtor {
    /// A bucket of this key and shard, in a state of the numbers that were asked for, refreshed to
    /// the time of the page: [`DebtorQuery::debtor`](super::DebtorQuery::debtor) makes it of a
    /// record.
    #[must_use]
    pub fn new(key: Key, shard: u32, bucket: &Bucket, state: State, at: Timestamp) -> Self {
        Self::stored(StoredKey::Key(key), shard, bucket, state, at)
    }

    pub(super) fn stored(
        key: StoredKey,
        shard: u32,
        bucket: &Bucket,
        state: State,
        at: Timestamp,
    ) -> Self {
        // A store that lists what is not in debt breaks the contract, which conformance checks.
        let kind = DebtorKind::of(state, at).unwrap_or(DebtorKind::InDebt);
        let tokens = bucket.tokens(state.value);
        Self { key, shard, state, tokens, kind, kept: None, snapshot: () }
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

    /// The same with how the limit stands, whose numbers are those of `bucket`: a store may have been
    /// asked by others.
    pub(crate) fn with_snapshot<S>(self, bucket: &Bucket, snapshot: S) -> Debtor<S> {
        let Self { key, shard, state, kind, kept, .. } = self;
        Debtor { key, shard, state, tokens: bucket.tokens(state.value), kind, kept, snapshot }
    }
}

impl<S> Debtor<S> {
    /// The key; `None` if the store has only a digest of it.
    #[must_use]
    pub const fn key(&self) -> Option<&Key> {
        match &self.key {
            StoredKey::Key(key) => Some(key),
            StoredKey::Digest(_) => None,
        }
    }

    /// The [text form](Key::to_text) of the key, or of its digest, as in `sha256=..` or `hmac=..`.
    ///
    /// A store has a digest if the key is too long for a name, or if it must not show which clients
    /// there are. It tells the bucket from others, and not the key: that has to be known to look at
    /// the bucket.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::algebra::{Bucket, State};
    /// use tollgate::backend::{BucketRecord, DebtorQuery};
    /// use tollgate::{Key, MINUTE, Quota, Timestamp};
    ///
    /// let bucket = Bucket::new(&Quota::token_bucket(60, MINUTE))?;
    /// let (query, now) = (DebtorQuery::new("login", &bucket), Timestamp::UNIX_EPOCH);
    /// let record = BucketRecord::new(&bucket, State { value: -1, ts: now });
    ///
    /// let known = query.debtor(Key::from(7), 0, &record, now).unwrap();
    /// assert_eq!((known.key_text().as_str(), known.key()), ("n=7", Some(&Key::from(7))));
    ///
    /// let digest = "hmac=9486dee870413ee96e370a8f3def234a";
    /// let hashed = query.debtor_by_digest(digest, 0, &record, now).unwrap();
    /// assert_eq!((hashed.key_text().as_str(), hashed.key()), (digest, None));
    /// # Ok::<(), tollgate::quota::QuotaError>(())
    /// ```
    #[must_use]
    pub fn key_text(&self) -> String {
        self.key.to_string()
    }

    /// Which shard of the limit; 0 if it has none.
    #[must_use]
    pub const fn shard_index(&self) -> u32 {
        self.shard
    }

    /// Whether it gains nothing until an instant that is still to come: it is
    /// [blocked](crate::algebra::block).
    ///
    /// Otherwise it owes tokens: to a penalty, to reservations, or to work that cost more than it
    /// paid. So does a fixed window in which a block ends: it is closed until the next.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.kind == DebtorKind::Blocked
    }

    /// The exact tokens of this bucket, which are negative.
    #[must_use]
    pub const fn tokens(&self) -> Tokens {
        self.tokens
    }

    /// The state of this bucket.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// How the limit stands for this key and a request of one token, at the time of the page.
    ///
    /// For a limit in shards, it is an estimate that assumes that all shards hold the same.
    /// [`peek`](crate::RateLimiter::peek) looks at all of them.
    #[must_use]
    pub const fn snapshot(&self) -> &S {
        &self.snapshot
    }
}
