//! What is to be done when the response is there.

use std::sync::Arc;
use std::time::Duration;

use ::http::Response;

use super::ActualCost;
use super::rule::Rule;
use crate::algebra::State;
use crate::clock::Timestamp;
use crate::http;
use crate::limiter::Bill;

/// Written only when the response is there, so that a request which runs or waits carries no text.
#[derive(Default)]
pub(super) struct After {
    news: Option<News>,
    bill: Option<Box<Bill>>,
}

/// What the client is told.
pub(super) struct News {
    pub(super) rule: Arc<Rule>,
    /// How the limit stood when the request was let in.
    pub(super) state: State,
    pub(super) now: Timestamp,
    /// How long the request was in the queue, told in `Server-Timing`.
    pub(super) waited: Option<Duration>,
}

impl After {
    pub(super) const fn new(news: Option<News>, bill: Option<Box<Bill>>) -> Self {
        Self { news, bill }
    }

    /// Tells the client, and settles the bill.
    pub(super) fn finish<R>(self, response: &mut Response<R>) {
        if let Some(News { rule, state, now, waited }) = self.news {
            if let Some(told) = rule.told(state, now) {
                told.tell(response.headers_mut());
            }
            if let Some(waited) = waited.and_then(|waited| rule.waited(waited)) {
                response.headers_mut().append(http::SERVER_TIMING, waited);
            }
        }
        if let Some(bill) = self.bill
            && let Some(actual) = response.extensions().get::<ActualCost>()
        {
            actual.settle(bill);
        }
    }
}
