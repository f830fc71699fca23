//! Requests of a client whose quota grants nothing, in layers and in handlers.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::get;
use http::{Request, Response};
use serde_json::{Value, json};
use tollgate::clock::ManualClock;
use tollgate::fields::{Dialect, ExactWait};
use tollgate::key::header;
use tollgate::middleware::{Admission, Portion};
use tollgate::routes::remaining;
use tollgate::{
    DAY, HOUR, Head, Limit, OnFailure, OnRefusal, Permit, Quota, RateLimitExt, RateLimitLayer,
    RateLimited, RateLimiter, Rule, Snapshot,
};
use tollgate_testing::broken::Broken;
use tollgate_testing::web::{Reply, grpc_call};
use tollgate_testing::{START, at_once, limiter};
use tower::ServiceExt;

static FREE: Limit = Limit::new("per-tenant", Quota::token_bucket(100, DAY));
static PAUSED: Limit = Limit::new("per-tenant", Quota::none());
static OTHER: Limit = Limit::new("other", Quota::token_bucket(5, HOUR));

fn app(layer: impl Into<RateLimitLayer<Vec<Rule>>>) -> Router {
    Router::new().route("/", get(async || "hello").rate_limit(layer.into()))
}

async fn ask(app: &Router, fields: &[(&str, &str)]) -> Reply {
    let mut request = Request::get("/");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::empty()).unwrap();
    Reply::read(app.clone().oneshot(request).await.unwrap()).await
}

/// The names of all fields that say how a limit stands, or when to come back.
fn told(reply: &Reply) -> Vec<&str> {
    let names = reply.headers.keys().map(http::HeaderName::as_str);
    names.filter(|name| name.contains("ratelimit") || *name == "retry-after").collect()
}

fn problem() -> Value {
    json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota Exceeded",
        "status": 429,
        "detail": "the limit grants nothing",
        "violated-policies": ["per-tenant"],
    })
}

#[track_caller]
fn is_refused_for_good(reply: &Reply) {
    assert_eq!((reply.status.as_u16(), told(reply)), (429, Vec::new()), "{reply:?}");
    assert_eq!(serde_json::from_str::<Value>(&reply.body).unwrap(), problem());
    assert_eq!(reply.field("cache-control"), Some("no-store"));
}

/// Paused clients by a field of their requests.
fn plan(head: &Head<'_>) -> &'static Limit {
    if head.headers().contains_key("x-paused") { &PAUSED } else { &FREE }
}

const ANN: [(&str, &str); 1] = [("x-tenant", "ann")];
const PAUSED_ANN: [(&str, &str); 2] = [("x-tenant", "ann"), ("x-paused", "")];

#[test]
fn a_refusal_has_a_reason_and_no_field_in_any_dialect() {
    let limiter = limiter(&ManualClock::new(START));
    let all = [Dialect::Draft7, Dialect::Draft6, Dialect::XRateLimit];
    let by_plan = Rule::new(&FREE).limit_with(plan).key(header("x-tenant"));
    let layers: [RateLimitLayer<Vec<Rule>>; 9] = [
        limiter.layer(&PAUSED).into(),
        limiter.layer(&PAUSED).cost(0).into(),
        limiter.layer(&PAUSED).cost_with(|_| 0).dialects(all).into(),
        limiter.layer(&PAUSED).dialects([Dialect::Draft11, Dialect::XRateLimit]).into(),
        limiter.layer(&PAUSED).queue(HOUR).jitter(HOUR).into(),
        limiter.layer(&OTHER).and(&PAUSED).settle().expose(),
        limiter.layer(&PAUSED).and(&OTHER).queue(HOUR).refund_dropped(),
        limiter.layer(by_plan).dialects(all).into(),
        limiter.layer(Rule::new(&PAUSED).enforce(Portion::percent(100))).into(),
    ];
    for layer in layers {
        is_refused_for_good(&at_once(ask(&app(layer), &PAUSED_ANN)));
    }
    assert_eq!(at_once(limiter.peek(&OTHER)).unwrap().remaining(), 5, "all or nothing");
}

#[tokio::test]
async fn a_store_that_fails_is_not_asked() {
    for later in [false, true] {
        for layer in [
            RateLimiter::new(Broken { later }).layer(&PAUSED),
            RateLimiter::new(Broken { later }).layer(&PAUSED).on_failure(OnFailure::Admit),
        ] {
            is_refused_for_good(&ask(&app(layer.clone()), &[]).await);
            is_refused_for_good(&ask(&app(layer.queue(HOUR)), &[]).await);
        }
    }
}

#[test]
fn a_plan_that_is_paused_and_back_has_what_it_had() {
    let limiter = limiter(&ManualClock::new(START));
    let by_plan = Rule::new(&FREE).limit_with(plan).key(header("x-tenant")).cost(30);
    let app = app(limiter.layer(by_plan));
    let left = |reply: &Reply| reply.field("ratelimit").unwrap().to_owned();
    assert_eq!(left(&at_once(ask(&app, &ANN))), "\"per-tenant\";r=70;t=60480");
    for _ in 0..10 {
        is_refused_for_good(&at_once(ask(&app, &PAUSED_ANN)));
    }
    assert_eq!(left(&at_once(ask(&app, &ANN))), "\"per-tenant\";r=40;t=34560");
}

#[test]
fn a_layer_whose_limit_is_replaced_by_nothing_refuses_at_once_and_goes_on_after_that() {
    let limiter = limiter(&ManualClock::new(START));
    let layers: [RateLimitLayer<Vec<Rule>>; 3] = [
        limiter.layer(&FREE).into(),
        limiter.layer(&FREE).and(&OTHER),
        limiter.layer(&FREE).queue(HOUR).into(),
    ];
    let apps = layers.map(app);
    for app in &apps {
        assert_eq!(at_once(ask(app, &[])).status, 200);
    }
    limiter.replace(&FREE, "0 per hour".parse().unwrap()).unwrap();
    for app in &apps {
        is_refused_for_good(&at_once(ask(app, &[])));
    }
    limiter.replace(&FREE, *FREE.quota()).unwrap();
    for app in &apps {
        assert_eq!(at_once(ask(app, &[])).status, 200);
    }
    assert_eq!(at_once(limiter.peek(&FREE)).unwrap().remaining(), 94);
}

#[test]
fn other_wordings_say_the_reason_as_well() {
    let limiter = limiter(&ManualClock::new(START));
    let plain = limiter.layer(&PAUSED).on_refusal(OnRefusal::plain_text());
    let reply = at_once(ask(&app(plain), &[]));
    let text = "Too Many Requests: the limit grants nothing (`per-tenant`)\n";
    assert_eq!((reply.body.as_str(), told(&reply)), (text, Vec::new()));
    let handler = OnRefusal::handler(|refused| {
        let [snapshot] = refused.snapshots() else { panic!("{refused:?}") };
        assert_eq!((snapshot.capacity(), snapshot.wait()), (0, None));
        assert_eq!((refused.status().as_u16(), refused.retry_after()), (429, None));
        Response::new(refused.error().unwrap().to_string())
    });
    let reply = at_once(ask(&app(limiter.layer(&PAUSED).on_refusal(handler)), &[]));
    let text = "refused by limit `per-tenant` (it grants nothing: 0 per day)";
    assert_eq!((reply.body.as_str(), told(&reply)), (text, Vec::new()));
    // In gRPC, without a time to retry.
    let service = tower::Layer::layer(
        &limiter.layer(&PAUSED),
        tower::service_fn(async |_: Request<()>| {
            Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
        }),
    );
    let mut call = grpc_call("application/grpc", ());
    call.extensions_mut().insert(ExactWait::default());
    let response = at_once(service.oneshot(call)).unwrap();
    assert_eq!(response.headers()["grpc-status"], "8");
    assert_eq!(response.headers()["grpc-message"], "the limit grants nothing (`per-tenant`)");
    assert!(!response.headers().contains_key("grpc-status-details-bin"));
    assert!(response.extensions().get::<ExactWait>().is_none());
}

/// A handler that returns the error of a call answers as the layer does, and a look is no field.
#[tokio::test]
async fn a_handler_answers_as_the_layer_does() {
    async fn call(
        State(limiter): State<RateLimiter>,
    ) -> Result<(Permit<'static>, &'static str), RateLimited> {
        Ok((limiter.limit(&OTHER).and(&PAUSED).key("ann").await?.into_owned(), "both"))
    }
    async fn look(
        State(limiter): State<RateLimiter>,
    ) -> Result<(Snapshot, &'static str), RateLimited> {
        Ok((limiter.peek(&PAUSED).key("ann").await?, "nothing"))
    }
    for dialect in [Dialect::Draft11, Dialect::Draft7, Dialect::Draft6, Dialect::XRateLimit] {
        let limiter = limiter(&ManualClock::new(START)).dialects(dialect);
        let calls = Router::new().route("/", get(call)).with_state(limiter.clone());
        is_refused_for_good(&ask(&calls, &[]).await);
        let looks = Router::new().route("/", get(look)).with_state(limiter);
        let reply = ask(&looks, &[]).await;
        assert_eq!(
            (reply.status.as_u16(), told(&reply), reply.body.as_str()),
            (200, vec![], "nothing")
        );
    }
    // In the words of the limiter, whatever a layer around the handler says.
    let limiter = limiter(&ManualClock::new(START)).on_refusal(OnRefusal::plain_text());
    let words = limiter.layer(&OTHER).on_refusal(OnRefusal::problem_details());
    let app = Router::new().route("/", get(call)).with_state(limiter).layer(words);
    let reply = ask(&app, &[]).await;
    assert_eq!(reply.body, "Too Many Requests: the limit grants nothing (`per-tenant`)\n");
    assert_eq!(reply.field("retry-after"), None);
}

#[test]
fn a_shadow_lets_the_request_pass_and_shows_what_it_would_do() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(&OTHER).and(Rule::new(&PAUSED).shadow()).expose();
    let handler = async |admission: Admission| {
        let [shadow] = &*admission.shadows() else { panic!("one shadow") };
        assert_eq!((shadow.limit().name(), shadow.fits()), ("per-tenant", false));
        admission.reset().await.unwrap();
        admission.settle(3).await.unwrap();
        "passed".into_response()
    };
    let app = Router::new().route("/", get(handler).rate_limit(layer));
    let reply = at_once(ask(&app, &[]));
    assert_eq!((reply.status.as_u16(), reply.body.as_str()), (200, "passed"));
    assert_eq!(reply.field("ratelimit-policy"), Some("\"other\";q=5;w=3600"));
}

#[test]
fn a_layer_that_is_switched_off_lets_it_pass() {
    let layer = limiter(&ManualClock::new(START)).layer(&PAUSED).enabled(false);
    let reply = at_once(ask(&app(layer), &[]));
    assert_eq!((reply.status.as_u16(), told(&reply)), (200, Vec::new()));
}

#[test]
fn a_client_that_asks_is_told_that_nothing_fits() {
    let limiter = limiter(&ManualClock::new(START));
    let told = |layer: RateLimitLayer<Vec<Rule>>| -> Value {
        let page = Router::new().route("/", get(remaining(&layer)));
        serde_json::from_str(&at_once(ask(&page, &[])).body).unwrap()
    };
    let page = told(limiter.layer(&OTHER).and(&PAUSED).queue(Duration::from_secs(5)));
    let now = START.as_micros();
    assert_eq!(page["now"], now, "by the store, which was asked about the first limit");
    assert_eq!(page["limits"][0]["max_cost"], 5);
    let paused = &page["limits"][1];
    for (name, wanted) in [
        ("name", json!("per-tenant")),
        ("value", json!(0)),
        ("resets_at", Value::Null),
        ("window_end", Value::Null),
        ("cost", json!(1)),
        ("max_cost", Value::Null),
        ("max_wait", json!(5_000_000)),
        ("bucket", json!({"step": 1, "gain": 1, "token": 1, "capacity": 0, "floor": 0})),
        (
            "quota",
            json!({
                "text": "0 per day", "kind": "token bucket", "rate": 0,
                "period": 86_400_000_000_u64, "capacity": 0, "max_reserved": null, "initial": 0,
                "start": null, "shards": 1,
            }),
        ),
    ] {
        assert_eq!(paused[name], wanted, "{name}: {paused}");
    }
    let alone = told(limiter.layer(&PAUSED).into());
    assert_eq!(alone["now"], alone["limits"][0]["ts"]);
}
