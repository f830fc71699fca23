//! A rule: which limit a request is held to, by which key, at what cost, and what it is told.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use ::http::{HeaderValue, Response, StatusCode};
use bytes::Bytes;

use super::log::Log;
use crate::algebra::Verdict;
use crate::backend::{Answer, Applied, BackendError, BucketId, Charge};
use crate::http::{self, Fields, Told};
use crate::key::{Extracted, Head, Key, KeyError, KeyExtractor, global};
use crate::limiter::{Error, Limit, RateLimiter, charged_units};

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
    /// The limit's member of `RateLimit-Policy`, which is always the same.
    policy: Option<HeaderValue>,
    pub(super) log: Log,
}

/// What a rule says before the store has answered.
pub(super) enum Asked {
    /// The request is not held to the limit.
    Exempt,
    /// The store was asked.
    Answer(Answer<Applied>),
    /// The request cannot be held to the limit, and is answered.
    Stop(Response<Bytes>),
}

/// What becomes of a request.
pub(super) enum Ruling {
    /// It goes on, and its response gets these fields.
    Run(Option<Told>),
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
            log: Log::default(),
        }
    }

    /// Asks the store about a request.
    pub(super) fn ask(&self, head: &Head<'_>) -> Asked {
        let key = match self.key.extract(head) {
            Ok(Extracted::Key(key)) => key,
            Ok(Extracted::Exempt) => return Asked::Exempt,
            Err(error) => match self.without_key(&error) {
                ControlFlow::Continue(key) => key,
                ControlFlow::Break(asked) => return asked,
            },
        };
        match charged_units(&self.limit, (self.cost)(head)) {
            Ok(units) => {
                let id = BucketId::new(self.limit.name(), &key);
                let charge = Charge::take(id, self.limit.bucket(), units);
                Asked::Answer(self.limiter.backend().apply(&[charge]))
            }
            Err(error) => Asked::Stop(self.too_large(&error)),
        }
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
    pub(super) fn rule(&self, answer: Result<Applied, BackendError>) -> Ruling {
        let complete = answer.and_then(|applied| match applied.readings() {
            [] => Err(BackendError::incomplete()),
            _ => Ok(applied),
        });
        match complete {
            Ok(applied) => {
                self.log.sees(&self.limit);
                match applied.verdict() {
                    Verdict::Admitted | Verdict::Reserved => Ruling::Run(self.told(&applied)),
                    Verdict::Refused => Ruling::Stop(self.refusal(&applied)),
                }
            }
            Err(error) => {
                self.log.blind(&self.limit, &error, self.on_failure);
                match self.on_failure {
                    OnFailure::Close => {
                        Ruling::Stop(http::failure(StatusCode::SERVICE_UNAVAILABLE))
                    }
                    OnFailure::Open => Ruling::Run(None),
                }
            }
        }
    }

    fn refusal(&self, applied: &Applied) -> Response<Bytes> {
        self.log.refused(&self.limit, applied.wait());
        let mut response = http::refusal([self.limit.name()].into_iter(), applied.wait());
        if let Some(told) = self.told(applied) {
            told.tell(response.headers_mut());
        }
        response
    }

    fn told(&self, applied: &Applied) -> Option<Told> {
        match self.fields {
            Fields::None => None,
            Fields::Draft11 => {
                let reading = applied.readings().first()?;
                let member = http::member(&self.limit, reading, applied.now());
                Some(Told::new(self.policy.clone(), member))
            }
        }
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
            .finish_non_exhaustive()
    }
}
