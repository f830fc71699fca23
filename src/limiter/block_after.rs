//! Blocks that follow on refusals: counts them, and blocks a bucket when there were too many.
//!
//! The count is a bucket itself, of a limit that is derived from the refusing one: a window that begins
//! with the first refusal, with a token for each that it takes. So all processes on a store count
//! together, and a store that evicts or forgets buckets needs to know of nothing else.

use std::borrow::Borrow;
use std::time::Duration;

use super::Limit;
use super::complete_answer::CompleteAnswer;
use super::demand::Demand;
use super::engine::RateLimiter;
use super::failure_log::Undecided;
use super::limit::{REFUSALS, derived_name};
use crate::algebra::{State, Verdict};
use crate::backend::{BackendError, BucketId, Charge, Key, Reading};
use crate::clock::Timestamp;
use crate::quota::{Kind, Quota};

/// When a key is blocked, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockAfter {
    /// A token for each refusal.
    count: Limit,
    time: Duration,
    /// How blocks of a key that follow on each other grow: a token for each time that a block is twice
    /// as long as the one before, and the longest.
    growth: Option<(Limit, Duration)>,
}

impl BlockAfter {
    #[track_caller]
    pub(crate) fn new(refusals: u64, within: Duration, time: Duration) -> Self {
        assert!(
            refusals > 0 && !within.is_zero() && !time.is_zero(),
            "`block_after` needs a number of refusals and two times above zero"
        );
        let count = Limit::new(REFUSALS, Quota::fixed_window(refusals, within).from_first_use());
        Self { count, time, growth: None }
    }

    #[track_caller]
    pub(crate) fn up_to(mut self, longest: Duration) -> Self {
        assert!(
            longest > self.time,
            "`block_up_to` needs a time that is longer than that of `block_after`"
        );
        let doubled = |&nth: &u32| doubled(self.time, nth) < longest;
        let doublings = (0..u32::BITS).take_while(doubled).count();
        // A key that goes on as soon as its block has ended has blocks of the longest time, but for one
        // in four. With one token for each block, it would be one in two.
        let quota = Quota::token_bucket(1, longest.saturating_mul(4));
        let quota = quota.capacity(u64::try_from(doublings).unwrap_or(u64::MAX));
        self.growth = Some((Limit::new(DOUBLINGS, quota), longest));
        self
    }
}

/// So often twice as long.
fn doubled(time: Duration, times: u32) -> Duration {
    time.saturating_mul(2_u32.saturating_pow(times))
}

impl RateLimiter {
    /// Counts the refusal of a key, and blocks its bucket if that was one too many. Returns whether it
    /// did.
    ///
    /// While the store fails, nothing is counted and nothing blocked.
    pub(crate) async fn count_refusal(&self, limit: &Limit, key: &Key, after: &BlockAfter) -> bool {
        match self.count_and_block(limit, key, after).await {
            Ok(has_blocked) => has_blocked,
            Err(error) => {
                self.store_failed(limit, &error, Undecided::Call);
                false
            }
        }
    }

    async fn count_and_block(
        &self,
        limit: &Limit,
        key: &Key,
        after: &BlockAfter,
    ) -> Result<bool, BackendError> {
        // A limit that was chosen for the request is not known before.
        self.state.uses.note_counted(limit.name());
        let name = derived_name(limit.name(), REFUSALS);
        let id = BucketId::new(&name, key);
        let (verdict, left) = self.take_derived(id, &after.count, 1).await?;
        let completes = verdict != Verdict::Refused;
        if completes && left > 0 {
            return Ok(false);
        }
        // Requests that were refused before the block came are counted after it.
        let seen = self.peek(limit).key(key.clone()).await.ok();
        let is_blocked = seen.is_some_and(|seen| is_blocked(limit, seen.state(), seen.at()));
        let has_blocked = is_blocked || {
            let time = match &after.growth {
                // Of requests that are refused at once, one makes the next block longer.
                Some(growth) => self.grown(limit, key, after.time, growth, completes).await?,
                None => after.time,
            };
            let is_made = self.block(limit, time).key(key.clone()).await.is_ok();
            if is_made && let Some(observers) = &self.state.observers {
                observers.tell(|one| one.on_block(limit, time));
            }
            is_made
        };
        if has_blocked {
            // Only then: if the block has failed, the next refusal tries again. After the block, the
            // count starts again.
            let answer = { self.forget(&[id]) };
            if let Err(error) = answer.wait().await {
                self.store_failed(limit, &error, Undecided::Call);
            }
        }
        Ok(has_blocked)
    }

    /// How long a key is blocked whose earlier blocks count. `is_next` counts this one.
    async fn grown(
        &self,
        limit: &Limit,
        key: &Key,
        time: Duration,
        (doublings, longest): &(Limit, Duration),
        is_next: bool,
    ) -> Result<Duration, BackendError> {
        let name = derived_name(limit.name(), DOUBLINGS);
        let id = BucketId::new(&name, key);
        let (verdict, left) = self.take_derived(id, doublings, u64::from(is_next)).await?;
        if verdict == Verdict::Refused {
            return Ok(*longest);
        }
        let used = doublings.quota().get_capacity().saturating_sub(left.saturating_add(1));
        Ok(doubled(time, u32::try_from(used).unwrap_or(u32::MAX)).min(*longest))
    }

    /// Takes tokens of a derived bucket. Returns how many are left as well.
    async fn take_derived(
        &self,
        id: BucketId<'_>,
        limit: &Limit,
        tokens: u64,
    ) -> Result<(Verdict, u64), BackendError> {
        let bucket = limit.bucket();
        let units = bucket.units(tokens).ok_or_else(BackendError::incomplete)?;
        let answer = { self.state.backend.apply(&[Charge::take(id, bucket, units)]) };
        let applied = answer.wait().await?;
        let reading = applied.readings().first().ok_or_else(BackendError::incomplete)?;
        let held = bucket.refresh(reading.state(), applied.now());
        Ok((applied.verdict(), bucket.tokens(held.value).whole()))
    }
}

/// The demands whose refusals count: their limits have refused them, and their buckets are not blocked
/// already.
pub(crate) fn refusals_to_count<'x, L: Borrow<Limit>>(
    demands: &'x [Demand<L>],
    answer: &'x CompleteAnswer,
) -> impl Iterator<Item = &'x Demand<L>> {
    let levels = answer.levels(demands).zip(answer.each(demands));
    let counted = levels.filter(|((demand, level), (_, readings))| {
        let is_blocked =
            |reading: &Reading| is_blocked(demand.limit(), reading.state(), answer.now());
        level.verdict == Verdict::Refused && !readings.iter().any(is_blocked)
    });
    counted.map(|((demand, _), _)| demand)
}

/// In the window in which its block ends, a fixed window looks like one in debt.
fn is_blocked(limit: &Limit, State { value, ts }: State, at: Timestamp) -> bool {
    value < 0 && (ts > at || limit.bucket().kind() == Kind::FixedWindow)
}

const DOUBLINGS: &str = "/blocks";

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::limiter::limit::MAX_NAME;

    #[test]
    fn what_belongs_to_a_limit_has_a_name_of_its_own_that_a_limit_can_have() {
        let quota = Quota::token_bucket(1, Duration::from_secs(1));
        let mut names = HashSet::new();
        for length in [1, MAX_NAME - 8, MAX_NAME - 7, MAX_NAME] {
            for last in ["a", "b"] {
                let limit = "x".repeat(length - 1) + last;
                for suffix in [REFUSALS, DOUBLINGS] {
                    let name = derived_name(&limit, suffix);
                    assert!(name.starts_with(&limit[..length.min(40)]) && name.ends_with(suffix));
                    assert!(Limit::try_new(name.clone(), quota).is_ok(), "{name}");
                    assert!(names.insert(name), "{limit}");
                }
            }
        }
    }
}
