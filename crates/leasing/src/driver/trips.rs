//! Trips to the store: questions for lots, give-backs, and the task that looks after idle lots.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::{Instant, sleep, timeout_at};

use super::super::node::{LotAnswer, LotQuestion, LotReturn};
use super::super::terms::{LeaseTerms, MAX_LIFE};
use super::lease_driver::{LeaseDriver, LeasedBucket, NAME};
use super::table::{LeaseRecord, wake};
use tollgate::algebra::Verdict;
use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge, OnFailure, OwnedBucketId,
};
use tollgate_kit::late::Lag;

/// A question on its way. Dropped without an answer, it has failed.
struct QuestionTrip<B: Backend> {
    driver: Arc<LeaseDriver<B>>,
    limit: usize,
    id: OwnedBucketId,
    terms: LeaseTerms,
    question: LotQuestion,
    begun: Instant,
    is_over: bool,
}

impl<B: Backend> LeaseDriver<B> {
    /// Sends a question. If the store answers at once, the node has the answer when this returns.
    pub(super) fn ask(self: &Arc<Self>, leased: &LeasedBucket<'_>, question: LotQuestion) {
        let Some(terms) = self.terms(leased.limit, leased.bucket) else { return };
        let (id, limit) = (leased.id.into_owned(), leased.limit);
        let (driver, begun) = (Arc::clone(self), Instant::now());
        let mut trip = QuestionTrip { driver, limit, id, terms, question, begun, is_over: false };
        // The floor is a second charge of the same list, which only looks: it is judged by what the
        // first one leaves, and if it is refused, so is the list. A lot is what the store has charged,
        // so no wrapper may decide in its place.
        let by_store = Some(OnFailure::Refuse);
        let take = Charge::take(leased.id, terms.store(), question.units).on_failure(by_store);
        let floor = Charge::look(leased.id, terms.store(), terms.floor()).on_failure(by_store);
        let answer = match terms.floor() {
            0 => self.inner.apply(&[take]),
            _ => self.inner.apply(&[take, floor]),
        };
        match answer {
            Answer::Ready(answer) => trip.end(answer),
            // A trip that is dropped here has failed, and the callers charge the store themselves.
            Answer::Pending(answer) => {
                if let Some(runtime) = self.runtime() {
                    runtime.spawn(trip.run(answer));
                }
            }
        }
    }

    /// Gives part of a lot back. It is sent once: if it is lost, so are the tokens.
    pub(super) fn send_back(&self, id: BucketId<'_>, terms: &LeaseTerms, back: &LotReturn) {
        let back = Adjustment::refund_since(id, terms.store(), back.units, back.since);
        if let Answer::Pending(answer) = self.inner.adjust(&[back])
            && let Some(runtime) = self.runtime()
        {
            runtime.spawn(answer);
        }
    }

    /// Sees to it that a task looks after the lots as long as there are any to look at.
    pub(super) fn look_after_lots(self: &Arc<Self>) {
        if !self.is_ticking.load(Ordering::Relaxed)
            && let Some(runtime) = self.runtime()
            && !self.is_ticking.swap(true, Ordering::AcqRel)
        {
            let every = self.limits.iter().map(|limit| limit.terms.look_every()).min();
            let every = Duration::from_micros(every.unwrap_or(MAX_LIFE));
            let keeper = LotKeeper { driver: Arc::downgrade(self), every, is_over: false };
            runtime.spawn(keeper.run());
        }
    }

    /// Gives back what is not needed of the lots that are to be looked at by now. Returns how many
    /// buckets these are of, and whether there are lots to look at later.
    pub(super) fn tick(&self) -> (usize, bool) {
        let now = self.clock.now();
        let (mut count, mut has_more) = (0_usize, false);
        for mut part in self.table.parts() {
            let mut returns = SmallVec::<[_; 4]>::new();
            let looks = part.look(now, |record| {
                let LeaseRecord { limit, key, terms, node, .. } = record;
                node.tick(terms, now);
                if let Some(back) = node.give_back(terms, now) {
                    returns.push((*limit, key.clone(), *terms, back));
                }
            });
            count = count.saturating_add(looks);
            has_more |= part.has_looks();
            drop(part);
            for (limit, key, terms, back) in returns {
                self.send_back(BucketId::new(self.limit_name(limit), &key), &terms, &back);
            }
        }
        (count, has_more)
    }
}

/// The task that looks after lots. Dropped with its runtime, it lets the next one begin.
struct LotKeeper<B> {
    driver: Weak<LeaseDriver<B>>,
    every: Duration,
    /// Whether another one may begin already.
    is_over: bool,
}

impl<B: Backend> LotKeeper<B> {
    /// Looks after the lots of a node until there are none to look at, or the node is gone.
    async fn run(mut self) {
        loop {
            sleep(self.every).await;
            let Some(driver) = self.driver.upgrade() else { return };
            if !driver.tick().1 {
                driver.is_ticking.store(false, Ordering::Release);
                self.is_over = true;
                // A lot that came in between has seen the task still running.
                if !driver.tick().1 || driver.is_ticking.swap(true, Ordering::AcqRel) {
                    return;
                }
                self.is_over = false;
            }
        }
    }
}

impl<B> Drop for LotKeeper<B> {
    fn drop(&mut self) {
        if !self.is_over
            && let Some(driver) = self.driver.upgrade()
        {
            driver.is_ticking.store(false, Ordering::Release);
        }
    }
}

impl<B: Backend> QuestionTrip<B> {
    /// Waits for the answer. After the deadline it counts as lost, but it is used if it comes while
    /// the lot would still live.
    async fn run(
        mut self,
        mut answer: std::pin::Pin<Box<dyn Future<Output = Result<Applied, BackendError>> + Send>>,
    ) {
        let within = self.driver.deadline(&self.terms);
        let after = |time: Duration| self.begun.checked_add(time).unwrap_or(self.begun);
        let [first, second] = [within, within.saturating_mul(2)].map(after);
        let void = after(Duration::from_micros(self.terms.life()));
        match timeout_at(first, &mut answer).await {
            Ok(answer) => return self.end(answer),
            Err(_) => {
                let lag = Lag::since(first).await;
                let error = self.driver.late(self.begun, within, lag);
                self.fail(self.outage_so_far().unwrap_or(error));
            }
        }
        match timeout_at(second, &mut answer).await {
            Ok(Ok(applied)) => return self.end(Ok(applied)),
            // The store knows better why it is late.
            Ok(Err(error)) => return self.note(error),
            // Silence of two deadlines is that of the store, also in a crowd of callers.
            Err(_) => self.note(Lag::since(second).await.error(NAME, within)),
        }
        if let Ok(Ok(applied)) = timeout_at(void, answer).await {
            self.end(Ok(applied));
        }
    }

    /// The outage that the questions before this one have met, if the store has not answered since: a
    /// question that is late in a crowd does not end it.
    fn outage_so_far(&self) -> Option<BackendError> {
        let key = self.id.as_id().key();
        let error = self.driver.with_record(self.limit, key, |record| record.error.clone());
        error.flatten().filter(BackendError::is_outage)
    }

    /// Notes why a question that has failed did, unless the store has answered another one since.
    fn note(&self, error: BackendError) {
        self.driver.with_record(self.limit, self.id.as_id().key(), |record| {
            record.error = record.error.take().map(|_| error);
        });
    }

    /// Tells the node what came of the question.
    fn end(&mut self, answer: Result<Applied, BackendError>) {
        match answer {
            Ok(applied) => match applied.readings() {
                [reading, ..] => {
                    let is_admitted = applied.verdict() == Verdict::Admitted;
                    let (state, at) = (reading.state(), applied.now());
                    // While the bucket gains by numbers of before, only the store knows the wait.
                    let wait = applied.kept(0).map(|_| applied.wait());
                    self.hear(&LotAnswer { is_admitted, state, at, wait });
                }
                [] => self.fail(BackendError::incomplete()),
            },
            Err(error) => self.fail(error),
        }
    }

    fn hear(&mut self, answer: &LotAnswer) {
        self.is_over = true;
        let (question, terms) = (self.question, &self.terms);
        let now = self.driver.clock.now();
        let id = self.id.as_id();
        let place = self.driver.table.place(self.limit, id.key());
        let Some(mut part) = self.driver.table.part(place) else { return };
        let Some(record) = part.find(place, id.key()) else { return };
        if record.terms == *terms {
            record.node.answer(terms, &question, answer, now);
        }
        record.error = None;
        let waiting = record.answered.take();
        part.plan_look(place, now);
        let has_looks = part.has_looks();
        drop(part);
        wake(waiting);
        if has_looks {
            self.driver.look_after_lots();
        }
    }

    fn fail(&mut self, error: BackendError) {
        self.is_over = true;
        let question = self.question;
        let now = self.driver.clock.now();
        let id = self.id.as_id();
        let waiting = self.driver.with_record(self.limit, id.key(), |record| {
            record.node.fail(&question, now);
            record.error = Some(error);
            record.answered.take()
        });
        wake(waiting.flatten());
    }
}

/// When a runtime shuts down, it drops its tasks.
impl<B: Backend> Drop for QuestionTrip<B> {
    fn drop(&mut self) {
        if !self.is_over {
            let problem = "the tokio runtime in which it was asked is shut down";
            self.fail(BackendError::unavailable(NAME, problem));
        }
    }
}
