//! What is done when the response is there, or when there will be none.

use std::sync::Arc;

use http::{HeaderValue, Request, Response};

use super::admission::Admission;
use super::ledger::RequestLedger;
use crate::fields::{FieldNumbers, FieldSet, LoneTemplate, SERVER_TIMING};

/// Small, as the future of every response carries it.
#[derive(Default)]
pub(super) enum OnResponse {
    #[default]
    Nothing,
    /// Tells how the only limit stood. The text is laid out when it is written.
    Member(Arc<LoneTemplate>, FieldNumbers),
    /// Anything else.
    Tasks(Box<ResponseTasks>),
}

pub(super) struct ResponseTasks {
    fields: Option<FieldSet>,
    /// How long the request was in the queue.
    server_timing: Option<HeaderValue>,
    ledger: RunningLedger,
}

/// The ledger of a request that may run or runs: if it is dropped before there is a response, so is
/// the request.
struct RunningLedger(Option<Arc<RequestLedger>>);

impl Drop for RunningLedger {
    fn drop(&mut self) {
        if let Some(ledger) = self.0.take() {
            settle_dropped(&ledger);
        }
    }
}

#[cold]
fn settle_dropped(ledger: &RequestLedger) {
    // A panic in the service's `call` is a failure of the service, and no client that has gone.
    match std::thread::panicking() {
        true => ledger.fail(),
        false => ledger.abandon(),
    }
}

impl OnResponse {
    pub(super) fn new(
        fields: Option<FieldSet>,
        server_timing: Option<HeaderValue>,
        ledger: Option<Arc<RequestLedger>>,
    ) -> Self {
        if fields.is_none() && server_timing.is_none() && ledger.is_none() {
            return Self::Nothing;
        }
        let ledger = RunningLedger(ledger);
        Self::Tasks(Box::new(ResponseTasks { fields, server_timing, ledger }))
    }

    fn shared_ledger(&self) -> Option<&Arc<RequestLedger>> {
        match self {
            Self::Nothing | Self::Member(..) => None,
            Self::Tasks(tasks) => tasks.ledger.0.as_ref(),
        }
    }

    pub(super) fn ledger(&self) -> Option<&RequestLedger> {
        self.shared_ledger().map(|ledger| &**ledger)
    }

    /// Shows the request's handler what was decided and what to count by, where the layer does.
    #[inline]
    pub(super) fn expose<B>(&self, request: &mut Request<B>) {
        if let Some(ledger) = self.shared_ledger() {
            Self::expose_ledger(ledger, request);
        }
    }

    /// The same, before the service is called.
    pub(super) fn expose_ledger<B>(ledger: &Arc<RequestLedger>, request: &mut Request<B>) {
        Admission::expose(ledger, request);
        ledger.open_meter(request.extensions_mut());
    }

    /// Writes the fields, and settles what the request has taken.
    #[inline]
    pub(super) fn finish<R>(&mut self, response: &mut Response<R>) {
        match std::mem::take(self) {
            Self::Nothing => {}
            Self::Member(template, numbers) => template.write_to(numbers, response.headers_mut()),
            Self::Tasks(tasks) => tasks.finish(response),
        }
    }

    /// Settles what was counted, where the service has failed or panicked.
    #[cold]
    pub(super) fn fail(&mut self) {
        if let Self::Tasks(mut tasks) = std::mem::take(self)
            && let Some(ledger) = tasks.ledger.0.take()
        {
            ledger.fail();
        }
    }
}

impl ResponseTasks {
    fn finish<R>(self, response: &mut Response<R>) {
        let Self { fields, server_timing, mut ledger } = self;
        if let Some(fields) = fields {
            fields.write_to(response.headers_mut());
        }
        if let Some(server_timing) = server_timing {
            // An error means that the map is full, and then the field is left out.
            let _ = response.headers_mut().try_append(SERVER_TIMING, server_timing);
        }
        if let Some(ledger) = ledger.0.take() {
            ledger.finish(response);
        }
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
