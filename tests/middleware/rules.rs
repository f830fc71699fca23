//! Layers with several rules: one transaction, one set of fields, one answer.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use axum::response::IntoResponse;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tokio::time::Instant;
use tollgate::backend::Memory;
use tollgate::clock::ManualClock;
use tollgate::fields::Dialect;
use tollgate::key::{Extracted, Head, Key, KeyError, header};
use tollgate::middleware::{ActualCost, Queue};
use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimitLayer, RateLimiter, Rule, SECOND};
use tollgate_testing::queue::{Late, Recorder, ms, paused, send, settled, tokens};
use tollgate_testing::web::Reply;
use tollgate_testing::{START, at_once, is_admitted, limiter, store};
use tower::{Layer, Service, ServiceExt, service_fn};

static CLIENT: Limit = Limit::new("client", Quota::token_bucket(10, SECOND));
static TENANT: Limit = Limit::new("a tenant", Quota::token_bucket(4, MINUTE));
static EVERYONE: Limit = Limit::new("everyone", Quota::token_bucket(100, HOUR).shards(10));

/// A request by the user, of the tenant, and at the cost that its header fields say.
fn by(fields: &[(&str, &str)]) -> Request<()> {
    let request = fields
        .iter()
        .fold(Request::builder(), |request, (name, value)| request.header(*name, *value));
    request.body(()).unwrap()
}

fn cost(head: &Head<'_>) -> u64 {
    head.headers().get("x-cost").map_or(1, |cost| cost.to_str().unwrap().parse().unwrap())
}

/// A limit per user, one per tenant, and one that all users share.
fn three(limiter: &RateLimiter) -> RateLimitLayer<Vec<Rule>> {
    limiter
        .layer(Rule::new(&CLIENT).key(header("x-user")))
        .and(Rule::new(&TENANT).key(header("x-tenant")))
        .and(Rule::new(&EVERYONE).cost_with(cost))
}

/// Sends requests to a service that counts them.
struct Server {
    layer: RateLimitLayer<Vec<Rule>>,
    ran: Arc<AtomicU32>,
}

impl Server {
    fn new(layer: impl Into<RateLimitLayer<Vec<Rule>>>) -> Self {
        Self { layer: layer.into(), ran: Arc::default() }
    }

    fn ran(&self) -> u32 {
        self.ran.load(Ordering::Relaxed)
    }

    async fn ask(&self, fields: &[(&str, &str)]) -> Reply {
        let ran = Arc::clone(&self.ran);
        let inner = service_fn(move |_: Request<()>| {
            ran.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
        });
        Reply::read(self.layer.layer(inner).oneshot(by(fields)).await.unwrap()).await
    }
}

/// The members of the one field of this name: their names, and the numbers in their order.
#[track_caller]
fn members(reply: &Reply, field: &str) -> Vec<(String, Vec<i64>)> {
    let Some(value) = reply.field(field) else { return Vec::new() };
    let list = sfv::Parser::new(value.as_bytes()).parse::<sfv::List>().unwrap();
    let member = |entry: &sfv::ListEntry| {
        let sfv::ListEntry::Item(item) = entry else { panic!("not an item") };
        let name = item.bare_item.as_string().unwrap().as_str().to_owned();
        let numbers = item.params.values().map(|number| i64::from(number.as_integer().unwrap()));
        (name, numbers.collect())
    };
    list.iter().map(member).collect()
}

#[track_caller]
fn told(reply: &Reply) -> Vec<(String, Vec<i64>)> {
    members(reply, "ratelimit")
}

fn names(members: &[(String, Vec<i64>)]) -> Vec<&str> {
    members.iter().map(|(name, _)| name.as_str()).collect()
}

#[track_caller]
fn left(limiter: &RateLimiter, limit: &Limit, key: impl Into<Key>) -> u64 {
    at_once(limiter.peek(limit).key(key)).unwrap().remaining()
}

const ANN: &[(&str, &str)] = &[("x-user", "ann"), ("x-tenant", "acme")];

fn member(name: &str, numbers: [i64; 2]) -> (String, Vec<i64>) {
    (name.to_owned(), numbers.to_vec())
}

// Header fields.

#[tokio::test]
async fn all_limits_are_sent_in_one_field_in_the_order_of_the_rules() {
    let server = Server::new(three(&limiter(&ManualClock::new(START))));
    let reply = server.ask(ANN).await;
    assert_eq!(reply.status, StatusCode::OK);
    assert_eq!(
        members(&reply, "ratelimit-policy"),
        [member("client", [10, 1]), member("a tenant", [4, 60]), member("everyone", [100, 3_600])]
    );
    assert_eq!(
        told(&reply),
        [member("client", [9, 1]), member("a tenant", [3, 45]), member("everyone", [99, 3_564])]
    );
    assert_eq!(server.ran(), 1);

    let silent = Server::new(three(&limiter(&ManualClock::new(START))).dialects(Dialect::None));
    let reply = silent.ask(ANN).await;
    assert!(told(&reply).is_empty() && members(&reply, "ratelimit-policy").is_empty());
}

/// The members of an inner layer follow ours on one line, however many lines the inner layer sent.
#[tokio::test]
async fn members_of_inner_layers_follow_ours() {
    let cases: [(&[&str], &str); 4] = [
        (&[], ""),
        (&["\"inner\";r=1;t=2"], ", \"inner\";r=1;t=2"),
        (&["", " ", "\"inner\";r=1;t=2"], ", \"inner\";r=1;t=2"),
        (&["\"b\";r=1", "", "\"c\";r=2, \"d\";r=3"], ", \"b\";r=1, \"c\";r=2, \"d\";r=3"),
    ];
    for (lines, behind) in cases {
        let inner = service_fn(move |_: Request<()>| {
            let mut response = Response::new(());
            for line in lines {
                response.headers_mut().append("ratelimit", line.parse().unwrap());
            }
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let service = limiter(&ManualClock::new(START)).layer(&TENANT).layer(inner);
        let response = service.oneshot(Request::new(())).await.unwrap();
        let told: Vec<_> = response.headers().get_all("ratelimit").iter().collect();
        assert_eq!(told, [&format!("\"a tenant\";r=3;t=45{behind}")]);
    }
}

#[tokio::test]
async fn a_refusal_names_each_limit_that_refused_and_takes_from_none() {
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new(), &clock);
    let server = Server::new(three(&limiter));
    for _ in 0..4 {
        assert_eq!(server.ask(ANN).await.status, StatusCode::OK);
    }
    // Another tenant of the same user leaves it 6 more.
    let other = [("x-user", "ann"), ("x-tenant", "zenith")];
    for _ in 0..2 {
        assert_eq!(server.ask(&other).await.status, StatusCode::OK);
    }
    let stored = memory.len();
    for _ in 0..3 {
        let refused = server.ask(ANN).await;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        assert!(refused.body.ends_with(r#""violated-policies":["a tenant"]}"#), "{}", refused.body);
        assert_eq!(refused.field("retry-after"), Some("15"));
        assert_eq!(told(&refused)[..2], [member("client", [4, 1]), member("a tenant", [0, 15])]);
        assert_eq!(names(&told(&refused)), ["client", "a tenant", "everyone"]);
        assert_eq!(memory.len(), stored);
    }
    assert_eq!((left(&limiter, &CLIENT, "ann"), left(&limiter, &EVERYONE, Key::GLOBAL)), (4, 94));

    for tenant in ["b", "c"] {
        for _ in 0..2 {
            let reply = server.ask(&[("x-user", "ann"), ("x-tenant", tenant)]).await;
            assert_eq!(reply.status, StatusCode::OK);
        }
    }
    let both = server.ask(ANN).await;
    assert!(both.body.ends_with(r#""violated-policies":["client","a tenant"]}"#), "{}", both.body);
    assert_eq!(both.field("retry-after"), Some("15"), "the longest");
    assert_eq!(server.ran(), 10);
    clock.advance(SECOND * 15);
    assert_eq!(server.ask(ANN).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_cost_that_one_limit_can_never_grant_is_refused_by_that_limit() {
    let (memory, limiter) = store(Memory::new(), &ManualClock::new(START));
    let server = Server::new(three(&limiter));
    let reply = server.ask(&[ANN, &[("x-cost", "21")]].concat()).await;
    assert_eq!((reply.status.as_u16(), reply.field("retry-after")), (413, None));
    assert!(reply.body.ends_with(r#""violated-policies":["everyone"]}"#), "{}", reply.body);
    assert_eq!(members(&reply, "ratelimit-policy"), [member("everyone", [100, 3_600])]);
    assert!(memory.is_empty());
    assert_eq!(server.ask(&[ANN, &[("x-cost", "20")]].concat()).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_limit_in_two_rules_is_charged_for_each_key_and_twice_for_the_same_key() {
    let limiter = limiter(&ManualClock::new(START));
    let by = |name| Rule::new(&TENANT).key(header(name));
    let server = Server::new(limiter.layer(by("x-user")).and(by("x-tenant")));
    let reply = server.ask(ANN).await;
    assert_eq!(told(&reply), [member("a tenant", [3, 45]), member("a tenant", [3, 45])]);
    let same = [("x-user", "bob"), ("x-tenant", "bob")];
    let reply = server.ask(&same).await;
    assert_eq!(told(&reply), [member("a tenant", [2, 30]), member("a tenant", [2, 30])]);
    assert_eq!(server.ask(&same).await.status, StatusCode::OK);
    let refused = server.ask(&[("x-user", "ann"), ("x-tenant", "bob")]).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(left(&limiter, &TENANT, "ann"), 3);
}

#[test]
fn a_handler_sends_every_limit_that_has_refused() {
    let limiter = limiter(&ManualClock::new(START));
    let all = || limiter.limit(&TENANT).cost(4).and(&CLIENT).cost(10).and(&EVERYONE);
    assert!(is_admitted(all()));
    let error = at_once(all()).unwrap_err();
    let reply = at_once(Reply::read(error.into_response()));
    assert_eq!((reply.status.as_u16(), reply.field("retry-after")), (429, Some("60")));
    assert!(
        reply.body.ends_with(r#""violated-policies":["a tenant","client"]}"#),
        "{}",
        reply.body
    );
    assert_eq!(told(&reply), [member("a tenant", [0, 60]), member("client", [0, 1])]);
    assert_eq!(names(&members(&reply, "ratelimit-policy")), ["a tenant", "client"]);
}

// Keys.

/// The key in a header field, or an exemption.
fn unless_staff(name: &'static str) -> impl Fn(&Head<'_>) -> Result<Extracted, KeyError> {
    move |head| match head.headers().get(name).map(|value| value.to_str().unwrap()) {
        Some("staff") => Ok(Extracted::Exempt),
        Some(key) => Ok(key.into()),
        None => Err(KeyError::missing("no key")),
    }
}

/// A client that was exempt from a limit got the policy of that limit all the same.
#[tokio::test]
async fn a_client_exempt_from_one_limit_is_held_to_the_others() {
    let (memory, limiter) = store(Memory::new(), &ManualClock::new(START));
    let layer = limiter.layer(Rule::new(&CLIENT).key_with(unless_staff("x-user")));
    let server = Server::new(layer.and(Rule::new(&TENANT).key_with(unless_staff("x-tenant"))));
    for nth in (0..4).rev() {
        let reply = server.ask(&[("x-user", "staff"), ("x-tenant", "acme")]).await;
        assert_eq!(told(&reply)[0].1[0], nth);
        assert_eq!(names(&told(&reply)), ["a tenant"]);
        assert_eq!(names(&members(&reply, "ratelimit-policy")), ["a tenant"]);
    }
    let refused = server.ask(&[("x-user", "staff"), ("x-tenant", "acme")]).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(memory.len(), 1);
    let reply = server.ask(&[("x-user", "ann"), ("x-tenant", "staff")]).await;
    assert_eq!((reply.status, names(&told(&reply))), (StatusCode::OK, vec!["client"]));

    let stored = memory.len();
    for _ in 0..20 {
        let reply = server.ask(&[("x-user", "staff"), ("x-tenant", "staff")]).await;
        assert_eq!(reply.status, StatusCode::OK);
        assert!(told(&reply).is_empty() && members(&reply, "ratelimit-policy").is_empty());
    }
    assert_eq!(memory.len(), stored);
}

#[tokio::test]
async fn a_missing_key_of_any_rule_is_that_rule_s_answer_and_takes_nothing() {
    let (memory, limiter) = store(Memory::new(), &ManualClock::new(START));
    let by_user = Rule::new(&CLIENT).key(header("x-user"));
    let by_tenant = Rule::new(&TENANT).key(header("x-tenant"));
    let layer = limiter
        .layer(by_user.clone().missing_key(StatusCode::UNAUTHORIZED))
        .and(by_tenant.clone().missing_key(StatusCode::FORBIDDEN))
        .and(&EVERYONE);
    let server = Server::new(layer);
    for (fields, status) in [
        (&[][..], 401),
        (&[("x-tenant", "acme")], 401),
        (&[("x-user", "ann")], 403),
        (&[("x-user", "ann"), ("x-tenant", "a"), ("x-tenant", "b")], 400),
    ] {
        let reply = server.ask(fields).await;
        assert_eq!(reply.status.as_u16(), status);
        assert!(told(&reply).is_empty());
    }
    assert!(memory.is_empty());
    assert_eq!(server.ran(), 0);
    assert_eq!(server.ask(ANN).await.status, StatusCode::OK);

    let layer = limiter.layer(by_user.missing_key_shared());
    let layer = layer.and(by_tenant.missing_key_exempt());
    let reply = Server::new(layer.and(&EVERYONE)).ask(&[]).await;
    assert_eq!(names(&told(&reply)), ["client", "everyone"]);
    assert_eq!(left(&limiter, &CLIENT, Key::GLOBAL), 9);
}

// Plans.

static FREE: Limit = Limit::new("plan", Quota::token_bucket(2, MINUTE));
static PRO: Limit = Limit::new("plan", Quota::token_bucket(20, MINUTE));

fn plan(head: &Head<'_>) -> &'static Limit {
    if head.headers().contains_key("x-pro") { &PRO } else { &FREE }
}

#[tokio::test]
async fn a_plan_is_chosen_for_each_request() {
    let limiter = limiter(&ManualClock::new(START));
    let by_plan = Rule::new(&FREE).limit_with(plan).key(header("x-tenant"));
    let layer = limiter.layer(Rule::new(&CLIENT).key(header("x-user"))).and(by_plan);
    let server = Server::new(layer);
    let pro = [ANN, &[("x-pro", "")]].concat();
    let first = server.ask(ANN).await;
    assert_eq!(
        members(&first, "ratelimit-policy"),
        [member("client", [10, 1]), member("plan", [2, 60])]
    );
    assert_eq!(told(&first)[1], member("plan", [1, 30]));
    // The pro plan begins with half of it used.
    let second = server.ask(&pro).await;
    assert_eq!(members(&second, "ratelimit-policy")[1], member("plan", [20, 60]));
    assert_eq!(told(&second)[1].0, "plan");
    let third = server.ask(ANN).await;
    assert!(told(&third)[1].1[0] <= 1, "a change of plans makes no tokens");
    for _ in 0..30 {
        let _ = server.ask(ANN).await;
    }
    let refused = server.ask(ANN).await;
    assert!(refused.body.ends_with(r#""violated-policies":["plan"]}"#), "{}", refused.body);
    assert_eq!(refused.field("ratelimit-policy"), first.field("ratelimit-policy"));
}

// Queues.

/// Neither limit saves anything up: both have a capacity of 0.
static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(1, SECOND).capacity(0));
static EVEN: Limit = Limit::new("even", Quota::token_bucket(30, MINUTE).capacity(0));

fn queued(limiter: &RateLimiter) -> RateLimitLayer<Vec<Rule>> {
    limiter.layer(&SPACED).and(&EVEN).queue(Queue::new(HOUR))
}

fn pend<F: Future>(future: &mut Pin<Box<F>>) {
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[tokio::test(start_paused = true)]
async fn waiters_wait_for_the_slowest_limit_in_order() {
    let limiter = paused();
    let inner = Recorder::new();
    let service = queued(&limiter).layer(inner.clone());
    let mut answers = Vec::new();
    for number in 1..=4 {
        answers.push(send(&service, Request::new(number)).await);
    }
    for answer in answers {
        let response = answer.await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let (parts, _) = response.into_parts();
        let reply = Reply { status: parts.status, headers: parts.headers, body: String::new() };
        assert_eq!(names(&told(&reply)), ["spaced", "even"], "in the order of the rules");
        assert_eq!(names(&members(&reply, "ratelimit-policy")), ["spaced", "even"]);
        assert!(told(&reply).iter().all(|(_, numbers)| numbers[0] == 0));
    }
    assert_eq!(
        inner.ran(),
        [1, 2, 3, 4].map(|number| (number, 2 * SECOND * u32::try_from(number).unwrap()))
    );
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_refunds_all_limits_and_gives_its_slot_to_the_next() {
    let limiter = paused();
    let inner = Recorder::new();
    let service = queued(&limiter).layer(inner.clone());
    let ask = |number| Box::pin(service.clone().oneshot(Request::new(number)));
    let mut only = ask(0);
    pend(&mut only);
    assert_eq!([tokens(&limiter, &SPACED), tokens(&limiter, &EVEN)], [-1.0, -1.0]);
    drop(only);
    assert_eq!([tokens(&limiter, &SPACED), tokens(&limiter, &EVEN)], [0.0, 0.0]);

    let mut first = ask(1);
    pend(&mut first);
    let second = send(&service, Request::new(2)).await;
    drop(first);
    assert_eq!([tokens(&limiter, &SPACED), tokens(&limiter, &EVEN)], [-1.0, -1.0]);
    assert_eq!(second.await.unwrap().status(), StatusCode::OK);
    assert_eq!(inner.ran(), [(2, 2 * SECOND)]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_would_wait_too_long_for_one_limit_takes_from_none() {
    let limiter = paused();
    let layer = limiter.layer(&SPACED).and(&EVEN).queue(Queue::new(3 * SECOND));
    let service = layer.layer(Recorder::new());
    let _first = send(&service, Request::new(1)).await;
    let refused = service.clone().oneshot(Request::new(2)).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()["retry-after"], "4");
    assert_eq!([tokens(&limiter, &SPACED), tokens(&limiter, &EVEN)], [-1.0, -1.0]);
}

#[tokio::test(start_paused = true)]
async fn a_limit_in_shards_can_be_waited_for_with_others() {
    static HOT: Limit = Limit::new("hot", Quota::token_bucket(10, SECOND).capacity(0).shards(5));
    let limiter = paused();
    let inner = Recorder::new();
    let service = limiter.layer(&HOT).and(&CLIENT).queue(HOUR).layer(inner.clone());
    let mut gone = Vec::new();
    let mut answers = Vec::new();
    for number in 0..20_u64 {
        match number % 4 {
            0 => {
                let mut call = Box::pin(service.clone().oneshot(Request::new(number)));
                pend(&mut call);
                gone.push(call);
            }
            _ => answers.push(send(&service, Request::new(number)).await),
        }
    }
    drop(gone);
    for answer in answers {
        let (parts, _) = answer.await.unwrap().into_parts();
        let reply = Reply { status: parts.status, headers: parts.headers, body: String::new() };
        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(names(&told(&reply)), ["hot", "client"]);
    }
    assert_eq!(inner.ran().len(), 15);
    assert!(inner.ran().iter().all(|&(_, at)| at >= ms(500) && at <= 8 * SECOND));
}

// Settling.

fn costs(actual: u64) -> Response<()> {
    let mut response = Response::new(());
    response.extensions_mut().insert(ActualCost::new(actual));
    response
}

#[tokio::test]
async fn only_rules_with_an_explicit_cost_are_settled() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter
        .layer(&CLIENT)
        .and(Rule::new(&EVERYONE).cost(15))
        .and(Rule::new(&PRO).cost(10))
        .settle();
    let service = layer.layer(service_fn(async |request: Request<u64>| {
        Ok::<_, Infallible>(costs(request.into_body()))
    }));
    let left = || [&CLIENT, &EVERYONE, &PRO].map(|limit| left(&limiter, limit, Key::GLOBAL));
    let response = service.clone().oneshot(Request::new(4)).await.unwrap();
    assert_eq!(left(), [9, 96, 16]);
    let told = response.headers()["ratelimit"].to_str().unwrap();
    assert!(
        told.starts_with("\"client\";r=9;t=1, \"everyone\";r=96;"),
        "after the settlement: {told}"
    );
    let _ = service.clone().oneshot(Request::new(16)).await.unwrap();
    assert_eq!(left(), [8, 80, 0]);
    assert_eq!(
        service.oneshot(Request::new(0)).await.unwrap().status(),
        StatusCode::TOO_MANY_REQUESTS
    );
    assert_eq!(left(), [8, 80, 0]);

    let by_tenant = Rule::new(&FREE).key(header("x-tenant"));
    let layer = limiter.layer(&TENANT).and(by_tenant).settle();
    let service = layer.layer(service_fn(async |_: Request<()>| Ok::<_, Infallible>(costs(2))));
    assert_eq!(service.oneshot(by(ANN)).await.unwrap().status(), StatusCode::OK);
    let all = [self::left(&limiter, &TENANT, Key::GLOBAL), self::left(&limiter, &FREE, "acme")];
    assert_eq!(all, [2, 0], "all rules are settled if none has a cost");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_waited_is_settled_in_all() {
    let limiter = paused();
    let layer =
        limiter.layer(&CLIENT).and(Rule::new(&SPACED).cost(2)).and(Rule::new(&EVEN).cost(1));
    let service = layer
        .queue(HOUR)
        .settle()
        .layer(service_fn(async |_: Request<()>| Ok::<_, Infallible>(costs(4))));
    let start = Instant::now();
    assert_eq!(service.oneshot(Request::new(())).await.unwrap().status(), StatusCode::OK);
    assert_eq!(start.elapsed(), 2 * SECOND);
    assert_eq!([&SPACED, &EVEN].map(|limit| tokens(&limiter, limit)), [-2.0, -3.0]);
}

// A store that answers later.

#[tokio::test(start_paused = true)]
async fn a_later_answer_makes_the_same_responses() {
    let (late, limiter, memory) = Late::new();
    let server = Server::new(three(&limiter));
    let now = Server::new(three(&memory));
    for nth in 0..5 {
        let later = server.ask(ANN).await;
        assert_eq!(names(&told(&later)), ["client", "a tenant", "everyone"]);
        assert_eq!(told(&later)[1].1[0], (3 - nth).max(0));
        assert_eq!(later.status.as_u16(), if nth < 4 { 200 } else { 429 });
    }
    let (later, at_once) = (server.ask(ANN).await, now.ask(ANN).await);
    assert_eq!(
        (&later.body, later.field("retry-after")),
        (&at_once.body, at_once.field("retry-after"))
    );

    // A client that disconnects before the answer arrives gives its slots in all limits back.
    let service = queued(&limiter).layer(Recorder::new());
    let held = late.close();
    let mut call = Box::pin(service.clone().oneshot(Request::new(1)));
    pend(&mut call);
    drop(call);
    late.open();
    held.let_go();
    settled().await;
    assert_eq!([&SPACED, &EVEN].map(|limit| tokens(&memory, limit)), [0.0, 0.0]);
}

/// The layer adds jitter as the limiter does: one draw for all limits.
#[test]
fn jitter_is_added_to_the_longest_wait() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(Rule::new(&CLIENT).cost(10)).and(Rule::new(&TENANT).cost(4));
    let layer = layer.jitter(MINUTE);
    let mut service =
        layer.layer(service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(()))));
    let mut waits = Vec::new();
    for _ in 0..40 {
        let ready = service.poll_ready(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(ready, Poll::Ready(Ok(()))));
        let response = at_once(service.call(Request::new(()))).unwrap();
        if let Some(wait) = response.headers().get("retry-after") {
            waits.push(wait.to_str().unwrap().parse::<u64>().unwrap());
        }
    }
    assert_eq!(waits.len(), 39);
    assert!(waits.iter().all(|wait| (60..=120).contains(wait)));
    assert!(waits.iter().any(|wait| *wait > 90));
    let exact = at_once(limiter.limit(&CLIENT).cost(10).and(&TENANT).cost(4)).unwrap_err();
    assert_eq!(exact.retry_after(), Some(MINUTE));
}
