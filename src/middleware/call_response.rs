//! The responses to requests that do not run, in the style of a limiter or a layer.

use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Response, StatusCode};

use super::on_refusal::{OnRefusal, RefusalWording, RefusedRequest};
#[cfg(feature = "axum")]
use crate::clock::Timestamp;
#[cfg(feature = "axum")]
use crate::fields::ExactWait;
use crate::fields::{
    self, Dialects, FieldSet, FieldSetBuilder, ForeignFields, Member, OutageHint, PolicyText,
    RetryAfter, RetryHint, Wording,
};
use crate::key::Head;
use crate::limiter::{RateLimited, RateLimiter, Snapshot, Speech};

/// How responses speak to clients. A limiter has such defaults, and a layer may say otherwise.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResponseStyle {
    pub(super) dialects: Dialects,
    pub(super) on_refusal: OnRefusal,
    pub(super) retry_after: RetryAfter,
    /// The status of a request that costs more than a limit can ever grant; 413 if not set.
    pub(super) too_large: Option<StatusCode>,
}

impl ResponseStyle {
    /// The status of a request that no wait helps.
    pub(super) fn status_for_good(&self, error: &RateLimited) -> StatusCode {
        match error.is_too_large() {
            true => self.too_large.unwrap_or(StatusCode::PAYLOAD_TOO_LARGE),
            false => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// The style of a limiter.
    pub(crate) fn of(speech: &Speech) -> Self {
        let style = speech.get::<Self>().cloned().unwrap_or_default();
        if speech.is_silent() { Self { dialects: Dialects::from([]), ..style } } else { style }
    }
}

/// Defaults for what clients are told, in handlers as in layers.
impl RateLimiter {
    /// Sets the header fields that show clients how their limits stand; draft 11 if not set.
    ///
    /// Layers that are made of this handle send them, and so do the permits, snapshots and errors
    /// of its calls when a handler returns them. Other handles keep their fields, and all of them
    /// share the buckets.
    ///
    /// # Panics
    ///
    /// Like [`RateLimitLayer::dialects`](crate::RateLimitLayer::dialects).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimiter;
    /// use tollgate::fields::Dialect;
    ///
    /// let limiter = RateLimiter::in_memory().dialects(Dialect::Draft7);
    /// # drop(limiter);
    /// ```
    #[doc(alias("headers", "standardHeaders", "legacyHeaders"))]
    #[must_use]
    #[track_caller]
    pub fn dialects(self, dialects: impl Into<Dialects>) -> Self {
        let dialects = dialects.into().without_conflict();
        self.with_style(|style| style.dialects = dialects)
    }

    /// Sets the response to requests that do not run; problem details if not set.
    ///
    /// Layers that are made of this handle take it over, and an error of one of its calls that a
    /// handler returns becomes this response, whatever the layers around the handler say.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{OnRefusal, RateLimiter};
    ///
    /// let limiter = RateLimiter::in_memory().on_refusal(OnRefusal::plain_text());
    /// # drop(limiter);
    /// ```
    #[doc(alias("error_handler", "message"))]
    #[must_use]
    pub fn on_refusal(self, on_refusal: OnRefusal) -> Self {
        self.with_style(|style| style.on_refusal = on_refusal)
    }

    /// Sets the status of requests that cost more than a limit can ever grant; 413 if not set.
    ///
    /// It is not 429, since clients take that as a request to come back, and no wait helps. Choose 422
    /// if the cost does not come from the size of the request. Layers that are made of this handle take
    /// it over, as they do [`on_refusal`](Self::on_refusal).
    ///
    /// # Examples
    ///
    /// ```
    /// use http::StatusCode;
    /// use tollgate::RateLimiter;
    ///
    /// let limiter = RateLimiter::in_memory().too_large(StatusCode::UNPROCESSABLE_ENTITY);
    /// # drop(limiter);
    /// ```
    #[must_use]
    pub fn too_large(self, status: StatusCode) -> Self {
        self.with_style(|style| style.too_large = Some(status))
    }

    fn with_style(self, change: impl FnOnce(&mut ResponseStyle)) -> Self {
        let speech = self.speech();
        let mut style: ResponseStyle = speech.get().cloned().unwrap_or_default();
        change(&mut style);
        self.with_speech(speech.with_style(style))
    }
}

/// What a request that does not run is told.
#[derive(Clone, Copy)]
pub(super) enum Told<'t> {
    /// When to come back.
    After(RetryHint),
    /// That no wait helps.
    Never(&'t RateLimited),
    /// That nothing was decided about it, and why. A 503 asks the client to retry.
    Undecided(OutageHint, Option<&'t str>),
}

/// Makes the response to a request that does not run, with these fields: in our words, or in those of
/// the user's handler. Returns it with the exact wait, unless the handler has named a time of its own.
pub(super) fn respond(
    style: &ResponseStyle,
    refused: &RefusedRequest<'_>,
    told: Told<'_>,
    fields: Option<FieldSet>,
) -> (Response<Bytes>, Option<Duration>) {
    let status = refused.status;
    let exact = if let Told::After(hint) = told { hint.after } else { None };
    let wording = match style.on_refusal.wording() {
        _ if refused.head.as_ref().is_some_and(is_grpc) => Wording::Grpc,
        RefusalWording::ProblemDetails => Wording::ProblemDetails,
        RefusalWording::PlainText => Wording::PlainText,
        RefusalWording::Handler(handler) => {
            let mut response = handler(refused);
            fields::put_no_store(&mut response);
            // A handler that names a time of its own means that time.
            let names_time = response.headers().contains_key(RETRY_AFTER);
            match told {
                Told::After(hint) => fields::put_retry_after(&mut response, hint),
                Told::Undecided(later, _) if status == StatusCode::SERVICE_UNAVAILABLE => {
                    fields::put_retry_later(&mut response, later);
                }
                Told::Never(_) | Told::Undecided(..) => {}
            }
            if let Some(fields) = fields {
                fields.write_missing(&mut response);
            }
            return (response, exact.filter(|_| !names_time));
        }
    };
    let mut response = match told {
        Told::After(hint) => {
            let names = refused.snapshots.iter().map(|snapshot| snapshot.limit().name());
            fields::refusal(wording, status, &names.collect::<Vec<_>>(), hint)
        }
        Told::Never(error) => {
            let why = match error.is_refused() {
                true => "the limit grants nothing",
                false => "the request costs more than the limit can ever grant",
            };
            fields::refusal_for_good(wording, status, error.limit(), why)
        }
        Told::Undecided(later, detail) => fields::failure(wording, status, detail, later),
    };
    if let Some(fields) = fields {
        fields.write(&mut response);
    }
    (response, exact)
}

pub(super) fn is_grpc(head: &Head<'_>) -> bool {
    fields::is_grpc(head.method(), head.version(), head.headers())
}

/// The response that the error of a call becomes, in the style of its limiter.
#[cfg(feature = "axum")]
pub(crate) fn response_of(error: &RateLimited) -> Response<Bytes> {
    let style = &ResponseStyle::of(error.speech());
    let (format, snapshots) = (style.retry_after, error.snapshots());
    let mut retry_after = error.retry_after();
    let told = if error.is_unavailable() {
        let after = *retry_after.get_or_insert(OutageHint::SOON.after);
        Told::Undecided(OutageHint { after, format }, None)
    } else if error.is_too_large() || error.limit().quota().is_none() {
        Told::Never(error)
    } else {
        let now = snapshots.first().map_or(Timestamp::UNIX_EPOCH, Snapshot::at);
        Told::After(RetryHint { after: retry_after, now, format })
    };
    let status = match told {
        Told::Undecided(..) => StatusCode::SERVICE_UNAVAILABLE,
        Told::After(_) | Told::Never(_) => style.status_for_good(error),
    };
    let refused = RefusedRequest { head: None, status, snapshots, retry_after, error: Some(error) };
    let (mut response, exact) = respond(style, &refused, told, error_fields(error, style.dialects));
    if let Some(after) = exact {
        response.extensions_mut().insert(ExactWait::new(after));
    }
    response
}

/// The fields of a response to a request that was not admitted.
pub(super) fn error_fields(error: &RateLimited, dialects: Dialects) -> Option<FieldSet> {
    if dialects.is_none() || error.is_unavailable() {
        return None;
    }
    if error.is_too_large() {
        return Some(FieldSet::policy_only(dialects, error.limit()));
    }
    Some(fields_of(error.snapshots(), dialects))
}

/// The fields that show how these limits stand; `None` if the style has none.
#[cfg(feature = "axum")]
pub(crate) fn snapshot_fields(snapshots: &[Snapshot], style: &ResponseStyle) -> Option<FieldSet> {
    (!style.dialects.is_none()).then(|| fields_of(snapshots, style.dialects))
}

fn fields_of(snapshots: &[Snapshot], dialects: Dialects) -> FieldSet {
    let mut builder = FieldSetBuilder::new(dialects, ForeignFields::Keep);
    // A limit that grants nothing has no window, and no time to come back that a field could tell.
    for snapshot in snapshots.iter().filter(|snapshot| !snapshot.limit().quota().is_none()) {
        let (limit, level) = (snapshot.limit(), snapshot.level());
        let policy = &PolicyText::new(limit);
        builder.push(Member { policy, limit, level, partition_key: None });
    }
    builder.build()
}
