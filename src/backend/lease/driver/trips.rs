//! Trips to the store: questions for lots, give-backs, and the task that looks after idle lots.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::{Instant, sleep, timeout};

use super::super::node::{LotAnswer, LotQuestion, LotReturn};
use super::super::terms::LeaseTerms;
use super::lease_driver::{LeaseDriver, LeasedBucket, NAME};
use crate::algebra::Verdict;
use crate::backend::late::Lag;
use crate::backend::{Adjustment, Answer, Applied, Backend, BackendError, Charge, OwnedBucketId};

/// How often the lots of a node are looked at: some times in the life of a lot.
const TICKS_IN_LIFE: u64 = 50;

/// The bounds of that, in microseconds.
const SHORTEST_TICK: u64 = 2_000;
const LONGEST_TICK: u64 = 20_000;

/// A question on its way. Dropped without an answer, it has failed.
struct QuestionTrip<B: Backend> {
    driver: Arc<LeaseDriver<B>>,
    limit: usize,
    id: OwnedBucketId,
    terms: LeaseTerms,
    question: LotQuestion,
    is_over: bool,
}

impl<B: Backend> LeaseDriver<B> {
    /// Sends a question. If the store answers at once, the node has the answer when this returns.
    pub(super) fn ask(self: &Arc<Self>, leased: &LeasedBucket<'_>, question: LotQuestion) {
        let Some(terms) = self.terms(leased.limit, leased.bucket) else { return };
        let (id, limit) = (leased.id.into_owned(), leased.limit);
        let mut trip =
            QuestionTrip { driver: Arc::clone(self), limit, id, terms, question, is_over: false };
        // The floor is a second charge of the same list, which only looks: it is judged by what the
        // first one leaves, and if it is refused, so is the list.
        let take = Charge::take(leased.id, terms.store(), question.units);
        let floor = Charge::look(leased.id, terms.store(), terms.floor());
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
    pub(super) fn send_back(&self, leased: &LeasedBucket<'_>, back: &LotReturn) {
        let Some(terms) = self.terms(leased.limit, leased.bucket) else { return };
        let back = Adjustment::refund_since(leased.id, terms.store(), back.units, back.since);
        if let Answer::Pending(answer) = self.inner.adjust(&[back])
            && let Some(runtime) = self.runtime()
        {
            runtime.spawn(answer);
        }
    }

    /// Sees to it that a task looks after the lots as long as there are any.
    fn look_after_lots(self: &Arc<Self>) {
        if !self.is_ticking.load(Ordering::Relaxed)
            && let Some(runtime) = self.runtime()
            && !self.is_ticking.swap(true, Ordering::AcqRel)
        {
            let lives = self.limits.iter().map(|limit| limit.terms.life());
            let every = lives.min().unwrap_or(0) / TICKS_IN_LIFE;
            let every = Duration::from_micros(every.clamp(SHORTEST_TICK, LONGEST_TICK));
            runtime.spawn(look_after(Arc::downgrade(self), every));
        }
    }

    /// Gives back what idle lots hold. Returns whether there are lots.
    fn tick(&self) -> bool {
        let now = self.clock.now();
        let mut has_lots = false;
        for mut part in self.table.parts() {
            let mut returns = SmallVec::<[_; 4]>::new();
            for (limit, key, view) in part.records() {
                if !view.node.has_lots(now) {
                    continue;
                }
                has_lots = true;
                view.node.tick(view.terms, now);
                if let Some(back) = view.node.give_back(view.terms, now) {
                    returns.push((limit, key.clone(), *view.terms.limit(), back));
                }
            }
            drop(part);
            for (limit, key, bucket, back) in returns {
                let id = crate::backend::BucketId::new(self.limit_name(limit), &key);
                self.send_back(&LeasedBucket { limit, id, bucket: &bucket }, &back);
            }
        }
        has_lots
    }
}

/// Looks after the lots of a node until there are none, or the node is gone.
async fn look_after<B: Backend>(driver: Weak<LeaseDriver<B>>, every: Duration) {
    loop {
        sleep(every).await;
        let Some(driver) = driver.upgrade() else { return };
        if !driver.tick() {
            driver.is_ticking.store(false, Ordering::Release);
            // A lot that came in between has seen the task still running.
            if !driver.tick() || driver.is_ticking.swap(true, Ordering::AcqRel) {
                return;
            }
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
        let (begun, within) = (Instant::now(), self.driver.deadline(&self.terms));
        match timeout(within, &mut answer).await {
            Ok(answer) => self.end(answer),
            Err(_) => {
                let ends = begun.checked_add(within).unwrap_or(begun);
                self.fail(Lag::since(ends).await.error(NAME, within));
                let rest = Duration::from_micros(self.terms.life()).saturating_sub(within);
                if let Ok(Ok(applied)) = timeout(rest, answer).await {
                    self.end(Ok(applied));
                }
            }
        }
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
        let has_lots = self.driver.with_record(self.limit, id.key(), |record| {
            if record.terms == *terms {
                record.node.answer(terms, &question, answer, now);
            }
            record.error = None;
            record.wake();
            record.node.has_lots(now)
        });
        if has_lots == Some(true) {
            self.driver.look_after_lots();
        }
    }

    fn fail(&mut self, error: BackendError) {
        self.is_over = true;
        let question = self.question;
        let now = self.driver.clock.now();
        let id = self.id.as_id();
        self.driver.with_record(self.limit, id.key(), |record| {
            record.node.fail(&question, now);
            record.error = Some(error);
            record.wake();
        });
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
