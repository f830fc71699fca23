//! A rule: which limit a request is held to, by which key, and at what cost.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use ::http::StatusCode;
use bytes::Bytes;

use super::log::Log;
use super::watch::Watch;
use crate::http::{self, Label};
use crate::key::{Extracted, Head, Key, KeyExtractor, global};
use crate::limiter::{Ask, Limit};

/// What becomes of a request whose key [is missing](crate::key::KeyError::missing).
///
/// A key that is there but cannot be used is the client's fault: 400, whatever this says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// It is answered with this status; 500 if nothing else is said.
    Reject(StatusCode),
    /// It goes on, held to this limit no more than to none.
    Exempt,
    /// It pays from one bucket with all others that have no key.
    Shared,
}

#[derive(Clone)]
pub(super) struct Rule {
    limit: Limit,
    pub(super) label: Label,
    /// The body of its refusals.
    pub(super) refusal: Bytes,
    pub(super) choose: Option<Chooser>,
    pub(super) key: Arc<dyn KeyExtractor>,
    pub(super) price: Price,
    pub(super) missing_key: MissingKey,
    pub(super) log: Log,
    pub(super) watch: Watch,
}

pub(super) type Chooser = Arc<dyn Fn(&Head<'_>) -> Limit + Send + Sync>;

/// What a request costs.
#[derive(Clone)]
pub(super) enum Price {
    /// One token, as nobody has said anything else.
    Request,
    Tokens(u64),
    By(Arc<dyn Fn(&Head<'_>) -> u64 + Send + Sync>),
}

/// The limit that a request is held to: the rule's, or the one that was chosen for it.
pub(super) enum Choice<'l> {
    Rule(&'l Limit),
    Chosen(Box<Limit>),
}

impl Borrow<Limit> for Choice<'_> {
    fn borrow(&self) -> &Limit {
        match self {
            Self::Rule(limit) => limit,
            Self::Chosen(limit) => limit,
        }
    }
}

impl Rule {
    pub(super) fn new(limit: Limit) -> Self {
        let name = std::iter::once(limit.name());
        Self {
            label: Label::of(&limit),
            refusal: http::quota_exceeded(StatusCode::TOO_MANY_REQUESTS, name),
            limit,
            choose: None,
            key: Arc::new(global()),
            price: Price::Request,
            missing_key: MissingKey::Reject(StatusCode::INTERNAL_SERVER_ERROR),
            log: Log::default(),
            watch: Watch::default(),
        }
    }

    /// The limit of those requests for which no other one is chosen.
    pub(super) const fn limit(&self) -> &Limit {
        &self.limit
    }

    /// What a request is asked for; nothing if it is not held to the limit.
    ///
    /// # Errors
    ///
    /// The status that answers a request whose key is missing or cannot be used.
    pub(super) fn ask(&self, head: &Head<'_>) -> Result<Option<Ask<Choice<'_>>>, StatusCode> {
        let key = match self.key.extract(head) {
            Ok(Extracted::Key(key)) => {
                self.watch.look(&self.limit, &*self.key, head);
                key
            }
            Ok(Extracted::Exempt) => return Ok(None),
            Err(error) => {
                let status = match self.missing_key {
                    _ if !error.is_missing() => Some(StatusCode::BAD_REQUEST),
                    MissingKey::Reject(status) => Some(status),
                    MissingKey::Exempt | MissingKey::Shared => None,
                };
                self.log.no_key(&self.limit, &error, status);
                return match (status, self.missing_key) {
                    (Some(status), _) => Err(status),
                    (None, MissingKey::Shared) => Ok(Some(self.ask_of(head, Key::GLOBAL))),
                    (None, _) => Ok(None),
                };
            }
        };
        Ok(Some(self.ask_of(head, key)))
    }

    fn ask_of(&self, head: &Head<'_>, key: Key) -> Ask<Choice<'_>> {
        let limit = match &self.choose {
            None => Choice::Rule(&self.limit),
            Some(choose) => Choice::Chosen(Box::new(choose(head))),
        };
        let mut ask = Ask::of(limit);
        ask.key = key;
        match &self.price {
            Price::Request => {}
            Price::Tokens(tokens) => ask.price(*tokens),
            Price::By(tokens) => ask.price(tokens(head)),
        }
        ask
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("limit", &self.limit.name())
            .field("quota", &format_args!("{}", self.limit.quota()))
            .field("chosen", &self.choose.is_some())
            .field("missing_key", &self.missing_key)
            .finish_non_exhaustive()
    }
}
