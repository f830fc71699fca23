//! The answers to requests that do not run.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response, StatusCode};

use super::action::{Refusal, Rejection};
use super::advertise::field_set;
use super::body::RefusalText;
use super::missing_key::NoKey;
use super::on_refusal::{Handler, RefusalWording, Refused};
use super::plan::Plan;
use super::planned_rule::Choice;
use crate::fields::{self, FieldSet, RetryHint, Wording};
use crate::key::Head;
use crate::limiter::{Demand, Level, Limit, Outcome, RateLimited, Snapshot};

/// What words an answer.
enum Renderer<'r> {
    Own(Wording),
    Handler(&'r Handler),
}

/// Words the answer to a request that is rejected.
pub(super) fn render(
    plan: &Plan,
    rejection: &Rejection<'_>,
    head: &Head<'_>,
) -> Response<RefusalText> {
    match rejection {
        Rejection::Refused(Refusal { demands, outcome, status, jitter }) => {
            render_refusal(plan, demands, outcome, *status, *jitter, head)
        }
        Rejection::TooLarge(error) => answer_to(head, thin(render_too_large(plan, error, head))),
        Rejection::NoKey(NoKey { status, detail }) => {
            answer_to(head, thin(render_status(plan, *status, detail.as_deref(), head)))
        }
        Rejection::Status(status) => {
            answer_to(head, thin(render_status(plan, *status, None, head)))
        }
    }
}

/// Words the answer to a request that limits have refused.
pub(super) fn render_refusal(
    plan: &Plan,
    demands: &[Demand<Choice<'_>>],
    outcome: &Outcome,
    status: StatusCode,
    jitter: Duration,
    head: &Head<'_>,
) -> Response<RefusalText> {
    let after = outcome.wait().saturating_add(jitter);
    if let ([demand], TOO_MANY) = (demands, status) {
        let (limit, level) = (demand.limit(), outcome.level(demand));
        if let Some(response) = render_lone(plan, limit, &level, || after, head) {
            return response;
        }
    }
    let fields = plan.sends_fields().then(|| field_set(plan, demands, outcome));
    // Where a reservation could not be kept, the limits refuse that made it wait.
    let verdict = outcome.verdict();
    let refused = outcome.levels(demands).filter(|(_, level)| level.verdict == verdict);
    refused.clone().for_each(|(demand, _)| plan.log.refused(demand.limit(), after));
    let hint = RetryHint { after, now: outcome.at(), format: plan.settings.retry_after };
    let response = match renderer(plan, head) {
        Renderer::Own(wording) => {
            let names: Vec<_> = refused.map(|(demand, _)| demand.limit().name()).collect();
            let mut response = fields::refusal(wording, status, &names, hint);
            if let Some(fields) = fields {
                fields.write_to(response.headers_mut());
            }
            response
        }
        Renderer::Handler(handler) => {
            let snapshots: Vec<_> =
                refused.map(|(demand, level)| Snapshot::new(demand.limit(), level)).collect();
            let (retry_after, error) = (Some(after), None);
            let (head, snapshots) = (Some(*head), &*snapshots);
            let refused = Refused { head, status, snapshots, retry_after, error };
            let mut response = answer(handler, &refused);
            fields::put_retry_after(&mut response, hint);
            write_missing(fields, &mut response);
            response
        }
    };
    answer_to(head, thin(response))
}

/// Words the refusal by the only limit of a layer, if nothing is set about refusals.
#[inline(never)]
pub(super) fn render_lone(
    plan: &Plan,
    limit: &Limit,
    level: &Level,
    after: impl FnOnce() -> Duration,
    head: &Head<'_>,
) -> Option<Response<RefusalText>> {
    let template = plan.refusal_template().filter(|_| !is_grpc(head))?;
    let after = after();
    plan.log.refused(limit, after);
    Some(answer_to(head, template.refusal(template.numbers(limit, level), after)))
}

/// What is sent of an answer: of one to HEAD, the fields alone.
fn answer_to(head: &Head<'_>, mut response: Response<RefusalText>) -> Response<RefusalText> {
    if head.method() == Method::HEAD {
        let length = response.body_mut().take().map_or(0, |text| text.len());
        fields::put_content_length(&mut response, u64::try_from(length).ok());
    }
    response
}

/// Leaves room for one word in place of the text.
fn thin(response: Response<Bytes>) -> Response<RefusalText> {
    // Nothing at all, not an empty piece: a gRPC client takes the head for the trailers only if the
    // stream ends with it.
    response.map(|text| (!text.is_empty()).then(|| Arc::new(text)))
}

fn render_too_large(plan: &Plan, error: &RateLimited, head: &Head<'_>) -> Response<Bytes> {
    plan.log.too_large(error);
    let fields = plan.sends_fields().then(|| FieldSet::policy_only(plan.dialects(), error.limit()));
    let mut response = match renderer(plan, head) {
        Renderer::Own(wording) => fields::too_large(wording, error.limit()),
        Renderer::Handler(handler) => {
            let (head, status, error) = (Some(*head), TOO_MANY, Some(error));
            answer(handler, &Refused { head, status, snapshots: &[], retry_after: None, error })
        }
    };
    write_missing(fields, &mut response);
    response
}

/// The answer to a request that was not to wait any longer.
pub(super) fn render_drained(plan: &Plan, head: &Head<'_>) -> Response<RefusalText> {
    plan.log.drained(plan.limit());
    answer_to(head, thin(render_status(plan, StatusCode::SERVICE_UNAVAILABLE, None, head)))
}

/// Some other answer. That of 503 is to come back in a second.
fn render_status(
    plan: &Plan,
    status: StatusCode,
    detail: Option<&str>,
    head: &Head<'_>,
) -> Response<Bytes> {
    let format = plan.settings.retry_after;
    match renderer(plan, head) {
        Renderer::Own(wording) => fields::failure(wording, status, detail, format),
        Renderer::Handler(handler) => {
            let soon = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(SOON);
            let (head, retry_after) = (Some(*head), soon);
            let refused = Refused { head, status, snapshots: &[], retry_after, error: None };
            let mut response = answer(handler, &refused);
            if soon.is_some() {
                fields::put_retry_soon(&mut response, format);
            }
            response
        }
    }
}

fn renderer<'r>(plan: &'r Plan, head: &Head<'_>) -> Renderer<'r> {
    match plan.settings.on_refusal.wording() {
        _ if is_grpc(head) => Renderer::Own(Wording::Grpc),
        RefusalWording::ProblemDetails => Renderer::Own(Wording::ProblemDetails),
        RefusalWording::PlainText => Renderer::Own(Wording::PlainText),
        RefusalWording::Handler(handler) => Renderer::Handler(handler.as_ref()),
    }
}

fn is_grpc(head: &Head<'_>) -> bool {
    fields::is_grpc(head.method(), head.version(), head.headers())
}

/// What a handler answers; not to be stored by caches, unless it says something about that itself.
fn answer(handler: &Handler, refused: &Refused<'_>) -> Response<Bytes> {
    let mut response = handler(refused);
    fields::put_no_store(&mut response);
    response
}

/// Adds the fields that the response does not have.
fn write_missing(fields: Option<FieldSet>, response: &mut Response<Bytes>) {
    if let Some(fields) = fields {
        fields.write_missing_to(response.headers_mut());
    }
}

pub(super) const TOO_MANY: StatusCode = StatusCode::TOO_MANY_REQUESTS;
const SOON: Duration = Duration::from_secs(1);
