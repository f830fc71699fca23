//! Mistakes that show only where two places use one limit: the log tells each once, with the way
//! out, and does not tell of the set-ups next to it that are meant so. All over a real server.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use tollgate::backend::{Adjustment, Answer, Applied, Backend, BucketId, Charge, Memory};
use tollgate::clock::ManualClock;
use tollgate::key::ClientIp;
use tollgate::middleware::{Admission, Several};
use tollgate::{
    Head, Limit, MINUTE, Quota, RateLimitExt, RateLimitLayer, RateLimited, RateLimiter, Rule,
};
use tollgate_testing::web::{self, Reply, serve};
use tollgate_testing::{START, at_once, limiter};

use super::lines::logged;

pub(crate) static API: Limit = Limit::new("api", Quota::token_bucket(1_000_000, MINUTE));
static SMALL_API: Limit = Limit::new("api", Quota::token_bucket(10, MINUTE));
static OTHER: Limit = Limit::new("other", Quota::token_bucket(10, MINUTE));

/// What the log is told from `WARN` on while a client talks to a server.
pub(crate) fn told(work: impl AsyncFnOnce()) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    logged(tracing::Level::WARN, || runtime.block_on(work()))
}

/// What the log is told while a server answers each path three times, one after the other.
fn told_by(app: Router, paths: &[&str]) -> Vec<String> {
    told(async || {
        let to = serve(app).await;
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

// One limit with different numbers.

const TWO_NUMBERS: [&str; 6] = [
    "WARN",
    "limit=\"api\"",
    "=10 per minute ",
    "=1000000 per minute ",
    "a client that one refuses may be admitted by the other",
    "use one `Limit` in both places",
];

fn two_routes(
    a: impl Into<RateLimitLayer<Several>>,
    b: impl Into<RateLimitLayer<Several>>,
) -> Router {
    Router::new()
        .route("/a", get(hello).rate_limit(a.into()))
        .route("/b", get(hello).rate_limit(b.into()))
}

#[test]
fn two_layers_with_different_numbers_for_one_limit_are_told_once() {
    let limiter = fixed();
    let app = two_routes(limiter.layer(&API), limiter.layer(&SMALL_API));
    assert_one(&told_by(app, &["/a", "/b"]), &TWO_NUMBERS);
    // Other layers with that mistake are not another cause.
    let app = two_routes(limiter.layer(&API), limiter.layer(&SMALL_API));
    assert_eq!(told_by(app, &["/a"]), [""; 0]);
    // By several rules, and by handles with other defaults.
    let limiter = fixed();
    let other = limiter.clone().on_failure(tollgate::OnFailure::Admit);
    let app = two_routes(limiter.layer(&OTHER).and(&API), other.layer(&SMALL_API));
    assert_one(&told_by(app, &["/b", "/a"]), &TWO_NUMBERS);
}

#[test]
fn layers_whose_limits_are_meant_to_differ_are_not_told() {
    // The same numbers, another name, or buckets that are not shared.
    let limiter = fixed();
    let same = Limit::new("api", Quota::token_bucket(1_000_000, MINUTE).capacity(1_000_000));
    let app = two_routes(limiter.layer(&API), limiter.layer(same).and(&OTHER));
    assert_eq!(told_by(app, &["/a", "/b"]), [""; 0]);
    let app = two_routes(fixed().layer(&API), fixed().layer(&SMALL_API));
    assert_eq!(told_by(app, &["/a", "/b"]), [""; 0]);
    // Numbers that a rule chooses.
    let limiter = fixed();
    let chosen = || {
        let choose = |head: &Head<'_>| if head.uri().path() == "/a" { &API } else { &SMALL_API };
        limiter.layer(Rule::new(&SMALL_API).limit_with(choose))
    };
    assert_eq!(told_by(two_routes(chosen(), chosen()), &["/a"]), [""; 0]);
    let app = two_routes(chosen(), limiter.layer(&API));
    assert_eq!(told_by(app, &["/a", "/b"]), [""; 0]);
}

#[test]
fn a_router_that_is_replaced_by_one_with_other_numbers_is_not_told() {
    use std::sync::{Arc, Mutex};
    let limiter = fixed();
    let app = |limit: &Limit| {
        let layer = limiter.layer(limit);
        Router::new().route("/", get(hello)).layer(layer)
    };
    let now = Arc::new(Mutex::new(app(&API)));
    let service = {
        let now = Arc::clone(&now);
        tower::service_fn(move |request: Request| {
            let app = now.lock().unwrap().clone();
            tower::ServiceExt::oneshot(app, request)
        })
    };
    let lines = told(async || {
        let to = serve(Router::new().fallback_service(service)).await;
        get_ok(to, "/").await;
        // The new router exists before the old one is gone, and both serve meanwhile.
        let new = app(&SMALL_API);
        get_ok(to, "/").await;
        *now.lock().unwrap() = new;
        for _ in 0..3 {
            get_ok(to, "/").await;
        }
    });
    assert_eq!(lines, [""; 0]);
}

/// Two handlers that ask one limit by different numbers, for the user in the path.
fn two_handlers(limiter: &RateLimiter) -> Router {
    async fn large(State(limiter): State<RateLimiter>, request: Request) -> Response {
        answer(limiter.limit(&API).key(request.uri().query().unwrap_or("")).await)
    }
    async fn small(State(limiter): State<RateLimiter>, request: Request) -> Response {
        answer(limiter.limit(&SMALL_API).key(request.uri().query().unwrap_or("")).await)
    }
    fn answer(permit: Result<tollgate::Permit<'_>, RateLimited>) -> Response {
        permit.map(|_| "hello").into_response()
    }
    let calls = Router::new().route("/large", get(large)).route("/small", get(small));
    calls.with_state(limiter.clone())
}

#[test]
fn two_calls_with_different_numbers_for_one_bucket_are_told_once() {
    let app = two_handlers(&fixed());
    let lines = told_by(app, &["/large?alice", "/small?alice"]);
    assert_one(&lines, &["WARN", "limit=\"api\"", "=10 per minute", "=1000000 per minute"]);
    // A bucket that clients change only once does not hide one that is changed to and fro.
    let limiter = fixed();
    let users: Vec<_> = (0..101).map(|user| format!("user-{user}")).collect();
    let lines = told(async || {
        let to = serve(two_handlers(&limiter)).await;
        for user in &users {
            get_ok(to, &format!("/large?{user}")).await;
            get_ok(to, &format!("/small?{user}")).await;
        }
        for _ in 0..2 {
            get_ok(to, "/large?user-100").await;
            get_ok(to, "/small?user-100").await;
        }
    });
    assert_one(&lines, &["limit=\"api\""]);
}

#[test]
fn a_call_with_other_numbers_than_the_layer_is_told_once() {
    let limiter = fixed();
    let layer = limiter.layer(&API).key_with(|head| head.uri().query().unwrap_or("").to_owned());
    let app = two_handlers(&limiter).layer(layer);
    assert_one(&told_by(app, &["/small?alice"]), &TWO_NUMBERS);
    // By the same numbers, the handler charges more of the same limit, as it may.
    let limiter = fixed();
    let layer = limiter.layer(&API).key_with(|head| head.uri().query().unwrap_or("").to_owned());
    assert_eq!(told_by(two_handlers(&limiter).layer(layer), &["/large?alice"]), [""; 0]);
}

#[test]
fn calls_by_the_plan_of_each_client_are_not_told() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    let lines = told(async || {
        let to = serve(two_handlers(&limiter)).await;
        // Plans of different clients.
        for _ in 0..10 {
            get_ok(to, "/large?alice").await;
            assert_eq!(web::get(to, "/small?bob").await.body, "hello");
            clock.advance(MINUTE);
        }
        // A client that changes its plan to and fro, now and then.
        for plan in ["large", "small"].repeat(10) {
            get_ok(to, &format!("/{plan}?alice")).await;
            clock.advance(MINUTE);
        }
        // A new plan for all clients, and back.
        for plan in ["large", "small", "large"] {
            for user in 0..200 {
                get_ok(to, &format!("/{plan}?user-{user}")).await;
            }
        }
    });
    assert_eq!(lines, [""; 0]);
}

// One limit twice.

const TWICE: [&str; 4] = [
    "WARN",
    "limit=\"api\"",
    "so each request pays twice",
    "put it on the router or on its routes, and not on both",
];

#[test]
fn a_limit_on_a_router_and_on_its_route_is_told_once() {
    // Two layers, or one layer in two places; with one rule and with several; with ledgers.
    type Pair = fn(&RateLimiter) -> [RateLimitLayer<Several>; 2];
    let pairs: [Pair; 4] = [
        |limiter| [limiter.layer(&API).into(), limiter.layer(&API).into()],
        |limiter| {
            let one: RateLimitLayer<Several> = limiter.layer(&API).into();
            [one.clone(), one]
        },
        |limiter| [limiter.layer(&OTHER).and(&API), limiter.layer(&API).into()],
        |limiter| [limiter.layer(&API).expose().into(), limiter.layer(&API).settle().into()],
    ];
    for layers in pairs {
        let limiter = fixed();
        let [inner, outer] = layers(&limiter);
        let app = Router::new().route("/", get(hello).rate_limit(inner)).layer(outer);
        assert_one(&told_by(app, &["/"]), &TWICE);
        let left = at_once(limiter.peek(&API)).unwrap().remaining();
        assert_eq!(left, 1_000_000 - 6, "three requests have paid twice");
    }
}

/// A queue calls its service later, and the layer around it has decided long before.
#[test]
fn a_limit_that_is_paid_twice_is_told_where_requests_may_wait() {
    let limiter = fixed();
    let queue = std::time::Duration::from_secs(1);
    let inner = limiter.layer(&API).queue(queue);
    let app = Router::new().route("/", get(hello).rate_limit(inner));
    assert_one(&told_by(app.layer(limiter.layer(&API).queue(queue)), &["/"]), &TWICE);
}

/// A store that answers later leaves both decisions pending, and its limiter compares no calls.
#[cfg(feature = "redis")]
#[test]
fn mistakes_of_layers_are_told_with_redis_which_answers_later() {
    use tollgate::backend::Redis;
    use tollgate_testing::redis::Server;

    let server = Server::start();
    let lines = told(async || {
        let redis = Redis::at(server.url()).deadline(MINUTE).connect().await.unwrap();
        let limiter = RateLimiter::new(redis);
        let app = Router::new()
            .route("/twice", get(hello).rate_limit(limiter.layer(&API)))
            .route("/small", get(hello).rate_limit(limiter.layer(&SMALL_API).cost(1)))
            .layer(limiter.layer(&API));
        let to = serve(app).await;
        for path in ["/twice", "/small"].repeat(3) {
            get_ok(to, path).await;
        }
    });
    assert_eq!(lines.len(), 2, "{lines:#?}");
    for parts in [&TWICE[..], &TWO_NUMBERS[..]] {
        let is_told = |line: &&String| parts.iter().all(|part| line.contains(part));
        assert_eq!(lines.iter().filter(is_told).count(), 1, "{parts:?}: {lines:#?}");
    }
}

/// The first requests come to other routes, and the route with the mistake is used later.
#[test]
fn a_route_with_the_mistake_is_told_whenever_it_is_first_used() {
    let limiter = fixed();
    let app = Router::new()
        .route("/busy", get(hello))
        .route("/rare", get(hello).rate_limit(limiter.layer(&API)))
        .layer(limiter.layer(&API));
    let lines = told(async || {
        let (to, client) = (serve(app).await, web::Browser::new());
        for _ in 0..1_100 {
            assert_eq!(client.get(to, "/busy", &[]).await.status, 200);
        }
        for _ in 0..2 {
            get_ok(to, "/rare").await;
        }
    });
    assert_one(&lines, &TWICE);
}

#[test]
fn layers_that_charge_different_buckets_or_a_further_cost_are_not_told() {
    let limiter = fixed();
    let nested = |inner: RateLimitLayer, outer: RateLimitLayer| {
        let app = Router::new().route("/", get(hello).rate_limit(inner)).layer(outer);
        assert_eq!(told_by(app, &["/"]), [""; 0]);
    };
    // Another limit, another key, another store.
    nested(limiter.layer(&OTHER), limiter.layer(&API));
    nested(limiter.layer(&API).key(ClientIp::peer()), limiter.layer(&API));
    nested(fixed().layer(&API), fixed().layer(&API));
    // A route that is meant to pay more.
    nested(limiter.layer(&API).cost(4), limiter.layer(&API));
    nested(limiter.layer(&API).cost_with(|_| 4), limiter.layer(&API));
    // Routes beside each other, of which a request meets one.
    let one = limiter.layer(&API);
    let beside = two_routes(one.clone(), one.clone()).route("/c", get(hello).rate_limit(one));
    assert_eq!(told_by(beside, &["/a", "/b", "/c"]), [""; 0]);
    // Only one of the two applies to the request.
    let posts = Rule::new(&API).only_methods([http::Method::POST]);
    let app = Router::new().route("/", get(hello).rate_limit(limiter.layer(posts)));
    assert_eq!(told_by(app.layer(limiter.layer(&API)), &["/"]), [""; 0]);
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
            &["WARN", "limit=\"plan\"", "owes less than was taken", "`max_reserved`"],
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

#[test]
fn a_handler_that_charges_more_of_its_limit_is_not_told() {
    async fn search(
        State(limiter): State<RateLimiter>,
        admission: Admission,
    ) -> Result<&'static str, RateLimited> {
        admission.charge(4).await?;
        limiter.limit(&API).await?;
        Ok("hello")
    }
    let limiter = fixed();
    let app = Router::new().route("/", get(search)).layer(limiter.layer(&API).expose());
    assert_eq!(told_by(app.with_state(limiter), &["/"]), [""; 0]);
}
