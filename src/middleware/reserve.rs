//! Requests that wait where they are short.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::queue::{Queue, Seat};
use super::rule::{ByRule, Choice, own};
use super::rules::{Asked, Manner, Rules, Ruling};
use super::tab::Tab;
use crate::algebra::Verdict;
use crate::backend::{Answer, Applied, BackendError};
use crate::key::Head;
use crate::limiter::{Ask, Booking, Limit, Unstoppable, Wish, ask, complete, said};

/// A turn that was reserved for a request.
pub(super) struct Booked {
    pub(super) booking: Booking,
    pub(super) seat: Seat,
    pub(super) jitter: Duration,
    pub(super) tab: Option<Arc<Tab>>,
}

/// What is known before the store has answered.
struct Waiting<'h> {
    rules: Arc<Rules>,
    queue: Queue,
    max_wait: Duration,
    manner: Manner<'h>,
}

impl Rules {
    pub(super) fn reserve(
        self: &Arc<Self>,
        head: &Head<'_>,
        queue: &Queue,
        asks: &mut [Ask<Choice<'_>>],
    ) -> Asked {
        // Without a seat, nothing is reserved that would have to be given up.
        let has_seat = self.seats.are_left(queue);
        let patience = self.limiter.patience();
        let max_wait = patience.map_or(queue.max_wait, |end| end.min(queue.max_wait));
        let status = match patience {
            _ if !has_seat => queue.crowded.status(),
            // The client has not asked for too much: the server is going away.
            Some(_) => StatusCode::SERVICE_UNAVAILABLE,
            None => StatusCode::TOO_MANY_REQUESTS,
        };
        let wish = if has_seat { Wish::Reserve(max_wait) } else { Wish::Take };
        let jitter = self.limiter.random().up_to(self.jitter);
        let manner = Manner { status, jitter, head: Some(head) };
        // What an empty queue could take is not too large, however full this one is.
        let longest = Wish::Reserve(queue.max_wait);
        let waiting = Waiting { rules: Arc::clone(self), queue: *queue, max_wait, manner };
        match ask(&self.limiter, asks, wish, longest) {
            Ok(Answer::Ready(answer)) => {
                let answer = answer.and_then(|applied| complete(asks, applied));
                let ruling = answer.and_then(|applied| waiting.rule(asks, &applied));
                Asked::Ruled(self.or_blind(asks.first(), ruling))
            }
            Ok(answer @ Answer::Pending(_)) => {
                let (rules, waiting) = (Arc::clone(self), waiting.without_head());
                let asks: Vec<_> = asks.iter().map(own).collect();
                let heard = answer.map(move |applied| {
                    let answer = complete(&asks, applied);
                    let ruling = answer.and_then(|applied| waiting.rule(&asks, &applied));
                    rules.or_blind(asks.first(), ruling)
                });
                // Heard also if the client goes meanwhile, as a reservation has to be given up then.
                let (rules, heard) = (Arc::clone(self), Unstoppable::new(heard));
                Asked::Later(Box::pin(async move {
                    heard
                        .await
                        .unwrap_or_else(|error| rules.or_blind(None::<&Ask<Limit>>, Err(error)))
                }))
            }
            Err(error) => Asked::Ruled(Ruling::Stop(self.too_large(&error, head))),
        }
    }
}

impl Waiting<'_> {
    fn without_head(self) -> Waiting<'static> {
        let Self { rules, queue, max_wait, manner } = self;
        Waiting { rules, queue, max_wait, manner: manner.without_head() }
    }

    fn rule<L: ByRule>(self, asks: &[Ask<L>], applied: &Applied) -> Result<Ruling, BackendError> {
        let Self { rules, queue, max_wait, mut manner } = self;
        if applied.verdict() == Verdict::Reserved
            && let Some(booking) = Booking::of(&rules.limiter, asks, applied)
        {
            // Only now, as whoever need not wait needs none.
            let Some(seat) = Seat::take(&rules, &queue) else {
                manner.status = queue.crowded.status();
                return Ok(rules.refuse(asks, applied, manner));
            };
            // Chance never decides whether there is a turn.
            let jitter = manner.jitter.min(max_wait.saturating_sub(applied.wait()));
            let tab = rules.tab(asks, applied);
            return Ok(Ruling::Wait(Box::new(Booked { booking, seat, jitter, tab })));
        }
        // What an empty queue would not have taken either is not to blame on others.
        let longest = Wish::Reserve(queue.max_wait);
        if !said(asks, applied).all(|(ask, readings)| ask.could_wait(readings, longest)) {
            manner.status = StatusCode::TOO_MANY_REQUESTS;
        }
        rules.rule(asks, applied, manner)
    }
}
