//! The decision about what calls, reservations, layers, shadows and extra charges demand.
//!
//! Switching off, the policy for failures, the count of outages and the observers are handled here.
//! One bucket in memory is decided by a [twin](super::lone_bucket).

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Duration;

use scopeguard::{ScopeGuard, guard};
use smallvec::SmallVec;

use super::Limit;
use super::complete_answer::CompleteAnswer;
use super::demand::{Demand, Mode, draw_all_shards};
use super::detached::{BoxedAnswer, DetachOnDrop};
use super::engine::RateLimiter;
use super::events::{DecisionSource, Outcome, QueueStay};
use super::failure_log::Undecided;
use super::grant::Grant;
#[cfg(feature = "memory")]
use super::line::LineSlot;
use super::permit::{Permit, Settlement};
use super::queue::{HeldSlot, ReservedSlot};
use super::rate_limited::RateLimited;
use crate::algebra::Verdict;
#[cfg(feature = "memory")]
pub(crate) use crate::backend::LineTicket;
use crate::backend::{Answer, Applied, BackendError, Charge, OnFailure};
#[cfg(feature = "memory")]
use crate::backend::{LineWaiter, Memory};

/// No other store has lines.
#[cfg(not(feature = "memory"))]
pub(crate) type LineTicket = std::convert::Infallible;

/// Who asks, and for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    pub(crate) source: DecisionSource,
    /// What the store is asked for.
    pub(crate) mode: Mode,
    /// The most patient mode that the caller would try. A cost that does not fit in it never will.
    pub(crate) longest: Mode,
    /// What becomes of the request in an outage, if its limits do not say it.
    pub(crate) on_failure: OnFailure,
    /// Whether a request that is dropped before it is decided gets back what it was admitted for.
    pub(crate) refunds_dropped: bool,
}

/// What has become of a request.
pub(crate) enum Decided {
    /// All tokens are taken, and were there.
    Admitted(CompleteAnswer),
    /// All tokens are taken, and the work may run once they are there.
    ///
    /// Its place in line has to be [held](RateLimiter::hold): that of the ticket, or one in a queue of
    /// this process.
    Reserved(CompleteAnswer, Option<LineTicket>),
    /// Nothing is taken, and the tokens will be there later.
    Refused {
        answer: CompleteAnswer,
        /// Whether the request could wait for its turn, and the caller has not let it.
        could_wait: bool,
    },
    /// Nothing is taken, and the tokens will never be there.
    TooLarge(RateLimited),
    /// Nothing is taken, and the work may run: the limiter is off, or its store does not answer.
    Uncounted,
    /// The store did not answer, and the work must not run.
    Failed(BackendError),
}

/// A decision, or the store's answer to wait for.
pub(crate) enum Asked {
    Decided(Decided),
    /// For [`decided`](RateLimiter::decided), with the same demands.
    Pending(BoxedAnswer<Applied>),
}

impl Asking {
    /// For tokens that have to be there.
    pub(crate) const fn take(source: DecisionSource, on_failure: OnFailure) -> Self {
        let (mode, longest) = (Mode::Take, Mode::Take);
        Self { source, mode, longest, on_failure, refunds_dropped: false }
    }

    pub(crate) const fn max_wait(&self) -> Duration {
        match self.mode {
            Mode::Take => Duration::ZERO,
            Mode::Reserve(max_wait) | Mode::Stay(max_wait) => max_wait,
        }
    }

    pub(crate) const fn reserves(&self) -> bool {
        !matches!(self.mode, Mode::Take)
    }

    const fn is_shadow(&self) -> bool {
        matches!(self.source, DecisionSource::Shadow)
    }
}

impl RateLimiter {
    /// Asks the store for all demands, or none.
    #[inline(always)]
    pub(crate) fn ask<L: Borrow<Limit>>(&self, demands: &mut [Demand<L>], asking: Asking) -> Asked {
        if self.state.is_off {
            return Asked::Decided(Decided::Uncounted);
        }
        // The lines are those of a memory store, also behind a wrapper.
        #[cfg(feature = "memory")]
        let memory = if asking.reserves() { self.lines() } else { self.memory().map(Arc::as_ref) };
        #[cfg(feature = "memory")]
        if let Some(memory) = memory {
            return Asked::Decided(self.ask_here(memory, demands, asking));
        }
        match self.submit(demands, asking) {
            Ok(Answer::Ready(answer)) => Asked::Decided(self.decided(demands, asking, answer)),
            Ok(Answer::Pending(answer)) => {
                let answer = self.timed(answer);
                let gives_back = asking.reserves()
                    || asking.refunds_dropped
                    || demands.iter().any(Demand::is_in_flight);
                Asked::Pending(match gives_back {
                    true => self.returned_if_lost(demands, asking, answer),
                    false => answer,
                })
            }
            Err(too_large) => Asked::Decided(self.decide_too_large(demands, asking, too_large)),
        }
    }

    /// Sends the demands to the store. [`CompleteAnswer::new`] checks its answer.
    ///
    /// # Errors
    ///
    /// If a cost is more than the buckets could ever grant in the most patient mode that the caller
    /// would try. The store is not asked then.
    #[inline(always)]
    fn submit<L: Borrow<Limit>>(
        &self,
        demands: &mut [Demand<L>],
        asking: Asking,
    ) -> Result<Answer<Applied>, RateLimited> {
        draw_all_shards(demands, &self.state.random, asking.longest)?;
        // The memory store records the resets itself, and forgets what is in flight with its process.
        if !self.has_lines() {
            let mark = self.state.resets.mark();
            demands.iter_mut().for_each(|demand| demand.asked_at = mark);
            if let Some(why) = demands.iter().find_map(|one| self.misfit(one.limit())) {
                return Ok(Answer::Ready(Err(BackendError::misconfigured("shared", why))));
            }
        }
        Ok(self.state.backend.apply(&charges(demands, asking)?))
    }

    /// As [`ask`](Self::ask), in memory: its answers are complete, and it never fails. If the answer is
    /// a reservation, the request enters the lines of its buckets in the same step, so that no other
    /// request overtakes it.
    // Not inlined, so that the decision is written where it is returned.
    #[cfg(feature = "memory")]
    #[inline(never)]
    fn ask_here<L: Borrow<Limit>>(
        &self,
        memory: &Memory,
        demands: &mut [Demand<L>],
        asking: Asking,
    ) -> Decided {
        match self.take_here(memory, demands, asking) {
            Ok((applied, ticket)) => {
                self.read(demands, asking, CompleteAnswer::of_memory(applied), ticket)
            }
            Err(too_large) => self.decide_too_large(demands, asking, too_large),
        }
    }

    #[cfg(feature = "memory")]
    #[inline(always)]
    fn take_here<L: Borrow<Limit>>(
        &self,
        memory: &Memory,
        demands: &mut [Demand<L>],
        asking: Asking,
    ) -> Result<(Applied, Option<LineTicket>), RateLimited> {
        draw_all_shards(demands, &self.state.random, asking.longest)?;
        if !asking.reserves() {
            return Ok((memory.charge_several(&charges(demands, asking)?), None));
        }
        // A drain ends the waits in layers alone.
        let is_drained = matches!(asking.source, DecisionSource::Layer);
        let waiter = || LineWaiter::new(self.state.queues.id().filter(|_| is_drained));
        Ok(memory.reserve(&charges(demands, asking)?, waiter))
    }

    /// Looks how the buckets of these demands stand for a request that comes now and does not wait.
    ///
    /// # Errors
    ///
    /// If the store has not answered.
    pub(crate) async fn look<L: Borrow<Limit>>(
        &self,
        demands: &[Demand<L>],
    ) -> Result<CompleteAnswer, BackendError> {
        let answer = {
            let looks: SmallVec<[Charge<'_>; 2]> = demands.iter().map(Demand::look).collect();
            self.state.backend.apply(&looks)
        };
        let answer = match answer {
            Answer::Ready(answer) => answer,
            Answer::Pending(answer) => self.timed(answer).await,
        };
        let answer = answer.and_then(|applied| CompleteAnswer::new(demands, applied));
        answer.inspect_err(|error| {
            if let Some(first) = demands.first() {
                self.store_failed(first.limit(), error, Undecided::Call);
            }
        })
    }

    /// What the answer of a store, or its failure, makes of the demands that it was asked for.
    #[inline(always)]
    pub(crate) fn decided<L: Borrow<Limit>>(
        &self,
        demands: &[Demand<L>],
        asking: Asking,
        answer: Result<Applied, BackendError>,
    ) -> Decided {
        let answer = match answer.and_then(|applied| CompleteAnswer::new(demands, applied)) {
            Ok(answer) => answer,
            Err(error) => return self.undecided(demands, asking, error),
        };
        if let Some(first) = demands.first() {
            self.store_answered(first.limit(), &answer, asking.is_shadow());
        }
        self.read(demands, asking, answer, None)
    }

    #[inline(always)]
    fn read<L: Borrow<Limit>>(
        &self,
        demands: &[Demand<L>],
        asking: Asking,
        answer: CompleteAnswer,
        ticket: Option<LineTicket>,
    ) -> Decided {
        match answer.verdict() {
            Verdict::Admitted => {
                self.tell(demands, asking, &answer, None);
                Decided::Admitted(answer)
            }
            Verdict::Reserved if asking.reserves() => Decided::Reserved(answer, ticket),
            // What was not demanded can neither run nor count as refused: the store is at fault.
            Verdict::Reserved => self.undecided(demands, asking, BackendError::incomplete()),
            Verdict::Refused => self.refused(demands, asking, answer),
        }
    }

    // Not inlined: admitted requests should not pay for this code.
    #[cold]
    #[inline(never)]
    pub(super) fn refused<L: Borrow<Limit>>(
        &self,
        demands: &[Demand<L>],
        asking: Asking,
        answer: CompleteAnswer,
    ) -> Decided {
        // If an empty queue would have refused the request as well, the full queue is not the
        // reason. Nor is it if a bucket is not counted in the numbers of its limit yet: those cannot
        // reserve.
        let could_wait = !matches!(asking.longest, Mode::Take)
            && !answer.has_kept()
            && answer
                .each(demands)
                .all(|(demand, readings)| demand.could_wait(readings, asking.longest));
        #[cfg(feature = "memory")]
        if self.memory().is_some()
            && matches!(asking.source, DecisionSource::Handler)
            && demands.iter().any(Demand::is_in_flight)
        {
            let uses = &self.state.uses;
            answer
                .levels(demands)
                .filter(|(_, level)| level.verdict == Verdict::Refused)
                .for_each(|(one, level)| uses.check_ends(one.limit(), level.state.value));
        }
        let had_no_place = could_wait && !asking.reserves();
        let denied = if had_no_place { Outcome::QueueFull } else { Outcome::Refused };
        self.tell(demands, asking, &answer, Some(denied));
        Decided::Refused { answer, could_wait }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn decide_too_large<L: Borrow<Limit>>(
        &self,
        demands: &[Demand<L>],
        asking: Asking,
        error: RateLimited,
    ) -> Decided {
        if let Some(observers) = &self.state.observers {
            observers.tell_too_large(asking.source, demands, &error);
        }
        if !asking.is_shadow() {
            self.state.uses.note_unfit(&error);
        }
        Decided::TooLarge(error.with_speech(&self.state.speech))
    }

    /// What becomes of demands that the store has not decided.
    #[cold]
    #[inline(never)]
    fn undecided<L: Borrow<Limit>>(
        &self,
        demands: &[Demand<L>],
        asking: Asking,
        error: BackendError,
    ) -> Decided {
        let on_failure = |limit: &Limit| limit.get_on_failure().unwrap_or(asking.on_failure);
        let no_limit_refuses =
            || demands.iter().all(|one| on_failure(one.limit()) == OnFailure::Admit);
        let passes = asking.is_shadow() || (error.is_outage() && no_limit_refuses());
        let on_failure = if passes { OnFailure::Admit } else { OnFailure::Refuse };
        let call = match asking.is_shadow() {
            true => Undecided::Shadow,
            false => Undecided::Request(on_failure),
        };
        if let Some(first) = demands.first() {
            self.store_failed(first.limit(), &error, call);
        }
        if let Some(observers) = &self.state.observers {
            let outcome = if passes { Outcome::Uncounted } else { Outcome::Unavailable };
            let decisions = demands.iter().map(|one| (one.limit(), one.cost, outcome, None));
            observers.tell_request(asking.source, decisions);
        }
        if passes { Decided::Uncounted } else { Decided::Failed(error) }
    }

    /// Tells the observers what each limit has answered: `denied`, or that it has given the tokens.
    #[inline]
    pub(crate) fn tell<L: Borrow<Limit>>(
        &self,
        demands: &[Demand<L>],
        asking: Asking,
        answer: &CompleteAnswer,
        denied: Option<Outcome>,
    ) {
        if let Some(observers) = &self.state.observers {
            observers.tell_answer(asking.source, demands, answer, denied);
        }
    }

    /// Tells the observers of a request that waits, and of its stay in the queue.
    ///
    /// Only once its place is held: an observer that is slow must not delay the timer of the slot.
    pub(crate) fn join<L: Borrow<Limit>>(
        &self,
        demands: &[Demand<L>],
        asking: Asking,
        answer: &CompleteAnswer,
        slowest: &Arc<Limit>,
        promised: Duration,
    ) -> Option<QueueStay> {
        let observers = self.state.observers.as_ref()?;
        let stay = QueueStay::new(observers, slowest, asking.source, promised);
        self.tell(demands, asking, answer, None);
        stay.join();
        Some(stay)
    }

    /// Holds the place of a reservation with these grants. `None` if the store has given none.
    pub(crate) fn hold<'g>(
        &self,
        ticket: Option<LineTicket>,
        answer: &CompleteAnswer,
        grants: impl Iterator<Item = &'g Grant>,
    ) -> Option<Box<dyn ReservedSlot>> {
        let now = answer.now();
        let slot: Box<dyn ReservedSlot> = match ticket {
            #[cfg(feature = "memory")]
            Some(ticket) => {
                let store = Arc::clone(&self.state.backend);
                Box::new(LineSlot::new(store, ticket, grants, now, answer.wait()))
            }
            _ if self.has_lines() => return None,
            _ => HeldSlot::hold(&self.state.queues, grants, now),
        };
        Some(slot)
    }
}

#[inline(always)]
fn charges<L: Borrow<Limit>>(
    demands: &[Demand<L>],
    asking: Asking,
) -> Result<SmallVec<[Charge<'_>; 4]>, RateLimited> {
    let mut charges = SmallVec::new();
    for demand in demands {
        charges.push(demand.charge(asking.mode, asking.longest)?);
    }
    Ok(charges)
}

impl RateLimiter {
    /// Why this store cannot count by a limit: it outlives the process, and would keep the tokens of
    /// requests in flight for good.
    pub(crate) fn misfit(&self, limit: &Limit) -> Option<String> {
        (limit.quota().never_gains() && !self.has_lines()).then(|| {
            format!(
                "`{}` counts requests in flight, and a process that crashes gives nothing back (say when \
                 its tokens are there again: `Quota::in_flight({}).lost_after(HOUR)`)",
                limit.name(),
                limit.quota().rate()
            )
        })
    }
}

impl Decided {
    /// The error of a call whose first limit is this, with `jitter` in the wait of a refusal. For what
    /// neither admits its work nor lets it wait.
    #[inline(never)]
    pub(crate) fn error<L: Borrow<Limit>>(
        self,
        limiter: &RateLimiter,
        demands: &[Demand<L>],
        limit: &Limit,
        jitter: Duration,
    ) -> RateLimited {
        let error = match self {
            Self::Refused { answer, .. } => match answer.refusal(demands, jitter) {
                Some(error) => return error.with_speech(&limiter.state.speech),
                None => BackendError::incomplete(),
            },
            Self::TooLarge(error) => return error,
            Self::Failed(error) => error,
            // Not demanded, so never decided.
            Self::Admitted(_) | Self::Reserved(..) | Self::Uncounted => BackendError::incomplete(),
        };
        limiter.unavailable(limit, error)
    }
}

impl RateLimiter {
    /// If the request is dropped before this answer arrives, a task waits for it, and gives back what
    /// can be given back of what the store has taken.
    fn returned_if_lost<L: Borrow<Limit>>(
        &self,
        demands: &[Demand<L>],
        asking: Asking,
        answer: BoxedAnswer<Applied>,
    ) -> BoxedAnswer<Applied> {
        let demands: Vec<_> = demands.iter().map(Demand::own).collect();
        let limiter = self.clone();
        let answer = DetachOnDrop::new(Answer::pending(async move {
            // An error is left to the request, which may be gone. What was taken then stays taken,
            // and what counts requests in flight is lost.
            let applied = answer.await?;
            Ok(guard(applied, move |applied| limiter.give_back_lost(demands, asking, applied)))
        }));
        Box::pin(async move { answer.await.map(ScopeGuard::into_inner) })
    }

    fn give_back_lost(&self, demands: Vec<Demand<Arc<Limit>>>, asking: Asking, applied: Applied) {
        let is_layer = matches!(asking.source, DecisionSource::Layer);
        match self.decided(&demands, asking, Ok(applied)) {
            // A layer gives this back if it is told to.
            Decided::Admitted(answer) if is_layer || !asking.reserves() => {
                let grants = answer.grants(demands.into_iter());
                match Permit::of_grants(self.clone(), grants, answer.now()) {
                    Some(permit) if asking.refunds_dropped => {
                        drop(permit.settle_by(Settlement::LateRefund));
                    }
                    permit => drop(permit.map(Permit::in_flight)),
                }
            }
            decided => {
                if let Some(first) = demands.first() {
                    let (limit, longest) = (first.limit(), Duration::ZERO);
                    drop(self.make_reservation(limit, &demands, asking, decided, longest));
                }
            }
        }
    }
}
