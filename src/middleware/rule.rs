//! Rules and the settings of a layer, as data: a limit with its key, its cost, its conditions and its
//! effects.
//!
//! `plan` prepares them for requests, and `decide` applies them.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::call_response::ResponseStyle;
use super::portion::Portion;
use super::queue::Queue;
use super::response_head::ResponseHead;
use crate::backend::{BucketId, Key};
use crate::fields::{ForeignFields, PartitionKey};
use crate::key::{Head, KeyError, KeyExtractor, global};
use crate::limiter::{BlockAfter, Kept, Limit, OnFailure};

/// A limit with its key, its cost, its conditions, and the effect of responses on its tokens.
///
/// A [`RateLimitLayer`](crate::RateLimitLayer) takes one rule or several. Where a rule is expected,
/// a [`Limit`] will do: it takes one token for each request, from a bucket that all requests share.
///
/// # Examples
///
/// ```
/// use http::{Method, StatusCode};
/// use tollgate::key::header;
/// use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimiter, Rule};
///
/// const FAILURES: Limit = Limit::new("failed-logins", Quota::token_bucket(5, HOUR));
/// const PLANNED: Limit = Limit::new("logins", Quota::token_bucket(10, MINUTE));
///
/// // Counts failures only: other requests get their tokens back.
/// let failures = Rule::new(&FAILURES)
///     .key(header("x-user"))
///     .only_methods([Method::POST])
///     .refund_if(|response| response.status() != StatusCode::UNAUTHORIZED);
/// // Decides and logs, but refuses nothing.
/// let planned = Rule::new(&PLANNED).key(header("x-user")).shadow();
///
/// let layer = RateLimiter::in_memory().layer(failures).and(planned);
/// # drop(layer);
/// ```
#[doc(alias("GovernorConfig", "GovernorConfigBuilder"))]
#[derive(Clone)]
#[must_use = "a rule does nothing until a layer takes it: `limiter.layer(rule)`"]
pub struct Rule {
    pub(super) limit: Arc<Limit>,
    pub(super) chooser: Option<Chooser>,
    pub(super) key: Arc<dyn KeyExtractor>,
    /// Whether the key was chosen, and is not that of all requests for want of another.
    pub(super) is_key_set: bool,
    /// Whether it has taken the place of another one that was chosen.
    pub(super) is_key_replaced: bool,
    pub(super) cost: RequestCost,
    /// `None`: as the error of the key says.
    pub(super) missing_key: Option<MissingKey>,
    /// The rule applies to requests for which all of these return true.
    pub(super) only: Vec<RequestPredicate>,
    pub(super) sample: Portion,
    /// The portion of the keys that the rule is enforced on; for the others, it is a shadow.
    pub(super) enforced: Portion,
    pub(super) refund_if: Option<ResponsePredicate>,
    pub(super) reset_if: Option<ResponsePredicate>,
    /// Boxed, since it is large and most rules have none.
    pub(super) block_after: Option<Box<BlockAfter>>,
}

/// Chooses the limit of a request; with `None`, the request is not limited.
pub(super) type Chooser = Arc<dyn Fn(&Head<'_>) -> Option<Arc<Limit>> + Send + Sync>;

/// What a request costs.
#[derive(Clone)]
pub(super) enum RequestCost {
    /// One token, since no cost was set.
    Request,
    Tokens(u64),
    ByRequest(Arc<dyn Fn(&Head<'_>) -> u64 + Send + Sync>),
}

impl RequestCost {
    /// What each request costs; `None` if that depends on the request.
    pub(super) const fn fixed(&self) -> Option<u64> {
        match self {
            Self::Request => Some(1),
            Self::Tokens(tokens) => Some(*tokens),
            Self::ByRequest(_) => None,
        }
    }
}

impl Rule {
    pub(super) fn with_limit(limit: Arc<Limit>) -> Self {
        Self {
            limit,
            chooser: None,
            key: Arc::new(global()),
            is_key_set: false,
            is_key_replaced: false,
            cost: RequestCost::Request,
            missing_key: None,
            only: Vec::new(),
            sample: Portion::ALL,
            enforced: Portion::ALL,
            refund_if: None,
            reset_if: None,
            block_after: None,
        }
    }

    /// Whether it applies to all requests, is enforced on all keys, and does nothing after the decision.
    pub(super) const fn is_plain(&self) -> bool {
        let applies_to_all = self.only.is_empty() && self.sample.is_all();
        let is_done = !self.depends_on_response() && self.block_after.is_none();
        applies_to_all && self.enforced.is_all() && is_done
    }

    pub(super) const fn is_enforced_on_some(&self) -> bool {
        !self.enforced.is_none()
    }

    /// Whether it may count a request while it is in flight, as a shadow for it. Of an enforced rule,
    /// that is known when the request is decided.
    pub(super) fn may_shadow_in_flight(&self) -> bool {
        let may = self.chooser.is_some() || self.limit.quota().is_in_flight();
        may && !self.enforced.is_all()
    }

    /// Whether the rule applies to this request. `draw` is called only if the rule samples
    /// requests.
    pub(super) fn applies_to(&self, head: &Head<'_>, draw: impl FnOnce() -> u64) -> bool {
        let all = self.sample.is_all();
        self.only.iter().all(|only| only(head)) && (all || self.sample.contains(draw()))
    }

    /// Whether the rule is enforced on this key. The answer is the same on every node and at any
    /// time.
    pub(super) fn enforces(&self, limit: &str, key: &Key) -> bool {
        self.enforced.is_all() || self.enforced.contains(BucketId::new(limit, key).sample_hash())
    }

    /// Whether the response can have an effect on the tokens.
    pub(super) const fn depends_on_response(&self) -> bool {
        self.refund_if.is_some() || self.reset_if.is_some()
    }

    /// What a request keeps by its response: nothing with a refund, and all tokens if neither predicate
    /// is true, unless the layer settles them.
    pub(super) fn effect(&self, response: &ResponseHead<'_>) -> Kept {
        let says =
            |predicate: &Option<ResponsePredicate>| predicate.as_ref().is_some_and(|p| p(response));
        if says(&self.reset_if) {
            return Kept::Reset;
        }
        if says(&self.refund_if) { Kept::Tokens(0) } else { Kept::Unknown }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rule = f.debug_struct("Rule");
        rule.field("limit", &self.limit.name())
            .field("quota", &format_args!("{}", self.limit.quota()))
            .field("chosen", &self.chooser.is_some())
            .field("missing_key", &self.missing_key);
        if !self.is_plain() {
            rule.field("only", &self.only.len())
                .field("sample", &format_args!("{}", self.sample))
                .field("enforced", &format_args!("{}", self.enforced))
                .field("refund_if", &self.refund_if.is_some())
                .field("reset_if", &self.reset_if.is_some())
                .field("block_after", &self.block_after);
        }
        rule.finish_non_exhaustive()
    }
}

pub(super) type RequestPredicate = Arc<dyn Fn(&Head<'_>) -> bool + Send + Sync>;

pub(super) type ResponsePredicate = Arc<dyn Fn(&ResponseHead<'_>) -> bool + Send + Sync>;

/// What happens to a request if its key [is missing](crate::key::KeyError::missing).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissingKey {
    /// The request is answered with this status.
    Reject(StatusCode),
    /// The request passes without being charged to this limit.
    Exempt,
    /// The request takes its tokens from one bucket for all requests without a key.
    Shared,
}

/// A request without a usable key, which is not to run.
pub(super) struct NoKey {
    pub(super) status: StatusCode,
    /// What the body says of it.
    pub(super) detail: Option<Cow<'static, str>>,
    /// The value of `WWW-Authenticate`.
    pub(super) challenge: Option<&'static str>,
}

impl NoKey {
    /// `is_chosen`: the configuration says what becomes of a request without a key.
    pub(super) fn new(status: StatusCode, error: &KeyError, is_chosen: bool) -> Self {
        // Most tests install no log. What was chosen for clients has the body of production.
        let is_for_clients = is_chosen && !status.is_server_error();
        let is_told = cfg!(debug_assertions) && error.is_missing() && !is_for_clients;
        let challenge = error.challenge().filter(|_| status == StatusCode::UNAUTHORIZED);
        Self { status, detail: is_told.then(|| error.message()), challenge }
    }
}

/// What the function of [`Rule::limit_with`](Rule::limit_with) returns: a limit, or none.
#[derive(Clone, Debug)]
pub struct ChosenLimit(pub(super) Option<Arc<Limit>>);

impl From<Limit> for ChosenLimit {
    fn from(limit: Limit) -> Self {
        Self(Some(Arc::new(limit)))
    }
}

impl From<&Limit> for ChosenLimit {
    fn from(limit: &Limit) -> Self {
        limit.clone().into()
    }
}

impl From<Arc<Limit>> for ChosenLimit {
    fn from(limit: Arc<Limit>) -> Self {
        Self(Some(limit))
    }
}

impl From<&Arc<Limit>> for ChosenLimit {
    fn from(limit: &Arc<Limit>) -> Self {
        Arc::clone(limit).into()
    }
}

/// With `None`, the request is not limited.
impl<L: Into<Self>> From<Option<L>> for ChosenLimit {
    fn from(limit: Option<L>) -> Self {
        limit.map_or(Self(None), L::into)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) first: Rule,
    pub(super) rest: Vec<Rule>,
    pub(super) settings: LayerSettings,
}

/// The settings that concern the layer as a whole.
#[derive(Clone, Debug, Default)]
pub(super) struct LayerSettings {
    pub(super) style: ResponseStyle,
    pub(super) partition_key: Option<PartitionKey>,
    pub(super) on_failure: OnFailure,
    pub(super) queue: Option<Queue>,
    pub(super) jitter: Duration,
    pub(super) settles: bool,
    /// Whether a request gets its tokens back if it is dropped before its response.
    pub(super) refunds_dropped: bool,
    /// Whether requests get an `Admission` for their handlers.
    pub(super) exposes: bool,
    pub(super) read_on: ReadOn,
    pub(super) foreign_fields: ForeignFields,
}

/// How much is read on.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "axum"), allow(dead_code, reason = "only bodies of axum are read on"))]
pub(super) struct ReadOn {
    pub(super) bytes: u64,
    pub(super) time: Duration,
    pub(super) at_once: usize,
}

impl Default for ReadOn {
    /// Most uploads, also over slow connections, and few enough that a flood of them costs little.
    fn default() -> Self {
        Self { bytes: 16 << 20, time: Duration::from_secs(10), at_once: 100 }
    }
}

impl Rules {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Rule> {
        std::iter::once(&self.first).chain(&self.rest)
    }
}
