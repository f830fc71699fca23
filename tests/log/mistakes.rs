//! Mistakes that show only where two layers use one limit, and debt that cannot be counted: the log
//! tells each once, with the way out, and does not tell of the set-ups next to it that are meant so.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::{any, get};
use http::StatusCode;
use tollgate::backend::{Adjustment, Answer, Applied, Backend, BucketId, Charge, Memory};
use tollgate::clock::ManualClock;
use tollgate::key::{ClientIp, global};
use tollgate::{
    Head, Limit, MINUTE, OnRefusal, Quota, RateLimitExt, RateLimitLayer, RateLimiter, Rule,
};
use tollgate_testing::web::{self, Reply, serve};
use tollgate_testing::{START, at_once, limiter};

use tollgate_testing::log::logged;
use tower::ServiceExt;

type Rules = RateLimitLayer<Vec<Rule>>;

pub(crate) static API: Limit = Limit::new("api", Quota::token_bucket(1_000_000, MINUTE));
static SMALL_API: Limit = Limit::new("api", Quota::token_bucket(10, MINUTE));
static OTHER: Limit = Limit::new("other", Quota::token_bucket(10, MINUTE));

/// What the log is told from `WARN` on while a client talks to a server.
pub(crate) fn told(work: impl AsyncFnOnce()) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    logged(tracing::Level::WARN, || runtime.block_on(work()))
}

/// What the log is told while a router is made and a server answers each path three times.
fn told_by(app: impl FnOnce() -> Router, paths: &[&str]) -> Vec<String> {
    told(async || {
        let to = serve(app()).await;
        for path in paths.repeat(3) {
            assert_eq!(get_ok(to, path).await.body, "hello");
        }
    })
}

pub(crate) async fn get_ok(to: SocketAddr, path: &str) -> Reply {
    let reply = web::get(to, path).await;
    assert_eq!(reply.status, StatusCode::OK, "{path}: {reply:?}");
    reply
}

pub(crate) fn fixed() -> RateLimiter {
    limiter(&ManualClock::new(START))
}

pub(crate) async fn hello() -> &'static str {
    "hello"
}

#[track_caller]
pub(crate) fn assert_one(lines: &[String], parts: &[&str]) {
    let [line] = lines else { panic!("one line is expected: {lines:#?}") };
    assert!(line.contains("(logged once)"), "{line}");
    parts.iter().for_each(|part| assert!(line.contains(part), "{part}: {line}"));
}

// A key that was forgotten.

/// One client that has the others refused is all that shows of it.
#[test]
fn a_layer_without_a_key_is_told_when_it_first_refuses() {
    static ONE: Limit = Limit::new("one", Quota::token_bucket(1, MINUTE));
    static TEN: Limit = Limit::new("ten", Quota::token_bucket(10, MINUTE));
    let parts = ["WARN", "limit=\"one\"", "ClientIp::peer()", "key::global()"];
    let told_of = |layer: fn(RateLimiter) -> Rules| {
        let app = Router::new().route("/", get(hello).rate_limit(layer(fixed())));
        told(async || {
            let to = serve(app).await;
            get_ok(to, "/").await;
            for _ in 0..3 {
                assert_eq!(web::get(to, "/").await.status, StatusCode::TOO_MANY_REQUESTS);
            }
        })
    };
    assert_one(&told_of(|limiter| limiter.layer(&ONE).into()), &parts);
    assert_one(&told_of(|limiter| limiter.layer(&TEN).and(&ONE)), &parts);
    // Other words than those that are kept.
    assert_one(&told_of(|limiter| limiter.layer(&ONE).cost_with(|_| 1).into()), &parts);
    assert_one(
        &told_of(|limiter| limiter.layer(&ONE).on_refusal(OnRefusal::plain_text()).into()),
        &parts,
    );
    // Meant so, or of one rule among others that have keys.
    let meant: [fn(RateLimiter) -> Rules; 3] = [
        |limiter| limiter.layer(&ONE).key(global()).into(),
        |limiter| limiter.layer(Rule::new(&TEN).key(ClientIp::peer())).and(&ONE),
        |limiter| limiter.layer(&ONE).key_with(|head| head.method().as_str().to_owned()).into(),
    ];
    for layer in meant {
        let lines = told_of(layer);
        assert!(lines.is_empty(), "{lines:#?}");
    }
}

// One limit with different numbers.

const TWO_NUMBERS: [&str; 6] = [
    "WARN",
    "limit=\"api\"",
    "=10 per minute ",
    "=1000000 per minute ",
    "a client that one layer refuses may be admitted by the other",
    "use one `Limit` in both layers",
];

fn two_routes(a: impl Into<Rules>, b: impl Into<Rules>) -> Router {
    Router::new()
        .route("/a", get(hello).rate_limit(a.into()))
        .route("/b", get(hello).rate_limit(b.into()))
}

#[test]
fn two_layers_with_different_numbers_for_one_limit_are_told_once() {
    let limiter = fixed();
    let app = || two_routes(limiter.layer(&API), limiter.layer(&SMALL_API));
    assert_one(&told_by(app, &["/a", "/b"]), &TWO_NUMBERS);
    // Other layers with that mistake are not another cause.
    assert_eq!(told_by(app, &["/a"]), [""; 0]);
    // By several rules, and by handles with other defaults.
    let limiter = fixed();
    let other = limiter.clone().on_failure(tollgate::OnFailure::Admit);
    let app = || two_routes(limiter.layer(&OTHER).and(&API), other.layer(&SMALL_API));
    assert_one(&told_by(app, &["/b", "/a"]), &TWO_NUMBERS);
    // By layers that differ in other things as well.
    let limiter = fixed();
    let shadow = Rule::new(&SMALL_API).shadow();
    let app = || two_routes(limiter.layer(&API).cost(2).queue(MINUTE), limiter.layer(shadow));
    assert_one(&told_by(app, &["/a", "/b"]), &TWO_NUMBERS);
}

#[test]
fn layers_whose_limits_are_meant_to_differ_are_not_told() {
    // The same numbers, another name, or buckets that are not shared.
    let limiter = fixed();
    let same = Limit::new("api", Quota::token_bucket(1_000_000, MINUTE).capacity(1_000_000));
    let app = || two_routes(limiter.layer(&API), limiter.layer(same).and(&OTHER));
    assert_eq!(told_by(app, &["/a", "/b"]), [""; 0]);
    let app = || two_routes(fixed().layer(&API), fixed().layer(&SMALL_API));
    assert_eq!(told_by(app, &["/a", "/b"]), [""; 0]);
    // Numbers that a rule chooses.
    let limiter = fixed();
    let chosen = || {
        let choose = |head: &Head<'_>| if head.uri().path() == "/a" { &API } else { &SMALL_API };
        limiter.layer(Rule::new(&SMALL_API).limit_with(choose))
    };
    assert_eq!(told_by(|| two_routes(chosen(), chosen()), &["/a"]), [""; 0]);
    let app = || two_routes(chosen(), limiter.layer(&API));
    assert_eq!(told_by(app, &["/a", "/b"]), [""; 0]);
}

/// Numbers are compared when a layer is made, and not for each request: while both routers exist, a
/// new router looks like a second one.
#[test]
fn a_router_in_the_place_of_another_one_is_told_once_and_that_nothing_is_wrong() {
    let app = |limiter: &RateLimiter, limit: &Limit| {
        Router::<()>::new().route("/", get(hello)).layer(limiter.layer(limit))
    };
    let limiter = fixed();
    let first = app(&limiter, &API);
    let lines = logged(tracing::Level::WARN, || drop(app(&limiter, &SMALL_API)));
    assert_one(&lines, &["if this layer replaces the other one, nothing is wrong"]);
    drop(first);
    // A router that is made once the other one is gone is no second one.
    let limiter = fixed();
    let lines = logged(tracing::Level::WARN, || {
        drop(app(&limiter, &API));
        drop(app(&limiter, &SMALL_API));
    });
    assert_eq!(lines, [""; 0]);
}

/// The guide to layers says so, and no log line does: the requests would have to be watched.
#[test]
fn a_limit_on_a_router_and_on_its_route_is_paid_twice() {
    let limiter = fixed();
    let app = || {
        let inner = get(hello).rate_limit(limiter.layer(&API));
        Router::new().route("/", inner).layer(limiter.layer(&API))
    };
    assert_eq!(told_by(app, &["/"]), [""; 0]);
    let left = at_once(limiter.peek(&API)).unwrap().remaining();
    assert_eq!(left, 1_000_000 - 6, "three requests have paid twice");
}

/// A settlement of 50 tokens owed two, without a word.
#[test]
fn debt_that_cannot_be_counted_is_told_once_and_what_is_owed_is_answered() {
    // A bucket can owe a little more than ten times its capacity.
    static PLAN: Limit = Limit::new("plan", Quota::token_bucket(7_499, tollgate::days(30)));
    for limiter in [fixed(), RateLimiter::new(Later(Memory::new().clock(ManualClock::new(START))))]
    {
        let owes = async |tokens: u64| {
            let snapshot = limiter.penalize(&PLAN, tokens).await.unwrap();
            limiter.reset(&PLAN).await.unwrap();
            snapshot.tokens().to_string()
        };
        let lines = told(async || {
            assert_eq!(owes(11 * 7_499).await, "-74990");
            let permit = limiter.limit(&PLAN).await.unwrap();
            assert!(permit.settle(10_000).await.unwrap().tokens().to_string().starts_with("-2501"));
            limiter.reset(&PLAN).await.unwrap();
        });
        assert_eq!(lines, [""; 0]);
        let lines = told(async || {
            assert!(owes(1_000_000).await.starts_with("-340"));
            let permit = limiter.limit(&PLAN).await.unwrap().into_owned();
            let owed = permit.settle(u64::MAX).await.unwrap().tokens().to_string();
            assert!(owed.starts_with("-340"), "{owed}");
        });
        assert_one(
            &lines,
            &["WARN", "limit=\"plan\"", "so the rest is never paid", "`max_reserved`"],
        );
    }
}

/// A store that answers later.
#[derive(Debug)]
struct Later(Memory);

impl Backend for Later {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        Answer::pending(self.0.apply(charges).wait())
    }
    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        Answer::pending(self.0.adjust(adjustments).wait())
    }
    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        Answer::pending(self.0.reset(ids).wait())
    }
}

/// No layer inserted the plan, so no request was limited, and the log did not tell.
#[test]
fn a_function_that_never_chooses_a_limit_is_told_once() {
    static FREE: Limit = Limit::new("free", Quota::token_bucket(1_000_000, MINUTE));
    let told_of = |requests: u32, chosen: fn(&Head<'_>) -> Option<&'static Limit>| {
        let layer = fixed().layer(&FREE).key(global()).limit_with(chosen);
        let app = Router::new().route("/", get(hello).rate_limit(layer));
        told(async || {
            for _ in 0..requests {
                let request = http::Request::get("/").body(axum::body::Body::empty()).unwrap();
                assert_eq!(app.clone().oneshot(request).await.unwrap().status(), StatusCode::OK);
            }
        })
    };
    let parts = ["WARN", "limit=\"free\"", "first 1,000 requests", "`.unwrap_or(..)`"];
    assert_one(&told_of(1_200, |_| None), &parts);
    assert_eq!(told_of(999, |_| None), [""; 0]);
    assert_eq!(told_of(1_200, |head| head.headers().is_empty().then_some(&FREE)), [""; 0]);
}

/// A server that makes its layers for each connection had a line for each of them.
#[test]
fn layers_that_never_choose_the_same_limit_are_told_once() {
    static FREE: Limit = Limit::new("free", Quota::token_bucket(1_000_000, MINUTE));
    let limiter = fixed();
    let lines = told(async || {
        for _connection in 0..3 {
            let layer = limiter.layer(&FREE).key(global()).limit_with(|_| None::<&'static Limit>);
            let app = Router::new().route("/", get(hello).rate_limit(layer));
            for _ in 0..1_200 {
                let request = http::Request::get("/").body(axum::body::Body::empty()).unwrap();
                assert_eq!(app.clone().oneshot(request).await.unwrap().status(), StatusCode::OK);
            }
        }
    });
    assert_one(&lines, &["limit=\"free\"", "first 1,000 requests"]);
}

/// Requests got 503, and the log said why only then.
#[test]
fn a_limit_that_a_shared_store_cannot_count_is_told_before_any_request() {
    static SHARED: Limit = Limit::new("shared", Quota::in_flight(2));
    let shared = tollgate_testing::shared::Shared::new();
    let lines = told(async || {
        let _service = tower::Layer::layer(&shared.limiter().layer(&SHARED).key(global()), ());
    });
    assert_one(
        &lines,
        &["WARN", "limit=\"shared\"", "every request is refused", "lost_after(HOUR)"],
    );
    let lines = told(async || {
        let shadow = shared.limiter().layer(Rule::new(&SHARED).key(global()).shadow());
        let _service = tower::Layer::layer(&shadow, ());
    });
    assert_eq!(lines, [""; 0]);
}

/// The layer took 100 tokens for what cost one, and the log did not tell.
#[test]
fn a_cost_by_which_no_layer_settles_is_told_once() {
    use axum::Extension;
    use tollgate::middleware::ActualCost;

    static TOKENS: Limit = Limit::new("tokens", Quota::token_bucket(1_000, MINUTE));
    let told_of = |layer: RateLimitLayer, limiter: RateLimiter| {
        let costs = get(async || (Extension(ActualCost::new(1)), "hello")).rate_limit(layer);
        let app = Router::new().route("/", costs);
        let lines = told(async || {
            let to = serve(app).await;
            for _ in 0..2 {
                get_ok(to, "/").await;
            }
        });
        (lines, at_once(limiter.peek(&TOKENS)).unwrap().remaining())
    };
    let layer = |limiter: &RateLimiter| limiter.layer(&TOKENS).key(global()).cost(100);
    let limiter = fixed();
    let settled = told_of(layer(&limiter).settle(), limiter);
    assert_eq!(settled, (Vec::new(), 998));
    let off = fixed().enabled(false);
    assert_eq!(told_of(layer(&off).settle(), fixed()).0, [""; 0]);
    let limiter = fixed();
    let (lines, left) = told_of(layer(&limiter), limiter);
    assert_eq!(left, 800);
    // A response that was replaced, or dropped, looks the same.
    assert_one(&lines, &["WARN", "`ActualCost`", "`.settle()`", "extensions", "disconnected"]);
}

// Requests in flight that never end.

/// Two of them made their key refuse for good, and the log did not tell.
#[test]
fn permits_in_flight_that_are_only_dropped_are_told_once() {
    static WORK: Limit = Limit::new("work", Quota::in_flight(2));
    static ALL: Limit = Limit::new("all", Quota::token_bucket(100, MINUTE));
    let use_up = async |limiter: &RateLimiter, two: bool| {
        for nth in 0..4 {
            let call = limiter.limit(&WORK);
            let permit = if two { call.and(&ALL).await } else { call.await };
            assert_eq!(permit.is_ok(), nth < 2);
        }
    };
    for two in [false, true] {
        let lines = told(async || use_up(&fixed(), two).await);
        assert_one(&lines, &["WARN", "limit=\"work\"", "`let _in_flight = permit.in_flight();`"]);
    }
    // Meant so, or ended by something else.
    let lines = told(async || {
        let limiter = fixed();
        let _held = limiter.limit(&WORK).await.unwrap().into_owned().in_flight();
        drop(limiter.limit(&WORK).await.unwrap());
        limiter.limit(&WORK).await.unwrap_err();

        let limiter = fixed();
        limiter.limit(&WORK).await.unwrap().refund().await.unwrap();
        use_up(&limiter, false).await;

        let limiter = fixed();
        let _layer = limiter.layer(&WORK).key(global());
        use_up(&limiter, true).await;
    });
    assert_eq!(lines, [""; 0]);
}

/// The line came before the first request ran: another limit had refused it, or an operator had blocked
/// the key.
#[test]
fn a_limit_in_flight_that_lacks_no_token_is_not_told() {
    static WORK: Limit = Limit::new("work", Quota::in_flight(2));
    static NONE_SAVED: Limit = Limit::new("none-saved", Quota::token_bucket(1, MINUTE).initial(0));
    let lines = told(async || {
        let limiter = fixed();
        limiter.limit(&NONE_SAVED).and(&WORK).await.unwrap_err();
        limiter.limit(&WORK).and(&NONE_SAVED).await.unwrap_err();
        limiter.block(&WORK, MINUTE).await.unwrap();
        limiter.limit(&WORK).await.unwrap_err();
        limiter.limit(&WORK).and(&NONE_SAVED).await.unwrap_err();
    });
    assert_eq!(lines, [""; 0]);
}

/// Five sockets were open where two were allowed.
#[test]
fn a_connection_that_a_layer_counts_no_longer_is_told_once() {
    static SOCKETS: Limit = Limit::new("sockets", Quota::in_flight(2));
    // Over HTTP/1.1 and over HTTP/2.
    let ways = [
        (http::Method::GET, StatusCode::SWITCHING_PROTOCOLS),
        (http::Method::CONNECT, StatusCode::OK),
    ];
    for (method, status) in ways {
        let lines = told(async || {
            let layer = fixed().layer(&SOCKETS).key(global());
            let app = Router::new().route("/", any(async move || status).rate_limit(layer));
            for _ in 0..3 {
                let request = http::Request::builder().method(method.clone()).uri("/");
                let request = request.body(axum::body::Body::empty()).unwrap();
                assert_eq!(app.clone().oneshot(request).await.unwrap().status(), status);
            }
        });
        let wanted = ["WARN", "limit=\"sockets\"", "a WebSocket", "into_owned().in_flight()"];
        assert_one(&lines, &wanted);
    }
}

// A key that takes the place of another.

/// The user was no part of the key, and nothing said so.
#[test]
fn a_second_key_of_a_rule_is_told_once() {
    use tollgate::key::header;
    let parts = ["WARN", "limit=\"api\"", "only the last one counts", "`.key((a, b))`"];
    let told_of = |layer: fn(RateLimiter) -> Rules| {
        let layer = layer(fixed());
        told_by(|| Router::new().route("/", get(hello).rate_limit(layer)), &["/"])
    };
    fn twice() -> Rule {
        Rule::new(&API).key(header("x-user")).key(global())
    }
    assert_one(
        &told_of(|limiter| limiter.layer(&API).key(header("x-user")).key(global()).into()),
        &parts,
    );
    assert_one(&told_of(|limiter| limiter.layer(twice()).into()), &parts);
    assert_one(&told_of(|limiter| limiter.layer(twice()).and(twice())), &parts);
    let once = |limiter: RateLimiter| {
        limiter.layer(&API).key(global()).and(Rule::new(&OTHER).key(global()))
    };
    assert!(told_of(once).is_empty());
}

// A limiter for each request.

/// Each request found full buckets, so nothing was limited, and the log had no line about it.
#[test]
fn limiters_in_memory_that_are_made_for_each_request_are_told_once() {
    // The count is that of a process, so this test has one of its own.
    const NAME: &str = "mistakes::limiters_in_memory_that_are_made_for_each_request_are_told_once";
    const CHILD: &str = "TOLLGATE_LOG_CHILD";
    if std::env::var_os(CHILD).is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", NAME]).env(CHILD, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let requests = |count: u32| {
        told(async || {
            for _ in 0..count {
                assert!(RateLimiter::in_memory().limit(&OTHER).await.is_ok());
            }
        })
    };
    // Limiters that share a store are not counted.
    let shared = std::sync::Arc::new(Memory::new());
    assert!(
        told(async || {
            for _ in 0..2_000 {
                drop(RateLimiter::new(std::sync::Arc::clone(&shared)));
            }
        })
        .is_empty()
    );
    assert!(requests(999).is_empty());
    assert_one(
        &requests(1),
        &["WARN", "made=1000", "make one when the program starts, and clone it"],
    );
    assert!(requests(500).is_empty());
}
