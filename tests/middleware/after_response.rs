//! Tokens that are taken up front, and refunded if the response says so.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use http::{HeaderMap, Request, Response, StatusCode};
use proptest::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot, watch};
use tollgate::algebra::{Bucket, State};
use tollgate::backend::{Adjustment, BucketId, Key};
use tollgate::clock::ManualClock;
use tollgate::fields::Dialect;
use tollgate::key::header;
use tollgate::middleware::{ActualCost, ResponseHead};
use tollgate::{
    HOUR, Limit, MINUTE, Quota, RateLimitExt, RateLimitLayer, RateLimiter, Rule, SECOND,
};
use tollgate_testing::dice::Dice;
use tollgate_testing::queue::{Late, Recorder, ms, paused, send, settled, tokens};
use tollgate_testing::web::grpc_call;
use tollgate_testing::{START, at_once, limiter};
use tower::{Layer, Service, ServiceExt, service_fn};

static FAILURES: Limit = Limit::new("failures", Quota::token_bucket(5, HOUR));
static CALLS: Limit = Limit::new("calls", Quota::token_bucket(10, MINUTE));
static TOKENS: Limit = Limit::new("tokens", Quota::token_bucket(1_000, MINUTE));
static HOT: Limit = Limit::new("hot", Quota::token_bucket(100, MINUTE).shards(10));

fn succeeded(response: &ResponseHead<'_>) -> bool {
    response.is_success()
}

/// The rule against failed log-ins, before it says what a success does.
fn by_user() -> Rule {
    Rule::new(&FAILURES).key(header(USER))
}

/// Polls a request, without a wake-up for it.
fn poll<F: Future>(call: &mut Pin<Box<F>>) -> Option<F::Output> {
    match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

/// Sends a request that is answered as its header fields say.
#[track_caller]
fn send_now<N>(layer: &RateLimitLayer<N>, fields: &[(&str, &str)]) -> Response<()> {
    let inner = service_fn(|request: Request<()>| {
        let mut response = Response::new(());
        for (name, value) in request.headers() {
            let number = || value.to_str().unwrap().parse().unwrap();
            match name.as_str() {
                "status" => {
                    *response.status_mut() = StatusCode::from_bytes(value.as_bytes()).unwrap()
                }
                "cost" => drop(response.extensions_mut().insert(ActualCost::new(number()))),
                _ => drop(response.headers_mut().insert(name, value.clone())),
            }
        }
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let build = |request: http::request::Builder, (name, value): &(&str, &str)| {
        request.header(*name, *value)
    };
    let request = fields.iter().fold(Request::builder(), build).body(()).unwrap();
    at_once(layer.layer(inner).oneshot(request)).unwrap().map(drop)
}

#[track_caller]
fn left(limiter: &RateLimiter, limit: &Limit) -> u64 {
    at_once(limiter.peek(limit)).unwrap().remaining()
}

// Log-ins.

/// What became of the log-ins.
#[derive(Default)]
struct Door {
    /// Wrong passwords that were looked at.
    wrong: AtomicU64,
    right: AtomicU64,
}

const USER: &str = "x-user";
const PASSWORD: &str = "x-password";

/// A log-in that looks at passwords once the gate is open.
fn door(layer: RateLimitLayer, gate: watch::Receiver<bool>) -> (Router, Arc<Door>) {
    let counts = Arc::new(Door::default());
    let seen = Arc::clone(&counts);
    let login = async move |headers: HeaderMap| {
        gate.clone().wait_for(|open| *open).await.unwrap();
        let (count, status) = match headers[PASSWORD] == "right" {
            true => (&seen.right, StatusCode::OK),
            false => (&seen.wrong, StatusCode::UNAUTHORIZED),
        };
        count.fetch_add(1, Ordering::Relaxed);
        status
    };
    (Router::new().route("/login", post(login).rate_limit(layer)), counts)
}

fn threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap()
}

async fn attempt(router: Router, password: &str) -> StatusCode {
    let request = Request::post("/login").header(USER, "alice").header(PASSWORD, password);
    router.oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status()
}

#[test]
fn of_1000_wrong_passwords_at_once_5_reach_the_check() {
    let limiter = limiter(&ManualClock::new(START));
    assert_5_get_in(&threads(), &limiter);
    assert_eq!(at_once(limiter.peek(&FAILURES).key("alice")).unwrap().remaining(), 0);
}

#[test]
fn of_1000_wrong_passwords_at_once_5_reach_the_check_of_a_store_that_answers_later() {
    let runtime = threads();
    let guard = runtime.enter();
    let (_late, limiter, past) = Late::new();
    assert_5_get_in(&runtime, &limiter);
    assert_eq!(at_once(past.peek(&FAILURES).key("alice")).unwrap().remaining(), 0);
    drop(guard);
}

fn assert_5_get_in(runtime: &Runtime, limiter: &RateLimiter) {
    let layer = limiter.layer(by_user().refund_if(succeeded));
    // The requests that got in stay there until all others are refused.
    let (open, gate) = watch::channel(false);
    let (router, door) = door(layer, gate);
    runtime.block_on(async {
        let (tell, mut told) = mpsc::unbounded_channel();
        for _ in 0..1_000 {
            let (router, tell) = (router.clone(), tell.clone());
            tokio::spawn(async move { tell.send(attempt(router, "wrong").await).unwrap() });
        }
        for _ in 0..995 {
            assert_eq!(told.recv().await, Some(StatusCode::TOO_MANY_REQUESTS));
        }
        open.send_replace(true);
        for _ in 0..5 {
            assert_eq!(told.recv().await, Some(StatusCode::UNAUTHORIZED));
        }
    });
    assert_eq!(door.wrong.load(Ordering::Relaxed), 5);
}

#[test]
fn right_passwords_among_wrong_ones_never_let_a_sixth_failure_through() {
    for seed in 0..20 {
        let limiter = limiter(&ManualClock::new(START));
        let layer = limiter.layer(by_user().refund_if(succeeded));
        let (router, door) = door(layer, watch::channel(true).1);
        let mut dice = Dice(seed);
        threads().block_on(async {
            let attempts: Vec<_> = (0..1_000)
                .map(|_| {
                    let password = if dice.below(10) == 0 { "wrong" } else { "right" };
                    tokio::spawn(attempt(router.clone(), password))
                })
                .collect();
            for attempt in attempts {
                attempt.await.unwrap();
            }
        });
        let (wrong, right) =
            (door.wrong.load(Ordering::Relaxed), door.right.load(Ordering::Relaxed));
        assert!(wrong <= 5, "{wrong} failures, seed {seed}");
        assert!(wrong == 5 || right > 0, "seed {seed}");
        // Every success has its token back, and no failure has.
        let snapshot = at_once(limiter.peek(&FAILURES).key("alice")).unwrap();
        assert_eq!(snapshot.remaining(), 5 - wrong, "seed {seed}");
    }
}

#[test]
fn the_tokens_of_successful_requests_admit_others() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(by_user().refund_if(succeeded));
    let (router, door) = door(layer, watch::channel(true).1);
    threads().block_on(async {
        for _ in 0..100 {
            assert_eq!(attempt(router.clone(), "right").await, StatusCode::OK);
        }
        for _ in 0..5 {
            assert_eq!(attempt(router.clone(), "wrong").await, StatusCode::UNAUTHORIZED);
        }
        // Not even the right one is looked at any more.
        assert_eq!(attempt(router.clone(), "right").await, StatusCode::TOO_MANY_REQUESTS);
    });
    assert_eq!(door.right.load(Ordering::Relaxed), 100);
}

#[test]
fn a_successful_log_in_resets_the_bucket() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(by_user().reset_if(succeeded));
    let (router, _) = door(layer, watch::channel(true).1);
    threads().block_on(async {
        for password in ["wrong", "wrong", "wrong", "wrong", "right"] {
            attempt(router.clone(), password).await;
        }
    });
    assert_eq!(at_once(limiter.peek(&FAILURES).key("alice")).unwrap().remaining(), 5);
}

// What the response says.

#[test]
fn status_header_and_extensions_may_ask_for_a_refund() {
    let limiter = limiter(&ManualClock::new(START));
    let calls = || Rule::new(&CALLS);
    let by_status = calls().refund_if(|head| head.status() == StatusCode::NOT_MODIFIED);
    let by_blame = calls().refund_if(|head| head.is_server_error());
    let by_other_blame = calls().refund_if(|head| head.is_client_error());
    let by_header = calls().refund_if(|head| head.headers().contains_key("x-cached"));
    let by_extension = calls().refund_if(|head| head.extensions().get::<ActualCost>().is_some());
    for (rule, says_so, says_not) in [
        (by_status, ("status", "304"), ("status", "200")),
        (by_blame, ("status", "500"), ("status", "499")),
        (by_other_blame, ("status", "400"), ("status", "500")),
        (by_header, ("x-cached", "yes"), ("x-other", "yes")),
        (by_extension, ("cost", "7"), ("x-other", "7")),
    ] {
        let layer = limiter.layer(rule);
        at_once(limiter.reset(&CALLS)).unwrap();
        send_now(&layer, &[says_so]);
        assert_eq!(left(&limiter, &CALLS), 10, "{says_so:?}");
        send_now(&layer, &[says_not]);
        assert_eq!(left(&limiter, &CALLS), 9, "{says_not:?}");
    }
}

#[test]
fn fields_show_what_is_left_after_the_refund() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(Rule::new(&CALLS).refund_if(succeeded));
    for _ in 0..3 {
        let response = send_now(&layer, &[]);
        assert!(response.headers()["ratelimit"].to_str().unwrap().contains("r=10"));
    }
}

/// A request without header fields takes the shortest way through the layer.
#[test]
fn tokens_are_refunded_without_header_fields() {
    let limiter = limiter(&ManualClock::new(START));
    let silent = |rule: Rule| limiter.layer(rule).dialects(Dialect::None);
    let calls = Rule::new(&CALLS);
    let refunding = silent(calls.clone().refund_if(succeeded));
    let resetting = silent(calls.clone().reset_if(succeeded));
    let settling = silent(calls).settle();
    for (layer, status, left_over) in [
        (&refunding, "200", 10),
        (&refunding, "500", 9),
        (&settling, "200", 6),
        (&settling, "500", 3),
        (&resetting, "500", 2),
        (&resetting, "200", 10),
    ] {
        let response = send_now(layer, &[("status", status), ("cost", "3")]);
        assert!(!response.headers().contains_key("ratelimit"));
        assert_eq!(left(&limiter, &CALLS), left_over, "{status}");
    }
}

#[test]
fn a_refusal_is_no_response_of_the_service() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(Rule::new(&FAILURES).refund_if(|head| head.status() == 429));
    for _ in 0..5 {
        assert_eq!(send_now(&layer, &[("status", "404")]).status(), 404);
    }
    for _ in 0..3 {
        assert_eq!(send_now(&layer, &[]).status(), 429);
    }
    assert_eq!(left(&limiter, &FAILURES), 0);
}

#[test]
fn each_rule_has_a_refund_condition_of_its_own() {
    let limiter = limiter(&ManualClock::new(START));
    // The same limit by two keys: each gets back what it has paid itself.
    let calls = |key| Rule::new(&CALLS).key(header(key));
    let layer = limiter
        .layer(calls("x-user").refund_if(succeeded))
        .and(calls("x-tenant").refund_if(|head| head.status() == 404))
        .and(Rule::new(&HOT).reset_if(|head| head.status() == 418))
        .and(&TOKENS);
    let fields = |status| [("status", status), ("x-user", "ann"), ("x-tenant", "acme")];
    let left_of = |key: &'static str| at_once(limiter.peek(&CALLS).key(key)).unwrap().remaining();
    let mut seen = Vec::new();
    for status in ["200", "404", "500", "418"] {
        send_now(&layer, &fields(status));
        let (hot, tokens) = (left(&limiter, &HOT), left(&limiter, &TOKENS));
        seen.push((left_of("ann"), left_of("acme"), hot, tokens));
    }
    let wanted = [(10, 9, 99, 999), (9, 9, 98, 998), (8, 8, 97, 997), (7, 7, 100, 996)];
    assert_eq!(seen, wanted);
}

#[test]
fn rules_that_a_request_is_exempt_from_refund_nothing() {
    let limiter = limiter(&ManualClock::new(START));
    let exempt = Rule::new(&CALLS).key(header("x-user")).missing_key_exempt();
    let failures = Rule::new(&FAILURES).refund_if(succeeded);
    let layer = limiter.layer(exempt.reset_if(|_| true)).and(failures);
    send_now(&layer, &[("status", "500")]);
    send_now(&layer, &[("status", "200")]);
    assert_eq!(left(&limiter, &FAILURES), 4);
}

#[test]
fn each_shard_is_refunded_what_it_paid() {
    let limiter = limiter(&ManualClock::new(START)).seed(7);
    let layer = limiter.layer(Rule::new(&HOT).cost(15).refund_if(succeeded));
    for _ in 0..50 {
        assert_eq!(send_now(&layer, &[]).status(), 200);
        assert_eq!(at_once(limiter.peek(&HOT)).unwrap().tokens().to_string(), "100");
    }
}

#[test]
fn a_limit_that_was_chosen_gets_its_own_tokens_back() {
    static FREE: Limit = Limit::new("free", Quota::token_bucket(3, MINUTE));
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(Rule::new(&CALLS).limit_with(|_| &FREE).refund_if(succeeded));
    send_now(&layer, &[]);
    send_now(&layer, &[("status", "500")]);
    assert_eq!((left(&limiter, &CALLS), left(&limiter, &FREE)), (10, 2));
}

// Once, and not twice.

#[test]
fn refunded_tokens_are_not_settled_as_well() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(Rule::new(&TOKENS).cost(100).refund_if(succeeded)).settle();
    send_now(&layer, &[("cost", "400")]);
    assert_eq!(left(&limiter, &TOKENS), 1_000);
    send_now(&layer, &[("status", "500"), ("cost", "400")]);
    assert_eq!(left(&limiter, &TOKENS), 600);
    // A limit on requests beside one of tokens is left alone, refunded or not.
    let layer = layer.and(&CALLS);
    send_now(&layer, &[("status", "200"), ("cost", "50")]);
    send_now(&layer, &[("status", "500"), ("cost", "50")]);
    assert_eq!((left(&limiter, &TOKENS), left(&limiter, &CALLS)), (550, 8));
}

#[test]
fn a_reset_goes_before_a_refund() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(Rule::new(&CALLS).refund_if(succeeded).reset_if(succeeded));
    send_now(&layer, &[("status", "500")]);
    send_now(&layer, &[("status", "500")]);
    send_now(&layer, &[]);
    assert_eq!(left(&limiter, &CALLS), 10);
}

proptest! {
    /// Requests overlap in any way: the tokens taken are those of running requests, and those that
    /// were not refunded.
    #[test]
    fn only_tokens_that_were_not_refunded_stay_taken(
        steps in prop::collection::vec((any::<bool>(), 0_u8..4, 0_usize..8), 1..80),
    ) {
        let limiter = limiter(&ManualClock::new(START));
        let layer = limiter.layer(Rule::new(&CALLS).refund_if(succeeded)).settle();
        let inner = service_fn(|request: Request<watch::Receiver<u16>>| async move {
            let mut answer = request.into_body();
            let status = *answer.wait_for(|status| *status > 0).await.map_err(drop)?;
            let status = StatusCode::from_u16(status).unwrap();
            Ok::<_, ()>(Response::builder().status(status).body(()).unwrap())
        });
        let mut service = layer.layer(inner);
        let mut running = Vec::new();
        let mut kept = 0;
        for (arrives, ends, which) in steps {
            if arrives {
                let (answer, to_come) = watch::channel(0);
                let mut call = Box::pin(service.call(Request::new(to_come)));
                let refused = poll(&mut call).is_some();
                prop_assert_eq!(refused, kept + running.len() >= 10);
                if !refused {
                    running.push((call, answer));
                }
            } else if !running.is_empty() {
                let (mut call, answer) = running.remove(which % running.len());
                match ends {
                    // The client goes away, or the service fails: how much work was done is not
                    // known.
                    0 => drop(call),
                    1 => {
                        drop(answer);
                        prop_assert!(matches!(poll(&mut call), Some(Err(()))));
                    }
                    _ => {
                        answer.send_replace(if ends == 2 { 200 } else { 500 });
                        prop_assert!(matches!(poll(&mut call), Some(Ok(_))));
                    }
                }
                kept += usize::from(ends != 2);
            }
            prop_assert_eq!(left(&limiter, &CALLS), u64::try_from(10 - kept - running.len()).unwrap());
        }
    }
}

// Clients that go, services that fail, stores that answer later.

#[tokio::test(start_paused = true)]
async fn tokens_are_refunded_even_if_the_client_has_disconnected() {
    let (late, limiter, past) = Late::new();
    let layer = limiter.layer(Rule::new(&CALLS).cost(3).refund_if(succeeded));
    let (answer, to_come) = oneshot::channel::<()>();
    let to_come = Arc::new(Mutex::new(Some(to_come)));
    let inner = service_fn(move |_: Request<()>| {
        let to_come = to_come.lock().unwrap().take().unwrap();
        async move { to_come.await.map(|()| Response::new(())) }
    });
    let mut service = layer.layer(inner);
    let mut call = Box::pin(service.ready().await.unwrap().call(Request::new(())));
    for _ in 0..10 {
        assert!(poll(&mut call).is_none(), "it runs");
        tokio::task::yield_now().await;
    }
    assert_eq!(tokens(&past, &CALLS), 7.0);
    let held = late.close();
    answer.send(()).unwrap();
    // The client disconnects as soon as the service has answered.
    drop(call.await.unwrap());
    settled().await;
    assert_eq!(tokens(&past, &CALLS), 7.0, "the store has not got the refund yet");
    held.let_go();
    settled().await;
    assert_eq!(tokens(&past, &CALLS), 10.0);
}

#[tokio::test(start_paused = true)]
async fn tokens_stay_taken_if_the_work_done_is_not_known() {
    let limiter = paused();
    let layer = limiter.layer(Rule::new(&CALLS).refund_if(|_| true).reset_if(|_| true));
    // The client goes while the work runs.
    let slow = layer.layer(Recorder::new().takes(SECOND));
    let answer = send(&slow, Request::new(1)).await;
    answer.abort();
    settled().await;
    assert_eq!(tokens(&limiter, &CALLS), 9.0);
    // The service fails.
    let failing = layer.layer(service_fn(async |_: Request<()>| Err::<Response<()>, _>("gone")));
    assert_eq!(failing.oneshot(Request::new(())).await.unwrap_err(), "gone");
    assert_eq!(tokens(&limiter, &CALLS), 8.0);
}

#[tokio::test(start_paused = true)]
async fn requests_that_waited_in_the_queue_are_refunded() {
    static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(10, SECOND).capacity(1));
    let limiter = paused();
    let layer = limiter.layer(Rule::new(&SPACED).refund_if(succeeded)).queue(SECOND);
    let service = layer.layer(Recorder::new());
    let (first, second) =
        (send(&service, Request::new(1)).await, send(&service, Request::new(2)).await);
    assert_eq!(first.await.unwrap().status(), 200);
    // The first was refunded before the second came, so none has to wait.
    assert_eq!(second.await.unwrap().status(), 200);
    assert_eq!(tokens(&limiter, &SPACED), 1.0);

    let slow = layer.layer(Recorder::new().takes(ms(150)));
    let (first, second) = (send(&slow, Request::new(1)).await, send(&slow, Request::new(2)).await);
    assert_eq!(tokens(&limiter, &SPACED), -1.0, "the second waits");
    for answer in [first, second] {
        assert_eq!(answer.await.unwrap().status(), 200);
    }
    assert_eq!(tokens(&limiter, &SPACED), 1.0);
}

/// For HTTP, an answer of gRPC is 200 whatever has become of the call.
#[test]
fn a_failure_of_grpc_is_no_success() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(Rule::new(&FAILURES).refund_if(succeeded));
    let answer = service_fn(|request: Request<Option<&'static str>>| {
        let mut response = Response::new(());
        if let Some(status) = request.into_body() {
            response.headers_mut().insert("grpc-status", status.parse().unwrap());
        }
        std::future::ready(Ok::<_, Infallible>(response))
    });
    for (status, left) in [(None, 5), (Some("0"), 5), (Some("16"), 4), (Some("7"), 3)] {
        let response = at_once(layer.layer(answer).oneshot(Request::new(status))).unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(self::left(&limiter, &FAILURES), left, "{status:?}");
    }
    // Nor is the refusal of a layer within.
    let refusing = layer.layer(limiter.layer(&CALLS).cost(11).layer(answer));
    let request = grpc_call("application/grpc", None);
    let response = at_once(refusing.oneshot(request)).unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["grpc-status"], "11");
    assert_eq!(left(&limiter, &FAILURES), 2);
}

/// A request that runs on into the next window took nothing from that window, and refunds nothing
/// to it.
#[tokio::test]
async fn slow_successes_admit_no_more_failures_than_the_limit() {
    let window = "fixed window: 5 per minute";
    for quota in [window, "5 per minute", "fixed window: 5 per minute, capacity 8"] {
        let (clock, limit) = (ManualClock::new(START), Limit::new("limit", quota.parse().unwrap()));
        let limiter = limiter(&clock);
        let layer = limiter.layer(Rule::new(limit.clone()).refund_if(succeeded));
        let (done, wait) = watch::channel(false);
        let slow = layer.layer(service_fn(move |_: Request<()>| {
            let mut wait = wait.clone();
            async move {
                wait.wait_for(|done| *done).await.unwrap();
                Ok::<_, Infallible>(Response::new(()))
            }
        }));
        let capacity = left(&limiter, &limit);
        let mut running: Vec<_> =
            (0..capacity).map(|_| Box::pin(slow.clone().oneshot(Request::new(())))).collect();
        assert!(running.iter_mut().all(|call| poll(call).is_none()));
        assert_eq!(left(&limiter, &limit), 0);

        clock.advance(MINUTE * 2);
        let failures = || {
            let fails = (0..20).map(|_| send_now(&layer, &[("status", "401")]).status());
            fails.filter(|status| *status == 401).count()
        };
        let before = failures();
        done.send_replace(true);
        for call in &mut running {
            assert_eq!(poll(call).unwrap().unwrap().status(), 200);
        }
        assert_eq!((before as u64, failures()), (capacity, 0), "{quota}");
    }
}

proptest! {
    /// After a late refund, a bucket never holds more than if the tokens had not been taken; it
    /// holds exactly as much if no other request came.
    #[test]
    fn a_late_refund_is_at_most_what_the_bucket_missed(
        quota in tollgate_testing::quotas(),
        first in 0.0..=1.0_f64,
        others in prop::collection::vec((0.0..=1.0_f64, 0.0..0.6_f64), 0..8),
    ) {
        let bucket = Bucket::new(&quota).unwrap();
        let capacity = bucket.capacity();
        let part = |part: f64| (capacity as f64 * part) as i64;
        let full = State { value: capacity, ts: START };
        let taking = |state: State, units: i64| State { value: state.value - units, ..state };
        let (mut without, mut now) = (full, START);
        let left = taking(full, part(first));
        let mut held = left;
        for (units, time) in &others {
            now = now + bucket.full_at(State { value: 0, ts: START }).since(START).mul_f64(*time);
            (without, held) = (bucket.refresh(without, now), bucket.refresh(held, now));
            // Other requests take some of the tokens in the bucket.
            let units = part(*units).min(held.value).max(0);
            (without, held) = (taking(without, units), taking(held, units));
        }
        let (limit, key) = (Limit::new("limit", quota), Key::GLOBAL);
        let id = BucketId::new(limit.name(), &key);
        let refund = Adjustment::refund_since(id, &bucket, part(first), left);
        let given = refund.apply_to(held, now);
        prop_assert!(given.value <= without.value, "{given:?} {without:?}");
        prop_assert!(given.value >= held.value);
        if others.iter().all(|(units, _)| part(*units) == 0) {
            prop_assert_eq!(given, without);
        }
    }
}
