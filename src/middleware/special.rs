//! What can be said of a rule, and is not said of most.

use std::fmt;
use std::sync::Arc;

use super::{Portion, ResponseHead};
use crate::backend::{BucketId, Key};
use crate::key::Head;

#[derive(Clone)]
pub(super) struct Special {
    /// Of which requests the rule is; all of these have to say yes.
    pub(super) only: Vec<OfRequest>,
    pub(super) sample: Portion,
    /// The keys that it is enforced on; it is a shadow to the others.
    pub(super) enforced: Portion,
    pub(super) refund_if: Option<OfResponse>,
    pub(super) reset_if: Option<OfResponse>,
}

/// A question about a request.
pub(super) type OfRequest = Arc<dyn Fn(&Head<'_>) -> bool + Send + Sync>;

/// A question about a response.
pub(super) type OfResponse = Arc<dyn Fn(&ResponseHead<'_>) -> bool + Send + Sync>;

/// What becomes of the tokens of a request when its response is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// They stay taken, unless something else is said.
    Stay,
    Refund,
    Reset,
}

impl Special {
    /// Whether the rule is of this request, for which a number may have to be drawn.
    pub(super) fn concerns(&self, head: &Head<'_>, draw: impl FnOnce() -> u64) -> bool {
        let all = self.sample.is_all();
        self.only.iter().all(|only| only(head)) && (all || self.sample.has(draw()))
    }

    /// Whether the rule is enforced on this key, on every node and for ever.
    pub(super) fn enforces(&self, limit: &str, key: &Key) -> bool {
        self.enforced.is_all() || self.enforced.has(BucketId::new(limit, key).sample_hash())
    }

    /// Whether it matters what the response says.
    pub(super) const fn waits(&self) -> bool {
        self.refund_if.is_some() || self.reset_if.is_some()
    }

    pub(super) fn ending(&self, response: &ResponseHead<'_>) -> Ending {
        let says = |asked: &Option<OfResponse>| asked.as_ref().is_some_and(|asked| asked(response));
        if says(&self.reset_if) {
            return Ending::Reset;
        }
        if says(&self.refund_if) { Ending::Refund } else { Ending::Stay }
    }
}

impl Default for Special {
    fn default() -> Self {
        let (sample, enforced) = (Portion::ALL, Portion::ALL);
        Self { only: Vec::new(), sample, enforced, refund_if: None, reset_if: None }
    }
}

impl fmt::Debug for Special {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Special")
            .field("only", &self.only.len())
            .field("sample", &format_args!("{}", self.sample))
            .field("enforced", &format_args!("{}", self.enforced))
            .field("refund_if", &self.refund_if.is_some())
            .field("reset_if", &self.reset_if.is_some())
            .finish()
    }
}
