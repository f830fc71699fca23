//! The policy: which requests are retried, how often, and after which wait.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderName, Response};
use retry_policies::RetryDecision;
use tower::retry::budget::Budget;

use crate::{Reader, Told, host_name};
use tollgate::fields::ExactWait;
use tollgate::key::Head;
use tollgate::kit::Random;

#[derive(Clone)]
pub(super) struct RetryPolicy {
    pub(super) tries: u32,
    pub(super) max_wait: Duration,
    pub(super) jitter: Duration,
    pub(super) only: Arc<dyn Fn(&Head<'_>) -> bool + Send + Sync>,
    pub(super) random: Random,
    pub(super) backoff: Option<Arc<dyn retry_policies::RetryPolicy + Send + Sync>>,
    pub(super) budget: Option<Arc<dyn Budget + Send + Sync>>,
    pub(super) reader: Reader,
    pub(super) told: Told,
}

/// How far a request has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub(super) began: SystemTime,
    pub(super) retries: u32,
    /// The rest of `max_wait`.
    pub(super) wait_left: Duration,
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

    /// The wait before the next send, at most what is left; `None` if this response is returned.
    pub(super) fn wait<R>(
        &self,
        head: &Head<'_>,
        response: &mut Response<R>,
        progress: Progress,
    ) -> Option<Duration> {
        let reading = self.reader.read(response.headers(), response.status());
        if !reading.unreadable().is_empty() {
            self.told.tell(response, &reading, &host_name(head.uri(), head.headers()));
        }
        if !reading.is_refused() {
            if let Some(budget) = &self.budget {
                budget.deposit();
            }
            return None;
        }
        if reading.is_final() {
            return None;
        }
        let exact = response.extensions().get::<ExactWait>().map(ExactWait::wait);
        let wait = match exact.or_else(|| reading.retry_after()) {
            Some(told) => {
                let room = progress.wait_left.checked_sub(told)?;
                told.saturating_add(self.random.up_to(self.jitter.min(room)))
            }
            // A refusal by a client error is no work that was done, and another one may be.
            None if response.status().is_client_error() || is_repeatable(head) => {
                self.back_off(progress)?
            }
            None => return None,
        };
        self.budget.as_ref().is_none_or(|budget| budget.withdraw()).then_some(wait)
    }

    /// The wait where the server tells none.
    fn back_off(&self, progress: Progress) -> Option<Duration> {
        let backoff = self.backoff.as_ref()?;
        match backoff.should_retry(progress.began, progress.retries) {
            RetryDecision::Retry { execute_after } => {
                let wait = execute_after.duration_since(SystemTime::now()).unwrap_or_default();
                Some(wait).filter(|wait| *wait <= progress.wait_left)
            }
            RetryDecision::DoNotRetry => None,
        }
    }
}

/// Whether the request has the same effect if it is carried out twice.
fn is_repeatable(head: &Head<'_>) -> bool {
    head.method().is_idempotent() || head.headers().contains_key(IDEMPOTENCY_KEY)
}

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            tries: 5,
            max_wait: Duration::from_secs(30),
            jitter: Duration::ZERO,
            only: Arc::new(|_| true),
            random: Random::default(),
            backoff: None,
            budget: None,
            reader: Reader::new(),
            told: Told::default(),
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
