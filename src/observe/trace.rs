//! The observer that speaks to `tracing`.

use std::time::Duration;

use tracing::Span;

use super::rare_lines::RareLines;
use crate::limiter::{Decision, Limit, Observer, Outcome, QueueChange};

/// Makes an observer that records decisions in the span of the request, and logs what the limiter itself does
/// not.
///
/// **Fields of the span.** `tracing` records only fields that a span declares, so declare those that
/// you want where the span is made, as `tollgate.outcome = tracing::field::Empty`:
///
/// | field | is |
/// |---|---|
/// | `tollgate.limit` | the limit that decided: of several, the one that refused or made the request wait longest |
/// | `tollgate.outcome` | its [outcome](Outcome), as `"admitted"` or `"refused"` |
/// | `tollgate.wait` | the seconds to wait: of a refusal or a reservation |
/// | `tollgate.shadow` | the name of a [shadow](crate::Rule::shadow) that would not have admitted the request |
///
/// If several layers decide about a request, each records its decision, and the last one counts. A
/// layer that refuses is the last one.
///
/// **Lines of the log.** The limiter logs by itself, with the feature `tracing` and without any
/// observer: refusals of layers and shadows at debug, a cost that can never fit once for its limit, a
/// store that fails once for its cause. This observer adds what that leaves out, and repeats nothing
/// of it:
///
/// * at info: keys that [`Rule::block_after`](crate::Rule::block_after) has blocked
/// * at debug: refusals of calls, which a handler may or may not answer; requests that leave a
///   queue before their turn
/// * at warn, once a minute for each cause and limit ([`trace_every`] sets another interval): a queue that is full,
///   work that runs more than a second later than promised
///
/// # Examples
///
/// ```
/// use tollgate::observe::trace;
/// use tollgate::{HOUR, Limit, Quota, RateLimiter};
/// use tracing::Instrument;
/// use tracing::field::Empty;
///
/// const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::RateLimited> {
/// let limiter = RateLimiter::in_memory().observe(trace());
/// let span = tracing::info_span!("request", tollgate.limit = Empty, tollgate.outcome = Empty);
/// async { limiter.limit(&LOGIN).key("alice").await.map(drop) }.instrument(span).await?;
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn trace() -> impl Observer {
    trace_every(Duration::from_secs(60))
}

/// Like [`trace()`], with a warning about the same cause and limit once in an interval.
#[must_use]
pub fn trace_every(interval: Duration) -> impl Observer {
    let (full, late) = <(RareLines, RareLines)>::default();
    Trace { interval, full, late }
}

struct Trace {
    interval: Duration,
    full: RareLines,
    late: RareLines,
}

/// How late work has to run for a warning.
const LATE: Duration = Duration::from_secs(1);

impl Observer for Trace {
    fn on_block(&self, limit: &Limit, time: Duration) {
        tracing::info!(limit = limit.name(), ?time, "a key was refused too often, and is blocked");
    }

    fn on_decision(&self, decision: &Decision<'_>) {
        let (limit, outcome) = (decision.limit().name(), decision.outcome());
        let wait = decision.wait();
        if decision.is_shadow() {
            // Its lines are in the log of the layer.
            if matches!(outcome, Outcome::Refused | Outcome::TooLarge | Outcome::NoKey) {
                Span::current().record("tollgate.shadow", limit);
            }
            return;
        }
        if decision.is_main() {
            let span = Span::current();
            span.record("tollgate.limit", limit).record("tollgate.outcome", outcome.name());
            if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
                span.record("tollgate.wait", wait.as_secs_f64());
            }
        }
        let is_call = decision.source() == "handler";
        match outcome {
            Outcome::Refused if is_call => {
                let retry_after = wait.map(tracing::field::debug);
                tracing::debug!(limit, retry_after, "call refused");
            }
            Outcome::QueueFull if self.full.is_due(limit, self.interval) => {
                tracing::warn!(
                    limit,
                    "the queue is full, and requests that would wait are refused \
                     (logged once in an interval)"
                );
            }
            _ => {}
        }
    }

    fn on_queue(&self, change: &QueueChange<'_>) {
        let (limit, waited) = (change.limit().name(), change.waited());
        match change.lateness() {
            _ if change.has_left() => tracing::debug!(limit, ?waited, "left the queue"),
            Some(lateness) if lateness >= LATE && self.late.is_due(limit, self.interval) => {
                tracing::warn!(
                    limit,
                    ?lateness,
                    "work runs later than promised: the runtime or the service is busy \
                     (logged once in an interval)"
                );
            }
            _ => {}
        }
    }
}
