//! A turn at a known instant.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;

use super::queue::{Booking, Waiting};
use super::share::Shares;
use super::{Permit, Refusal, Standing};
use crate::algebra::Verdict;
use crate::clock::Timestamp;

/// The work may run at a known instant, without asking again.
///
/// Its tokens are taken. Dropping it, or the future of [`ready`](Self::ready), gives it up: if
/// nobody has come after it, it is as if it had never been made; otherwise its place goes to the
/// next that waits in this process and that it is large enough for, whose own place is then free in
/// turn. A place that nobody can use is spent.
///
/// # Examples
///
/// ```
/// use tollgate::{Decision, Limit, Quota, RateLimited, RateLimiter, SECOND};
///
/// // A capacity of zero: everything waits its turn.
/// static CALLS: Limit = Limit::new("calls", Quota::token_bucket(10, SECOND).capacity(0));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), RateLimited> {
/// let limiter = RateLimiter::in_memory();
/// let Decision::Reserved(reservation) = limiter.limit(&CALLS).reserve().await? else {
///     panic!("nothing is saved up")
/// };
/// assert_eq!(reservation.wait(), SECOND / 10);
/// let permit = reservation.ready().await;
/// // the work runs here
/// # drop(permit);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping a reservation gives it up"]
pub struct Reservation(Box<Reserved>);

/// Boxed, as most decisions are none.
#[derive(Debug)]
struct Reserved {
    booking: Booking,
    shares: Shares,
    made: Timestamp,
    jitter: Duration,
}

impl Reservation {
    pub(super) fn new(booking: Booking, shares: Shares, made: Timestamp, jitter: Duration) -> Self {
        Self(Box::new(Reserved { booking, shares, made, jitter }))
    }

    /// The instant at which the work may run, jitter included.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        self.0.booking.at() + self.0.jitter
    }

    /// How long that was from when the reservation was made.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.at().since(self.0.made)
    }

    /// How the limit stands after this; of several, the first.
    #[must_use]
    pub fn standing(&self) -> Standing<'static> {
        self.0.shares.standing().clone()
    }

    /// How all limits stand after this, in the order in which they were named.
    pub fn standings(&self) -> impl Iterator<Item = Standing<'static>> {
        self.0.shares.iter().map(|share| share.standing.clone())
    }

    /// What there is to say to whoever may not wait: those limits refuse that are short.
    pub(super) fn as_refusal(&self) -> Refusal<'static> {
        let short = |standing: &&Standing<'_>| standing.verdict() == Verdict::Reserved;
        let standings = self.0.shares.iter().map(|share| &share.standing);
        let refused = standings.filter(short).cloned().collect();
        Refusal::new(refused, self.wait(), Duration::ZERO)
    }

    /// Waits until the instant has come: never less, and no longer than the runtime's timer and those
    /// before it take.
    ///
    /// Once it is polled, the reservation is in line: where somebody before it gives up, it moves up
    /// and may be ready earlier than [`at`](Self::at) has said. Among those in line, whoever
    /// reserved first goes first. One of them that nobody polls any more holds the others up for a
    /// tenth of a second, and several of them may make those late who have moved up behind them.
    ///
    /// # Panics
    ///
    /// The future, if it is polled outside of a tokio runtime or in one whose time is not enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the reservation up.
    pub fn ready(self) -> Ready {
        let Reserved { booking, shares, jitter, .. } = *self.0;
        Ready { booking: Some((booking, jitter)), waiting: None, shares: Some(shares) }
    }

    /// Keeps the reservation without waiting for it, for work that is planned for its instant.
    ///
    /// The permit holds from [`at`](Self::at) on. Nothing is given up when it is dropped.
    #[must_use]
    pub fn keep(self) -> Permit<'static> {
        let at = self.at();
        let Reserved { booking, shares, .. } = *self.0;
        let limiter = booking.limiter().clone();
        booking.keep();
        Permit::owned(limiter, shares, at)
    }
}

pin_project! {
    /// The future of [`Reservation::ready`].
    #[derive(Debug)]
    #[must_use = "dropping it gives the reservation up"]
    pub struct Ready {
        booking: Option<(Booking, Duration)>,
        #[pin]
        waiting: Option<Waiting>,
        shares: Option<Shares>,
    }
}

impl Future for Ready {
    type Output = Permit<'static>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit<'static>> {
        let mut this = self.project();
        if let Some((booking, jitter)) = this.booking.take() {
            this.waiting.set(Some(booking.wait(jitter, false)));
        }
        // A future that has given its answer is not polled again.
        let Some(waiting) = this.waiting.as_mut().as_pin_mut() else { return Poll::Pending };
        let turn = ready!(waiting.poll(cx));
        this.waiting.set(None);
        // Nobody is sent away who is not patient.
        let (Ok(spot), Some(shares)) = (turn, this.shares.take()) else {
            return Poll::Pending;
        };
        let (limiter, promised) = (spot.limiter().clone(), spot.at());
        // Every turn has a place, which is the promised one or one before.
        let at = spot.used().map_or(promised, |used| used.at);
        Poll::Ready(Permit::owned(limiter, shares, at))
    }
}
