//! A rule: which limit a request is held to, by which key, and at what cost.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;

use super::log::Log;
use super::special::Special;
use super::watch::Watch;
use crate::fields::{self, PolicyText};
use crate::key::{Extracted, Head, Key, KeyError, KeyExtractor, global};
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
    pub(super) label: PolicyText,
    /// The body of its refusals.
    pub(super) refusal: Bytes,
    pub(super) choose: Option<Chooser>,
    pub(super) key: Arc<dyn KeyExtractor>,
    pub(super) price: Price,
    pub(super) missing_key: MissingKey,
    /// What most rules do not need; boxed, so that they do not pay for it.
    special: Option<Box<Special>>,
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

/// The limit that a request is held to, and by which rule, counted from the first.
pub(super) struct Choice<'l> {
    limit: Chosen<'l>,
    rule: usize,
}

/// The rule's limit, or the one that was chosen for a request.
enum Chosen<'l> {
    Rule(&'l Limit),
    Other(Box<Limit>),
}

impl Borrow<Limit> for Choice<'_> {
    fn borrow(&self) -> &Limit {
        match &self.limit {
            Chosen::Rule(limit) => limit,
            Chosen::Other(limit) => limit,
        }
    }
}

/// A [`Choice`] that outlives the request's head.
pub(super) struct OwnChoice {
    limit: Limit,
    rule: usize,
}

impl Borrow<Limit> for OwnChoice {
    fn borrow(&self) -> &Limit {
        &self.limit
    }
}

/// A limit that a rule holds a request to.
pub(super) trait ByRule: Borrow<Limit> {
    /// Which rule, counted from the first.
    fn rule(&self) -> usize;
}

impl ByRule for Choice<'_> {
    fn rule(&self) -> usize {
        self.rule
    }
}

impl ByRule for OwnChoice {
    fn rule(&self) -> usize {
        self.rule
    }
}

/// What is asked, for an answer that comes later.
pub(super) fn own(ask: &Ask<Choice<'_>>) -> Ask<OwnChoice> {
    ask.of_own(OwnChoice { limit: ask.limit().clone(), rule: ask.limit.rule() })
}

impl Rule {
    pub(super) fn new(limit: Limit) -> Self {
        let name = std::iter::once(limit.name());
        Self {
            label: PolicyText::new(&limit),
            refusal: fields::quota_exceeded(StatusCode::TOO_MANY_REQUESTS, name),
            limit,
            choose: None,
            key: Arc::new(global()),
            price: Price::Request,
            missing_key: MissingKey::Reject(StatusCode::INTERNAL_SERVER_ERROR),
            special: None,
            log: Log::default(),
            watch: Watch::default(),
        }
    }

    pub(super) fn special(&self) -> Option<&Special> {
        self.special.as_deref()
    }

    /// The same, to say more.
    pub(super) fn specially(&mut self) -> &mut Special {
        self.special.get_or_insert_default()
    }

    /// Whether it is of this request, for which a number may have to be drawn.
    pub(super) fn concerns(&self, head: &Head<'_>, draw: impl FnOnce() -> u64) -> bool {
        self.special().is_none_or(|special| special.concerns(head, draw))
    }

    /// Whether it may refuse what is asked; it is a shadow otherwise.
    pub(super) fn enforces<L: ByRule>(&self, ask: &Ask<L>) -> bool {
        self.special().is_none_or(|special| special.enforces(ask.limit().name(), &ask.key))
    }

    pub(super) fn is_enforced_on_all(&self) -> bool {
        self.special().is_none_or(|special| special.enforced.is_all())
    }

    pub(super) fn is_enforced_on_some(&self) -> bool {
        self.special().is_none_or(|special| !special.enforced.is_none())
    }

    /// The limit of those requests for which no other one is chosen.
    pub(super) const fn limit(&self) -> &Limit {
        &self.limit
    }

    /// What a request is asked for by this rule, which is at this position; nothing if it is not held
    /// to the limit.
    ///
    /// # Errors
    ///
    /// The status that answers a request whose key is missing or cannot be used.
    #[inline]
    pub(super) fn ask(
        &self,
        head: &Head<'_>,
        position: usize,
    ) -> Result<Option<Ask<Choice<'_>>>, StatusCode> {
        match self.key.extract(head) {
            Ok(Extracted::Key(key)) => {
                self.watch.look(&self.limit, &*self.key, head);
                Ok(Some(self.ask_of(head, key, position)))
            }
            Ok(Extracted::Exempt) => Ok(None),
            Err(error) => self.ask_without_key(head, &error, position),
        }
    }

    #[cold]
    fn ask_without_key(
        &self,
        head: &Head<'_>,
        error: &KeyError,
        position: usize,
    ) -> Result<Option<Ask<Choice<'_>>>, StatusCode> {
        let status = match self.missing_key {
            _ if !error.is_missing() => Some(StatusCode::BAD_REQUEST),
            MissingKey::Reject(status) => Some(status),
            MissingKey::Exempt | MissingKey::Shared => None,
        };
        match status {
            // The request goes on.
            Some(status) if !self.is_enforced_on_all() => {
                self.log.no_key(&self.limit, error, None);
                self.log.no_key_in_shadow(&self.limit, error, status);
            }
            status => self.log.no_key(&self.limit, error, status),
        }
        match (status, self.missing_key) {
            (Some(status), _) => Err(status),
            (None, MissingKey::Shared) => Ok(Some(self.ask_of(head, Key::GLOBAL, position))),
            (None, _) => Ok(None),
        }
    }

    #[inline]
    fn ask_of(&self, head: &Head<'_>, key: Key, rule: usize) -> Ask<Choice<'_>> {
        let limit = match &self.choose {
            None => Chosen::Rule(&self.limit),
            Some(choose) => Chosen::Other(Box::new(choose(head))),
        };
        let mut ask = Ask::of(Choice { limit, rule });
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
        let mut rule = f.debug_struct("Rule");
        rule.field("limit", &self.limit.name())
            .field("quota", &format_args!("{}", self.limit.quota()))
            .field("chosen", &self.choose.is_some())
            .field("missing_key", &self.missing_key);
        if let Some(special) = &self.special {
            rule.field("special", special);
        }
        rule.finish_non_exhaustive()
    }
}
