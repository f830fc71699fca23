//! Redis or Valkey: one truth for a fleet.
//!
//! # Design
//!
//! A decision is one script call, whatever the number of its limits. The script reads the server's time, finds the
//! buckets, applies the formula of [`algebra`](crate::algebra) and stores what changed. It answers only what it
//! has found: by the same formula the client works out what came of it, so that an answer is as exact as in memory
//! and costs the server nothing. What is asked at the same time by one process travels in one call.

mod batch;
mod builder;
mod dispatcher;
mod found;
mod line;
mod link;
mod names;
mod number;
mod order;
mod script;
mod spread;
#[cfg(test)]
#[cfg(feature = "memory")]
mod tests;

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::runtime::Handle;

use self::builder::Settings;
pub use self::builder::{ColdStart, RedisBuilder};
use self::dispatcher::{Dispatcher, Sending};
use self::line::Bounds;
use self::link::Link;
pub use self::names::HashTag;
use self::names::Names;
use self::order::{Order, OwnAdjustment, OwnCharge, Whose};
use self::spread::{Pair, share_a_slot};
use super::{Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge};
use crate::clock::{Clock, SystemClock};

/// Keeps buckets in Redis or Valkey, for any number of processes.
///
/// Whoever asks the same servers under the same [prefix](RedisBuilder::prefix) shares their buckets, and
/// all go by the server's clock. A decision is one call of a script, whatever the number of its limits,
/// and exactly what it would be in memory; what a process asks at the same time travels in
/// one call. The guide in `docs/redis.md` of the repository says how to run the server: what it costs,
/// what is stored, which rights a user needs, and what is lost when.
///
/// A process has one connection to each server, which is made anew in the background when it breaks. It
/// runs on the tokio runtime in which it was made, and ends with it. So make one, and clone
/// the [`RateLimiter`](crate::RateLimiter).
///
/// # Deadlines
///
/// Who has no answer within 50 ms, or what [`deadline`](RedisBuilder::deadline) says, gets an error for
/// which [`is_timeout`](BackendError::is_timeout) is true, and layers answer 503. The tokens may be taken all
/// the same: a decision is sent again only if the server has said that it did not carry it out, so what is
/// not known counts as taken, and nobody gets more than the limit. A server that hangs is not sent more
/// and more: a call that it has not answered takes the place of the next, for a second or, if that is longer,
/// the deadline.
///
/// # Clusters
///
/// One step sees one slot of a cluster. Charges on buckets in several slots are refused before anything is
/// sent, by an error for which [`is_cross_slot`](BackendError::is_cross_slot) is true; a [`HashTag`] puts into one slot
/// what is to be charged together. Two shards of a limit in different slots are asked one after the
/// other, the second only if the first refuses. Each is exact by itself; but to look at all of them, to
/// reset or to penalize them is not one step there, and a reservation that two of them have paid is not
/// undone when it is given up. Replicas are never asked about buckets.
///
/// # After a loss
///
/// What the server forgets, by a restart without persistence or an eviction, is full again, and nobody is
/// refused for it; a failover may lose the last decisions, and what was given back last.
/// [`ColdStart::Empty`] is for those who would rather have all wait after a store has come back empty.
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
    dispatcher: Dispatcher,
    names: Arc<Names>,
}

impl Redis {
    /// Connects to a single server.
    ///
    /// The URL is `redis://user:password@host:port/database`, of which all but the host may be left
    /// out; `rediss://` is TLS, with the feature `redis-tls`, and `unix:///path` is a socket.
    ///
    /// # Errors
    ///
    /// As [`RedisBuilder::connect`].
    ///
    /// # Cancel safety
    ///
    /// As [`RedisBuilder::connect`].
    pub async fn connect(url: impl Into<String>) -> Result<Self, BackendError> {
        Self::at(url).connect().await
    }

    /// Sets up a single server, by its URL; see [`connect`](Self::connect).
    pub fn at(url: impl Into<String>) -> RedisBuilder {
        RedisBuilder::at(url.into())
    }

    /// Sets up a cluster, by the URLs of some of its nodes, from which the others are learnt. The login of
    /// all nodes is that of the first URL.
    pub fn cluster<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> RedisBuilder {
        RedisBuilder::cluster(urls.into_iter().map(U::into).collect())
    }

    /// Sets up the master of this name that sentinels look after, by the URLs of the sentinels. The
    /// login of the master, and the number of its database, are those of the first URL.
    pub fn sentinel<U: Into<String>>(
        urls: impl IntoIterator<Item = U>,
        master: impl Into<String>,
    ) -> RedisBuilder {
        RedisBuilder::sentinel(urls.into_iter().map(U::into).collect(), master.into())
    }

    /// An engine on this link, whose lanes run on this runtime.
    fn new(link: Link, names: Names, runtime: Handle, settings: Settings) -> Self {
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

/// The calls under way at most for one slot: the server works on one while the next is made up. More of
/// them would only be smaller.
const LANES: usize = 2;

/// The calls under way at most for 64 slots of a cluster that are next to each other: 2,048 in all.
const LANES_OF_CLUSTER: usize = 8;

/// The buckets of a call, so that nobody waits for long behind it: less than a millisecond of the server.
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
