//! The store: orders on one slot are sent together, those on several one by one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::dispatcher::{Dispatcher, Sending};
use super::line::Bounds;
use super::link::Link;
use super::names::Names;
use super::order::{Order, OwnAdjustment, OwnCharge, Whose};
use super::spread::{self, Pair, share_a_slot};
use crate::backend::{Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge};
use crate::clock::{Clock, SystemClock};

/// Keeps buckets in Redis or Valkey, for any number of processes.
///
/// All processes that use the same servers and the same [prefix](super::RedisBuilder::prefix) share
/// their buckets, and all go by the server's clock. A decision is one call of a script, whatever the
/// number of its limits, and exactly what it would be in memory. Decisions that a process asks for at
/// the same time travel in one call. The guide in `docs/redis.md` of the repository says how to run
/// the server: what it costs, what is stored, which rights a user needs, and what is lost when.
///
/// A process has one connection to each server, and reconnects in the background when it breaks. The
/// connection runs on the tokio runtime in which it was made, and ends with it. So make one, and
/// clone the [`RateLimiter`](crate::RateLimiter).
///
/// # Deadlines
///
/// A call without an answer by the [`deadline`](super::RedisBuilder::deadline) (50 ms by default)
/// fails with an error whose [`is_timeout`](BackendError::is_timeout) is true, and layers answer 503.
/// The tokens may be taken all the same: a decision is sent again only if the server said that it was
/// not carried out, so a lost answer never lets a client exceed the limit. A server that hangs is not
/// flooded: an unanswered call keeps its place in line for a second, or for the deadline if that is
/// longer.
///
/// # Clusters
///
/// One step sees one slot of a cluster. Charges on buckets in several slots fail before anything is
/// sent, with an error whose [`is_cross_slot`](BackendError::is_cross_slot) is true. A
/// [`HashTag`](super::HashTag) puts buckets that are charged together into one slot. Two shards of a
/// limit in different slots are asked one after the other, the second only if the first refuses. Each
/// is exact by itself, but a look at all of them, a reset or a penalty is not one step, and a
/// reservation that two of them paid for is not undone when it is cancelled. Replicas are never asked
/// about buckets.
///
/// # After a loss
///
/// A bucket that the server loses, by a restart without persistence or an eviction, is full again, so
/// no client is refused for the loss. A failover may lose the last decisions and the last refunds.
/// With [`ColdStart::Empty`], all clients wait instead after a store has come back empty.
///
/// # Examples
///
/// ```no_run
/// use tollgate::backend::Redis;
/// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
///
/// const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, MINUTE));
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = RateLimiter::new(Redis::connect("redis://127.0.0.1:6379").await?);
/// // Five a minute, whichever process is asked.
/// let permit = limiter.limit(&LOGIN).key("alice").await?;
/// println!("{} more", permit.remaining());
/// # Ok(())
/// # }
/// ```
pub struct Redis {
    pub(super) dispatcher: Dispatcher,
    pub(super) names: Arc<Names>,
}

impl Redis {
    /// A store on this link, whose tasks run on this runtime.
    pub(super) fn new(link: Link, names: Names, runtime: Handle, settings: Settings) -> Self {
        let in_all = if link.is_cluster() { LANES_OF_CLUSTER } else { LANES };
        let births = (settings.cold_start == ColdStart::Empty).then(|| names.clone());
        let sending = Sending {
            deadline: settings.deadline,
            bounds: Bounds { lanes: LANES, in_all, buckets: BUCKETS },
            births,
            #[cfg(test)]
            clock: settings.clock.clone().unwrap_or_else(|| Arc::new(SystemClock::new())),
        };
        let dispatcher = Dispatcher::new(link, runtime, sending);
        Self { dispatcher, names: Arc::new(names) }
    }

    fn charges(&self, charges: &[Charge<'_>]) -> Result<Answer<Applied>, BackendError> {
        let deadline = self.dispatcher.deadline();
        let own: Result<SmallVec<[_; 1]>, _> =
            charges.iter().map(|charge| OwnCharge::of(charge, &self.names)).collect();
        let mut own = own?;
        if !self.dispatcher.is_cluster() || share_a_slot(own.iter().flat_map(OwnCharge::names)) {
            return Ok(Answer::pending(self.dispatcher.send(Order::Charges(own), deadline)));
        }
        let dispatcher = self.dispatcher.clone();
        if let [charge] = charges
            && let Some(other) = charge.get_second_shard()
            && let Some(own) = own.pop()
        {
            let id = charge.id();
            let shards = [id, id.shard(other)].map(|id| Whose::of(id, &self.names));
            let pair = Pair { dispatcher, shards, charge: own, deadline };
            // Two steps must not be left half done by a caller that goes away in between.
            return Ok(Answer::pending(self.dispatcher.spawn(pair.apply())));
        }
        if charges.iter().all(|charge| !charge.takes() && charge.get_second_shard().is_none()) {
            return Ok(Answer::pending(spread::look(dispatcher, own, deadline)));
        }
        Err(BackendError::cross_slot(spread::limits(charges.iter().map(Charge::id))))
    }

    fn adjustments(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        let deadline = self.dispatcher.deadline();
        let own: SmallVec<[_; 1]> =
            adjustments.iter().map(|one| OwnAdjustment::of(one, &self.names)).collect();
        if !self.dispatcher.is_cluster() || share_a_slot(own.iter().map(|one| &one.whose.name)) {
            return Answer::pending(self.dispatcher.send(Order::Adjustments(own), deadline));
        }
        Answer::pending(spread::adjust(self.dispatcher.clone(), own, deadline))
    }

    fn resets(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        let deadline = self.dispatcher.deadline();
        let order = Order::Resets(ids.iter().map(|&id| self.names.of(id)).collect());
        let orders: SmallVec<[Order; 1]> = match order {
            Order::Resets(names) if self.dispatcher.is_cluster() => {
                names.into_iter().map(|name| Order::Resets([name].into_iter().collect())).collect()
            }
            order => [order].into_iter().collect(),
        };
        let answers: SmallVec<[_; 1]> =
            orders.into_iter().map(|order| self.dispatcher.send(order, deadline)).collect();
        Answer::pending(async move {
            for answer in answers {
                answer.await?;
            }
            Ok(())
        })
    }
}

/// What the engine has to know beside its connection and its names.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// How long a decision may take.
    pub(super) deadline: Duration,
    /// What buckets hold after a loss.
    pub(super) cold_start: ColdStart,
    /// What time it is for the script.
    #[cfg(test)]
    pub(super) clock: Option<std::sync::Arc<dyn crate::clock::Clock>>,
}

/// What buckets hold after the store has lost its memory, as by a restart without persistence.
///
/// # Examples
///
/// ```no_run
/// use tollgate::backend::{ColdStart, Redis};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// // A client with a daily limit should not get a second day's worth after a restart.
/// let redis = Redis::at("redis://127.0.0.1").cold_start(ColdStart::Empty).connect().await?;
/// # drop(redis);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ColdStart {
    /// They are full again: no client is refused for the loss, and what was taken before is
    /// forgotten.
    #[default]
    Full,
    /// They are treated as empty at the moment when the loss was first seen, and fill from then on:
    /// no client gets more than the limit over the loss, and all wait for the first tokens.
    ///
    /// What is seen is that the note is gone which the first decision has left in the store, under
    /// `tollgate:#born`, or in a cluster one for each slot. So the very first start counts as a loss
    /// as well, unless `SET tollgate:#born 0` says that nothing was lost; and a store that comes back with an old
    /// snapshot, or without the last writes after a failover, counts as whole.
    Empty,
}

/// The calls under way at most for one slot: the server works on one while the next is made up. More of
/// them would only be smaller.
const LANES: usize = 2;

/// The calls under way at most for 64 slots of a cluster that are next to each other: 2,048 in all.
const LANES_OF_CLUSTER: usize = 8;

/// The buckets of a call at most: less than a millisecond of the server, so that others do not wait
/// for long behind it.
const BUCKETS: usize = 128;

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
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("names", &self.names).finish_non_exhaustive()
    }
}
