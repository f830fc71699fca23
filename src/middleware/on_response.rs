//! What is done when the response is there, or when there will be none.

use std::sync::Arc;

use http::{HeaderValue, Request, Response};

use super::admission::Admission;
use super::ledger::RequestLedger;
use crate::fields::{FieldSet, SERVER_TIMING};

#[derive(Default)]
pub(super) struct OnResponse {
    fields: Option<FieldSet>,
    /// How long the request was in the queue; boxed, as most do not wait.
    server_timing: Option<Box<HeaderValue>>,
    ledger: RunningLedger,
}

/// The ledger of a request that may run or runs: if it is dropped before there is a response, so is
/// the request.
#[derive(Default)]
struct RunningLedger(Option<Arc<RequestLedger>>);

impl Drop for RunningLedger {
    fn drop(&mut self) {
        if let Some(ledger) = self.0.take() {
            dropped(&ledger);
        }
    }
}

#[cold]
fn dropped(ledger: &RequestLedger) {
    // A panic in the service's `call` is a failure of the service, and no client that has gone.
    match std::thread::panicking() {
        true => ledger.fail(),
        false => ledger.abandon(),
    }
}

impl OnResponse {
    // Always inlined: it would be copied otherwise, by every request that gets fields.
    #[inline(always)]
    pub(super) fn new(
        fields: Option<FieldSet>,
        server_timing: Option<HeaderValue>,
        ledger: Option<Arc<RequestLedger>>,
    ) -> Self {
        let (server_timing, ledger) = (server_timing.map(Box::new), RunningLedger(ledger));
        Self { fields, server_timing, ledger }
    }

    pub(super) fn ledger(&self) -> Option<&RequestLedger> {
        self.ledger.0.as_deref()
    }

    /// Shows the request's handler what was decided and what to count by, where the layer does.
    #[inline]
    pub(super) fn expose<B>(&self, request: &mut Request<B>) {
        if let Some(ledger) = &self.ledger.0 {
            Self::show(ledger, request);
        }
    }

    /// The same, before the service is called.
    pub(super) fn show<B>(ledger: &Arc<RequestLedger>, request: &mut Request<B>) {
        Admission::expose(ledger, request);
        ledger.open_meter(request.extensions_mut());
    }

    /// Writes the fields, and settles what the request has taken.
    pub(super) fn finish<R>(mut self, response: &mut Response<R>) {
        if let Some(fields) = self.fields {
            fields.write_to(response.headers_mut());
        }
        if let Some(server_timing) = self.server_timing {
            // An error means that the map is full, and then the field is left out.
            let _ = response.headers_mut().try_append(SERVER_TIMING, *server_timing);
        }
        if let Some(ledger) = self.ledger.0.take() {
            ledger.finish(response);
        }
    }

    /// Settles what was counted, where the service has failed or panicked.
    #[cold]
    pub(super) fn fail(mut self) {
        if let Some(ledger) = self.ledger.0.take() {
            ledger.fail();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_without_a_ledger_pays_nothing_for_it() {
        type Bare = (Option<FieldSet>, Option<Box<HeaderValue>>, Option<Arc<RequestLedger>>);
        assert_eq!(size_of::<OnResponse>(), size_of::<Bare>());
    }
}
