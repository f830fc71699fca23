//! What is to be done when the response is there.

use ::http::{HeaderValue, Response};

use super::ActualCost;
use crate::http::{self, Told};
use crate::limiter::Bill;

#[derive(Default)]
pub(super) struct After {
    told: Option<Told>,
    /// How long the request was in the queue, told in `Server-Timing`; boxed, as most do not wait.
    waited: Option<Box<HeaderValue>>,
    bill: Option<Box<Bill>>,
}

impl After {
    #[inline]
    pub(super) fn new(
        told: Option<Told>,
        waited: Option<HeaderValue>,
        bill: Option<Box<Bill>>,
    ) -> Self {
        Self { told, waited: waited.map(Box::new), bill }
    }

    /// Tells the client, and settles the bill.
    pub(super) fn finish<R>(self, response: &mut Response<R>) {
        if let Some(told) = self.told {
            told.tell(response.headers_mut());
        }
        if let Some(waited) = self.waited {
            response.headers_mut().append(http::SERVER_TIMING, *waited);
        }
        if let Some(bill) = self.bill
            && let Some(actual) = response.extensions().get::<ActualCost>()
        {
            actual.settle(bill);
        }
    }
}
