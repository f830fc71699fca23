//! What to do once there is a response, or once it is certain that there will be none.

use std::sync::Arc;

use http::{HeaderValue, Method, Request, Response};

use super::admission::Admission;
use super::body::{RefusalText, to_refusal_text};
use super::call_response::{ResponseStyle, restyle};
use super::ledger::RequestLedger;
use super::lone_response::LoneResponse;
use super::plan::Plan;
use crate::fields::{FieldNumbers, FieldSet, SERVER_TIMING, put_content_length};

/// Small, since the future of every response contains it.
#[derive(Default)]
pub(super) enum OnResponse {
    #[default]
    Nothing,
    /// Adds the fields for the only limit. The text is formatted when the response is there.
    Member(Arc<LoneResponse>, FieldNumbers),
    /// Adds nothing. If a handler returns the error of a call, the layer words it.
    Restyle(Arc<ResponseStyle>),
    /// Any other combination.
    Tasks(Box<ResponseTasks>),
    /// One of these for a request of HEAD: no text replaces the body.
    OfHead(Box<Self>),
}

pub(super) struct ResponseTasks {
    fields: Option<FieldSet>,
    /// The time that the request spent in the queue.
    server_timing: Option<HeaderValue>,
    ledger: RunningLedger,
    /// The style of the layer, if it puts its own response in the place of an error that a handler
    /// returns.
    restyling: Option<Arc<ResponseStyle>>,
}

/// The ledger of a request until there is a response. If it is dropped before, the request was
/// dropped.
pub(super) struct RunningLedger(pub(super) Option<Arc<RequestLedger>>);

impl Drop for RunningLedger {
    fn drop(&mut self) {
        if let Some(ledger) = self.0.take() {
            settle_dropped(&ledger);
        }
    }
}

#[cold]
fn settle_dropped(ledger: &RequestLedger) {
    // During a panic in `call`, the service has failed; the client has not disconnected.
    match std::thread::panicking() {
        true => ledger.fail(),
        false => ledger.abandon(),
    }
}

impl OnResponse {
    pub(super) fn new(
        restyling: Option<&Arc<ResponseStyle>>,
        fields: Option<FieldSet>,
        server_timing: Option<HeaderValue>,
        ledger: RunningLedger,
    ) -> Self {
        if fields.is_none() && server_timing.is_none() && ledger.0.is_none() {
            return Self::restyling(restyling);
        }
        let restyling = restyling.cloned();
        Self::Tasks(Box::new(ResponseTasks { fields, server_timing, ledger, restyling }))
    }

    /// Nothing but the wording of errors that handlers return, if the layer has one.
    #[inline(always)]
    pub(super) fn restyling(style: Option<&Arc<ResponseStyle>>) -> Self {
        style.map_or(Self::Nothing, |style| Self::Restyle(Arc::clone(style)))
    }

    /// The same for the response to this method: a layer that words errors of handlers gives no
    /// body to a response to HEAD.
    #[inline(always)]
    pub(super) fn for_method(self, method: &Method, plan: &Plan) -> Self {
        if plan.restyling.is_some() && method == Method::HEAD { self.for_head() } else { self }
    }

    #[cold]
    #[inline(never)]
    fn for_head(self) -> Self {
        Self::OfHead(Box::new(self))
    }

    pub(super) fn ledger(&self) -> Option<&Arc<RequestLedger>> {
        match self {
            Self::Nothing | Self::Member(..) | Self::Restyle(_) => None,
            Self::Tasks(tasks) => tasks.ledger.0.as_ref(),
            Self::OfHead(other) => other.ledger(),
        }
    }

    /// Adds the `Admission` and the meter to the extensions of the request, if the layer has any.
    #[inline]
    pub(super) fn expose<B>(&self, request: &mut Request<B>) {
        if let Some(ledger) = self.ledger() {
            Self::expose_ledger(ledger, request);
        }
    }

    /// Adds the `Admission` and the meter of this ledger to the extensions of the request.
    pub(super) fn expose_ledger<B>(ledger: &Arc<RequestLedger>, request: &mut Request<B>) {
        Admission::expose(ledger, request);
        ledger.open_meter(request.extensions_mut());
    }

    /// Adds the header fields, and settles the tokens of the request. Returns the text of the
    /// response if the layer puts its own in the place of the handler's.
    #[inline]
    pub(super) fn finish<R>(&mut self, response: &mut Response<R>) -> Option<RefusalText> {
        // Taken out: the destructor that runs later finds nothing left to settle.
        match std::mem::take(self) {
            Self::Nothing => None,
            Self::Member(lone, numbers) => {
                let text = lone.restyling.as_deref().and_then(|style| restyle(response, style));
                lone.template.write_to(numbers, response.headers_mut());
                text.map(to_refusal_text)
            }
            Self::Restyle(style) => restyle(response, &style).map(to_refusal_text),
            Self::Tasks(tasks) => tasks.finish(response),
            Self::OfHead(mut other) => other.finish(response).map(|text| {
                let length = text.map_or(0, |text| text.len());
                put_content_length(response, u64::try_from(length).ok());
                None
            }),
        }
    }

    /// Settles the request at its count, after the service has failed or panicked.
    #[cold]
    pub(super) fn fail(&mut self) {
        match std::mem::take(self) {
            Self::Nothing | Self::Member(..) | Self::Restyle(_) => {}
            Self::Tasks(mut tasks) => {
                if let Some(ledger) = tasks.ledger.0.take() {
                    ledger.fail();
                }
            }
            Self::OfHead(mut other) => other.fail(),
        }
    }
}

impl ResponseTasks {
    fn finish<R>(self, response: &mut Response<R>) -> Option<RefusalText> {
        let Self { fields, server_timing, mut ledger, restyling } = self;
        // First, since it removes the header lines that the error of a handler has put there, and
        // must not remove those of this layer.
        let text = restyling.and_then(|style| restyle(response, &style));
        if let Some(fields) = fields {
            fields.write_to(response.headers_mut());
        }
        if let Some(server_timing) = server_timing {
            // An error means that the map is full, and then the field is left out.
            let _ = response.headers_mut().try_append(SERVER_TIMING, server_timing);
        }
        if let Some(ledger) = ledger.0.take() {
            // Last: the rules see the status and the header fields that the client gets.
            ledger.finish(response);
        }
        text.map(to_refusal_text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_future_of_a_response_carries_four_words_for_it() {
        assert!(size_of::<OnResponse>() <= 4 * size_of::<usize>());
    }
}
