//! A rule: a limit with its key, its cost, its conditions and its effects.
//!
//! A rule is data. `plan` prepares rules for requests, and `decide` applies them.

use std::fmt;
use std::sync::Arc;

use super::missing_key::MissingKey;
use super::rule_options::RuleOptions;
use crate::key::{Head, KeyExtractor, global};
use crate::limiter::Limit;

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
    pub(super) cost: RequestCost,
    pub(super) missing_key: MissingKey,
    /// Boxed, since most rules have none.
    pub(super) options: Option<Box<RuleOptions>>,
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
            cost: RequestCost::Request,
            missing_key: MissingKey::Reject(http::StatusCode::INTERNAL_SERVER_ERROR),
            options: None,
        }
    }

    pub(super) fn options_mut(&mut self) -> &mut RuleOptions {
        self.options.get_or_insert_default()
    }

    pub(super) fn is_enforced_on_some(&self) -> bool {
        self.options.as_ref().is_none_or(|options| !options.enforced.is_none())
    }

    pub(super) fn depends_on_response(&self) -> bool {
        self.options.as_ref().is_some_and(|options| options.depends_on_response())
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rule = f.debug_struct("Rule");
        rule.field("limit", &self.limit.name())
            .field("quota", &format_args!("{}", self.limit.quota()))
            .field("chosen", &self.chooser.is_some())
            .field("missing_key", &self.missing_key);
        if let Some(options) = &self.options {
            rule.field("options", options);
        }
        rule.finish_non_exhaustive()
    }
}
