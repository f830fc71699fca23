//! The responses to requests that do not run.

use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Method, Response, StatusCode};

use super::action::{Refusal, Rejection};
use super::advertise::field_set;
use super::body::RefusalText;
use super::call_response::{error_fields, refusal_for_good};
use super::on_refusal::{Handler, RefusalWording, RefusedRequest};
use super::plan::Plan;
use super::planned_rule::RuleLimit;
use super::rule::NoKey;
use crate::fields::{self, FieldSet, OutageHint, RetryHint, Wording};
use crate::key::Head;
use crate::limiter::{CompleteAnswer, Demand, Level, Limit, RateLimited, Snapshot};

/// What renders a response: the crate, or the handler of the user.
enum Renderer<'r> {
    Own(Wording),
    Handler(&'r Handler),
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
        Rejection::Unasked(error) => render_unasked(plan, error, head),
        Rejection::NoKey(NoKey { status, detail, challenge }) => {
            let soon = OutageHint::SOON.after;
            let mut response = render_status(plan, *status, detail.as_deref(), soon, head);
            if let Some(scheme) = challenge {
                fields::put_challenge(&mut response, scheme);
            }
            response
        }
        Rejection::Status(status, after) => render_status(plan, *status, None, *after, head),
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
    let fields = plan.sends_fields.then(|| field_set(plan, demands, outcome));
    // If the queue had no room for a reserved slot, the verdict is `Reserved`: the limits that made
    // the request wait are then the ones that refuse it.
    let verdict = outcome.verdict();
    let refused = outcome.levels(demands).filter(|(_, level)| level.verdict == verdict);
    refused.clone().for_each(|(demand, _)| plan.log.refused(demand.limit(), after));
    let hint = RetryHint { after, now: outcome.at(), format: plan.settings.style.retry_after };
    let mut names_time = false;
    let mut response = match renderer(plan, head) {
        Renderer::Own(wording) => {
            let names: Vec<_> = refused.map(|(demand, _)| demand.limit().name()).collect();
            let mut response = fields::refusal(wording, status, &names, hint);
            if let Some(fields) = fields {
                fields.write(&mut response);
            }
            response
        }
        Renderer::Handler(handler) => {
            let mut snapshots: Vec<_> =
                refused.map(|(demand, level)| Snapshot::new(demand.limit(), level)).collect();
            for (snapshot, record) in snapshots.iter_mut().zip(outcome.kept_by_refused(demands)) {
                snapshot.set_kept(record);
            }
            let (retry_after, error) = (after, None);
            let (head, snapshots) = (Some(*head), &*snapshots);
            let refused = RefusedRequest { head, status, snapshots, retry_after, error };
            let mut response = call_handler(handler, &refused);
            // A handler that names a time of its own means that time.
            names_time = response.headers().contains_key(RETRY_AFTER);
            // Adds nothing if the handler has named a time.
            fields::put_retry_after(&mut response, hint);
            write_missing(fields, &mut response);
            response
        }
    };
    if let Some(after) = after.filter(|_| !names_time) {
        fields::put_exact_wait(&mut response, head.extensions(), after);
    }
    omit_body_for_head(head, response.map(RefusalText::new))
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
    let policy = plan.refusal_policy(limit).filter(|_| !is_grpc(head))?;
    plan.log.refused(limit, Some(after));
    let numbers = plan.sends_fields.then(|| policy.numbers(limit, level));
    let mut response = fields::refusal_by(policy, numbers, after).map(RefusalText::Kept);
    fields::put_exact_wait(&mut response, head.extensions(), after);
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

/// Renders the response to a request that no wait helps.
fn render_unasked(plan: &Plan, error: &RateLimited, head: &Head<'_>) -> Response<Bytes> {
    plan.log.refused_unasked(error);
    let fields = error_fields(error, plan.dialects());
    let mut response = match renderer(plan, head) {
        Renderer::Own(wording) => refusal_for_good(wording, error, &plan.settings.style),
        Renderer::Handler(handler) => {
            let status = plan.settings.style.status_for_good(error);
            let (head, snapshots) = (Some(*head), error.snapshots());
            let (retry_after, error) = (None, Some(error));
            call_handler(handler, &RefusedRequest { head, status, snapshots, retry_after, error })
        }
    };
    write_missing(fields, &mut response);
    response
}

/// Renders a status for a layer without a plan: one that answers before any rule is asked.
pub(super) fn render_failure(
    head: &Head<'_>,
    status: StatusCode,
    detail: Option<&str>,
) -> Response<RefusalText> {
    let wording = if is_grpc(head) { Wording::Grpc } else { Wording::ProblemDetails };
    let response = fields::failure(wording, status, detail, OutageHint::SOON);
    omit_body_for_head(head, response.map(RefusalText::new))
}

/// Renders another status. A 503 asks the client to retry after so long.
fn render_status(
    plan: &Plan,
    status: StatusCode,
    detail: Option<&str>,
    after: Duration,
    head: &Head<'_>,
) -> Response<Bytes> {
    let format = plan.settings.style.retry_after;
    match renderer(plan, head) {
        Renderer::Own(wording) => {
            fields::failure(wording, status, detail, OutageHint { after, format })
        }
        Renderer::Handler(handler) => {
            let soon = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(after);
            let (head, retry_after) = (Some(*head), soon);
            let refused = RefusedRequest { head, status, snapshots: &[], retry_after, error: None };
            let mut response = call_handler(handler, &refused);
            if soon.is_some() {
                fields::put_retry_later(&mut response, OutageHint { after, format });
            }
            response
        }
    }
}

fn renderer<'r>(plan: &'r Plan, head: &Head<'_>) -> Renderer<'r> {
    match plan.settings.style.on_refusal.wording() {
        _ if is_grpc(head) => Renderer::Own(Wording::Grpc),
        RefusalWording::ProblemDetails => Renderer::Own(Wording::ProblemDetails),
        RefusalWording::PlainText => Renderer::Own(Wording::PlainText),
        RefusalWording::Handler(handler) => Renderer::Handler(handler.as_ref()),
    }
}

fn is_grpc(head: &Head<'_>) -> bool {
    fields::is_grpc(head.method(), head.version(), head.headers())
}

/// Calls the handler of the user. Forbids caches to store its response, unless that has a
/// `Cache-Control`.
fn call_handler(handler: &Handler, refused: &RefusedRequest<'_>) -> Response<Bytes> {
    let mut response = handler(refused);
    fields::put_no_store(&mut response);
    response
}

/// Adds the fields that the response does not have yet.
fn write_missing(fields: Option<FieldSet>, response: &mut Response<Bytes>) {
    if let Some(fields) = fields {
        fields.write_missing(response);
    }
}

pub(super) const TOO_MANY: StatusCode = StatusCode::TOO_MANY_REQUESTS;
