//! The responses to requests that do not run, in the style of a limiter or a layer.

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Response, StatusCode};

use super::on_refusal::{OnRefusal, RefusedRequest};
use crate::fields::{
    self, Dialect, Dialects, FieldSet, FieldSetBuilder, ForeignFields, Member, PolicyText,
    RetryAfter, RetryHint, SOON, Wording,
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
    /// The style of a limiter.
    pub(crate) fn of(speech: &Speech) -> Self {
        let style = speech.get::<Self>().cloned().unwrap_or_default();
        if speech.is_silent() { Self { dialects: Dialects::NONE, ..style } } else { style }
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
    pub fn dialects(self, dialects: impl IntoIterator<Item = Dialect>) -> Self {
        let dialects = Dialects::new(dialects);
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
        self.with_defaults(|defaults| {
            let mut style: ResponseStyle = defaults.speech.get().cloned().unwrap_or_default();
            change(&mut style);
            defaults.speech = defaults.speech.with_style(style);
        })
    }
}

/// Makes the response to a request that does not run, with these fields: in our words, or in those of
/// the user's handler. `detail`: why nothing was decided about it.
pub(super) fn respond(
    style: &ResponseStyle,
    refused: &RefusedRequest<'_>,
    detail: Option<&str>,
    fields: Option<FieldSet>,
) -> Response<Bytes> {
    let (status, after) = (refused.status, refused.retry_after);
    let never = refused.error.filter(|error| error.is_for_good());
    // The client counts the wait from the time of the decision.
    let now = refused.snapshots.first().map(Snapshot::at).filter(|_| never.is_none());
    let hint = RetryHint { after, now, format: style.retry_after };
    let mut exact = now.and(after);
    let is_grpc = refused.head.as_ref().is_some_and(is_grpc);
    let OnRefusal { wording, handler } = &style.on_refusal;
    let mut response = if let Some(handler) = handler.as_ref().filter(|_| !is_grpc) {
        let mut response = handler(refused);
        fields::put_no_store(&mut response);
        // A handler that names a time of its own means that time.
        exact = exact.filter(|_| !response.headers().contains_key(RETRY_AFTER));
        fields::put_retry_after(&mut response, hint);
        if let Some(fields) = fields {
            fields.write_missing(&mut response);
        }
        response
    } else {
        let wording = if is_grpc { Wording::Grpc } else { *wording };
        let mut response = match never {
            Some(error) => {
                let why = match error.is_refused() {
                    true => "the limit grants nothing",
                    false => "the request costs more than the limit can ever grant",
                };
                fields::refusal_for_good(wording, status, error.limit(), why)
            }
            None if now.is_none() => fields::failure(wording, status, detail, hint),
            None => {
                let names = refused.snapshots.iter().map(|snapshot| snapshot.limit().name());
                fields::refusal(wording, status, &names.collect::<Vec<_>>(), hint)
            }
        };
        if let Some(fields) = fields {
            fields.write(&mut response);
        }
        response
    };
    if let Some(after) = exact {
        let request = refused.head.map(|head| head.extensions());
        fields::put_exact_wait(&mut response, request, after);
    }
    response
}

pub(super) fn is_grpc(head: &Head<'_>) -> bool {
    fields::is_grpc(head.method(), head.version(), head.headers())
}

/// The response that the error of a call becomes, in the style of its limiter.
#[cfg(feature = "axum")]
pub(crate) fn response_of(error: &RateLimited) -> Response<Bytes> {
    respond_to_error(&ResponseStyle::of(error.speech()), error, None)
}

/// The response that an error becomes. `head`: that of the request, if a layer has refused it.
pub(super) fn respond_to_error(
    style: &ResponseStyle,
    error: &RateLimited,
    head: Option<Head<'_>>,
) -> Response<Bytes> {
    let snapshots = error.snapshots();
    let (mut retry_after, shows) = (error.retry_after(), !style.dialects.is_none());
    let (status, fields) = if error.is_unavailable() {
        retry_after.get_or_insert(SOON);
        (StatusCode::SERVICE_UNAVAILABLE, None)
    } else if error.is_too_large() {
        let policy = shows.then(|| FieldSet::policy_only(style.dialects, error.limit()));
        (style.too_large.unwrap_or(StatusCode::PAYLOAD_TOO_LARGE), policy)
    } else {
        (StatusCode::TOO_MANY_REQUESTS, shows.then(|| fields_of(snapshots, style.dialects)))
    };
    let refused = RefusedRequest { head, status, snapshots, retry_after, error: Some(error) };
    respond(style, &refused, None, fields)
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
