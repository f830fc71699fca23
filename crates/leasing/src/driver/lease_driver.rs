//! What the calls and tasks of a node share.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::super::terms::LeaseTerms;
use super::lease_clock::LeaseClock;
use super::table::{LeasePlace, LeaseRecord, LeaseTable, TablePart};
use tollgate::algebra::{Bucket, State, Units, Verdict};
use tollgate::backend::{BackendError, BucketId, Charge, Key, Reading};
use tollgate::clock::Timestamp;
use tollgate::kit::LimitHead;
use tollgate_kit::crowd::Crowd;
use tollgate_kit::late::Lag;

/// The name of this store, for errors.
pub(super) const NAME: &str = "leasing";

/// A limit that is leased.
#[derive(Clone, Debug)]
pub(super) struct LeasedLimit {
    pub(super) name: Box<str>,
    head: LimitHead,
    pub(super) terms: LeaseTerms,
}

impl LeasedLimit {
    pub(super) fn new(name: &str, terms: LeaseTerms) -> Self {
        Self { name: name.into(), head: LimitHead::new(name), terms }
    }
}

/// The node of this process.
#[derive(Debug)]
pub(super) struct LeaseDriver<B> {
    pub(super) inner: Arc<B>,
    pub(super) limits: Vec<LeasedLimit>,
    pub(super) table: LeaseTable,
    pub(super) clock: LeaseClock,
    /// The deadline of questions, if it was set.
    pub(super) deadline: Option<Duration>,
    /// The runtime in which the node was made.
    pub(super) runtime: OnceLock<Handle>,
    /// Whether a task looks after the lots.
    pub(super) is_ticking: AtomicBool,
    /// The callers that wait for the answers to questions.
    pub(super) callers: Crowd,
}

/// How many callers may wait before they are the reason why an answer is late. So many have their
/// buckets in the two calls that may be under way to Redis.
pub(super) const FEW: usize = 256;

/// How long a question may take, unless it is set or a quarter of a life is less.
const USUAL_DEADLINE: Duration = Duration::from_millis(50);

/// A bucket that is leased.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeasedBucket<'a> {
    pub(super) limit: usize,
    pub(super) id: BucketId<'a>,
    /// The numbers of the call.
    pub(super) bucket: &'a Bucket,
}

impl<B> LeaseDriver<B> {
    /// The bucket of these names and numbers, if its limit is leased.
    #[inline]
    pub(super) fn leased<'a>(
        &self,
        id: BucketId<'a>,
        bucket: &'a Bucket,
    ) -> Option<LeasedBucket<'a>> {
        // A short name is all in the head.
        let is_this = |limit: &LeasedLimit| {
            limit.head == id.head() && (limit.head.whole().is_some() || *limit.name == *id.limit())
        };
        let limit = self.limits.iter().position(is_this)?;
        (id.shard_index() == 0).then_some(LeasedBucket { limit, id, bucket })
    }

    /// The bucket of a charge, if its limit is leased.
    #[inline]
    pub(super) fn leased_by<'a>(&self, charge: &Charge<'a>) -> Option<LeasedBucket<'a>> {
        let leased = self.leased(charge.id(), charge.bucket())?;
        charge.get_second_shard().is_none().then_some(leased)
    }

    pub(super) fn limit_name(&self, limit: usize) -> &str {
        self.limits.get(limit).map_or("", |limit| &limit.name)
    }

    /// The terms by the numbers of a call; `None` if such a bucket cannot be leased.
    pub(super) fn terms(&self, limit: usize, bucket: &Bucket) -> Option<LeaseTerms> {
        let usual = self.limits.get(limit).map(|limit| limit.terms);
        let usual = usual.filter(|terms| terms.limit() == bucket);
        usual.or_else(|| LeaseTerms::new(bucket).ok())
    }

    /// The terms of the limit of this name, if it is leased.
    pub(super) fn terms_of(&self, name: &str, bucket: &Bucket) -> Option<LeaseTerms> {
        let limit = self.limits.iter().position(|limit| *limit.name == *name)?;
        self.terms(limit, bucket)
    }

    /// Works on the record of a bucket, if there is one, whatever its numbers are.
    pub(super) fn with_record<T>(
        &self,
        limit: usize,
        key: &Key,
        work: impl FnOnce(&mut LeaseRecord) -> T,
    ) -> Option<T> {
        let place = self.table.place(limit, key);
        let mut part = self.table.part(place)?;
        part.find(place, key).map(work)
    }

    /// As [`with_record`](Self::with_record), if the lots are in these numbers: units of others may
    /// be worth much more or much less.
    pub(super) fn with_record_in<T>(
        &self,
        terms: &LeaseTerms,
        limit: usize,
        key: &Key,
        work: impl FnOnce(&mut LeaseRecord) -> T,
    ) -> Option<T> {
        let work = |record: &mut LeaseRecord| (record.terms == *terms).then(|| work(record));
        self.with_record(limit, key, work).flatten()
    }

    /// Works on the record of a bucket, which is made if there is none and room for it.
    #[inline]
    pub(super) fn with_new_record<T>(
        &self,
        leased: &LeasedBucket<'_>,
        now: Timestamp,
        work: impl FnOnce(&mut LeaseRecord) -> T,
    ) -> Option<T> {
        let key = leased.id.key();
        let place = self.table.place(leased.limit, key);
        let mut part = self.table.part(place)?;
        // Looked up twice only if it is not there or has other numbers.
        if let Some(record) = part.find(place, key)
            && record.terms.limit() == leased.bucket
        {
            return Some(work(record));
        }
        self.renew(&mut part, place, leased, now).map(work)
    }

    /// Makes a record, or changes its numbers: what it had by others is dropped.
    #[cold]
    fn renew<'p>(
        &self,
        part: &'p mut TablePart,
        place: LeasePlace,
        leased: &LeasedBucket<'_>,
        now: Timestamp,
    ) -> Option<&'p mut LeaseRecord> {
        let key = leased.id.key();
        let terms = self.terms(leased.limit, leased.bucket);
        if part.find(place, key).is_none() {
            return part.add(place, key, terms?, self.table.room(), now);
        }
        let record = part.find(place, key)?;
        record.node.forget();
        record.terms = terms?;
        Some(record)
    }

    /// The runtime for tasks: that of the caller, or else that in which the node was made.
    pub(super) fn runtime(&self) -> Option<Handle> {
        Handle::try_current().ok().or_else(|| self.runtime.get().cloned())
    }

    /// How long a question may take.
    pub(super) fn deadline(&self, terms: &LeaseTerms) -> Duration {
        self.deadline.unwrap_or(USUAL_DEADLINE).min(terms.longest_deadline())
    }

    /// The error of a question, or of a caller that waits for its answer, at the deadline. In a crowd
    /// of callers, or in a process that is late with all it does, that tells nothing about the store
    /// yet.
    pub(super) fn late(&self, begun: Instant, within: Duration, lag: Lag) -> BackendError {
        match self.callers.was_there_since(begun) || lag.is_felt(within) {
            true => BackendError::overloaded(NAME, within),
            false => lag.error(NAME, within),
        }
    }
}

impl LeaseRecord {
    /// How the bucket stands here: what its lots hold.
    pub(super) fn state(&mut self, now: Timestamp) -> State {
        self.state_of(self.node.held(now), now).1
    }

    /// The time of the store as this node reckons it, and the state for lots that hold this much.
    #[inline]
    pub(super) fn state_of(&mut self, value: Units, now: Timestamp) -> (Timestamp, State) {
        let at = self.node.store_time(now);
        let ts = match self.terms.is_window() {
            false => at,
            true => self.node.window().unwrap_or(at),
        };
        (at, State { value, ts })
    }

    /// What callers read if this is refused here.
    pub(super) fn refusal(&mut self, wait: u64, now: Timestamp) -> (Timestamp, Reading) {
        let (at, state) = self.state_of(self.node.held(now), now);
        (at, Reading::in_micros(Verdict::Refused, state, 0, wait.max(1)))
    }
}

/// The error of a cost that the store can never hold.
pub(super) fn too_large(limit: &str, cost: Units, terms: &LeaseTerms) -> BackendError {
    let (limit_bucket, store) = (terms.limit(), terms.store());
    let life = Duration::from_micros(terms.life());
    let held_back = limit_bucket.capacity().saturating_sub(store.capacity());
    let problem = format!(
        "cost of {} can never fit leased limit `{limit}` (its store holds at most {}: the capacity \
         of {} less {}, which is gained in the {life:?} for which a lot lives; ask for less, raise \
         the capacity, or do not lease it)",
        limit_bucket.tokens(cost),
        limit_bucket.tokens(store.capacity()),
        limit_bucket.tokens(limit_bucket.capacity()),
        limit_bucket.tokens(held_back),
    );
    BackendError::undecidable(NAME, problem)
}
