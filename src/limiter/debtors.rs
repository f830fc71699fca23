//! Which keys of a limit are in debt or blocked.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::Limit;
use super::engine::RateLimiter;
use super::progress::{BucketCall, Progress};
use super::rate_limited::RateLimited;
use super::snapshot::{Level, Snapshot};
use crate::algebra::{Terms, Units, charge, charge_slower};
use crate::backend::{Debtor, DebtorQuery, DebtorReport, Reading};
use crate::clock::Timestamp;

impl RateLimiter {
    /// Lists keys of a limit that are in debt or blocked, for operators.
    ///
    /// The answer is a [`DebtorReport`]. Redis, PostgreSQL and the store in a file answer pages of
    /// keys. The memory store keeps no keys unless it is [asked to](crate::backend::Memory::keep_keys), and
    /// answers how many there are; limits with the same numbers are counted together. A store that cannot tell says so, which is not an empty page.
    ///
    /// [Replaced](Self::replace) numbers judge each bucket, whether it was used since or not. The
    /// memory store knows the buckets of a limit by all numbers that this limiter has had for it. So
    /// it counts those of two limits together if one has the numbers that the other one had, and not
    /// those that it has [loaded](crate::backend::Memory::load) in numbers of an earlier process.
    ///
    /// A page has [at most](DebtorsCall::max) so many keys, and often fewer, since a store looks at a
    /// bounded number of buckets for it. [Go on](DebtorsCall::after) at its `next` until that is `None`. A key that is on the list all the while
    /// comes at least once, and exactly once if nothing changes meanwhile.
    ///
    /// It takes nothing, and changes nothing. Tokens that a [`Leasing`](crate::backend) store holds
    /// in lots do not count. A limit in [shards](crate::Quota::shards) has a bucket on the list for
    /// each shard that is in debt.
    ///
    /// # Errors
    ///
    /// Awaiting it fails if the store failed or did not answer, or has not made the
    /// [cursor](DebtorsCall::after). A failure is not logged: no request is refused for it.
    ///
    /// # Cancel safety
    ///
    /// A list changes nothing, so it can be dropped at any time.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::backend::{DebtorReport, Memory};
    /// use tollgate::{HOUR, Limit, Quota, RateLimited, RateLimiter};
    ///
    /// const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
    ///
    /// /// The keys that may not log in now; `None` if the store does not know them.
    /// async fn locked_out(limiter: &RateLimiter) -> Result<Option<Vec<String>>, RateLimited> {
    ///     let (mut keys, mut cursor) = (Vec::new(), None);
    ///     loop {
    ///         let report = limiter.debtors(&LOGIN).max(100).after(cursor).await?;
    ///         let DebtorReport::Page { debtors, next, .. } = report else { return Ok(None) };
    ///         keys.extend(debtors.iter().map(|debtor| debtor.key_text()));
    ///         cursor = next;
    ///         if cursor.is_none() {
    ///             return Ok(Some(keys));
    ///         }
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), RateLimited> {
    /// let limiter = RateLimiter::in_memory();
    /// limiter.block(&LOGIN, HOUR).key("mallory").await?;
    /// assert_eq!(locked_out(&limiter).await?, None);
    /// match limiter.debtors(&LOGIN).await? {
    ///     DebtorReport::Count { in_debt, blocked, .. } => assert_eq!((in_debt, blocked), (0, 1)),
    ///     other => panic!("the memory store counts, and does not answer {other:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("blocked", "list_keys", "blocklist"))]
    pub fn debtors<'l>(&'l self, limit: &'l Limit) -> DebtorsCall<'l> {
        let query = DebtorQuery::new(limit.name(), limit.bucket());
        DebtorsCall { call: BucketCall::new(self, limit), query }
    }
}

/// A request for keys that are in debt or blocked, made by [`RateLimiter::debtors`]; await it.
///
/// Its output is `Result<DebtorReport<Snapshot>, RateLimited>`.
#[derive(Debug)]
#[must_use = "nothing is asked until it is awaited"]
pub struct DebtorsCall<'l> {
    /// Of all keys.
    call: BucketCall<'l, DebtorReport>,
    query: DebtorQuery,
}

impl DebtorsCall<'_> {
    /// Lists blocked keys only, which no time frees before the block ends.
    pub fn only_blocked(mut self) -> Self {
        self.call.progress.restart();
        self.query = self.query.only_blocked();
        self
    }

    /// Lists only keys in debt that are not blocked.
    pub fn only_in_debt(mut self) -> Self {
        self.call.progress.restart();
        self.query = self.query.only_in_debt();
        self
    }

    /// Sets how many keys a page has at most; 100 if not set, and at least one.
    pub fn max(mut self, max: usize) -> Self {
        self.call.progress.restart();
        self.query = self.query.max(max);
        self
    }

    /// Goes on behind a page, at its `next`; begins with the first page if not set.
    pub fn after(mut self, cursor: impl Into<Option<String>>) -> Self {
        self.call.progress.restart();
        self.query = self.query.after(cursor);
        self
    }
}

impl Future for DebtorsCall<'_> {
    type Output = Result<DebtorReport<Snapshot>, RateLimited>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { call, query } = &mut *self;
        if let Progress::New = call.progress {
            let versions = call.limiter.state.replacements.versions(call.limit);
            let earlier = versions.filter(|had| !had.quota().is_none()).map(|had| *had.bucket());
            call.begin_counting()?;
            *query = query.with_bucket(call.limit.bucket()).earlier(earlier);
        }
        let BucketCall { limiter, limit, progress, .. } = call;
        let submit = || limiter.state.backend.debtors(query);
        Poll::Ready(match ready!(progress.poll(cx, submit)) {
            Ok(DebtorReport::Page { at, debtors, next }) => {
                let read = |debtor: Debtor| {
                    let mut snapshot = Snapshot::new(limit, level(limit, &debtor, at));
                    snapshot.set_kept(debtor.kept());
                    debtor
                        .with_snapshot(limit.bucket(), snapshot.with_speech(&limiter.state.speech))
                };
                let debtors = debtors.into_iter().map(read).collect();
                Ok(DebtorReport::Page { at, debtors, next })
            }
            Ok(DebtorReport::Count { at, in_debt, blocked, next }) => {
                Ok(DebtorReport::Count { at, in_debt, blocked, next })
            }
            Ok(DebtorReport::Unsupported) => Ok(DebtorReport::Unsupported),
            // Not logged as a failure of decisions, which it is not.
            Err(error) => {
                Err(RateLimited::unavailable(limit, error).with_speech(&limiter.state.speech))
            }
        })
    }
}

/// How a limit stands for a request of one token, as far as this bucket tells.
fn level(limit: &Limit, debtor: &Debtor, at: Timestamp) -> Level {
    let (bucket, terms) = (limit.bucket(), Terms::AT_ONCE);
    let one = bucket.units(1).unwrap_or(Units::MAX);
    let charged = match debtor.kept() {
        Some(own) => charge_slower(own.bucket(), own.state(), bucket, one, terms, at, at),
        None => charge(bucket, debtor.state(), one, terms, at),
    };
    let reading = Reading::new(charged.verdict(), charged.before(), charged.wait());
    let mut level = Level::new(limit, &[reading], 1, at);
    if limit.is_too_large(1, Terms::AT_ONCE) {
        level.wait = None;
    }
    level
}
