//! The answers to requests that do not run.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use smallvec::SmallVec;

use super::on_refusal::{Handler, Manner as RefusalManner, Refused};
use super::rules::{Manner, Rules, Ruling};
use super::tell;
use crate::backend::Applied;
use crate::fields::{self, FieldSet, RetryAfter, RetryHint, Wording};
use crate::key::Head;
use crate::limiter::{Ask, Error, Limit, Standing, said};

/// Who words an answer.
enum By<'r> {
    Us(Wording),
    Handler(&'r Handler),
}

impl Rules {
    /// Refuses a request, as its limits have answered.
    pub(super) fn refuse<L: Borrow<Limit>>(
        self: &Arc<Self>,
        asks: &[Ask<L>],
        applied: &Applied,
        manner: Manner<'_>,
    ) -> Ruling {
        if let Some(head) = manner.head {
            return Ruling::Stop(self.refusal(asks, applied, manner, head));
        }
        let asks: Vec<_> = asks.iter().map(Ask::to_owned).collect();
        let (rules, applied, manner) = (Arc::clone(self), applied.clone(), manner.without_head());
        Ruling::Untold(Box::new(move |head| rules.refusal(&asks, &applied, manner, head)))
    }

    fn refusal<L: Borrow<Limit>>(
        &self,
        asks: &[Ask<L>],
        applied: &Applied,
        manner: Manner<'_>,
        head: &Head<'_>,
    ) -> Response<Bytes> {
        let after = applied.wait().saturating_add(manner.jitter);
        let by = self.by(head);
        // Mostly there is one rule, and nobody has said anything about refusals.
        if let ([ask], Some(ready), By::Us(Wording::ProblemDetails)) =
            (asks, self.ready_for(asks), &by)
            && (manner.status, self.telling.retry_after) == (TOO_MANY, RetryAfter::Seconds)
            && (self.dialects().is_draft_11_alone() || !self.tells())
        {
            self.log.refused(ask.limit(), after);
            let member = if self.tells() { tell::member(self, ask, applied) } else { None };
            return ready.refusal(self.first_told().refusal.clone(), after, member);
        }
        let told = self.tells().then(|| tell::told(self, asks, applied));
        // Where a reservation could not be kept, those are to blame that made it wait.
        let mut refused = SmallVec::<[Standing<'_>; 4]>::new();
        for (ask, readings) in said(asks, applied) {
            if readings.iter().any(|reading| reading.verdict() == applied.verdict()) {
                refused.push(Standing::of(ask.limit(), readings, applied.now()));
                self.log.refused(ask.limit(), after);
            }
        }
        let hint = RetryHint { after, now: applied.now(), format: self.telling.retry_after };
        let form = match by {
            By::Us(form) => form,
            By::Handler(handler) => {
                let (status, retry_after) = (manner.status, Some(after));
                let refused = Refused { status, limits: &refused, retry_after, error: None };
                let mut response = handler(head, &refused);
                fields::put_retry_after(&mut response, hint);
                beside(told, &mut response);
                return response;
            }
        };
        let names: SmallVec<[_; 4]> = refused.iter().map(|one| one.limit().name()).collect();
        let mut response = fields::refusal(form, manner.status, &names, hint);
        if let Some(told) = told {
            told.write_to(response.headers_mut());
        }
        response
    }

    /// The answer to a request that costs more than a limit can ever grant.
    pub(super) fn too_large(&self, error: &Error, head: &Head<'_>) -> Response<Bytes> {
        self.log.too_large(error);
        let told = self.tells().then(|| FieldSet::policy_only(self.dialects(), error.limit()));
        match self.by(head) {
            By::Us(form) => {
                let mut response = fields::too_large(form, error);
                beside(told, &mut response);
                response
            }
            By::Handler(handler) => {
                let (status, error) = (TOO_MANY, Some(error));
                let refused = Refused { status, limits: &[], retry_after: None, error };
                let mut response = handler(head, &refused);
                beside(told, &mut response);
                response
            }
        }
    }

    /// The answer to a request that was not to wait any longer.
    pub(super) fn sent_away(&self, head: &Head<'_>) -> Response<Bytes> {
        self.log.sent_away(self.limit());
        self.failure(StatusCode::SERVICE_UNAVAILABLE, head)
    }

    /// Some other answer. That of 503 is to come back in a second.
    pub(super) fn failure(&self, status: StatusCode, head: &Head<'_>) -> Response<Bytes> {
        let told_as = self.telling.retry_after;
        match self.by(head) {
            By::Us(form) => fields::failure(form, status, told_as),
            By::Handler(handler) => {
                let soon = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(SOON);
                let refused = Refused { status, limits: &[], retry_after: soon, error: None };
                let mut response = handler(head, &refused);
                if soon.is_some() {
                    fields::put_retry_soon(&mut response, told_as);
                }
                response
            }
        }
    }

    fn by(&self, head: &Head<'_>) -> By<'_> {
        match self.telling.on_refusal.manner() {
            _ if fields::is_grpc(head.headers()) => By::Us(Wording::Grpc),
            RefusalManner::ProblemDetails => By::Us(Wording::ProblemDetails),
            RefusalManner::PlainText => By::Us(Wording::PlainText),
            RefusalManner::Handler(handler) => By::Handler(handler.as_ref()),
        }
    }
}

/// Tells it in the fields that are not there.
fn beside(told: Option<FieldSet>, response: &mut Response<Bytes>) {
    if let Some(told) = told {
        told.write_missing_to(response.headers_mut());
    }
}

const TOO_MANY: StatusCode = StatusCode::TOO_MANY_REQUESTS;
const SOON: Duration = Duration::from_secs(1);
