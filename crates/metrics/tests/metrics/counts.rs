//! What the observer for metrics counts, read from the page that Prometheus scrapes.

use std::sync::Arc;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tollgate::backend::Memory;
use tollgate::clock::ManualClock;
use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimiter, SECOND};
use tollgate_metrics::Metrics;
use tollgate_testing::queue::paused;
use tollgate_testing::{START, at_once, limiter};

static TWO: Limit = Limit::new("two", Quota::token_bucket(2, MINUTE));
static TENTHS: Limit = Limit::new("tenths", Quota::token_bucket(10, SECOND).capacity(0));

/// Metrics with a recorder of their own, and its page.
pub(crate) fn metrics() -> (Metrics, PrometheusHandle) {
    let recorder = PrometheusBuilder::new().with_recommended_naming(true).build_recorder();
    let page = recorder.handle();
    (Metrics::new().recorder(recorder), page)
}

/// The value of a line of the page.
#[track_caller]
pub(crate) fn value(page: &PrometheusHandle, line: &str) -> f64 {
    let page = page.render();
    let found = page.lines().find_map(|known| known.strip_prefix(line)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("{line} is not in\n{page}")).parse().unwrap()
}

#[test]
fn decisions_and_tokens_are_counted_by_limit_outcome_and_source() {
    let (metrics, page) = metrics();
    let limiter = limiter(&ManualClock::new(START)).observe(metrics);
    for cost in [2, 1, 1, 3] {
        drop(at_once(limiter.limit(&TWO).cost(cost)));
    }
    let count = |outcome: &str| {
        let labels = format!("tollgate_outcome=\"{outcome}\",tollgate_source=\"handler\"");
        value(&page, &format!("tollgate_decisions_total{{tollgate_limit=\"two\",{labels}}}"))
    };
    assert_eq!([count("admitted"), count("refused"), count("too_large")], [1.0, 2.0, 1.0]);
    let tokens = "tollgate_tokens_total{tollgate_limit=\"two\",tollgate_source=\"handler\"}";
    assert_eq!(value(&page, tokens), 2.0);
    assert!(page.render().contains("# HELP tollgate_decisions_total Decisions about requests"));
}

#[tokio::test(start_paused = true)]
async fn the_length_of_a_queue_rises_and_falls_to_zero() {
    let (metrics, page) = metrics();
    let limiter = paused().observe(metrics);
    let queued = || value(&page, "tollgate_queued_requests{tollgate_limit=\"tenths\"}");
    let first = limiter.limit(&TENTHS).reserve().await.unwrap();
    let second = limiter.limit(&TENTHS).reserve().await.unwrap();
    assert_eq!(queued(), 2.0);
    drop(second);
    assert_eq!(queued(), 1.0);
    drop(first.ready().await);
    assert_eq!(queued(), 0.0);
    let told = |metric: &str, more: &str| {
        value(&page, &format!("tollgate_request_{metric}{{tollgate_limit=\"tenths\"{more}}}"))
    };
    assert_eq!(told("time_in_queue_seconds_sum", ",tollgate_step=\"served\""), 0.1);
    assert_eq!(told("time_in_queue_seconds_sum", ",tollgate_step=\"left\""), 0.0);
    assert_eq!(told("lateness_seconds_count", ""), 1.0);
    assert_eq!(told("lateness_seconds_sum", ""), 0.0);
}

#[test]
fn what_the_memory_store_holds_is_recorded_on_demand() {
    let clock = ManualClock::new(START);
    let (metrics, page) = metrics();
    let metrics = Arc::new(metrics);
    let memory = Memory::new().max_keys(3).clock(clock.clone());
    let limiter = RateLimiter::new(memory).observe(Arc::clone(&metrics));
    let recorded = || {
        metrics.record_store(&limiter);
        ["keys", "evicted_keys_total", "forgotten_keys_total"]
            .map(|name| value(&page, &format!("tollgate_store_{name}")))
    };
    assert_eq!(recorded(), [0.0; 3]);
    for key in 0..5_u64 {
        drop(at_once(limiter.limit(&TWO).key(key)));
    }
    assert_eq!(recorded(), [3.0, 2.0, 0.0]);
    // All are full again, and each newcomer looks at a few slots.
    clock.advance(HOUR);
    drop(at_once(limiter.limit(&TWO).key(9_u64)));
    let [keys, evicted, forgotten] = recorded();
    assert_eq!((keys + forgotten, evicted), (4.0, 2.0));
    assert!(forgotten > 0.0);
}

/// Names of limits that are made up for each customer would fill the memory of the exporter.
#[test]
fn names_of_limits_beyond_the_bound_share_one_label() {
    let (metrics, page) = metrics();
    let limiter = limiter(&ManualClock::new(START)).observe(metrics.max_limits(2));
    for nth in 0..50 {
        let limit = Limit::try_new(format!("plan-{nth}"), Quota::token_bucket(9, HOUR)).unwrap();
        drop(at_once(limiter.limit(&limit)));
    }
    let page = page.render();
    let decisions = page.lines().filter(|line| line.starts_with("tollgate_decisions_total{"));
    let mut limits: Vec<_> = decisions.map(|line| line.split('"').nth(1).unwrap()).collect();
    limits.sort_unstable();
    assert_eq!(limits, [Metrics::OTHER_LIMITS, "plan-0", "plan-1"]);
    assert!(page.contains("tollgate_limit=\"_other\",tollgate_outcome=\"admitted\""), "{page}");
    assert!(page.contains("} 48\n"), "{page}");
}

#[test]
fn a_label_of_the_program_is_on_all_metrics() {
    let (metrics, page) = metrics();
    let metrics = Arc::new(metrics.label("limiter", "inbound"));
    let limiter = limiter(&ManualClock::new(START)).observe(Arc::clone(&metrics));
    drop(at_once(limiter.limit(&TWO)));
    metrics.record_store(&limiter);
    assert_eq!(value(&page, "tollgate_store_keys{limiter=\"inbound\"}"), 1.0);
    let page = page.render();
    let mut lines = page.lines().filter(|line| line.starts_with("tollgate_"));
    assert!(lines.all(|line| line.contains("limiter=\"inbound\"")), "{page}");
}

/// The keys of clients are personal data, and there are too many of them for a label.
#[test]
fn no_key_gets_into_a_metric() {
    let (metrics, page) = metrics();
    let limiter = limiter(&ManualClock::new(START)).observe(metrics);
    drop(at_once(limiter.limit(&TWO).key("alice@example.com").cost(2)));
    drop(at_once(limiter.limit(&TWO).key("alice@example.com")));
    assert!(!page.render().contains("alice"));
}
