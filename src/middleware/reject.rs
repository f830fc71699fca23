//! The answers to requests that do not run.

use std::mem;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response, StatusCode};

use super::action::{Refusal, Rejection};
use super::advertise::{field_set, member};
use super::on_refusal::{Handler, RefusalWording, Refused};
use super::plan::Plan;
use crate::fields::{self, FieldSet, RetryAfter, RetryHint, Wording};
use crate::key::Head;
use crate::limiter::{RateLimited, Snapshot};

/// What words an answer.
enum Renderer<'r> {
    Own(Wording),
    Handler(&'r Handler),
}

/// Words the answer to a request that is rejected.
pub(super) fn render(plan: &Plan, rejection: &Rejection<'_>, head: &Head<'_>) -> Response<Bytes> {
    let response = match rejection {
        Rejection::Refused(refusal) => render_refusal(plan, refusal, head),
        Rejection::TooLarge(error) => render_too_large(plan, error, head),
        Rejection::Status(status) => render_status(plan, *status, head),
    };
    answer_to(head, response)
}

/// What is sent of an answer: of one to HEAD, the fields alone.
fn answer_to(head: &Head<'_>, mut response: Response<Bytes>) -> Response<Bytes> {
    if head.method() == Method::HEAD {
        let body = mem::take(response.body_mut());
        fields::put_content_length(&mut response, u64::try_from(body.len()).ok());
    }
    response
}

fn render_refusal(plan: &Plan, refusal: &Refusal<'_>, head: &Head<'_>) -> Response<Bytes> {
    let Refusal { demands, outcome, status, jitter } = refusal;
    let (settings, after) = (&plan.settings, outcome.wait().saturating_add(*jitter));
    let renderer = renderer(plan, head);
    // Mostly there is one rule, and nothing is set about refusals.
    if let ([demand], Some(template), Renderer::Own(Wording::ProblemDetails)) =
        (demands.as_slice(), plan.template_for(demands.len()), &renderer)
        && (*status, settings.retry_after) == (TOO_MANY, RetryAfter::Seconds)
        && (plan.dialects().is_draft_11_alone() || !plan.sends_fields())
    {
        plan.log.refused(demand.limit(), after);
        let member = if plan.sends_fields() { member(plan, demand, outcome) } else { None };
        return template.refusal(plan.first_advertised().refusal_body.clone(), after, member);
    }
    let fields = plan.sends_fields().then(|| field_set(plan, demands, outcome));
    // Where a reservation could not be kept, the limits refuse that made it wait.
    let verdict = outcome.verdict();
    let refused = outcome.levels(demands).filter(|(_, level)| level.verdict == verdict);
    refused.clone().for_each(|(demand, _)| plan.log.refused(demand.limit(), after));
    let hint = RetryHint { after, now: outcome.at(), format: settings.retry_after };
    match renderer {
        Renderer::Own(wording) => {
            let names: Vec<_> = refused.map(|(demand, _)| demand.limit().name()).collect();
            let mut response = fields::refusal(wording, *status, &names, hint);
            if let Some(fields) = fields {
                fields.write_to(response.headers_mut());
            }
            response
        }
        Renderer::Handler(handler) => {
            let snapshots: Vec<_> =
                refused.map(|(demand, level)| Snapshot::new(demand.limit(), level)).collect();
            let (retry_after, error) = (Some(after), None);
            let (head, status, snapshots) = (Some(*head), *status, &*snapshots);
            let refused = Refused { head, status, snapshots, retry_after, error };
            let mut response = answer(handler, &refused);
            fields::put_retry_after(&mut response, hint);
            write_missing(fields, &mut response);
            response
        }
    }
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
pub(super) fn render_drained(plan: &Plan, head: &Head<'_>) -> Response<Bytes> {
    plan.log.drained(plan.limit());
    answer_to(head, render_status(plan, StatusCode::SERVICE_UNAVAILABLE, head))
}

/// Some other answer. That of 503 is to come back in a second.
fn render_status(plan: &Plan, status: StatusCode, head: &Head<'_>) -> Response<Bytes> {
    let format = plan.settings.retry_after;
    match renderer(plan, head) {
        Renderer::Own(wording) => fields::failure(wording, status, format),
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
        _ if fields::is_grpc(head.method(), head.version(), head.headers()) => {
            Renderer::Own(Wording::Grpc)
        }
        RefusalWording::ProblemDetails => Renderer::Own(Wording::ProblemDetails),
        RefusalWording::PlainText => Renderer::Own(Wording::PlainText),
        RefusalWording::Handler(handler) => Renderer::Handler(handler.as_ref()),
    }
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

const TOO_MANY: StatusCode = StatusCode::TOO_MANY_REQUESTS;
const SOON: Duration = Duration::from_secs(1);
