//! One charge: paid by the lots of this node, refused here, or decided by the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::futures::OwnedNotified;
use tokio::time::{Instant, Timeout, timeout_at};

use super::super::node::{LeaseDecision, LotQuestion, LotReturn};
use super::super::terms::LeaseTerms;
use super::lease_driver::{LeaseDriver, LeasedBucket, NAME, too_large};
use super::table::LeaseRecord;
use tollgate::algebra::{Units, Verdict};
use tollgate::backend::{Answer, Applied, Backend, BackendError, Charge, OwnedCharge, Reading};
use tollgate::clock::Timestamp;
use tollgate_kit::late::Lag;

/// What a node says to a charge, and what is to be done about it outside of the lock.
pub(super) struct TakeStep {
    pub(super) outcome: TakeOutcome,
    pub(super) question: Option<LotQuestion>,
    pub(super) give_back: Option<LotReturn>,
}

pub(super) enum TakeOutcome {
    /// Paid or refused here, at this time.
    Decided(Timestamp, Reading),
    Failed(BackendError),
    /// The store has to decide about this charge by itself.
    Single(Box<LeaseTerms>),
    /// The answer to a question decides.
    Wait(OwnedNotified),
}

/// What was decided at once, or what is to be done about a charge. Boxed, so that a request which a
/// lot pays does not move it.
type TakeResult = Result<(Timestamp, Reading), Box<TakeStep>>;

impl LeaseRecord {
    /// Decides about a charge.
    #[inline]
    fn take(&mut self, units: Units, now: Timestamp) -> TakeResult {
        let (decision, is_slot_over) = self.node.decide(&self.terms, units, now);
        match decision {
            LeaseDecision::Paid { left } if !is_slot_over => Ok(self.paid(units, left, now)),
            decision => self.act(decision, units, is_slot_over, now).reduce(),
        }
    }

    /// Decides about a charge that has been counted.
    fn take_again(&mut self, units: Units, now: Timestamp) -> TakeStep {
        let decision = self.node.decide_again(&self.terms, units, now);
        self.act(decision, units, false, now)
    }

    #[inline]
    fn paid(&mut self, units: Units, left: Units, now: Timestamp) -> (Timestamp, Reading) {
        let (at, state) = self.state_of(left, now);
        (at, Reading::in_micros(Verdict::Admitted, state, units, 0))
    }

    #[inline(never)]
    fn act(
        &mut self,
        decision: LeaseDecision,
        units: Units,
        is_slot_over: bool,
        now: Timestamp,
    ) -> TakeStep {
        let is_short = matches!(decision, LeaseDecision::Wait | LeaseDecision::Refused { .. });
        let question = self.node.ask(&self.terms, is_short, now);
        let give_back = if is_slot_over { self.node.give_back(&self.terms, now) } else { None };
        let outcome = match decision {
            LeaseDecision::Paid { left } => {
                let (at, reading) = self.paid(units, left, now);
                TakeOutcome::Decided(at, reading)
            }
            LeaseDecision::Refused { wait } => {
                let (at, reading) = self.refusal(wait, now);
                TakeOutcome::Decided(at, reading)
            }
            LeaseDecision::Single => TakeOutcome::Single(Box::new(self.terms)),
            LeaseDecision::Failing => TakeOutcome::Failed(self.failure()),
            LeaseDecision::Wait if self.node.is_asking() => {
                let answered = self.answered.get_or_insert_default();
                TakeOutcome::Wait(Arc::clone(answered).notified_owned())
            }
            // No question is under way, and none may be asked.
            LeaseDecision::Wait => TakeOutcome::Single(Box::new(self.terms)),
        };
        TakeStep { outcome, question, give_back }
    }

    /// Why the last question failed.
    fn failure(&self) -> BackendError {
        let unknown = || BackendError::unavailable(NAME, "the store did not answer lately");
        self.error.clone().unwrap_or_else(unknown)
    }
}

impl TakeStep {
    /// What was decided, if nothing is to be done about it.
    fn reduce(self) -> TakeResult {
        match self {
            Self {
                outcome: TakeOutcome::Decided(at, reading),
                question: None,
                give_back: None,
            } => Ok((at, reading)),
            step => Err(Box::new(step)),
        }
    }
}

impl<B: Backend> LeaseDriver<B> {
    /// Decides about a charge on a leased bucket.
    #[inline]
    pub(super) fn take(
        self: &Arc<Self>,
        leased: &LeasedBucket<'_>,
        charge: &Charge<'_>,
    ) -> Answer<Applied> {
        let (units, now) = (charge.units(), self.clock.now());
        if !charge.takes() || units <= 0 {
            return self.look(leased, charge);
        }
        match self.with_new_record(leased, now, |record| record.take(units, now)) {
            Some(Ok((at, reading))) => Answer::Ready(Ok(Applied::one(at, reading))),
            Some(Err(step)) => self.finish(leased, charge, *step),
            None => match self.terms(leased.limit, leased.bucket) {
                Some(terms) => self.single(leased, charge, &terms),
                // By these numbers it is an ordinary bucket.
                None => self.inner.apply(&[*charge]),
            },
        }
    }

    /// Decides about a charge and makes the trips that follow, without waiting.
    pub(super) fn step(
        self: &Arc<Self>,
        leased: &LeasedBucket<'_>,
        units: Units,
        is_new: bool,
    ) -> Option<TakeOutcome> {
        let now = self.clock.now();
        let step = self.with_new_record(leased, now, |record| match is_new {
            true => record.take(units, now),
            false => Err(Box::new(record.take_again(units, now))),
        })?;
        Some(match step {
            Ok((at, reading)) => TakeOutcome::Decided(at, reading),
            Err(step) => self.make_trips(leased, units, *step),
        })
    }

    fn make_trips(
        self: &Arc<Self>,
        leased: &LeasedBucket<'_>,
        units: Units,
        step: TakeStep,
    ) -> TakeOutcome {
        let TakeStep { outcome, question, give_back } = step;
        let send_back = |back: Option<LotReturn>| {
            if let Some(back) = back
                && let Some(terms) = self.terms(leased.limit, leased.bucket)
            {
                self.send_back(leased.id, &terms, &back);
            }
        };
        send_back(give_back);
        if let Some(question) = question {
            self.ask(leased, question);
            // A store in this process has answered by now.
            if let TakeOutcome::Wait(_) = outcome {
                let now = self.clock.now();
                let again =
                    self.with_new_record(leased, now, |record| record.take_again(units, now));
                let Some(TakeStep { outcome, question, give_back }) = again else { return outcome };
                send_back(give_back);
                question.inspect(|question| self.ask(leased, *question));
                return outcome;
            }
        }
        outcome
    }

    #[cold]
    fn finish(
        self: &Arc<Self>,
        leased: &LeasedBucket<'_>,
        charge: &Charge<'_>,
        step: TakeStep,
    ) -> Answer<Applied> {
        match self.make_trips(leased, charge.units(), step) {
            TakeOutcome::Decided(at, reading) => Answer::Ready(Ok(Applied::one(at, reading))),
            TakeOutcome::Failed(error) => Answer::Ready(Err(error)),
            TakeOutcome::Single(terms) => self.single(leased, charge, &terms),
            TakeOutcome::Wait(answered) => self.wait(leased, charge, answered),
        }
    }

    /// Waits for the answer to a question, and decides then.
    ///
    /// Dropping the future takes nothing: a lot pays in the moment in which this completes.
    fn wait(
        self: &Arc<Self>,
        leased: &LeasedBucket<'_>,
        charge: &Charge<'_>,
        answered: OwnedNotified,
    ) -> Answer<Applied> {
        let Some(terms) = self.terms(leased.limit, leased.bucket) else {
            return self.inner.apply(&[*charge]);
        };
        // Without a runtime there is no timer.
        let Some(runtime) = self.runtime() else { return self.single(leased, charge, &terms) };
        let within = self.deadline(&terms);
        let (driver, limit, charge) = (Arc::clone(self), leased.limit, charge.into_owned());
        let begun = Instant::now();
        let place = self.callers.join(begun);
        Answer::pending(async move {
            let (deadline, _place) = (begun.checked_add(within).unwrap_or(begun), place);
            let mut answered = answered;
            loop {
                let timed = by(&runtime, deadline, answered).await;
                let charge = charge.as_charge();
                let (id, bucket, units) = (charge.id(), charge.bucket(), charge.units());
                let leased = LeasedBucket { limit, id, bucket };
                if timed.is_err() {
                    // A busy process may have an answer that it has not passed on yet.
                    let look = || match driver.step(&leased, units, false) {
                        Some(TakeOutcome::Decided(at, reading)) => {
                            Some(Ok(Applied::one(at, reading)))
                        }
                        Some(TakeOutcome::Failed(error)) => Some(Err(error)),
                        _ => None,
                    };
                    let lag = match Lag::or_answer(deadline, look).await {
                        Ok(answer) => return answer,
                        Err(lag) => lag.or_that_of(&runtime, deadline, within).await,
                    };
                    return Err(driver.late(begun, within, lag));
                }
                match driver.step(&leased, units, false) {
                    Some(TakeOutcome::Decided(at, reading)) => {
                        return Ok(Applied::one(at, reading));
                    }
                    Some(TakeOutcome::Failed(error)) => return Err(error),
                    Some(TakeOutcome::Wait(again)) => answered = again,
                    Some(TakeOutcome::Single(_)) | None => {
                        let single = driver.single(&leased, &charge, &terms);
                        return single.wait().await;
                    }
                }
            }
        })
    }

    /// Lets the store decide about a charge by itself.
    pub(super) fn single(
        self: &Arc<Self>,
        leased: &LeasedBucket<'_>,
        charge: &Charge<'_>,
        terms: &LeaseTerms,
    ) -> Answer<Applied> {
        let units = charge.units();
        if units > terms.store().capacity() {
            let error = too_large(self.limit_name(leased.limit), units, terms);
            return Answer::Ready(Err(error));
        }
        let sent = self.clock.now();
        let take = Charge::take(leased.id, terms.store(), units);
        match self.inner.apply(&[take.on_failure(charge.get_on_failure())]) {
            Answer::Ready(answer) => {
                Answer::Ready(answer.and_then(|applied| self.heard(leased, units, sent, applied)))
            }
            Answer::Pending(answer) => {
                let (driver, limit) = (Arc::clone(self), leased.limit);
                let charge: OwnedCharge = charge.into_owned();
                let answer = within_life(self.runtime(), terms.safe_life(), answer);
                Answer::pending(async move {
                    let applied = answer.await?;
                    let charge = charge.as_charge();
                    let (id, bucket) = (charge.id(), charge.bucket());
                    driver.heard(&LeasedBucket { limit, id, bucket }, units, sent, applied)
                })
            }
        }
    }

    /// Takes note of what the store has said to a single request.
    fn heard(
        &self,
        leased: &LeasedBucket<'_>,
        units: Units,
        sent: Timestamp,
        applied: Applied,
    ) -> Result<Applied, BackendError> {
        let now = self.clock.now();
        let Some(terms) = self.terms(leased.limit, leased.bucket) else { return Ok(applied) };
        match applied.readings() {
            [reading] if reading.verdict() == Verdict::Admitted => {
                check_life(terms.safe_life(), sent, now).map(|()| applied)
            }
            [reading] if reading.verdict() == Verdict::Refused => {
                let wait = u64::try_from(reading.wait().as_micros()).unwrap_or(u64::MAX);
                let at = applied.now();
                self.with_record_in(&terms, leased.limit, leased.id.key(), |record| {
                    record.node.note_time(at, now);
                    record.node.deny(&terms, units, wait, now);
                });
                Ok(applied)
            }
            _ => Ok(applied),
        }
    }

    /// Looks at the store, and adds what the lots of this node hold. Those of other nodes are not
    /// seen.
    fn look(self: &Arc<Self>, leased: &LeasedBucket<'_>, charge: &Charge<'_>) -> Answer<Applied> {
        let Some(terms) = self.terms(leased.limit, leased.bucket) else {
            return self.inner.apply(&[*charge]);
        };
        let units = charge.units();
        let look = match charge.takes() {
            true => Charge::take(leased.id, terms.store(), units),
            false => Charge::look(leased.id, terms.store(), units),
        };
        let look = look.on_failure(charge.get_on_failure());
        let (driver, limit, key) = (Arc::clone(self), leased.limit, leased.id.key().clone());
        self.inner.apply(&[look]).map(move |applied| {
            let at = applied.now();
            match applied.readings() {
                [reading] => {
                    let is_kept = applied.has_kept();
                    let seen = driver.with_lots(limit, &key, &terms, units, reading, is_kept);
                    // Without lots, the record of a bucket that keeps its numbers tells all.
                    if seen == *reading { applied } else { Applied::one(at, seen) }
                }
                _ => applied,
            }
        })
    }

    /// A reading of the store with what the lots of this node hold. `is_kept` says that the bucket
    /// gains by numbers of before, so that only the store knows a wait.
    pub(super) fn with_lots(
        &self,
        limit: usize,
        key: &tollgate::backend::Key,
        terms: &LeaseTerms,
        units: Units,
        reading: &Reading,
        is_kept: bool,
    ) -> Reading {
        let now = self.clock.now();
        let held = self.with_record_in(terms, limit, key, |record| record.node.held(now));
        let held = held.unwrap_or(0);
        if held == 0 {
            return *reading;
        }
        let mut state = reading.state();
        state.value = state.value.saturating_add(held).min(terms.limit().capacity());
        match units.saturating_sub(state.value) {
            ..=0 => Reading::in_micros(Verdict::Admitted, state, 0, 0),
            _ if terms.is_window() || is_kept => {
                Reading::new(reading.verdict(), state, reading.wait())
            }
            missing => {
                let wait = terms.time_to_gain(missing);
                Reading::in_micros(Verdict::Refused, state, 0, wait)
            }
        }
    }
}

/// Waits for what the store says to charges as long as their tokens may be used.
pub(super) fn within_life<T: Send>(
    runtime: Option<Handle>,
    life: u64,
    answer: impl Future<Output = Result<T, BackendError>> + Send,
) -> impl Future<Output = Result<T, BackendError>> + Send {
    let within = Duration::from_micros(life);
    let deadline = Instant::now().checked_add(within).unwrap_or_else(Instant::now);
    async move {
        // Without a runtime there is no timer.
        let Some(runtime) = runtime else { return answer.await };
        match by(&runtime, deadline, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(Lag::since(deadline).await.error(NAME, within)),
        }
    }
}

/// Checks that tokens which the store was asked for at `sent` may be used. Those that were
/// charged longer ago than a life may have been replaced already.
///
/// # Errors
///
/// If they may not. No timer has told, so it is this process that was late, or suspended.
pub(super) fn check_life(life: u64, sent: Timestamp, now: Timestamp) -> Result<(), BackendError> {
    match now.micros_since(sent) >= life {
        true => Err(BackendError::overloaded(NAME, Duration::from_micros(life))),
        false => Ok(()),
    }
}

/// Waits for a future until an instant, by the timer of the caller's runtime, or else by that of
/// this one.
fn by<F: Future>(runtime: &Handle, deadline: Instant, future: F) -> Timeout<F> {
    let ours = Handle::try_current().is_err().then(|| runtime.enter());
    let timed = timeout_at(deadline, future);
    drop(ours);
    timed
}
