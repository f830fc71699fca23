//! Responses to calls: what a handler sends of its permits, and of an error that it returns.

use bytes::Bytes;
use http::header::{self, CONTENT_TYPE, HeaderName, RETRY_AFTER, SET_COOKIE};
use http::{HeaderMap, Response, StatusCode};

use super::on_refusal::{OnRefusal, RefusalWording, RefusedRequest};
use crate::clock::Timestamp;
use crate::fields::{
    self, Dialects, ExactWait, FieldSet, FieldSetBuilder, Member, OutageHint, PolicyText,
    RetryAfter, RetryHint, Wording,
};
use crate::limiter::{RateLimited, RateLimiter, Snapshot, Speech};

/// How responses speak to clients. A limiter has such defaults, and a layer may say otherwise.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResponseStyle {
    pub(super) dialects: Dialects,
    pub(super) on_refusal: OnRefusal,
    pub(super) retry_after: RetryAfter,
}

impl ResponseStyle {
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
    /// Layers that are made of this handle take it over, and an error of a call that a handler
    /// returns becomes this response. Within a layer that has an
    /// [`on_refusal`](crate::RateLimitLayer::on_refusal) of its own, such an error becomes the
    /// response of the layer.
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

    fn with_style(self, change: impl FnOnce(&mut ResponseStyle)) -> Self {
        let speech = self.speech();
        let mut style: ResponseStyle = speech.get().cloned().unwrap_or_default();
        change(&mut style);
        self.with_speech(speech.with_style(style))
    }
}

/// The error of a call, in the extensions of the response that it has become. A layer with a style
/// of its own finds it there.
#[derive(Clone, Debug)]
pub(crate) struct CallError {
    error: RateLimited,
    status: StatusCode,
    headers: HeaderMap,
}

/// The response that the error of a call becomes, in the style of its limiter.
#[cfg(feature = "axum")]
pub(crate) fn response_of(error: RateLimited) -> Response<Bytes> {
    let mut response = render_call_error(&error, &ResponseStyle::of(error.speech()));
    let (status, headers) = (response.status(), response.headers().clone());
    response.extensions_mut().insert(CallError { error, status, headers });
    response
}

/// The response to a call that was not admitted.
fn render_call_error(error: &RateLimited, style: &ResponseStyle) -> Response<Bytes> {
    let format = style.retry_after;
    let snapshots = error.snapshots();
    let now = snapshots.first().map_or(Timestamp::UNIX_EPOCH, Snapshot::at);
    let is_decided = !error.is_unavailable();
    let known = error.retry_after().filter(|_| is_decided);
    let hint = known.map(|after| RetryHint { after, now, format });
    let later = OutageHint { after: error.retry_after().unwrap_or(OutageHint::SOON.after), format };
    let status =
        if is_decided { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::SERVICE_UNAVAILABLE };
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
                    if !names_time {
                        response.extensions_mut().insert(ExactWait::new(hint.after));
                    }
                }
                None if is_decided => {}
                None => fields::put_retry_later(&mut response, later),
            }
            if let Some(fields) = error.and_then(|error| error_fields(error, style.dialects)) {
                fields.write_missing_to(response.headers_mut());
            }
            return response;
        }
    };
    let mut response = match hint {
        Some(hint) => {
            let names: Vec<_> = snapshots.iter().map(|snapshot| snapshot.limit().name()).collect();
            let mut response = fields::refusal(wording, status, &names, hint);
            response.extensions_mut().insert(ExactWait::new(hint.after));
            response
        }
        None if is_decided => refusal_for_good(wording, error),
        None => fields::failure(wording, status, None, later),
    };
    if let Some(fields) = error_fields(error, style.dialects) {
        fields.write_to(response.headers_mut());
    }
    response
}

/// The response to a request that no wait helps.
pub(super) fn refusal_for_good(wording: Wording, error: &RateLimited) -> Response<Bytes> {
    let why = match error.is_refused() {
        true => "the limit grants nothing",
        false => "the request costs more than the limit can ever grant",
    };
    fields::refusal_for_good(wording, error.limit(), why)
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
    let mut builder = FieldSetBuilder::new(dialects, None);
    // A limit that grants nothing has no window, and no time to come back that a field could tell.
    for snapshot in snapshots.iter().filter(|snapshot| !snapshot.limit().quota().is_none()) {
        let (limit, level) = (snapshot.limit(), snapshot.level());
        let policy = &PolicyText::new(limit);
        builder.push(Member { policy, limit, level, partition_key: None });
    }
    builder.build()
}

/// Puts the response of a layer in the place of the one that the error of a call has become.
/// Returns its text, or `None` if the response is no such error, or was changed since.
///
/// Other header fields of the response stay, such as those of a middleware in between.
#[inline]
pub(super) fn restyle<R>(response: &mut Response<R>, style: &ResponseStyle) -> Option<Bytes> {
    if response.extensions().is_empty() {
        return None;
    }
    restyle_error(response, style)
}

#[inline(never)]
fn restyle_error<R>(response: &mut Response<R>, style: &ResponseStyle) -> Option<Bytes> {
    // Removed and not only read: a layer outside of this one must not replace the response a second
    // time.
    let CallError { error, status, headers } = response.extensions_mut().remove()?;
    // A handler that gave the error another status or body has worded it itself.
    if response.status() != status
        || response.headers().get(CONTENT_TYPE) != headers.get(CONTENT_TYPE)
    {
        return None;
    }
    let (said, text) = render_call_error(&error, style).into_parts();
    *response.status_mut() = said.status;
    // The exact time belongs to the former wording. That of the new one is among the extensions
    // that are added next, if it has any.
    response.extensions_mut().remove::<ExactWait>();
    response.extensions_mut().extend(said.extensions);
    let fields = response.headers_mut();
    // Before the new lines are added: a line that both have would otherwise be removed again.
    remove_lines(fields, &headers);
    for name in &OF_THE_BODY {
        fields.remove(name);
    }
    // Cookies do not concern each other. Other fields that are left are of a middleware, or those
    // of a layer in between, which have the members of the handler in them.
    let is_new = |name: &&HeaderName| **name == SET_COOKIE || !fields.contains_key(*name);
    let new: Vec<_> = said.headers.keys().filter(is_new).collect();
    for name in new {
        for value in said.headers.get_all(name) {
            // An error means that the map is full; the line is then omitted.
            let _ = fields.try_append(name, value.clone());
        }
    }
    if text.is_empty() {
        fields.remove(CONTENT_TYPE);
    }
    Some(text)
}

/// Removes the lines of `said`, as far as they are still the same. A field that was changed stays.
fn remove_lines(fields: &mut HeaderMap, said: &HeaderMap) {
    for name in said.keys() {
        let mut left: Vec<_> = fields.get_all(name).iter().cloned().collect();
        let is_as_said = said.get_all(name).iter().all(|line| {
            let at = left.iter().position(|other| other == line);
            at.map(|at| left.remove(at)).is_some()
        });
        if is_as_said {
            fields.remove(name);
            for line in left {
                let _ = fields.try_append(name, line);
            }
        }
    }
}

/// The fields that describe a body, and go with it.
const OF_THE_BODY: [HeaderName; 12] = [
    header::ACCEPT_RANGES,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::ETAG,
    header::LAST_MODIFIED,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("repr-digest"),
];
