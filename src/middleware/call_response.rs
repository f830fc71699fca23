//! Responses to calls: what a handler sends of its permits, and of an error that it returns.

use bytes::Bytes;
#[cfg(feature = "axum")]
use http::header::RETRY_AFTER;
use http::{Response, StatusCode};

use super::on_refusal::OnRefusal;
#[cfg(feature = "axum")]
use super::on_refusal::{RefusalWording, RefusedRequest};
#[cfg(feature = "axum")]
use crate::clock::Timestamp;
use crate::fields::{
    self, Dialects, FieldSet, FieldSetBuilder, ForeignFields, Member, PolicyText, RetryAfter,
    Wording,
};
#[cfg(feature = "axum")]
use crate::fields::{ExactWait, OutageHint, RetryHint};
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

/// The response that the error of a call becomes, in the style of its limiter.
#[cfg(feature = "axum")]
pub(crate) fn response_of(error: &RateLimited) -> Response<Bytes> {
    let style = &ResponseStyle::of(error.speech());
    let format = style.retry_after;
    let snapshots = error.snapshots();
    let now = snapshots.first().map_or(Timestamp::UNIX_EPOCH, Snapshot::at);
    let is_decided = !error.is_unavailable();
    let known = error.retry_after().filter(|_| is_decided);
    let is_for_good = error.is_too_large() || error.limit().quota().is_none();
    let hint = (is_decided && !is_for_good).then_some(RetryHint { after: known, now, format });
    let later = OutageHint { after: error.retry_after().unwrap_or(OutageHint::SOON.after), format };
    let status =
        if is_decided { style.status_for_good(error) } else { StatusCode::SERVICE_UNAVAILABLE };
    let wording = match style.on_refusal.wording() {
        RefusalWording::ProblemDetails => Wording::ProblemDetails,
        RefusalWording::PlainText => Wording::PlainText,
        RefusalWording::Handler(handler) => {
            let retry_after = error.retry_after().or((!is_decided).then_some(later.after));
            let (head, error) = (None, Some(error));
            let refused = RefusedRequest { head, status, snapshots, retry_after, error };
            let mut response = handler(&refused);
            fields::put_no_store(&mut response);
            // A handler that names a time of its own means that time.
            let names_time = response.headers().contains_key(RETRY_AFTER);
            match hint {
                Some(hint) => {
                    fields::put_retry_after(&mut response, hint);
                    if let Some(after) = hint.after.filter(|_| !names_time) {
                        response.extensions_mut().insert(ExactWait::new(after));
                    }
                }
                None if is_decided => {}
                None => fields::put_retry_later(&mut response, later),
            }
            if let Some(fields) = error.and_then(|error| error_fields(error, style.dialects)) {
                fields.write_missing(&mut response);
            }
            return response;
        }
    };
    let mut response = match hint {
        Some(hint) => {
            let names: Vec<_> = snapshots.iter().map(|snapshot| snapshot.limit().name()).collect();
            let mut response = fields::refusal(wording, status, &names, hint);
            if let Some(after) = hint.after {
                response.extensions_mut().insert(ExactWait::new(after));
            }
            response
        }
        None if is_decided => refusal_for_good(wording, error, style),
        None => fields::failure(wording, status, None, later),
    };
    if let Some(fields) = error_fields(error, style.dialects) {
        fields.write(&mut response);
    }
    response
}

/// The response to a request that no wait helps.
pub(super) fn refusal_for_good(
    wording: Wording,
    error: &RateLimited,
    style: &ResponseStyle,
) -> Response<Bytes> {
    let why = match error.is_refused() {
        true => "the limit grants nothing",
        false => "the request costs more than the limit can ever grant",
    };
    fields::refusal_for_good(wording, style.status_for_good(error), error.limit(), why)
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
