//! A rule: which limit a request is held to, by which key, at what cost, and what it is told.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderValue, Response, StatusCode};
use bytes::Bytes;

use super::after::{After, News};
use super::log::Log;
use super::queue::{Queue, Seat, Seats};
use crate::algebra::{State, Terms, Units, Verdict};
use crate::backend::{Answer, Applied, BackendError, BucketId, Charge, Reading};
use crate::clock::Timestamp;
use crate::http::{self, Fields, Told};
use crate::key::{Extracted, Head, Key, KeyError, KeyExtractor, global};
use crate::limiter::{
    Bill, Booking, Error, Limit, RateLimiter, Unstoppable, Used, Whose, charged_units,
};

/// What becomes of a request whose key [is missing](crate::key::KeyError::missing).
///
/// A key that is there but cannot be used is the client's fault: 400, whatever this says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// It is answered with this status; 500 if nothing else is said.
    Reject(StatusCode),
    /// It goes on, held to no limit.
    Exempt,
    /// It pays from one bucket with all others that have no key.
    Shared,
}

/// What becomes of requests while the store cannot answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFailure {
    /// They are answered with 503: nothing gets through unseen.
    #[default]
    Close,
    /// They go on, held to no limit.
    Open,
}

#[derive(Clone)]
pub(super) struct Rule {
    limiter: RateLimiter,
    limit: Limit,
    pub(super) key: Arc<dyn KeyExtractor>,
    pub(super) cost: Arc<dyn Fn(&Head<'_>) -> u64 + Send + Sync>,
    pub(super) fields: Fields,
    pub(super) missing_key: MissingKey,
    pub(super) on_failure: OnFailure,
    pub(super) queue: Option<Queue>,
    pub(super) seats: Seats,
    pub(super) jitter: Duration,
    pub(super) settles: bool,
    /// The limit's member of `RateLimit-Policy`, which is always the same.
    policy: Option<HeaderValue>,
    pub(super) log: Log,
}

/// What a rule says before the store has answered.
pub(super) enum Asked {
    /// The request is not held to the limit.
    Exempt,
    /// The store was asked.
    Answer(Answer<Heard>),
    /// The request cannot be held to the limit, and is answered.
    Stop(Response<Bytes>),
}

/// What the store has answered.
pub(super) struct Heard {
    applied: Applied,
    /// What was reserved.
    booked: Option<Box<Booked>>,
    /// What a refusal is answered with: 429, or what the queue says.
    status: StatusCode,
    /// What makes a refused client's wait longer.
    jitter: Duration,
    bill: Option<Box<Bill>>,
}

/// A turn that was reserved for a request.
pub(super) struct Booked {
    pub(super) booking: Booking,
    pub(super) seat: Seat,
    pub(super) jitter: Duration,
    pub(super) bill: Option<Box<Bill>>,
}

/// What becomes of a request.
pub(super) enum Ruling {
    /// It goes on.
    Run(After),
    /// It waits for its turn, and goes on then.
    Wait(Box<Booked>),
    /// It is answered.
    Stop(Response<Bytes>),
}

impl Rule {
    pub(super) fn new(limiter: RateLimiter, limit: Limit) -> Self {
        Self {
            policy: http::policy(&limit),
            limiter,
            limit,
            key: Arc::new(global()),
            cost: Arc::new(|_| 1),
            fields: Fields::default(),
            missing_key: MissingKey::Reject(StatusCode::INTERNAL_SERVER_ERROR),
            on_failure: OnFailure::default(),
            queue: None,
            seats: Seats::default(),
            jitter: Duration::ZERO,
            settles: false,
            log: Log::default(),
        }
    }

    /// Asks the store about a request.
    pub(super) fn ask(self: &Arc<Self>, head: &Head<'_>) -> Asked {
        let key = match self.key.extract(head) {
            Ok(Extracted::Key(key)) => key,
            Ok(Extracted::Exempt) => return Asked::Exempt,
            Err(error) => match self.without_key(&error) {
                ControlFlow::Continue(key) => key,
                ControlFlow::Break(asked) => return asked,
            },
        };
        let cost = (self.cost)(head);
        let Some(queue) = &self.queue else { return self.take(key, cost) };
        self.reserve(queue, key, cost)
    }

    fn take(&self, key: Key, cost: u64) -> Asked {
        let units = match charged_units(&self.limit, cost, Terms::AT_ONCE) {
            Ok(units) => units,
            Err(error) => return Asked::Stop(self.too_large(&error)),
        };
        let jitter = self.limiter.random().up_to(self.jitter);
        let id = BucketId::new(self.limit.name(), &key);
        let charge = Charge::take(id, self.limit.bucket(), units);
        let answer = self.limiter.backend().apply(&[charge]);
        let bill = self.settles.then(|| self.bill(key, units));
        Asked::Answer(answer.map(move |applied| Heard {
            applied,
            booked: None,
            status: StatusCode::TOO_MANY_REQUESTS,
            jitter,
            bill,
        }))
    }

    fn reserve(self: &Arc<Self>, queue: &Queue, key: Key, cost: u64) -> Asked {
        let bucket = self.limit.bucket();
        let longest = Terms::reserving(bucket.floor()).within(queue.max_wait);
        let units = match charged_units(&self.limit, cost, longest) {
            Ok(units) => units,
            Err(error) => return Asked::Stop(self.too_large(&error)),
        };
        // The seat comes first: without one, nothing is reserved that would have to be given up.
        let seat = Seat::take(self, queue);
        let patience = self.limiter.patience();
        let max_wait = patience.map_or(queue.max_wait, |end| end.min(queue.max_wait));
        let status = match (&seat, patience) {
            (None, _) => queue.crowded.status(),
            // The client has not asked for too much: the server is going away.
            (Some(_), Some(_)) => StatusCode::SERVICE_UNAVAILABLE,
            (Some(_), None) => StatusCode::TOO_MANY_REQUESTS,
        };
        let spread = self.limiter.random().up_to(self.jitter);
        let terms = match seat {
            Some(_) => longest.within(max_wait),
            None => Terms::AT_ONCE,
        };
        let charge = Charge::take(BucketId::new(self.limit.name(), &key), bucket, units).on(terms);
        let answer = self.limiter.backend().apply(&[charge]);
        let mut bill = self.settles.then(|| self.bill(key.clone(), units));
        let whose = Whose { limit: self.limit.clone(), key };
        let limiter = self.limiter.clone();
        let heard = answer.map(move |applied| {
            let booked = match (applied.verdict(), seat) {
                (Verdict::Reserved, Some(seat)) => {
                    // Chance never decides whether there is a turn.
                    let jitter = spread.min(max_wait.saturating_sub(applied.wait()));
                    let booking = Booking::new(&limiter, whose, units, &applied);
                    let bill = bill.take();
                    booking.map(|booking| Box::new(Booked { booking, seat, jitter, bill }))
                }
                _ => None,
            };
            // What could not wait in an empty queue either is not to blame on others.
            let could_wait = applied.readings().iter().all(|reading| {
                longest.allow(reading.state().value.saturating_sub(units), reading.wait())
            });
            let status = if could_wait { status } else { StatusCode::TOO_MANY_REQUESTS };
            Heard { applied, booked, status, jitter: spread, bill }
        });
        Asked::Answer(match heard {
            // Heard also if the client goes meanwhile, as a reservation has to be given up then.
            later @ Answer::Later(_) => Answer::later(Unstoppable::new(later)),
            now => now,
        })
    }

    fn bill(&self, key: Key, units: Units) -> Box<Bill> {
        Box::new(Bill::new(self.limiter.clone(), self.limit.clone(), key, units))
    }

    fn without_key(&self, error: &KeyError) -> ControlFlow<Asked, Key> {
        let status = match self.missing_key {
            _ if !error.is_missing() => StatusCode::BAD_REQUEST,
            MissingKey::Reject(status) => status,
            MissingKey::Exempt => return ControlFlow::Break(Asked::Exempt),
            MissingKey::Shared => return ControlFlow::Continue(Key::GLOBAL),
        };
        self.log.no_key(&self.limit, error, status);
        ControlFlow::Break(Asked::Stop(http::failure(status)))
    }

    fn too_large(&self, error: &Error) -> Response<Bytes> {
        self.log.too_large(error);
        let mut response = http::too_large(error);
        if self.fields == Fields::Draft11 {
            Told::new(self.policy.clone(), None).tell(response.headers_mut());
        }
        response
    }

    /// Reads the store's answer.
    pub(super) fn rule(self: &Arc<Self>, answer: Result<Heard, BackendError>) -> Ruling {
        let complete = answer.and_then(|heard| match heard.applied.readings() {
            [] => Err(BackendError::incomplete()),
            _ => Ok(heard),
        });
        match complete {
            Ok(heard) => {
                self.log.sees(&self.limit);
                let verdict = heard.applied.verdict();
                if verdict == Verdict::Refused {
                    return Ruling::Stop(self.refusal(&heard));
                }
                if let Some(booked) = heard.booked {
                    return Ruling::Wait(booked);
                }
                if verdict == Verdict::Reserved {
                    // Not asked for, or not said where: not for now in any case.
                    return self.blind(&BackendError::incomplete());
                }
                let state = heard.applied.readings().first().map(Reading::state);
                let news = state.filter(|_| self.fields != Fields::None).map(|state| News {
                    rule: Arc::clone(self),
                    state,
                    now: heard.applied.now(),
                    waited: None,
                });
                Ruling::Run(After::new(news, heard.bill))
            }
            Err(error) => self.blind(&error),
        }
    }

    fn blind(&self, error: &BackendError) -> Ruling {
        self.log.blind(&self.limit, error, self.on_failure);
        match self.on_failure {
            OnFailure::Close => Ruling::Stop(http::failure(StatusCode::SERVICE_UNAVAILABLE)),
            OnFailure::Open => Ruling::Run(After::default()),
        }
    }

    /// What a request is told that has waited.
    pub(super) fn waited(&self, waited: Duration) -> Option<HeaderValue> {
        http::waited(&self.limit, waited)
    }

    /// The answer to a request that was not to wait any longer.
    pub(super) fn sent_away(&self) -> Response<Bytes> {
        self.log.sent_away(&self.limit);
        http::failure(StatusCode::SERVICE_UNAVAILABLE)
    }

    fn refusal(&self, heard: &Heard) -> Response<Bytes> {
        let applied = &heard.applied;
        let retry_after = applied.wait().saturating_add(heard.jitter);
        self.log.refused(&self.limit, retry_after);
        let mut response =
            http::refusal(heard.status, [self.limit.name()].into_iter(), retry_after);
        if self.fields != Fields::None
            && let Some(reading) = applied.readings().first()
        {
            let member = http::refused_member(&self.limit, reading);
            Told::new(self.policy.clone(), member).tell(response.headers_mut());
        }
        response
    }

    /// What is told of the limit when it stood like this.
    pub(super) fn told(&self, state: State, now: Timestamp) -> Option<Told> {
        match self.fields {
            Fields::None => None,
            Fields::Draft11 => {
                Some(Told::new(self.policy.clone(), http::member(&self.limit, state, now)))
            }
        }
    }

    /// What is told of the limit to a request that has waited and was let in at `at`: those behind
    /// it count on whatever there is.
    pub(super) fn stands_after(&self, used: &Used) -> State {
        let State { value, ts } = self.limit.bucket().refresh(used.left, used.at);
        State { value: value.min(0), ts }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("limit", &self.limit.name())
            .field("quota", &format_args!("{}", self.limit.quota()))
            .field("fields", &self.fields)
            .field("missing_key", &self.missing_key)
            .field("on_failure", &self.on_failure)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}
