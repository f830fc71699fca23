//! What is to be done when the response is there.

use std::sync::Arc;

use http::{HeaderValue, Request, Response};

use super::tab::Tab;
use crate::fields::{self, FieldSet};

#[derive(Default)]
pub(super) struct After {
    told: Option<FieldSet>,
    /// How long the request was in the queue, told in `Server-Timing`; boxed, as most do not wait.
    waited: Option<Box<HeaderValue>>,
    tab: Option<Arc<Tab>>,
}

impl After {
    // Always inlined: it would be copied otherwise, by every request that is told something.
    #[inline(always)]
    pub(super) fn new(
        told: Option<FieldSet>,
        waited: Option<HeaderValue>,
        tab: Option<Arc<Tab>>,
    ) -> Self {
        Self { told, waited: waited.map(Box::new), tab }
    }

    /// Of a request that was asked for nothing.
    pub(super) fn of(tab: Option<Arc<Tab>>) -> Self {
        Self { tab, ..Self::default() }
    }

    pub(super) fn tab(&self) -> Option<&Tab> {
        self.tab.as_deref()
    }

    /// Shows the request's handler what was decided, where the layer does.
    #[inline]
    pub(super) fn expose<B>(&self, request: &mut Request<B>) {
        if let Some(tab) = &self.tab {
            tab.expose(request);
        }
    }

    /// Tells the client, and settles what the request has taken.
    pub(super) fn finish<R>(self, response: &mut Response<R>) {
        if let Some(told) = self.told {
            told.write_to(response.headers_mut());
        }
        if let Some(waited) = self.waited {
            // Only a map with no room for any more says that it cannot take it.
            let _ = response.headers_mut().try_append(fields::SERVER_TIMING, *waited);
        }
        if let Some(tab) = self.tab {
            tab.finish(response);
        }
    }
}
