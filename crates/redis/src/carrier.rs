//! Takes a batch of operations to the servers, by one call of the script.

use std::fmt;
#[cfg(test)]
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::link::{Call, Link};
use super::script::{ScriptReply, ScriptRequest};
use tollgate::backend::BackendError;
#[cfg(not(test))]
use tollgate::clock::SystemClock;
use tollgate::clock::{Clock, Timestamp};
use tollgate_kit::batch::{Carrier, Division, Job};
use tollgate_kit::key_name::{KeyName, KeyNames};
use tollgate_kit::operation::NamedOperation;
use tollgate_kit::replay::Replay;
use tollgate_kit::store_time::StoreTime;

/// Calls the script on the servers of a link.
pub(super) struct RedisCarrier {
    pub(super) link: Link,
    pub(super) time: StoreTime,
    /// The names of the initialization keys, if absent buckets count as empty at the
    /// initialization.
    pub(super) init_names: Option<KeyNames>,
    /// The time that the script sees, for tests.
    #[cfg(test)]
    pub(super) clock: Arc<dyn Clock>,
}

impl Carrier for RedisCarrier {
    const STORE: &'static str = "redis";

    type Mark = ();

    async fn call(&self, _slot: u16, jobs: &[Job]) -> Result<Replay, BackendError> {
        let mut timed = self.time.begin(self.own_time());
        loop {
            match self.call_around(jobs, timed.around()).await? {
                Ok(replay) => return Ok(replay),
                Err(now) => timed.outside(Self::STORE, now)?,
            }
        }
    }

    fn slot(&self, operation: &NamedOperation) -> u16 {
        match self.link.is_cluster() {
            true => operation.names().first().map_or(0, |name| name.slot()),
            false => 0,
        }
    }

    /// While a slot moves, the keys of each single job may still be in one place.
    fn division(&self, _slot: u16, error: &BackendError) -> Division {
        match Link::is_scattered(error) {
            true => Division::OneByOne,
            false => Division::None,
        }
    }

    fn mark(&self, _operation: &NamedOperation) {}

    fn is_late(&self, slot: u16, begun: Instant, time: Duration, is_flooded: bool) -> Option<bool> {
        self.link.is_late(slot, begun, time, is_flooded)
    }
}

impl RedisCarrier {
    /// The time by the clock of this process.
    fn own_time(&self) -> Timestamp {
        #[cfg(test)]
        return self.clock.now();
        #[cfg(not(test))]
        SystemClock::new().now()
    }

    /// Calls the script, for a server whose clock is probably `around` this time. If it is not, and
    /// that matters, returns its time.
    async fn call_around(
        &self,
        jobs: &[Job],
        around: Timestamp,
    ) -> Result<Result<Replay, Timestamp>, BackendError> {
        let init_names = self.init_names.as_ref();
        let operations = jobs.iter().map(|job| &job.operation);
        let request = ScriptRequest::new(operations, init_names.is_some(), around);
        #[cfg(test)]
        let request = request.with_time(self.clock.now());
        let buckets = request.keys().len();
        let first = request.keys().first();
        let init_key = first
            .zip(init_names)
            .map(|(first, names)| names.init_key(first, self.link.is_cluster()));
        let keys: Vec<&KeyName> = request.keys().iter().copied().chain(&init_key).collect();
        // The latest deadline. Callers with an earlier one stop waiting by themselves.
        let last = jobs.iter().map(|job| job.deadline).max().unwrap_or_else(Instant::now);
        let reads: fn(&_, _) -> _ = match init_key {
            None => |answer, keys| ScriptReply::is_answer(answer, keys, false),
            Some(_) => |answer, keys| ScriptReply::is_answer(answer, keys.saturating_sub(1), true),
        };
        let call = Call::new(&keys, request.argument(), last).read_by(reads);
        let call = if jobs.len() > 1 { call.divisible() } else { call };
        let answer = self.link.call(call).await?;
        if let Some(now) = ScriptReply::outside(&answer) {
            return Ok(Err(now));
        }
        let reply = ScriptReply::read(&answer, buckets, init_key.is_some()).ok_or_else(|| {
            BackendError::unavailable("redis", "the script's answer cannot be read")
        })?;
        Ok(Ok(reply.into_replay(request.into_places())))
    }
}

impl fmt::Debug for RedisCarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisCarrier").field("link", &self.link).finish_non_exhaustive()
    }
}
