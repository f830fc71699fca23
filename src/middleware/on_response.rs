//! What is done when the response is there.

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
    ledger: Option<Arc<RequestLedger>>,
}

impl OnResponse {
    // Always inlined: it would be copied otherwise, by every request that gets fields.
    #[inline(always)]
    pub(super) fn new(
        fields: Option<FieldSet>,
        server_timing: Option<HeaderValue>,
        ledger: Option<Arc<RequestLedger>>,
    ) -> Self {
        Self { fields, server_timing: server_timing.map(Box::new), ledger }
    }

    pub(super) fn ledger(&self) -> Option<&RequestLedger> {
        self.ledger.as_deref()
    }

    /// Shows the request's handler what was decided, where the layer does.
    #[inline]
    pub(super) fn expose<B>(&self, request: &mut Request<B>) {
        if let Some(ledger) = &self.ledger {
            Admission::expose(ledger, request);
        }
    }

    /// Writes the fields, and settles what the request has taken.
    pub(super) fn finish<R>(self, response: &mut Response<R>) {
        if let Some(fields) = self.fields {
            fields.write_to(response.headers_mut());
        }
        if let Some(server_timing) = self.server_timing {
            // An error means that the map is full, and then the field is left out.
            let _ = response.headers_mut().try_append(SERVER_TIMING, *server_timing);
        }
        if let Some(ledger) = self.ledger {
            ledger.finish(response);
        }
    }
}
