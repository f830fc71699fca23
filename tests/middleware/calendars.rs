//! Windows of a calendar, as clients of a service see them.

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::Request;
use serde_json::Value;
use tollgate::clock::ManualClock;
use tollgate::fields::Dialect;
use tollgate::key::header;
use tollgate::quota::Calendar;
use tollgate::routes::remaining;
use tollgate::{Limit, Quota, RateLimitExt, Timestamp};
use tollgate_testing::web::Reply;
use tollgate_testing::{at_once, limiter};
use tower::ServiceExt;

const MONTHLY: Limit =
    Limit::new("monthly", Quota::calendar(2, Calendar::monthly().zone("Europe/Berlin")));

fn ask(app: &Router, path: &str) -> Reply {
    let request = Request::get(path).header("x-user", "ann").body(Body::empty()).unwrap();
    let Ok(response) = at_once(app.clone().oneshot(request));
    at_once(Reply::read(response))
}

/// In Berlin, the clocks go forward on 29 March 2026: April begins an hour earlier by UTC.
#[test]
fn a_client_is_told_the_second_in_which_the_next_month_begins() {
    // 27 March at noon, by UTC.
    let clock = ManualClock::new(Timestamp::from_micros(1_774_612_800_000_000));
    let limiter = limiter(&clock);
    let layer = limiter.layer(&MONTHLY).key(header("x-user")).dialects(Dialect::Draft11);
    let limits = get(remaining(&layer));
    let app = Router::new().route("/", get(async || "in").rate_limit(layer));
    let app = app.route("/limits", limits);
    assert_eq!([ask(&app, "/").status, ask(&app, "/").status], [200, 200]);

    // At 22:00 on 31 March, by UTC.
    let refused = ask(&app, "/");
    assert_eq!((refused.status.as_u16(), refused.field("retry-after")), (429, Some("381600")));
    assert_eq!(refused.field("ratelimit"), Some("\"monthly\";r=0;t=381600"));
    let told: Value = serde_json::from_str(&ask(&app, "/limits").body).unwrap();
    assert_eq!(told["limits"][0]["resets_at"], 1_774_994_400_000_000_u64, "{told}");

    clock.set(Timestamp::from_micros(1_774_994_400_000_000 - 1));
    assert_eq!(ask(&app, "/").status, 429);
    clock.set(Timestamp::from_micros(1_774_994_400_000_000));
    let admitted = ask(&app, "/");
    // April has 30 days.
    assert_eq!((admitted.status.as_u16(), admitted.field("retry-after")), (200, None));
    assert_eq!(admitted.field("ratelimit"), Some("\"monthly\";r=1;t=2592000"));
}
