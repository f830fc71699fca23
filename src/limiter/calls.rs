//! The call that takes tokens. It is completed by its methods and is itself the future to await.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use super::Limit;
use super::decide::{Asked, Asking, Decided};
use super::demand::{Demand, Demands, Mode};
use super::engine::RateLimiter;
use super::events::DecisionSource;
#[cfg(feature = "memory")]
use super::lone_bucket::{decide, decide_few};
use super::permit::Permit;
use super::progress::Progress;
use super::random::nanos;
use super::rate_limited::RateLimited;
use super::replacements::any as any_replaced;
use super::reservation::Reservation;
use crate::backend::{Applied, BackendError, IntoKey};
use crate::quota::tokens_of;

impl RateLimiter {
    /// Takes tokens from a limit.
    ///
    /// It takes one token from the bucket that all callers share, unless [`key`](LimitCall::key)
    /// and [`cost`](LimitCall::cost) say otherwise. The answer is a [`Permit`] to run the work, or
    /// a [`RateLimited`] that says when to retry. [`and`](LimitCall::and) takes from several limits
    /// at once, [`reserve`](LimitCall::reserve) waits for tokens that are missing, and
    /// [`peek`](Self::peek) takes nothing. The permit borrows the limiter and the limit: for a task or
    /// a struct, `.await?.into_owned()` makes one that does not ([`Permit::into_owned`]). Code that is
    /// not async calls [`now`](LimitCall::now).
    ///
    /// # Errors
    ///
    /// If the bucket is short of tokens, if the cost can never fit, or if the store did not answer.
    /// [`is_refused`](RateLimited::is_refused), [`is_too_large`](RateLimited::is_too_large) and
    /// [`is_unavailable`](RateLimited::is_unavailable) tell which.
    ///
    /// # Cancel safety
    ///
    /// The memory store answers the first poll, so there is nothing to cancel. With another store,
    /// a call that is dropped before its answer may have taken its tokens, and they do not come
    /// back. Those of a limit of requests [in flight](crate::Quota::in_flight) do: a task on the tokio
    /// runtime in which the call is dropped waits for the answer.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limit, MINUTE, Quota, RateLimited, RateLimiter};
    ///
    /// const MESSAGES: Limit = Limit::new("messages", Quota::token_bucket(10, MINUTE));
    ///
    /// async fn send(limiter: &RateLimiter, user: &str) -> Result<u64, RateLimited> {
    ///     let permit = limiter.limit(&MESSAGES).key(user).cost(2).await?;
    ///     Ok(permit.remaining())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// assert_eq!(send(&RateLimiter::in_memory(), "alice").await.unwrap(), 8);
    /// # }
    /// ```
    #[doc(alias("acquire", "try_acquire", "consume", "try_consume", "tryConsume", "check_key"))]
    #[doc(alias("throttle", "check", "try_wait", "take", "check_n", "check_key_n", "allow"))]
    #[doc(alias("allow_n", "hit"))]
    #[inline(always)]
    pub fn limit<'l>(&'l self, limit: &'l Limit) -> LimitCall<'l> {
        LimitCall {
            limiter: self,
            demands: Demands::new(limit),
            jitter: 0,
            progress: Progress::New,
            max_wait: (),
        }
    }
}

/// A request for tokens, made by [`RateLimiter::limit`]; await it.
///
/// Its output is `Result<Permit, RateLimited>`. The store is asked at the first poll, with the
/// [numbers](RateLimiter::replace) in force then. If a method
/// is called after that, the call starts again and asks a second time. Once it has completed, it
/// stays pending if it is polled.
///
/// [`key`](Self::key) and [`cost`](Self::cost) apply to the limit that was named last, by
/// [`RateLimiter::limit`] or by [`and`](Self::and).
///
/// With a `Duration` as `W`, it [reserves](Self::reserve) the tokens if they come within that time, and
/// its output is `Result<Reservation, RateLimited>`.
///
/// # Cancel safety
///
/// As [`RateLimiter::limit`] and [`reserve`](Self::reserve).
#[must_use = "nothing is asked until it is awaited"]
pub struct LimitCall<'l, W = ()> {
    pub(super) limiter: &'l RateLimiter,
    pub(super) demands: Demands<'l>,
    /// In nanoseconds: a `Duration` would take twice the space.
    pub(super) jitter: u64,
    pub(super) progress: Progress<Applied>,
    max_wait: W,
}

impl<'l> LimitCall<'l> {
    /// Sets the key of the bucket that pays; the bucket that all callers share if not set.
    ///
    /// An IPv6 address is counted alone, though a client usually has a network of 64 bits. For a
    /// client, use `client_ip.key_of(address)` of the layer's [`ClientIp`](crate::key::ClientIp), or
    /// [`Key::network`](crate::Key::network).
    #[inline(always)]
    pub fn key(mut self, key: impl IntoKey) -> Self {
        self.progress.restart();
        if let Some(demand) = self.demands.last_mut() {
            demand.key = key.into_key();
        }
        self
    }

    /// Sets how many tokens to take; one if not set.
    ///
    /// It takes integers of all types, so the length of a body is a cost. One below zero is an
    /// [error](RateLimited::is_too_large), as no limit can grant it.
    ///
    /// A cost of zero takes nothing. It is admitted unless the bucket is in debt.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    ///
    /// const BYTES: Limit = Limit::new("bytes", Quota::token_bucket(1_000, MINUTE));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::RateLimited> {
    /// let limiter = RateLimiter::in_memory();
    /// let permit = limiter.limit(&BYTES).cost("a body".len()).await?;
    /// assert_eq!(permit.remaining(), 994);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("tokens", "weight"))]
    #[inline]
    pub fn cost(mut self, tokens: impl TryInto<u64>) -> Self {
        self.progress.restart();
        if let Some(demand) = self.demands.last_mut() {
            demand.set_cost(tokens_of(tokens));
        }
        self
    }

    /// Takes from this limit as well: from all limits of the call, or from none.
    ///
    /// The store does this in one step, so no other request sees half of it. A refusal names every
    /// limit that refused, and has the longest wait. A bucket that is named twice pays twice. The
    /// key of the limit before is not inherited.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limit, MINUTE, Quota, RateLimited, RateLimiter, SECOND};
    ///
    /// const PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(10, SECOND));
    /// const LLM_TOKENS: Limit = Limit::new("llm-tokens", Quota::token_bucket(40_000, MINUTE));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), RateLimited> {
    /// let limiter = RateLimiter::in_memory();
    /// let permit = limiter.limit(&PER_CLIENT).key("alice").and(&LLM_TOKENS).cost(900).await?;
    /// let left: Vec<_> = permit.snapshots().map(|snapshot| snapshot.remaining()).collect();
    /// assert_eq!(left, [9, 39_100]);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "all")]
    #[inline]
    pub fn and(mut self, limit: &'l Limit) -> Self {
        self.progress.restart();
        self.demands.push(limit);
        self
    }

    /// Reserves the tokens, into debt if they are missing. The answer is a
    /// [`Reservation`](super::Reservation).
    ///
    /// The work may run at an instant that is known at once: now if the bucket has the tokens, or
    /// else when it will have them, however far away that is.
    ///
    /// A reservation limits nothing by itself. Run the work after its
    /// [`ready`](super::Reservation::ready); dropping it gives the tokens back.
    ///
    /// The debt of the bucket is bounded by its quota's
    /// [`max_reserved`](crate::Quota::max_reserved). A request that would go deeper is refused.
    ///
    /// With several limits, the work may run when the last of them has its tokens. Until then, the
    /// tokens of the others are held, and these limits gain more meanwhile. So the bound of each
    /// limit counts the work at the instant when *that* limit had its tokens, not when it runs.
    ///
    /// # Cancel safety
    ///
    /// Dropping the call gives up what it may have reserved. With a store that answers later, this
    /// needs a tokio runtime: the one in which the call is dropped. Outside of a runtime, the tokens
    /// may stay taken.
    #[doc(alias("acquire_one", "until_ready", "until_key_ready", "delay", "wait"))]
    #[inline]
    pub fn reserve(self) -> LimitCall<'l, Duration> {
        self.reserve_within(Duration::MAX)
    }

    /// [Reserves](Self::reserve) the tokens if the wait is at most `max_wait`, and is refused at
    /// once otherwise.
    ///
    /// The wait for a request [in flight](crate::Quota::in_flight) to end is unknown, so without a free
    /// token this is refused at once. To wait, put a timeout around the `ready` of a [`reserve`](Self::reserve).
    #[doc(alias("acquire_with_timeout", "max_wait", "timeout"))]
    #[inline]
    pub fn reserve_within(self, max_wait: Duration) -> LimitCall<'l, Duration> {
        let Self { limiter, demands, jitter, mut progress, .. } = self;
        progress.restart();
        LimitCall { limiter, demands, jitter, progress, max_wait }
    }

    /// Takes the tokens now, in code that is not async: a `Drop`, an `Iterator`, a `poll_ready`.
    ///
    /// The answer is what awaiting the call would give. It needs no runtime, and a store that [answers
    /// at once](crate::backend::Backend::answers_at_once), as [`in_memory`](RateLimiter::in_memory).
    ///
    /// # Errors
    ///
    /// Like [`RateLimiter::limit`]. If the store answers later, as one behind a network, the call is
    /// [unavailable](RateLimited::is_unavailable) and nothing is taken, whatever
    /// [`on_failure`](RateLimiter::on_failure) says: await it instead.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
    ///
    /// const LINES: Limit = Limit::new("lines", Quota::token_bucket(2, MINUTE));
    ///
    /// let limiter = RateLimiter::in_memory();
    /// let told = ["a", "b", "c"].into_iter().filter(|_| limiter.limit(&LINES).now().is_ok());
    /// assert_eq!(told.collect::<Vec<_>>(), ["a", "b"]);
    /// ```
    #[doc(alias("blocking", "sync"))]
    pub fn now(mut self) -> Result<Permit<'l>, RateLimited> {
        let limiter = self.limiter;
        if limiter.state.is_off || limiter.state.backend.answers_at_once() {
            let answer = Pin::new(&mut self).poll(&mut Context::from_waker(Waker::noop()));
            if let Poll::Ready(answer) = answer {
                return answer;
            }
        }
        let why = "it answers later, and `now` cannot wait for that (await the call, or use a store \
                   that answers at once, as `RateLimiter::in_memory()` does)";
        Err(limiter.call_failed(self.demands.limit(), BackendError::undecidable("this", why)))
    }

    #[cold]
    #[inline(never)]
    fn poll_replaced(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit<'l>, RateLimited>> {
        self.update_numbers();
        self.poll_current(cx)
    }

    #[inline(always)]
    fn poll_current(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit<'l>, RateLimited>> {
        // Nearly all calls are on one bucket in memory, which answers at once.
        #[cfg(feature = "memory")]
        if let Self { limiter, demands, jitter, progress: progress @ Progress::New, .. } = self
            && let Some(memory) = limiter.memory()
            && let Some(demand) = demands.lone_bucket()
        {
            *progress = Progress::Done;
            return decide(limiter, memory, demand, *jitter);
        }
        self.poll_decision(cx)
    }

    #[inline(never)]
    fn poll_decision(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit<'l>, RateLimited>> {
        #[cfg(feature = "memory")]
        if let Self { limiter, demands, progress: progress @ Progress::New, .. } = self
            && let Some(memory) = limiter.memory()
        {
            let permit = decide_few(limiter, memory, demands);
            if permit.is_ready() {
                *progress = Progress::Done;
                return permit;
            }
        }
        let asking = Asking::take(DecisionSource::Handler, self.limiter.state.on_failure);
        let decided = ready!(self.poll_decided(cx, asking));
        Poll::Ready(self.read(decided))
    }

    #[inline(always)]
    fn read(&mut self, decided: Decided) -> Result<Permit<'l>, RateLimited> {
        let (limiter, limit) = (self.limiter, self.demands.limit());
        match decided {
            Decided::Admitted(answer) => {
                if let [demand] = self.demands.as_mut_slice()
                    && let readings = answer.readings()
                    && let Some(permit) =
                        Permit::of_readings(limiter, demand, readings, answer.now())
                {
                    return Ok(permit);
                }
                let demands = self.demands.as_slice().iter().map(Demand::own);
                Permit::of_grants(limiter.clone(), answer.grants(demands), answer.now())
                    .ok_or_else(|| limiter.unavailable(limit, BackendError::incomplete()))
            }
            Decided::Uncounted => {
                limiter.grant_uncharged(self.demands.as_slice(), limit).map(Permit::owned)
            }
            denied => {
                let jitter = self.draw_jitter();
                Err(denied.error(limiter, self.demands.as_slice(), limit, jitter))
            }
        }
    }
}

impl<W> LimitCall<'_, W> {
    /// Adds up to `spread`, at random, to the wait of a refusal or of a reservation.
    ///
    /// Clients that would all retry at the same instant, such as the start of a window, then come
    /// one after another, and so does reserved work. The wait is never shorter than without it.
    /// [`reserve_within`](LimitCall::reserve_within) cuts the jitter where the wait would exceed its
    /// bound.
    ///
    /// On reservations, jitter widens the bound of the quota: delayed work may run together with work
    /// of a later instant. So the bound for a window of time is that of a window longer by `spread`.
    /// Reserved work runs in the order of its instants with jitter.
    #[doc(alias = "until_ready_with_jitter")]
    #[inline]
    pub fn jitter(mut self, spread: Duration) -> Self {
        self.progress.restart();
        self.jitter = nanos(spread);
        self
    }

    /// The numbers in force take the place of those with which the limits were made.
    #[inline]
    fn update_numbers(&mut self) {
        if let Progress::New = self.progress {
            self.demands.update_numbers(&self.limiter.state.replacements);
        }
    }

    // Inlined, as a decision that is returned is copied.
    #[inline(always)]
    fn poll_decided(&mut self, cx: &mut Context<'_>, asking: Asking) -> Poll<Decided> {
        let Self { limiter, demands, progress, .. } = self;
        if let Progress::New = progress {
            *progress = Progress::Done;
            match limiter.ask(demands.as_mut_slice(), asking) {
                Asked::Decided(decided) => return Poll::Ready(decided),
                Asked::Pending(pending) => progress.wait_for(pending),
            }
        }
        let answer = ready!(progress.poll_answer(cx));
        Poll::Ready(limiter.decided(demands.as_slice(), asking, answer))
    }

    fn draw_jitter(&self) -> Duration {
        self.limiter.state.random.up_to(Duration::from_nanos(self.jitter))
    }
}

impl<'l> Future for LimitCall<'l> {
    type Output = Result<Permit<'l>, RateLimited>;

    // Inlined into the code of the user: to move the call through memory would cost more than the
    // decision.
    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Ways of their own: where nothing was replaced, the compiler knows the numbers of a constant.
        if any_replaced() {
            return match self.limiter.state.replacements.count() {
                0 => self.poll_current(cx),
                _ => self.poll_replaced(cx),
            };
        }
        self.poll_current(cx)
    }
}

impl<W> fmt::Debug for LimitCall<'_, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let demands = self.demands.as_slice().iter();
        let names: Vec<_> = demands.map(|demand| demand.limit.name()).collect();
        let progress = self.progress.name();
        f.debug_struct("LimitCall").field("limits", &names).field("progress", &progress).finish()
    }
}

impl Future for LimitCall<'_, Duration> {
    type Output = Result<Reservation, RateLimited>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mode = Mode::Reserve(self.max_wait);
        let asking = Asking::take(DecisionSource::Handler, self.limiter.state.on_failure);
        let asking = Asking { mode, longest: mode, ..asking };
        if self.limiter.state.replacements.count() != 0 {
            self.update_numbers();
        }
        let decided = ready!(self.poll_decided(cx, asking));
        let (limit, demands) = (self.demands.limit(), self.demands.as_slice());
        Poll::Ready(self.limiter.make_reservation(
            limit,
            demands,
            asking,
            decided,
            self.draw_jitter(),
        ))
    }
}
