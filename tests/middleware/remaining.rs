//! The route on which clients ask what they have left: it tells what the layer would do, and takes
//! nothing.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::connect_info::MockConnectInfo;
use axum::routing::get;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tollgate::algebra::{Bucket, State, calculate};
use tollgate::clock::ManualClock;
use tollgate::key::{ClientIp, Head, Key, KeyError, KeyExtractor as _, header};
use tollgate::middleware::Portion;
use tollgate::routes::{PREDICTOR, predictor, remaining};
use tollgate::{
    HOUR, Limit, MINUTE, OnFailure, Quota, RateLimitExt, RateLimitLayer, RateLimiter, Rule, SECOND,
    Timestamp,
};
use tollgate_testing::broken::Broken;
use tollgate_testing::queue::{paused, settled};
use tollgate_testing::web::{self, Reply, send, serve};
use tollgate_testing::{START, at_once, limiter};
use tower::ServiceExt;

static PER_USER: Limit = Limit::new("per-user", Quota::token_bucket(10, MINUTE).capacity(20));
static WINDOW: Limit =
    Limit::new("window", Quota::fixed_window(4, HOUR).max_reserved(2).start(START));
static OTHER: Limit = Limit::new("other \"one\"\\", Quota::token_bucket(7, SECOND));

fn app<N>(layer: RateLimitLayer<N>) -> Router {
    let limits = get(remaining(&layer));
    let layer: RateLimitLayer<Vec<Rule>> = layer.and(Rule::new(&OTHER).shadow());
    Router::new().route("/", get(async || "in").rate_limit(layer)).route("/limits", limits)
}

/// A route and its layer, over a router without a server.
async fn ask(app: &Router, path: &str, fields: &[(&str, &str)]) -> Reply {
    let mut request = http::Request::get(path);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let request = request.body(axum::body::Body::empty()).unwrap();
    let Ok(response) = app.clone().oneshot(request).await;
    Reply::read(response).await
}

#[track_caller]
fn told(app: &Router, fields: &[(&str, &str)]) -> Value {
    let reply = at_once(ask(app, "/limits", fields));
    assert_eq!(reply.status, 200, "{}", reply.body);
    serde_json::from_str(&reply.body).unwrap()
}

const ANN: [(&str, &str); 1] = [("x-user", "ann")];

#[test]
fn a_client_is_told_the_bucket_that_its_requests_pay_from() {
    let clock = ManualClock::new(START);
    let app = app(limiter(&clock).layer(&PER_USER).key(header("x-user")).cost(3));
    for _ in 0..2 {
        assert_eq!(at_once(ask(&app, "/", &ANN)).status, 200);
    }
    clock.advance(SECOND);
    let reply = at_once(ask(&app, "/limits", &ANN));
    assert_eq!(reply.field("content-type"), Some("application/json"));
    assert_eq!(reply.field("cache-control"), Some("no-store"));
    assert_eq!(reply.field("ratelimit"), None);
    let now = START.as_micros() + 1_000_000;
    let expected = json!({"now": now, "limits": [{
        "name": "per-user", "value": 85_000_000, "ts": now, "resets_at": now + 35_000_000,
        "window_end": null, "cost": 3, "max_cost": 20, "max_wait": 0,
        "bucket": {
            "step": 1, "gain": 1, "token": 6_000_000, "capacity": 120_000_000,
            "floor": 120_000_000_i64 - (1 << 53),
        },
        "quota": {
            "text": "10 per minute, capacity 20", "kind": "token bucket", "rate": 10,
            "period": 60_000_000, "capacity": 20, "max_reserved": null, "initial": 20,
            "start": null, "shards": 1,
        },
    }]});
    assert_eq!(serde_json::from_str::<Value>(&reply.body).unwrap(), expected);
    // Another client has a bucket of its own.
    assert_eq!(told(&app, &[("x-user", "bob")])["limits"][0]["value"], 120_000_000);
}

#[test]
fn asking_takes_nothing() {
    let app = app(limiter(&ManualClock::new(START)).layer(&PER_USER).key(header("x-user")));
    let first = told(&app, &ANN);
    for _ in 0..100 {
        assert_eq!(told(&app, &ANN), first);
    }
    assert_eq!(at_once(ask(&app, "/", &ANN)).field("ratelimit"), Some("\"per-user\";r=19;t=114"));
}

/// A cost may come from a field that the request that asks does not have.
#[test]
fn asking_computes_no_cost() {
    let cost = |head: &Head<'_>| head.headers()["x-cost"].to_str().unwrap().parse().unwrap();
    let limiter = limiter(&ManualClock::new(START));
    let rule = || Rule::new(&PER_USER).key(header("x-user"));
    for (rule, shared) in [(rule().missing_key_exempt(), 0), (rule().missing_key_shared(), 1)] {
        let layer = limiter.layer(rule.cost_with(cost));
        let app = Router::new().route("/limits", get(remaining(&layer)));
        let page = told(&app, &ANN);
        assert_eq!(
            (&page["limits"][0]["cost"], &page["limits"][0]["value"]),
            (&Value::Null, &json!(120_000_000))
        );
        assert_eq!(told(&app, &[])["limits"].as_array().unwrap().len(), shared);
    }
}

#[test]
fn every_rule_is_told_in_order_and_a_name_is_escaped() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(Rule::new(&WINDOW).cost_with(|_| 2)).and(&OTHER).queue(HOUR);
    let app = Router::new().route("/limits", get(remaining(&layer)));
    at_once(limiter.limit(&WINDOW)).unwrap();
    let now = START.as_micros();
    let expected = json!([
        {
            "name": "window", "value": 3, "ts": now, "resets_at": now + 3_600_000_000,
            "window_end": now + 3_600_000_000, "cost": null, "max_cost": 6,
            "max_wait": 3_600_000_000_u64,
            "bucket": {"step": 3_600_000_000_u64, "gain": 4, "token": 1, "capacity": 4, "floor": -2},
            "quota": {
                "text": "fixed window: 4 per hour, max_reserved 2, start 2023-11-14T22:15:23.456789Z",
                "kind": "fixed window", "rate": 4, "period": 3_600_000_000_u64, "capacity": 4,
                "max_reserved": 2, "initial": 4, "start": now, "shards": 1,
            },
        },
        {
            "name": "other \"one\"\\", "value": 7_000_000, "ts": now, "resets_at": now,
            "window_end": null, "cost": 1, "max_cost": 25_207, "max_wait": 3_600_000_000_u64,
            "bucket": {
                "step": 1, "gain": 7, "token": 1_000_000, "capacity": 7_000_000,
                "floor": 7_000_000_i64 - (1 << 53),
            },
            "quota": {
                "text": "7 per second", "kind": "token bucket", "rate": 7, "period": 1_000_000,
                "capacity": 7, "max_reserved": null, "initial": 7, "start": null, "shards": 1,
            },
        },
    ]);
    assert_eq!(told(&app, &[])["limits"], expected);
}

#[test]
fn conditions_do_not_hide_a_limit_and_shadows_stay_hidden() {
    let limiter = limiter(&ManualClock::new(START));
    let names = |rule: Rule, fields: &[(&str, &str)]| -> Vec<String> {
        let app = Router::new().route("/limits", get(remaining(&limiter.layer(rule))));
        let told = told(&app, fields);
        let limits = told["limits"].as_array().unwrap();
        assert_eq!(told["now"].is_null(), limits.is_empty());
        limits.iter().map(|limit| limit["name"].as_str().unwrap().to_owned()).collect()
    };
    let rule = || Rule::new(&PER_USER).key(header("x-user"));
    assert_eq!(names(rule().only_methods([Method::POST]), &ANN), ["per-user"]);
    assert_eq!(names(rule().only_if(|_| false), &ANN), ["per-user"]);
    assert_eq!(names(rule().sample(Portion::NONE), &ANN), ["per-user"]);
    assert_eq!(names(rule().shadow(), &ANN), [""; 0]);
    // For half of the clients, the rule is a shadow.
    let half = || rule().enforce(Portion::percent(50));
    let told = (0..200).filter(|user| !names(half(), &[("x-user", &user.to_string())]).is_empty());
    let told = told.count();
    assert!((60..140).contains(&told), "{told}");
    // Clients that are exempt, and those without a key where that is allowed.
    let exempt = rule().key(header("x-user").unless(|head| head.headers().contains_key("x-ops")));
    assert_eq!(names(exempt, &[("x-user", "ann"), ("x-ops", "")]), [""; 0]);
    assert_eq!(names(rule().missing_key_exempt(), &[]), [""; 0]);
    assert_eq!(names(rule().missing_key_shared(), &[]), ["per-user"]);
    assert_eq!(names(Rule::new(&PER_USER).limit_with(|_| None::<Limit>), &[]), [""; 0]);
}

#[test]
fn the_limit_is_the_one_that_is_chosen_for_the_request_that_asks() {
    static PRO: Limit = Limit::new("per-user", Quota::token_bucket(100, MINUTE));
    let limiter = limiter(&ManualClock::new(START));
    let rule = Rule::new(&PER_USER)
        .key(header("x-user"))
        .limit_with(|head| if head.headers().contains_key("x-pro") { &PRO } else { &PER_USER });
    let app = app(limiter.layer(rule));
    at_once(ask(&app, "/", &ANN));
    let text = |fields: &[(&str, &str)]| told(&app, fields)["limits"][0]["quota"]["text"].clone();
    assert_eq!(text(&ANN), "10 per minute, capacity 20");
    let pro = [("x-user", "ann"), ("x-pro", "")];
    assert_eq!(text(&pro), "100 per minute");
    // What was used stays used: 99 of 100 tokens of 600,000 units.
    assert_eq!(told(&app, &pro)["limits"][0]["value"], 99 * 600_000);
}

#[test]
fn the_numbers_are_those_in_force() {
    let limiter = limiter(&ManualClock::new(START));
    let app = app(limiter.layer(&PER_USER).key(header("x-user")).queue(MINUTE));
    at_once(ask(&app, "/", &ANN));
    limiter
        .replace(&PER_USER, Quota::fixed_window(5, MINUTE).max_reserved(2).start(START))
        .unwrap();
    let told = told(&app, &ANN);
    let limit = &told["limits"][0];
    assert_eq!((&limit["value"], &limit["max_cost"]), (&json!(4), &json!(7)));
    assert_eq!(limit["bucket"]["step"], 60_000_000);
    assert_eq!(limit["quota"]["kind"], "fixed window");
}

/// What is used was used by the old numbers, and comes back by them until a request is admitted.
#[test]
fn a_client_of_a_smaller_plan_is_told_the_refill_of_the_larger_one() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    let app = app(limiter.layer(&PER_USER).key(header("x-user")));
    at_once(limiter.limit(&PER_USER).key("ann").cost(15)).unwrap();
    limiter.replace(&PER_USER, Quota::token_bucket(2, MINUTE)).unwrap();
    let limit = told(&app, &ANN)["limits"][0].clone();
    assert_eq!(
        (&limit["value"], &limit["bucket"]["token"]),
        (&json!(-390_000_000), &json!(30_000_000))
    );
    let kept = json!({
        "value": 30_000_000, "ts": START.as_micros(),
        "step": 1, "gain": 1, "token": 6_000_000, "capacity": 120_000_000,
    });
    assert_eq!(limit["kept"], kept);
    clock.advance(Duration::from_secs(6 * 14));
    assert_eq!(at_once(ask(&app, "/", &ANN)).status, 200);
    assert_eq!(told(&app, &ANN)["limits"][0].get("kept"), None);
}

#[test]
fn a_request_without_its_key_is_answered_as_by_the_layer() {
    let limiter = limiter(&ManualClock::new(START));
    let rule = || Rule::new(&PER_USER).key(header("x-user"));
    let plain = limiter.layer(rule().missing_key(StatusCode::UNAUTHORIZED));
    let layers = [limiter.layer(rule()), plain.on_refusal(tollgate::OnRefusal::plain_text())];
    for (layer, status) in layers.into_iter().zip([400, 401]) {
        let app = app(layer);
        let (look, pay) = (at_once(ask(&app, "/limits", &[])), at_once(ask(&app, "/", &[])));
        assert_eq!(look.status, status);
        assert_eq!((look.status, look.headers, look.body), (pay.status, pay.headers, pay.body));
    }
    // A key that is there and cannot be used.
    let invalid = |_: &Head<'_>| Err::<Key, _>(KeyError::invalid("no user has such a name"));
    let app = app(limiter.layer(Rule::new(&PER_USER).key_with(invalid)));
    assert_eq!(at_once(ask(&app, "/limits", &ANN)).status, 400);
}

#[tokio::test]
async fn while_the_store_fails_the_answer_is_503() {
    for later in [false, true] {
        for on_failure in [OnFailure::Refuse, OnFailure::Admit] {
            let layer = RateLimiter::new(Broken { later }).on_failure(on_failure).layer(&PER_USER);
            let app = Router::new().route("/limits", get(remaining(&layer)));
            let reply = ask(&app, "/limits", &[]).await;
            assert_eq!((reply.status.as_u16(), reply.field("retry-after")), (503, Some("1")));
            assert_eq!(reply.field("content-type"), Some("application/problem+json"));
            assert_eq!(reply.field("cache-control"), Some("no-store"));
        }
    }
}

#[test]
fn a_layer_that_is_switched_off_has_no_limits() {
    let layer = limiter(&ManualClock::new(START)).layer(&PER_USER).enabled(false);
    let app = Router::new().route("/limits", get(remaining(&layer)));
    assert_eq!(told(&app, &[]), json!({"now": null, "limits": []}));
}

#[tokio::test]
async fn head_has_the_length_and_no_body_over_a_server() {
    let layer = limiter(&ManualClock::new(START)).layer(&PER_USER).key(ClientIp::peer());
    let server = serve(app(layer)).await;
    let full = web::get(server, "/limits").await;
    let head = send(server, Method::HEAD, "/limits", &[]).await;
    assert_eq!((full.status.as_u16(), head.status.as_u16(), head.body.as_str()), (200, 200, ""));
    assert_eq!(head.field("content-length"), full.field("content-length"));
    assert_eq!(send(server, Method::POST, "/limits", &[]).await.status, 405);
    // Without `ConnectInfo` the key is missing.
    let here = SocketAddr::from(([192, 0, 2, 1], 80));
    let layer = limiter(&ManualClock::new(START)).layer(&PER_USER).key(ClientIp::peer());
    let app = Router::new().route("/limits", get(remaining(&layer)));
    assert_eq!(ask(&app, "/limits", &[]).await.status, 500);
    assert_eq!(ask(&app.layer(MockConnectInfo(here)), "/limits", &[]).await.status, 200);
}

/// Waiters are debt, and the state tells how much.
#[tokio::test(start_paused = true)]
async fn the_value_is_below_zero_while_requests_wait() {
    let spaced = Limit::new("spaced", Quota::token_bucket(1, SECOND).capacity(0));
    let layer = paused().layer(&spaced).queue(10 * SECOND);
    let app = app(layer);
    for waiters in 1..=3 {
        let waiting = app.clone();
        tokio::spawn(async move { ask(&waiting, "/", &[]).await });
        settled().await;
        let reply = ask(&app, "/limits", &[]).await;
        let limit = &serde_json::from_str::<Value>(&reply.body).unwrap()["limits"][0];
        assert_eq!(limit["value"], -1_000_000 * waiters, "{limit}");
        assert_eq!((&limit["max_cost"], &limit["max_wait"]), (&json!(10), &json!(10_000_000)));
        assert_eq!(limit.get("stays"), None);
    }
}

#[test]
fn a_queue_whose_requests_stay_is_told() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(&OTHER).queue(HOUR);
    for (layer, stays) in [(layer.clone(), None), (layer.settle(), Some(&json!(true)))] {
        let page = told(&Router::new().route("/limits", get(remaining(&layer))), &[]);
        let limit = &page["limits"][0];
        assert_eq!(limit.get("stays"), stays);
        assert_eq!(
            (&limit["max_cost"], &limit["max_wait"]),
            (&json!(25_207), &json!(3_600_000_000_u64))
        );
    }
}

/// Also for a client that has used nothing, and for one in debt.
#[test]
fn a_client_is_told_when_its_limits_start_again() {
    let clock = ManualClock::new(START + 10 * MINUTE);
    let limiter = limiter(&clock);
    let layer = limiter
        .layer(Rule::new(&WINDOW).key(header("x-user")))
        .and(Rule::new(&PER_USER).key(header("x-user")));
    let app = Router::new().route("/limits", get(remaining(&layer)));
    let times = |user: &str| {
        let told = told(&app, &[("x-user", user)]);
        ["window", "per-user"].map(|name| {
            let of_name = |one: &&Value| one["name"] == name;
            let limit = told["limits"].as_array().unwrap().iter().find(of_name).unwrap().clone();
            [limit["resets_at"].clone(), limit["window_end"].clone()]
        })
    };
    let micros = |time: Timestamp| json!(time.as_micros());
    let end = micros(START + HOUR);
    let now = START + 10 * MINUTE;
    assert_eq!(times("ann"), [[end.clone(), end.clone()], [micros(now), Value::Null]]);
    at_once(limiter.penalize(&WINDOW, 11).key("bob")).unwrap();
    at_once(limiter.penalize(&PER_USER, 50).key("bob")).unwrap();
    let full = micros(now + 5 * MINUTE);
    assert_eq!(times("bob"), [[end.clone(), end], [full, Value::Null]]);
}

/// The sum of the shards, in the units of the whole limit, predicts what they have together.
#[test]
fn the_shards_of_a_limit_are_told_as_one_bucket() {
    for quota in [
        Quota::token_bucket(40, SECOND).capacity(45).shards(4),
        Quota::token_bucket(7, MINUTE).capacity(30).shards(3),
        Quota::fixed_window(40, HOUR).shards(4).start(START),
    ] {
        let clock = ManualClock::new(START);
        let limiter = limiter(&clock).seed(1);
        let limit = Limit::try_new("hot", quota).unwrap();
        let app = Router::new().route("/limits", get(remaining(&limiter.layer(&limit))));
        let mut left = quota.get_capacity();
        while at_once(limiter.limit(&limit)).is_ok() {
            left -= 1;
            let snapshot = at_once(limiter.peek(&limit)).unwrap();
            assert_eq!(snapshot.remaining(), left);
            let told = &told(&app, &[])["limits"][0];
            let number = |name: &str| told[name].as_i64().unwrap();
            let ts = Timestamp::from_micros(number("ts"));
            let state = State { value: number("value"), ts };
            let look = calculate(&quota, Some(state), START, 0).unwrap();
            assert_eq!((look.value().whole(), look.state().value), (left, state.value));
            let two_shards = 2 * quota.get_capacity() / u64::from(quota.get_shards());
            assert_eq!(told["max_cost"].as_u64().unwrap(), two_shards);
            let whole = Bucket::new(&quota).unwrap();
            assert_eq!(told["bucket"]["capacity"], whole.capacity());
            assert_eq!(told["bucket"]["gain"], whole.gain());
        }
    }
}

#[tokio::test]
async fn the_predictor_is_served_with_a_tag_and_not_sent_again() {
    let app = Router::new().route("/tollgate.js", get(predictor));
    let first = ask(&app, "/tollgate.js", &[]).await;
    assert_eq!((first.status.as_u16(), &*first.body), (200, PREDICTOR));
    assert_eq!(first.field("content-type"), Some("text/javascript; charset=utf-8"));
    assert_eq!(first.field("cache-control"), Some("no-cache"));
    let tag = first.field("etag").unwrap();
    for known in [tag.to_owned(), format!("\"other\", W/{tag}"), "*".to_owned()] {
        let again = ask(&app, "/tollgate.js", &[("if-none-match", &known)]).await;
        assert_eq!(
            (again.status.as_u16(), &*again.body, again.field("etag")),
            (304, "", Some(tag))
        );
    }
    let other = ask(&app, "/tollgate.js", &[("if-none-match", "\"other\"")]).await;
    assert_eq!(other.status, 200);
}
