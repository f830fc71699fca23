//! A real client asks a real server: statuses, header fields, bodies, and retries at the advertised
//! time.
//!
//! Time is injected, so a client "waits" by moving the server's clock.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::routing::{any, get, post};
use bytes::Bytes;
use futures_util::stream;
use http::{Method, StatusCode};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tollgate::clock::ManualClock;
use tollgate::fields::Dialect;
use tollgate::key::{ClientIp, Head, Networks, header, matched_path};
use tollgate::middleware::Meter;
use tollgate::routes::RateLimitExt;
use tollgate::{DAY, HOUR, Limit, MINUTE, Quota, RateLimiter, SECOND, Timestamp};
use tollgate_testing::web::{self, Reply, read_to, send, serve};
use tollgate_testing::{START, at_once, limiter};

/// The limits of the header vectors. A minute starts at `START`.
static FW: Limit = Limit::new("fw", Quota::fixed_window(100, MINUTE).start(START));
static TB: Limit = Limit::new("tb", Quota::token_bucket(10, MINUTE).capacity(20));

/// The cost of a request is what its field `x-cost` says.
fn asked_cost(head: &Head<'_>) -> u64 {
    head.headers().get("x-cost").map_or(1, |cost| cost.to_str().unwrap().parse().unwrap())
}

/// One route, one limit.
async fn vector_server(limit: &Limit) -> (ManualClock, SocketAddr) {
    let clock = ManualClock::new(START);
    let limit = limiter(&clock).layer(limit).cost_with(asked_cost);
    (clock, serve(Router::new().route("/", get(async || "hello").rate_limit(limit))).await)
}

async fn ask(server: SocketAddr, cost: u64) -> Reply {
    send(server, Method::GET, "/", &[("x-cost", &cost.to_string())]).await
}

/// Status, RateLimit-Policy, RateLimit and Retry-After, as the vectors list them.
type Row<'a> = (u16, Option<&'a str>, Option<&'a str>, Option<&'a str>);

#[track_caller]
fn assert_row(reply: &Reply, wanted: Row<'_>) {
    let policy = reply.field("ratelimit-policy");
    let row = (reply.status.as_u16(), policy, reply.field("ratelimit"), reply.field("retry-after"));
    assert_eq!(row, wanted);
}

#[tokio::test]
async fn a_fixed_window_tells_what_is_left_until_its_end() {
    let policy = Some("\"fw\";q=100;w=60");
    let (clock, server) = vector_server(&FW).await;
    clock.advance(Duration::from_millis(12_300));
    assert_row(&ask(server, 1).await, (200, policy, Some("\"fw\";r=99;t=48"), None));
    clock.set(START + Duration::from_micros(59_999_900));
    assert_row(&ask(server, 99).await, (200, policy, Some("\"fw\";r=0;t=1"), None));
    assert_row(&ask(server, 1).await, (429, policy, Some("\"fw\";r=0;t=1"), Some("1")));
    clock.set(START + MINUTE);
    assert_row(&ask(server, 1).await, (200, policy, Some("\"fw\";r=99;t=60"), None));
}

#[tokio::test]
async fn a_token_bucket_tells_when_what_is_left_would_have_come_in() {
    let policy = Some("\"tb\";q=20;w=120");
    let (clock, server) = vector_server(&TB).await;
    assert_row(&ask(server, 0).await, (200, policy, Some("\"tb\";r=20;t=120"), None));
    assert_row(&ask(server, 1).await, (200, policy, Some("\"tb\";r=19;t=114"), None));
    assert_row(&ask(server, 19).await, (200, policy, Some("\"tb\";r=0;t=6"), None));

    // A quarter of a token is there, and a whole one in 4.5 s.
    clock.advance(Duration::from_millis(1_500));
    assert_row(&ask(server, 1).await, (429, policy, Some("\"tb\";r=0;t=5"), Some("5")));
    // 3.2 tokens are there, and 5 in 10.8 s.
    clock.set(START + Duration::from_millis(19_200));
    assert_row(&ask(server, 5).await, (429, policy, Some("\"tb\";r=3;t=11"), Some("11")));
    // No wait helps a request that costs more than the capacity.
    assert_row(&ask(server, 21).await, (413, policy, None, None));
}

#[tokio::test]
async fn waits_are_rounded_up_to_whole_seconds_and_never_zero() {
    let (clock, server) = vector_server(&TB).await;
    assert_eq!(ask(server, 20).await.status, 200);
    for (advanced, wait) in [(1_000_000, "5"), (999_999, "6"), (5_800_000, "1"), (5_999_999, "1")] {
        clock.set(START + Duration::from_micros(advanced));
        let reply = ask(server, 1).await;
        assert_eq!(reply.field("retry-after"), Some(wait));
        assert_eq!(reply.field("ratelimit"), Some(format!("\"tb\";r=0;t={wait}").as_str()));
    }
}

#[tokio::test]
async fn a_refusal_has_all_fields_and_a_body() {
    let (clock, server) = vector_server(&TB).await;
    assert_eq!(ask(server, 20).await.status, 200);
    clock.advance(Duration::from_millis(1_500));
    let reply = ask(server, 1).await;
    let mut names: Vec<_> = reply.headers.keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    let wanted = [
        "cache-control",
        "content-length",
        "content-type",
        "date",
        "ratelimit",
        "ratelimit-policy",
        "retry-after",
    ];
    assert_eq!(names, wanted);
    assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(reply.field("content-type"), Some("application/problem+json"));
    assert_eq!(reply.field("cache-control"), Some("no-store"));
    assert_eq!(
        reply.body,
        "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
         \"title\":\"Quota Exceeded\",\"status\":429,\"violated-policies\":[\"tb\"]}"
    );
}

#[tokio::test]
async fn a_cost_that_is_too_large_is_answered_as_such() {
    let (_, server) = vector_server(&TB).await;
    let body: serde_json::Value = serde_json::from_str(&ask(server, 21).await.body).unwrap();
    assert_eq!(body["status"], 413);
    assert_eq!(body["detail"], "the request costs more than the limit can ever grant");
    assert_eq!(body["violated-policies"], serde_json::json!(["tb"]));
    assert_eq!(ask(server, 20).await.status, 200, "nothing was taken");
}

#[tokio::test]
async fn nested_layers_put_their_members_into_the_same_fields() {
    static PER_HOUR: Limit = Limit::new("hour", Quota::fixed_window(1_000, HOUR).start(START));
    static PER_DAY: Limit = Limit::new("day", Quota::fixed_window(5_000, DAY).start(START));
    let limiter = limiter(&ManualClock::new(START));
    let app = Router::new()
        .route("/", get(async || "hello").rate_limit(limiter.layer(&PER_DAY).cost(2_500)))
        .layer(limiter.layer(&PER_HOUR));
    let server = serve(app).await;
    let policy = Some("\"hour\";q=1000;w=3600, \"day\";q=5000;w=86400");
    for (hour, day) in [(999, 2_500), (998, 0)] {
        let told = format!("\"hour\";r={hour};t=3600, \"day\";r={day};t=86400");
        assert_row(&web::get(server, "/").await, (200, policy, Some(&told), None));
    }
    // Only the one that refused is violated, but both are told.
    let reply = web::get(server, "/").await;
    let told = Some("\"hour\";r=997;t=3600, \"day\";r=0;t=86400");
    assert_row(&reply, (429, policy, told, Some("86400")));
    assert!(reply.body.ends_with("\"violated-policies\":[\"day\"]}"), "{}", reply.body);
}

#[tokio::test]
async fn a_name_with_quotes_stays_one_string() {
    static ODD: Limit = Limit::new("a\"b\\c", Quota::token_bucket(1, SECOND));
    let (_, server) = vector_server(&ODD).await;
    let policy = Some("\"a\\\"b\\\\c\";q=1;w=1");
    assert_row(&ask(server, 1).await, (200, policy, Some("\"a\\\"b\\\\c\";r=0;t=1"), None));
    let reply = ask(server, 1).await;
    assert_row(&reply, (429, policy, Some("\"a\\\"b\\\\c\";r=0;t=1"), Some("1")));
    let body: serde_json::Value = serde_json::from_str(&reply.body).unwrap();
    assert_eq!(body["violated-policies"], serde_json::json!([ODD.name()]));
}

#[tokio::test]
async fn fields_can_be_left_out_but_never_retry_after() {
    let limiter = limiter(&ManualClock::new(START));
    let quiet = limiter.layer(&TB).cost(20).dialects(Dialect::None);
    let server = serve(Router::new().route("/", get(async || "hello").rate_limit(quiet))).await;
    assert_row(&web::get(server, "/").await, (200, None, None, None));
    assert_row(&web::get(server, "/").await, (429, None, None, Some("120")));
}

/// A client that waits for the advertised time is admitted, whatever its cost, and no client is
/// admitted a microsecond before the true time.
#[tokio::test]
async fn a_client_that_waits_as_told_is_admitted() {
    for limit in [&TB, &FW, &Limit::new("odd", Quota::token_bucket(7, HOUR).capacity(20))] {
        let (clock, server) = vector_server(limit).await;
        let mut now = START;
        for cost in [20, 1, 13, 7, 20, 3] {
            let cost = cost.min(limit.quota().get_capacity());
            while ask(server, cost).await.status == 200 {}
            let wait: u64 = ask(server, cost).await.field("retry-after").unwrap().parse().unwrap();
            clock.set(now + Duration::from_secs(wait - 1));
            assert_eq!(ask(server, cost).await.status, 429, "a second early, {limit:?}");
            now = now + Duration::from_secs(wait);
            clock.set(now);
            assert_eq!(ask(server, cost).await.status, 200, "on time, {limit:?}");
        }
    }
}

#[tokio::test]
async fn clients_and_routes_have_buckets_of_their_own() {
    static ROUTE: Limit = Limit::new("route", Quota::token_bucket(2, MINUTE));
    let limiter = limiter(&ManualClock::new(START));
    let app = Router::new()
        .route("/users/{id}", get(async || "user"))
        .route("/other", get(async || "other"))
        .rate_limit(limiter.layer(&ROUTE).key((matched_path(), ClientIp::peer())));
    let server = serve(app).await;
    for (path, status) in
        [("/users/1", 200), ("/users/2", 200), ("/users/3", 429), ("/other", 200), ("/none", 404)]
    {
        assert_eq!(web::get(server, path).await.status.as_u16(), status, "{path}");
    }
}

/// The proxy appends the address that it saw to the field that the client sent, and only that
/// address counts.
#[tokio::test]
async fn a_client_behind_a_proxy_cannot_choose_its_address() {
    let limit = Limit::new("two", Quota::token_bucket(2, MINUTE));
    let trusted = Networks::new(["127.0.0.1"]);
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(limit).key(ClientIp::x_forwarded_for(trusted));
    let server = serve(Router::new().route("/", get(async || "hello")).layer(layer)).await;
    let ask = async |forged: &str, client: &str| {
        let fields = [("x-forwarded-for", forged), ("x-forwarded-for", client)];
        send(server, Method::GET, "/", &fields).await.status.as_u16()
    };
    let asked = [
        ask("198.51.100.1", "203.0.113.7").await,
        ask("198.51.100.2, 127.0.0.1", "203.0.113.7:5123").await,
        ask("198.51.100.3", "203.0.113.7").await,
        ask("unknown", "::ffff:203.0.113.7").await,
        ask("203.0.113.7", "203.0.113.8").await,
    ];
    assert_eq!(asked, [200, 200, 429, 429, 200]);
}

#[tokio::test]
async fn an_annotated_method_does_not_pay_for_the_others() {
    static LOGIN: Limit = Limit::new("login", Quota::token_bucket(1, MINUTE));
    let limiter = limiter(&ManualClock::new(START));
    let login = post(async || "welcome").rate_limit(limiter.layer(&LOGIN).key(header("x-user")));
    let server = serve(Router::new().route("/login", login.get(async || "the form"))).await;
    let send = async |method, user| send(server, method, "/login", &[("x-user", user)]).await;
    assert_eq!(send(Method::DELETE, "alice").await.status, 405);
    for _ in 0..3 {
        let form = send(Method::GET, "alice").await;
        assert_eq!((form.status.as_u16(), form.field("ratelimit")), (200, None));
    }
    assert_eq!(send(Method::POST, "alice").await.status, 200);
    assert_eq!(send(Method::POST, "alice").await.status, 429);
    assert_eq!(send(Method::POST, "bob").await.status, 200);
}

#[tokio::test]
async fn a_route_of_any_method_takes_the_layer_directly() {
    let limiter = limiter(&ManualClock::new(START));
    let route = any(async || "hello").layer(limiter.layer(&TB).cost(20));
    let server = serve(Router::new().route("/", route)).await;
    assert_eq!(send(server, Method::PUT, "/", &[]).await.status, 200);
    assert_eq!(send(server, Method::DELETE, "/", &[]).await.status, 429);
}

#[test]
#[should_panic(expected = "this router has no routes yet")]
fn a_limit_without_effect_panics() {
    let limiter = limiter(&ManualClock::new(START));
    let _: Router = Router::new().rate_limit(limiter.layer(&TB));
}

#[tokio::test]
async fn a_refused_head_request_has_the_fields_and_no_body() {
    let limiter = limiter(&ManualClock::new(START));
    let app =
        Router::new().route("/", get(async || "hello").rate_limit(limiter.layer(&TB).cost(20)));
    let server = serve(app).await;
    assert_eq!(web::get(server, "/").await.status, 200);
    let reply = send(server, Method::HEAD, "/", &[]).await;
    assert_eq!((reply.status.as_u16(), reply.body.as_str()), (429, ""));
    assert_eq!(reply.field("retry-after"), Some("120"));
    assert_eq!(reply.field("content-length"), Some("138"));
}

/// RateLimit-Policy and RateLimit of the first answer.
fn told(quota: Quota, cost: u64) -> (String, String) {
    let layer = limiter(&ManualClock::new(START)).layer(Limit::new("l", quota)).cost(cost);
    let inner = tower::service_fn(async |_: http::Request<()>| {
        Ok::<_, Infallible>(http::Response::new(()))
    });
    let service = tower::Layer::layer(&layer, inner);
    let response = at_once(tower::ServiceExt::oneshot(service, http::Request::new(()))).unwrap();
    let field = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    (field("ratelimit-policy"), field("ratelimit"))
}

#[test]
fn fields_round_up_and_stay_within_structured_fields() {
    let is = |policy: &str, member: &str| (policy.to_owned(), member.to_owned());
    // 20 tokens at 7 an hour take 10,285.71 s, 19 of them 9,771.7 s of that.
    let odd = Quota::token_bucket(7, HOUR).capacity(20);
    assert_eq!(told(odd, 1), is("\"l\";q=20;w=10286", "\"l\";r=19;t=9772"));
    // The next token after the last is 514.29 s away.
    assert_eq!(told(odd, 20), is("\"l\";q=20;w=10286", "\"l\";r=0;t=515"));
    // In steps of 0.1 ms, the next token is 518.5 s away.
    let plan = Quota::token_bucket(4_999, tollgate::days(30));
    assert_eq!(told(plan, 4_999), is("\"l\";q=4999;w=2592000", "\"l\";r=0;t=519"));
    // 150 tokens take two windows of 100.
    let window = Quota::fixed_window(100, MINUTE).start(START).capacity(150);
    assert_eq!(told(window, 1), is("\"l\";q=150;w=120", "\"l\";r=149;t=60"));
    // Without a capacity, the refill of a period comes closest to the truth.
    let none = Quota::token_bucket(10, MINUTE).capacity(0);
    assert_eq!(told(none, 0).0, "\"l\";q=10;w=60");
    // 2^53 does not fit an integer of structured fields.
    let huge = Quota::fixed_window(1 << 53, SECOND).start(START).max_reserved(0);
    assert_eq!(told(huge, 0), is("\"l\";q=999999999999999;w=1", "\"l\";r=999999999999999;t=1"));
}

/// The parser of the `sfv` crate reads every field that a limit can produce.
#[test]
fn fields_are_structured_fields() {
    use proptest::prelude::*;
    use tollgate::Key;

    proptest!(|(
        name in "[ -~]{1,64}",
        quota in tollgate_testing::quotas(),
        cost in 0_u64..40,
        advanced in prop_oneof![Just(0_u64), any::<u64>()],
    )| {
        let limit = Limit::try_new(name.as_str(), quota).unwrap();
        let clock = ManualClock::new(START);
        let limiter: RateLimiter = tollgate_testing::limiter(&clock);
        let service = tower::Layer::layer(
            &limiter.layer(&limit).cost(cost).key(tollgate::key::from_fn(|_| Key::GLOBAL)),
            tower::service_fn(async |_: http::Request<()>| {
                Ok::<_, Infallible>(http::Response::new(()))
            }),
        );
        for now in [START, START + Duration::from_micros(advanced), Timestamp::from_micros(i64::MAX)] {
            clock.set(now);
            let answer = tower::ServiceExt::oneshot(service.clone(), http::Request::new(()));
            let response = at_once(answer).unwrap();
            for field in ["ratelimit-policy", "ratelimit"] {
                let Some(value) = response.headers().get(field) else { continue };
                let list = sfv::Parser::new(value.as_bytes()).parse::<sfv::List>().unwrap();
                prop_assert_eq!(list.len(), 1);
                let sfv::ListEntry::Item(item) = &list[0] else { panic!("not an item") };
                prop_assert_eq!(item.bare_item.as_string().unwrap().as_str(), &name);
                for (_, number) in &item.params {
                    prop_assert!(i64::from(number.as_integer().unwrap()) >= 0);
                }
                prop_assert_eq!(item.params.len(), 2);
            }
            let retry_after = response.headers().get("retry-after");
            prop_assert_eq!(
                retry_after.is_some(),
                response.status() == 429 && cost <= quota.get_capacity()
            );
        }
    });
}

// Clients that disconnect.

static LLM: Limit = Limit::new("llm-tokens", Quota::token_bucket(1_000, MINUTE));

/// Tells when it is dropped.
struct Gone(mpsc::UnboundedSender<&'static str>);

impl Drop for Gone {
    fn drop(&mut self) {
        let _ = self.0.send("gone");
    }
}

/// A connection on which a request was sent.
async fn connect(to: SocketAddr) -> TcpStream {
    let mut connection = TcpStream::connect(to).await.unwrap();
    connection.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    connection
}

#[tokio::test]
async fn a_client_that_disconnects_in_the_middle_of_a_handler_pays_what_was_counted() {
    for (is_refunding, wanted) in [(false, 958), (true, 1_000)] {
        let limiter = limiter(&ManualClock::new(START));
        let layer = limiter.layer(&LLM).cost(100).settle();
        let layer = if is_refunding { layer.refund_dropped() } else { layer };
        let (tell, mut told) = mpsc::unbounded_channel();
        let works = tell.clone();
        let handler = async move |meter: Meter| {
            meter.add(42);
            works.send("works").unwrap();
            std::future::pending::<()>().await;
        };
        // The signal is around the layer, so the request is settled by the time the signal comes.
        let watch = from_fn(move |request: Request, next: Next| {
            let gone = Gone(tell.clone());
            async move {
                let _gone = gone;
                next.run(request).await
            }
        });
        let app = Router::new().route("/", get(handler)).layer(layer).layer(watch);
        let connection = connect(serve(app).await).await;
        assert_eq!(told.recv().await, Some("works"));
        assert_eq!(at_once(limiter.peek(&LLM)).unwrap().remaining(), 900);
        drop(connection);
        assert_eq!(told.recv().await, Some("gone"));
        assert_eq!(at_once(limiter.peek(&LLM)).unwrap().remaining(), wanted);
    }
}

/// A route with a streamed response: the chunks that the test sends, at ten tokens each.
async fn streaming_server(
    limiter: &RateLimiter,
) -> (SocketAddr, mpsc::UnboundedSender<&'static str>, mpsc::UnboundedReceiver<&'static str>) {
    let (say, said) = mpsc::unbounded_channel::<&'static str>();
    let (tell, told) = mpsc::unbounded_channel();
    let said = std::sync::Arc::new(std::sync::Mutex::new(Some(said)));
    let handler = async move |meter: Meter| {
        let said = said.lock().unwrap().take().unwrap();
        // Dropped in this order.
        let parts = (said, meter, Gone(tell));
        Body::from_stream(stream::unfold(parts, async |mut parts| {
            let piece = parts.0.recv().await?;
            parts.1.add(10);
            Some((Ok::<_, Infallible>(Bytes::from_static(piece.as_bytes())), parts))
        }))
    };
    // A disconnect during the stream is not a disconnect before the response.
    let layer = limiter.layer(&LLM).cost(100).settle().refund_dropped();
    (serve(Router::new().route("/", get(handler)).layer(layer)).await, say, told)
}

#[tokio::test]
async fn a_client_that_disconnects_in_the_middle_of_a_stream_pays_what_was_counted() {
    let limiter = limiter(&ManualClock::new(START));
    let (server, say, mut told) = streaming_server(&limiter).await;
    let mut connection = connect(server).await;
    for piece in ["forty", "-"] {
        say.send(piece).unwrap();
        read_to(&mut connection, piece).await;
    }
    assert_eq!(at_once(limiter.peek(&LLM)).unwrap().remaining(), 900, "it is still sent");
    drop(connection);
    assert_eq!(told.recv().await, Some("gone"));
    assert_eq!(at_once(limiter.peek(&LLM)).unwrap().remaining(), 980);
}

#[tokio::test]
async fn a_stream_that_has_ended_costs_what_was_counted() {
    let limiter = limiter(&ManualClock::new(START));
    let (server, say, mut told) = streaming_server(&limiter).await;
    for piece in ["forty", "-", "two"] {
        say.send(piece).unwrap();
    }
    drop(say);
    assert_eq!(web::get(server, "/").await.body, "forty-two");
    assert_eq!(told.recv().await, Some("gone"));
    assert_eq!(at_once(limiter.peek(&LLM)).unwrap().remaining(), 970);
}

#[tokio::test]
async fn a_layer_of_one_rule_has_the_options_of_a_rule() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = |name: &'static str| limiter.layer(Limit::new(name, Quota::token_bucket(1, HOUR)));
    let by_user = |name| layer(name).key(header("x-user"));
    let plan = |head: &Head<'_>| {
        let quota = Quota::token_bucket(2, HOUR);
        (!head.headers().contains_key("x-internal")).then(|| Limit::new("plan", quota))
    };
    let hello = || any(async || "hello");
    let app = Router::new()
        .route("/plain", hello().layer(by_user("plain")))
        .route(
            "/closure",
            hello().layer(layer("closure").key_with(|head| head.method().as_str().to_owned())),
        )
        .route("/cost", hello().layer(by_user("cost").cost_with(asked_cost)))
        .route("/methods", hello().layer(by_user("methods").only_methods([Method::POST])))
        .route("/only", hello().layer(by_user("only").only_if(|head| head.uri().query().is_none())))
        .route("/missing", hello().layer(by_user("missing").missing_key_exempt()))
        .route("/plan", hello().layer(by_user("plan").limit_with(plan)))
        .route("/refund", hello().layer(by_user("refund").refund_if(|reply| reply.is_success())))
        .route("/shadow", hello().layer(by_user("shadow").shadow()));
    let server = serve(app).await;
    let ann = ("x-user", "ann");
    type Asked<'a> = (Method, &'a str, &'a [(&'a str, &'a str)], [u16; 3]);
    let rows: &[Asked<'_>] = &[
        (Method::GET, "/plain", &[ann], [200, 429, 429]),
        (Method::GET, "/plain", &[("x-user", "bob")], [200, 429, 429]),
        (Method::GET, "/closure", &[], [200, 429, 429]),
        (Method::POST, "/closure", &[], [200, 429, 429]),
        (Method::GET, "/cost", &[ann, ("x-cost", "2")], [413; 3]),
        (Method::GET, "/methods", &[ann], [200; 3]),
        (Method::POST, "/methods", &[ann], [200, 429, 429]),
        (Method::GET, "/only?health", &[ann], [200; 3]),
        (Method::GET, "/only", &[ann], [200, 429, 429]),
        (Method::GET, "/missing", &[], [200; 3]),
        (Method::GET, "/missing", &[ann], [200, 429, 429]),
        (Method::GET, "/plan", &[ann, ("x-internal", "yes")], [200; 3]),
        (Method::GET, "/plan", &[ann], [200, 200, 429]),
        (Method::GET, "/refund", &[ann], [200; 3]),
        (Method::GET, "/shadow", &[ann], [200; 3]),
    ];
    for (method, path, fields, statuses) in rows {
        for status in statuses {
            let reply = send(server, method.clone(), path, fields).await;
            assert_eq!(reply.status, *status, "{method} {path} {fields:?}");
        }
    }
}
