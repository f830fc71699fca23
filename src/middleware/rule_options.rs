//! The settings of a rule that most rules do not use.

use std::fmt;
use std::sync::Arc;

use super::{Portion, ResponseHead};
use crate::backend::{BucketId, Key};
use crate::key::Head;

#[derive(Clone)]
pub(super) struct RuleOptions {
    /// The rule applies to requests for which all of these return true.
    pub(super) only: Vec<RequestPredicate>,
    pub(super) sample: Portion,
    /// The portion of the keys that the rule is enforced on; for the others, it is a shadow.
    pub(super) enforced: Portion,
    pub(super) refund_if: Option<ResponsePredicate>,
    pub(super) reset_if: Option<ResponsePredicate>,
}

pub(super) type RequestPredicate = Arc<dyn Fn(&Head<'_>) -> bool + Send + Sync>;

pub(super) type ResponsePredicate = Arc<dyn Fn(&ResponseHead<'_>) -> bool + Send + Sync>;

/// The effect of a response on the tokens that its request took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseEffect {
    /// The tokens stay taken, unless the layer settles them.
    Keep,
    Refund,
    Reset,
}

impl RuleOptions {
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

    pub(super) fn effect(&self, response: &ResponseHead<'_>) -> ResponseEffect {
        let says =
            |predicate: &Option<ResponsePredicate>| predicate.as_ref().is_some_and(|p| p(response));
        if says(&self.reset_if) {
            return ResponseEffect::Reset;
        }
        if says(&self.refund_if) { ResponseEffect::Refund } else { ResponseEffect::Keep }
    }
}

impl Default for RuleOptions {
    fn default() -> Self {
        let (sample, enforced) = (Portion::ALL, Portion::ALL);
        Self { only: Vec::new(), sample, enforced, refund_if: None, reset_if: None }
    }
}

impl fmt::Debug for RuleOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleOptions")
            .field("only", &self.only.len())
            .field("sample", &format_args!("{}", self.sample))
            .field("enforced", &format_args!("{}", self.enforced))
            .field("refund_if", &self.refund_if.is_some())
            .field("reset_if", &self.reset_if.is_some())
            .finish()
    }
}
