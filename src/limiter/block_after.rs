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
use super::limit::MAX_NAME;
use crate::algebra::{State, Verdict};
use crate::backend::{BackendError, BucketId, Charge, Key};
use crate::quota::{Kind, Quota};

/// When a key is blocked, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockAfter {
    /// A token for each refusal.
    count: Limit,
    time: Duration,
}

impl BlockAfter {
    #[track_caller]
    pub(crate) fn new(refusals: u64, within: Duration, time: Duration) -> Self {
        assert!(
            refusals > 0 && !within.is_zero() && !time.is_zero(),
            "`block_after` needs a number of refusals and two times above zero"
        );
        let count = Limit::new(SUFFIX, Quota::fixed_window(refusals, within).from_first_use());
        Self { count, time }
    }
}

impl RateLimiter {
    /// Counts the refusal of a key, and blocks its bucket if that was one too many. Returns whether it
    /// did.
    ///
    /// While the store fails, nothing is counted and nothing blocked.
    pub(crate) async fn count_refusal(&self, limit: &Limit, key: &Key, after: &BlockAfter) -> bool {
        let name = name_of_count(limit.name());
        let id = BucketId::new(&name, key);
        match self.take_refusal(id, &after.count).await {
            Ok(is_last) if is_last => {}
            Ok(_) => return false,
            Err(error) => {
                self.store_failed(limit, &error, Undecided::Call);
                return false;
            }
        }
        let has_blocked = self.block(limit, after.time).key(key.clone()).await.is_ok();
        if has_blocked {
            // Only then: if the block has failed, the next refusal tries again. After the block, the
            // count starts again.
            let answer = { self.forget(&[id]) };
            if let Err(error) = answer.wait().await {
                self.store_failed(limit, &error, Undecided::Call);
            }
        }
        has_blocked
    }

    /// Takes a token of the count. Returns whether it was the last one, or none was left.
    async fn take_refusal(&self, id: BucketId<'_>, count: &Limit) -> Result<bool, BackendError> {
        let token = count.bucket().units(1).ok_or_else(BackendError::incomplete)?;
        let answer = { self.backend().apply(&[Charge::take(id, count.bucket(), token)]) };
        let applied = answer.wait().await?;
        let reading = applied.readings().first().ok_or_else(BackendError::incomplete)?;
        Ok(applied.verdict() == Verdict::Refused || reading.state().value < token)
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
        let is_fixed = demand.limit().bucket().kind() == Kind::FixedWindow;
        // In the window in which its block ends, a fixed window looks like one in debt.
        let is_blocked = |State { value, ts }| value < 0 && (ts > answer.at() || is_fixed);
        level.verdict == Verdict::Refused
            && !readings.iter().any(|reading| is_blocked(reading.state()))
    });
    counted.map(|((demand, _), _)| demand)
}

/// The name under which the refusals of a limit are counted. It has no more than the letters that a
/// name may have.
fn name_of_count(limit: &str) -> String {
    let most = MAX_NAME.saturating_sub(SUFFIX.len());
    // Names are ASCII.
    let begin = limit.get(..most).unwrap_or(limit);
    format!("{begin}{SUFFIX}")
}

const SUFFIX: &str = "/refused";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_of_every_limit_has_a_name_that_a_limit_can_have() {
        for length in [1, MAX_NAME - 8, MAX_NAME - 7, MAX_NAME] {
            let quota = Quota::token_bucket(1, Duration::from_secs(1));
            let limit = Limit::try_new("x".repeat(length), quota).unwrap();
            let name = name_of_count(limit.name());
            assert!(name.ends_with("x/refused"), "{name}");
            assert!(Limit::try_new(name, quota).is_ok());
        }
    }
}
