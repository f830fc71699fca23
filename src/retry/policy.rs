//! The policy: which requests are retried, how often, and after which wait.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};

use crate::fields::{ExactWait, read_retry_after};
use crate::key::Head;
use crate::limiter::Random;

#[derive(Clone)]
pub(super) struct RetryPolicy {
    pub(super) tries: u32,
    pub(super) max_wait: Duration,
    pub(super) jitter: Duration,
    pub(super) only: Arc<dyn Fn(&Head<'_>) -> bool + Send + Sync>,
    pub(super) random: Random,
}

impl RetryPolicy {
    /// How often this request may be retried.
    pub(super) fn resends(&self, head: &Head<'_>) -> u32 {
        match self.tries.saturating_sub(1) {
            0 => 0,
            resends if (self.only)(head) => resends,
            _ => 0,
        }
    }

    /// The wait before the next send, at most `left`; `None` if this response is returned.
    pub(super) fn wait<R>(&self, response: &Response<R>, left: Duration) -> Option<Duration> {
        match response.status() {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {}
            _ => return None,
        }
        let exact = response.extensions().get::<ExactWait>().map(ExactWait::wait);
        let requested = exact.or_else(|| read_retry_after(response.headers()))?;
        let remaining = left.checked_sub(requested)?;
        Some(requested.saturating_add(self.random.up_to(self.jitter.min(remaining))))
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            tries: 5,
            max_wait: Duration::from_secs(30),
            jitter: Duration::ZERO,
            only: Arc::new(|_| true),
            random: Random::default(),
        }
    }
}

impl fmt::Debug for RetryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryPolicy")
            .field("tries", &self.tries)
            .field("max_wait", &self.max_wait)
            .field("jitter", &self.jitter)
            .finish_non_exhaustive()
    }
}
