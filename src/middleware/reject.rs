//! Why requests do not run, and the responses to them.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Response, StatusCode};

use super::body::RefusalText;
use super::call_response::{is_grpc, respond, respond_to_error};
use super::log::{log_refused, log_unasked};
use super::on_refusal::RefusedRequest;
use super::plan::Plan;
use super::planned_rule::{Failure, RuleDemands, RuleLimit, to_static};
use crate::backend::{Answer, BackendError};
use crate::fields::{self, RetryHint, SOON, Wording};
use crate::key::Head;
use crate::limiter::{
    BlockAfter, CompleteAnswer, Demand, DetachOnDrop, Level, Limit, RateLimited, refusals_to_count,
};

/// Why a request is rejected. It is data, as rendering it takes the head of the request.
pub(super) enum Rejection<'p> {
    /// One or more limits refused it.
    Refused(Refusal<'p>),
    /// No wait helps, and the store was not asked: it costs more than a limit can ever grant, or a
    /// limit grants nothing.
    Unasked(RateLimited),
    /// Nothing was decided about it.
    Failed(Failure),
}

pub(super) struct Refusal<'p> {
    pub(super) demands: RuleDemands<'p>,
    pub(super) outcome: CompleteAnswer,
    pub(super) status: StatusCode,
    /// Added to the wait.
    pub(super) jitter: Duration,
}

impl Refusal<'_> {
    /// The same without a lifetime, to be answered later.
    pub(super) fn into_static(self) -> Refusal<'static> {
        let Self { demands, outcome, status, jitter } = self;
        Refusal { demands: to_static(&demands), outcome, status, jitter }
    }

    /// What limits have refused whose rules block keys after some refusals.
    pub(super) fn counted<'x>(
        &'x self,
        plan: &'x Plan,
    ) -> impl Iterator<Item = (&'x Demand<RuleLimit<'x>>, &'x BlockAfter)> {
        refusals_to_count(&self.demands, &self.outcome).filter_map(|demand| {
            Some((demand, plan.rule_at(demand.limit.rule)?.rule.block_after.as_deref()?))
        })
    }
}

impl Refusal<'static> {
    /// Counts the refusal for the rules that block keys after some, and returns the rejection: with the
    /// time of the block, if that blocks a key.
    ///
    /// The count completes even if the client disconnects meanwhile.
    pub(super) async fn count(mut self, plan: Arc<Plan>) -> Rejection<'static> {
        let counting = async move {
            let mut has_blocked = false;
            for (demand, after) in self.counted(&plan) {
                let (limit, key) = (demand.limit(), &demand.key);
                has_blocked |= plan.limiter.count_refusal(limit, key, after).await;
            }
            if has_blocked && let Ok(outcome) = plan.limiter.look(&self.demands).await {
                self.outcome = outcome;
            }
            Ok(Rejection::Refused(self))
        };
        // `counting` never fails.
        let counted = DetachOnDrop::new(Answer::pending(counting)).await;
        counted.unwrap_or_else(|error| Rejection::unavailable(&error))
    }
}

impl Rejection<'_> {
    /// The store has not decided.
    pub(super) fn unavailable(error: &BackendError) -> Self {
        Self::Failed(Failure::unavailable(error.retry_after().unwrap_or(SOON)))
    }
}

/// Renders the response to a request that is rejected.
pub(super) fn render(
    plan: &Plan,
    rejection: &Rejection<'_>,
    head: &Head<'_>,
) -> Response<RefusalText> {
    let response = match rejection {
        Rejection::Refused(Refusal { demands, outcome, status, jitter, .. }) => {
            return render_refusal(plan, demands, outcome, *status, *jitter, head);
        }
        Rejection::Unasked(error) => {
            log_unasked(error, "");
            respond_to_error(&plan.settings.style, error, Some(*head))
        }
        Rejection::Failed(Failure { status, detail, challenge, after }) => {
            let retry_after = (*status == StatusCode::SERVICE_UNAVAILABLE).then_some(*after);
            let (head, status) = (Some(*head), *status);
            let refused = RefusedRequest { head, status, snapshots: &[], retry_after, error: None };
            let mut response = respond(&plan.settings.style, &refused, detail.as_deref(), None);
            if let Some(scheme) = challenge {
                fields::put_challenge(&mut response, scheme);
            }
            response
        }
    };
    omit_body_for_head(head, response.map(RefusalText::new))
}

/// Renders the response to a request that limits have refused.
pub(super) fn render_refusal(
    plan: &Plan,
    demands: &[Demand<RuleLimit<'_>>],
    outcome: &CompleteAnswer,
    status: StatusCode,
    jitter: Duration,
    head: &Head<'_>,
) -> Response<RefusalText> {
    let after = outcome.retry_after(demands, jitter);
    if let ([demand], TOO_MANY, Some(after)) = (demands, status, after) {
        let (limit, level) = (demand.limit(), outcome.level(demand));
        if let Some(response) = render_lone(plan, limit, &level, after, head) {
            return response;
        }
    }
    // If the queue had no room for a reserved slot, the verdict is `Reserved`: the limits that made
    // the request wait are then the ones that refuse it.
    let snapshots: Vec<_> = outcome.refused(demands).collect();
    snapshots.iter().for_each(|snapshot| log_refused(&plan.lacks_key, snapshot.limit(), after));
    let style = &plan.settings.style;
    let fields = plan.sends_fields.then(|| plan.fields_by(demands, outcome));
    let (shown, snapshots, retry_after) = (Some(*head), &*snapshots, after);
    let refused = RefusedRequest { head: shown, status, snapshots, retry_after, error: None };
    omit_body_for_head(head, respond(style, &refused, None, fields).map(RefusalText::new))
}

/// Renders the refusal by the only limit of a layer from the text that is kept of it; `None` if the layer
/// says it in other words.
#[inline(never)]
pub(super) fn render_lone(
    plan: &Plan,
    limit: &Limit,
    level: &Level,
    after: Duration,
    head: &Head<'_>,
) -> Option<Response<RefusalText>> {
    let policy = plan.kept_policy(limit).filter(|_| plan.uses_kept_wording && !is_grpc(head))?;
    log_refused(&plan.lacks_key, limit, Some(after));
    let numbers = plan.sends_fields.then(|| policy.numbers(limit, level));
    let mut response = fields::refusal_by(policy, numbers, after).map(RefusalText::Kept);
    fields::put_exact_wait(&mut response, Some(head.extensions()), after);
    Some(omit_body_for_head(head, response))
}

/// Removes the body of a response to HEAD, and keeps its `Content-Length`.
fn omit_body_for_head(
    head: &Head<'_>,
    mut response: Response<RefusalText>,
) -> Response<RefusalText> {
    if head.method() == Method::HEAD {
        let length = response.body_mut().take().len();
        fields::put_content_length(&mut response, u64::try_from(length).ok());
    }
    response
}

/// Renders a status for a layer without a plan: one that answers before any rule is asked.
pub(super) fn render_failure(
    head: &Head<'_>,
    status: StatusCode,
    detail: Option<&str>,
) -> Response<RefusalText> {
    let wording = if is_grpc(head) { Wording::Grpc } else { Wording::ProblemDetails };
    let response = fields::failure(wording, status, detail, RetryHint::SOON);
    omit_body_for_head(head, response.map(RefusalText::new))
}

pub(super) const TOO_MANY: StatusCode = StatusCode::TOO_MANY_REQUESTS;
