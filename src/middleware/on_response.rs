//! What to do once there is a response, or once it is certain that there will be none.

use std::sync::Arc;

use http::{HeaderValue, Request, Response};

use super::admission::Admission;
use super::ledger::{RequestLedger, RunningLedger};
use super::plan::Plan;
use crate::fields::{FieldNumbers, FieldSet, KeptPolicy, SERVER_TIMING};
use crate::limiter::{Level, Limit};

/// Small, since the future of every response contains it.
#[derive(Default)]
pub(super) enum OnResponse {
    #[default]
    Nothing,
    /// Adds the fields for the only limit. The text is formatted when the response is there.
    Member(&'static KeptPolicy, FieldNumbers),
    /// Any other combination.
    Tasks(Box<ResponseTasks>),
}

pub(super) struct ResponseTasks {
    fields: Option<FieldSet>,
    /// The time that the request spent in the queue.
    server_timing: Option<HeaderValue>,
    ledger: Option<RunningLedger>,
}

impl OnResponse {
    pub(super) fn new(
        fields: Option<FieldSet>,
        server_timing: Option<HeaderValue>,
        ledger: Option<RunningLedger>,
    ) -> Self {
        if fields.is_none() && server_timing.is_none() && ledger.is_none() {
            return Self::Nothing;
        }
        Self::Tasks(Box::new(ResponseTasks { fields, server_timing, ledger }))
    }

    /// What most layers do with the response of an admitted request: nothing, or they add the fields of
    /// draft 11 for their only limit. `None` if this layer does more.
    #[inline(always)]
    pub(super) fn of_lone(
        plan: &Plan,
        limit: &Limit,
        level: impl FnOnce() -> Level,
    ) -> Option<Self> {
        if plan.tracks_charges || limit.quota().is_in_flight() {
            return None;
        }
        if !plan.sends_fields {
            return Some(Self::Nothing);
        }
        let policy = plan.kept_policy(limit)?;
        Some(Self::Member(policy, policy.numbers(limit, &level())))
    }

    pub(super) fn ledger(&self) -> Option<&Arc<RequestLedger>> {
        match self {
            Self::Nothing | Self::Member(..) => None,
            Self::Tasks(tasks) => tasks.ledger.as_ref().map(|running| &running.0),
        }
    }

    /// Adds the `Admission` and the meter to the extensions of the request, if the layer has any.
    #[inline]
    pub(super) fn expose<B>(&self, request: &mut Request<B>) {
        if let Some(ledger) = self.ledger() {
            Admission::expose(ledger, request);
        }
    }

    /// Adds the header fields, and settles the tokens of the request. The body has to keep what is
    /// returned: it ends a request that is counted while it is in flight.
    #[inline]
    pub(super) fn finish<R>(&mut self, response: &mut Response<R>) -> Option<Arc<RunningLedger>> {
        // Taken out: the destructor that runs later finds nothing left to settle.
        match std::mem::take(self) {
            Self::Nothing => None,
            Self::Member(policy, numbers) => {
                policy.write_to(numbers, response.headers_mut());
                None
            }
            Self::Tasks(tasks) => tasks.finish(response),
        }
    }

    /// Settles the request at its count, after the service has failed or panicked.
    #[cold]
    pub(super) fn fail(&mut self) {
        match std::mem::take(self) {
            Self::Nothing | Self::Member(..) => {}
            Self::Tasks(tasks) => {
                if let Some(running) = &tasks.ledger {
                    running.0.fail();
                }
            }
        }
    }
}

impl ResponseTasks {
    fn finish<R>(self, response: &mut Response<R>) -> Option<Arc<RunningLedger>> {
        let Self { mut fields, server_timing, ledger } = self;
        // Settled first: the fields show how the limits stand after that. The rules see the response
        // of the inner service.
        let end = ledger.and_then(|running| {
            running.0.finish(response);
            if let Some(shown) = &mut fields
                && let Some(changed) = running.0.changed_fields()
            {
                *shown = changed;
            }
            running.until_end()
        });
        if let Some(fields) = fields {
            fields.write(response);
        }
        if let Some(server_timing) = server_timing {
            // An error means that the map is full, and then the field is left out.
            let _ = response.headers_mut().try_append(SERVER_TIMING, server_timing);
        }
        end
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
