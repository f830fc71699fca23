//! The engine: turns the calls of the limiter into operations for the servers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::carrier::RedisCarrier;
use super::cross_slot::{self, CrossSlotPair, share_a_slot};
use super::debtors;
use super::link::Link;
use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge, DebtorQuery, DebtorReport,
};
use tollgate::clock::{Clock, SystemClock};
use tollgate_kit::batch::{Batcher, Bounds, Carrier as _};
use tollgate_kit::key_name::KeyNames;
use tollgate_kit::operation::{NamedOperation, Operation};
use tollgate_kit::pages::PageTurns;
use tollgate_kit::store_time::StoreTime;

/// A store in Redis or Valkey, for any number of processes.
///
/// All processes with the same servers and the same [prefix](super::RedisBuilder::prefix) share
/// their buckets, and all use the server's clock. A decision is one call of a script, whatever the
/// number of its limits, and is exactly what it would be in memory. Decisions that a process makes
/// at the same time share a call. The guide in `docs/redis.md` of the repository says how to run
/// the server: what it costs, what is stored, which rights a user needs, and what is lost when.
///
/// A process has one connection to each server, which is replaced in the background when it breaks.
/// The connection runs on the tokio runtime in which it was made, and ends with that. So make one
/// store, and clone it, or the [`RateLimiter`](tollgate::RateLimiter).
///
/// A clone shares the connection, and costs no more than a counter. Limiters on clones share their
/// buckets, but not their waiters: these stand in two queues, like those of two processes, and
/// [`drain`](tollgate::RateLimiter::drain) ends only those of its limiter. Where requests queue for one
/// limit, clone the limiter.
///
/// # Deadlines
///
/// A call without an answer by the [`deadline`](super::RedisBuilder::deadline) (50 ms by default)
/// fails with an error whose [`is_timeout`](BackendError::is_timeout) is true, and layers answer
/// 503. The tokens may be taken all the same: a decision is sent again only if the server said that
/// it was not carried out, so a lost answer never lets a client exceed the limit. A server that
/// hangs is not flooded: an unanswered call counts as in flight for a second, or for the deadline
/// if that is longer.
///
/// # Clusters
///
/// One step sees one slot of a cluster. Charges on buckets in several slots fail before anything is
/// sent, with an error whose [`is_cross_slot`](BackendError::is_cross_slot) is true. A
/// [`HashTag`](super::HashTag) puts buckets that are charged together into one slot. Two shards of
/// a limit in different slots are asked one after the other, the second only if the first refuses.
/// Each is exact by itself, but a look at all of them, a reset or a penalty is not one step, and a
/// reservation that two of them paid for is not undone when it is cancelled. Replicas are never
/// asked about buckets.
///
/// # After a loss
///
/// A bucket that the server loses, by a restart without persistence or an eviction, is full again,
/// so no client is refused for the loss. A failover may lose the last decisions and the last
/// refunds. With [`ColdStart::Empty`], all clients wait instead after a store has come back empty.
///
/// # Examples
///
/// ```no_run
/// use tollgate_redis::Redis;
/// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
///
/// const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, MINUTE));
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = RateLimiter::new(Redis::connect("redis://127.0.0.1:6379").await?);
/// // Five a minute, over all processes.
/// let permit = limiter.limit(&LOGIN).key("alice").await?;
/// println!("{} more", permit.remaining());
/// # Ok(())
/// # }
/// ```
///
/// Two limiters on one connection:
///
/// ```no_run
/// use tollgate::RateLimiter;
/// use tollgate_redis::Redis;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = Redis::connect("redis://127.0.0.1:6379").await?;
/// let (api, admin) = (RateLimiter::new(redis.clone()), RateLimiter::new(redis));
/// # drop((api, admin));
/// # Ok(())
/// # }
/// ```
#[doc(alias = "valkey")]
#[doc(alias = "lua")]
#[doc(alias = "distributed")]
#[doc(alias = "cluster")]
#[doc(alias = "throttled")]
#[derive(Clone)]
pub struct Redis {
    pub(super) batcher: Batcher<RedisCarrier>,
    pub(super) names: Arc<KeyNames>,
    turns: PageTurns,
}

impl Redis {
    /// Makes a store on this link. Its tasks run on this runtime.
    ///
    /// Users try `Redis::new`, so it is not called that: the compiler would ask them for these arguments.
    pub(super) fn over(link: Link, names: KeyNames, runtime: Handle, settings: Settings) -> Self {
        let calls_per_group = if link.is_cluster() { CALLS_PER_GROUP } else { CALLS_PER_SLOT };
        let init_names = (settings.cold_start == ColdStart::Empty).then(|| names.clone());
        let bounds = Bounds {
            calls_per_slot: CALLS_PER_SLOT,
            calls_per_group,
            buckets_per_call: BUCKETS_PER_CALL,
        };
        let carrier = RedisCarrier {
            time: StoreTime::default(),
            link,
            init_names,
            #[cfg(test)]
            clock: settings.clock.clone().unwrap_or_else(|| Arc::new(SystemClock::new())),
        };
        let batcher = Batcher::new(carrier, runtime, settings.deadline, bounds);
        Self { batcher, names: Arc::new(names), turns: PageTurns::default() }
    }

    fn is_cluster(&self) -> bool {
        self.batcher.carrier().link.is_cluster()
    }

    fn charges(&self, charges: &[Charge<'_>]) -> Result<Answer<Applied>, BackendError> {
        let deadline = self.batcher.deadline();
        let operation = NamedOperation::charges(RedisCarrier::STORE, charges, &self.names)?;
        if !self.is_cluster() || share_a_slot(operation.names()) {
            return Ok(Answer::pending(self.batcher.send(operation, deadline)));
        }
        let batcher = self.batcher.clone();
        // Of two slots: it has two shards.
        if let [charge] = charges {
            let (names, charge) = (Arc::clone(&self.names), charge.into_owned());
            let pair = CrossSlotPair { batcher, names, charge, deadline };
            // Runs as a task, so that dropping the future does not leave the second step undone.
            return Ok(Answer::pending(self.batcher.spawn(pair.apply())));
        }
        if charges.iter().all(|charge| !charge.takes() && charge.get_second_shard().is_none()) {
            let alone = |one: &Charge<'_>| Operation::charges(&[*one]);
            let looks = charges.iter().map(|one| NamedOperation::new(alone(one), &self.names));
            return Ok(Answer::pending(cross_slot::look(batcher, looks.collect(), deadline)));
        }
        Err(BackendError::cross_slot(cross_slot::limits(charges.iter().map(Charge::id))))
    }

    fn adjustments(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        let deadline = self.batcher.deadline();
        let operation = NamedOperation::new(Operation::adjustments(adjustments), &self.names);
        if !self.is_cluster() || share_a_slot(operation.names()) {
            return Answer::pending(self.batcher.send(operation, deadline));
        }
        let (parts, verdict) = cross_slot::parts(adjustments, &self.names);
        Answer::pending(cross_slot::adjust(self.batcher.clone(), parts, verdict, deadline))
    }

    fn resets(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        let deadline = self.batcher.deadline();
        // On a cluster, each by itself.
        let together = if self.is_cluster() { 1 } else { ids.len().max(1) };
        let answers: SmallVec<[_; 1]> = ids
            .chunks(together)
            .map(|ids| NamedOperation::new(Operation::resets(ids), &self.names))
            .map(|operation| self.batcher.send(operation, deadline))
            .collect();
        Answer::pending(async move { cross_slot::all(answers).await.map(drop) })
    }
}

/// The settings of the engine.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// How long a decision may take.
    pub(super) deadline: Duration,
    /// What absent buckets hold after the store has lost its data.
    pub(super) cold_start: ColdStart,
    /// The time that the script sees, for tests.
    #[cfg(test)]
    pub(super) clock: Option<std::sync::Arc<dyn tollgate::clock::Clock>>,
}

/// What buckets hold after the store has lost its data, as by a restart without persistence.
///
/// # Examples
///
/// ```no_run
/// use tollgate_redis::{ColdStart, Redis};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// // A restart must not give a client of a daily limit a second day's worth.
/// let redis = Redis::at("redis://127.0.0.1").cold_start(ColdStart::Empty).connect().await?;
/// # drop(redis);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ColdStart {
    /// They are full again. No client is refused because of the loss, and what was taken before is
    /// forgotten.
    #[default]
    Full,
    /// They count as empty when the loss is detected, and fill from then on. No client gets more
    /// than its limit because of the loss, and all clients wait for the first tokens.
    ///
    /// A loss is detected by a missing key, `tollgate:#init` (on a cluster one for each slot),
    /// which the first decision writes. So the very first start counts as a loss as well, unless
    /// `SET tollgate:#init 0` has marked the store as initialized. A bucket that is
    /// [reset](Backend::reset) afterwards is full. A store that comes back with an
    /// old snapshot, or without its last writes after a failover, has the key and counts as
    /// complete.
    Empty,
}

/// The largest number of calls in flight for one slot. With two, the server works on one while the
/// client writes the next. With more, the calls would only be smaller.
const CALLS_PER_SLOT: usize = 2;

/// The largest number of calls in flight for a group of 64 slots of a cluster, which makes 2,048
/// for all groups.
const CALLS_PER_GROUP: usize = 8;

/// The largest number of buckets in a call. The server needs less than a millisecond for them, so
/// calls behind it do not wait long.
const BUCKETS_PER_CALL: usize = 128;

impl Backend for Redis {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        if charges.is_empty() {
            return Answer::Ready(Ok(Applied::many(SystemClock::new().now(), Vec::new())));
        }
        self.charges(charges).unwrap_or_else(|error| Answer::Ready(Err(error)))
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        if adjustments.is_empty() {
            return Answer::Ready(Ok(Applied::many(SystemClock::new().now(), Vec::new())));
        }
        self.adjustments(adjustments)
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        if ids.is_empty() {
            return Answer::Ready(Ok(()));
        }
        self.resets(ids)
    }

    /// Scans the servers. It needs the right to `SCAN`, which no decision needs.
    fn debtors(&self, query: &DebtorQuery) -> Answer<DebtorReport> {
        debtors::page(&self.turns, &self.batcher, &self.names, query)
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("names", &self.names).finish_non_exhaustive()
    }
}
