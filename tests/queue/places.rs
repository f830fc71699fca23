//! How many places in the queue of a layer each client gets, whatever the clients do.
//!
//! Servers and connections are real. The time of the store is injected and stands still unless a
//! test advances it, so no request gets its turn before that.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use axum::Router;
use axum::routing::get;
use http::{Request, Response, StatusCode};
use tokio::time::advance;
use tollgate::clock::ManualClock;
use tollgate::key::{ClientIp, KeyExtractor, global, header};
use tollgate::middleware::{Queue, RateLimit, ResponseBody, ResponseFuture};
use tollgate::{DAY, HOUR, Limit, Quota, RateLimitExt, RateLimiter, Rule, SECOND};
use tollgate_testing::attack::{Guest, Http2, Watched, address};
use tollgate_testing::cases::times;
use tollgate_testing::dice::Dice;
use tollgate_testing::queue::{Late, Recorder, ms, paused, settled};
use tollgate_testing::{START, at_once, limiter};
use tower::{Layer, Service};

/// One request an hour for each client; the next ones wait for as many hours.
static HOURLY: Limit = Limit::new("hourly", Quota::token_bucket(1, HOUR));

const PLACES: usize = 100;

/// The client that attacks; the others have higher numbers.
const ATTACKER: u8 = 2;

fn queue() -> Queue {
    Queue::new(100 * DAY).max_waiters(PLACES)
}

async fn by_client(limiter: &RateLimiter, queue: Queue) -> Watched {
    let layer = limiter.layer(&HOURLY).key(ClientIp::peer()).queue(queue);
    Watched::serve(Router::new().route("/", get(async || "ran").rate_limit(layer))).await
}

fn waiting(limiter: &RateLimiter, client: u8) -> usize {
    limiter.peek(&HOURLY).key(address(client)).waiting()
}

/// Whether a request of this client finds a place in the queue. The request leaves again.
async fn finds_a_place(limiter: &RateLimiter, server: &mut Watched, client: u8) -> bool {
    if at_once(limiter.peek(&HOURLY).key(address(client))).unwrap().fits() {
        assert_eq!(Guest::new(client, server.address).get().await.status, 200);
        server.arrived(client, 1).await;
    }
    let guest = Guest::new(client, server.address);
    let asking = tokio::spawn(async move { guest.get().await });
    server.arrived(client, 1).await;
    let waits = waiting(limiter, client) == 1;
    asking.abort();
    if waits {
        server.gone(client, 1).await;
    }
    waits
}

/// In a former version, the queue had one count for all clients: a client that asked for all places
/// had them, and every other client was answered with 503.
#[tokio::test]
async fn a_client_that_takes_all_it_can_leaves_room_for_the_others() {
    let limiter = limiter(&ManualClock::new(START));
    let mut server = by_client(&limiter, queue()).await;
    let mut attacker = Http2::connect(ATTACKER, server.address).await;
    attacker.get(150).await;
    server.arrived(ATTACKER, 150).await;
    let mut refused = 0;
    for client in 10..30 {
        refused += usize::from(!finds_a_place(&limiter, &mut server, client).await);
    }
    println!("{refused} of 20 requests of the others were refused");
    assert_eq!(refused, 0);
}

/// The same for requests that join the queue and are reset in a loop. In a former version, the
/// other clients never found a place.
#[tokio::test]
async fn a_client_that_joins_and_resets_in_a_loop_leaves_room_for_the_others() {
    let limiter = limiter(&ManualClock::new(START));
    let mut server = by_client(&limiter, queue()).await;
    let mut attacker = Http2::connect(ATTACKER, server.address).await;
    let mut streams = attacker.get(150).await;
    server.arrived(ATTACKER, 150).await;
    let mut refused = 0;
    for round in 0..40 {
        let gone: Vec<_> = streams.drain(..10).collect();
        attacker.reset(&gone).await;
        streams.extend(attacker.get(10).await);
        server.arrived(ATTACKER, 10).await;
        refused += usize::from(!finds_a_place(&limiter, &mut server, 10 + round % 20).await);
    }
    println!("{refused} of 40 requests of the others were refused");
    assert_eq!(refused, 0);
}

/// A client that has its share of the queue is refused with 429, and told when its request would
/// not have to wait.
#[tokio::test]
async fn a_client_above_its_share_is_told_when_to_retry() {
    for on_full in [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS] {
        let limiter = limiter(&ManualClock::new(START));
        let mut server = by_client(&limiter, queue().on_full(on_full)).await;
        let mut attacker = Http2::connect(ATTACKER, server.address).await;
        attacker.get(60).await;
        server.arrived(ATTACKER, 60).await;
        assert_eq!(waiting(&limiter, ATTACKER), PLACES / 2, "half of the places");
        let answers = server.answers(ATTACKER);
        assert_eq!((answers[&200].len(), answers[&429].len()), (1, 9), "{answers:?}");
        // 50 hours of debt, and one hour for the token of the request.
        let told = answers[&429].iter().all(|headers| headers["retry-after"] == "183600");
        assert!(told, "{answers:?}");
        assert_eq!(answers.len(), 2);
    }
}

#[tokio::test]
async fn clients_that_take_all_they_can_have_equal_shares() {
    for (attackers, share) in [(1_u8, 50), (2, 33), (3, 25), (4, 20)] {
        let limiter = limiter(&ManualClock::new(START));
        let mut server = by_client(&limiter, queue()).await;
        let mut connections = Vec::new();
        for attacker in 0..attackers {
            connections.push(Http2::connect(ATTACKER + attacker, server.address).await);
        }
        for _ in 0..60 {
            for (attacker, connection) in (ATTACKER..).zip(&mut connections) {
                connection.get(1).await;
                server.arrived(attacker, 1).await;
            }
        }
        for attacker in ATTACKER..ATTACKER + attackers {
            let held = waiting(&limiter, attacker);
            assert!(held == share || held == share + 1, "{attackers}: {held}");
        }
        assert!(finds_a_place(&limiter, &mut server, 10).await, "{attackers}");
    }
}

#[tokio::test]
async fn a_key_has_as_many_waiters_as_max_waiters_per_key() {
    for most in [0, 1, 7, PLACES, usize::MAX] {
        let limiter = limiter(&ManualClock::new(START));
        let mut server = by_client(&limiter, queue().max_waiters_per_key(most)).await;
        let mut attacker = Http2::connect(ATTACKER, server.address).await;
        attacker.get(PLACES + 3).await;
        server.arrived(ATTACKER, PLACES + 3).await;
        assert_eq!(waiting(&limiter, ATTACKER), most.min(PLACES));
        // If the queue is full, the queue refuses and not the bound of the key.
        let status = if most < PLACES { 429 } else { 503 };
        assert_eq!(server.answers(ATTACKER)[&status].len(), PLACES + 2 - most.min(PLACES));
    }
}

/// Without a key, no request counts as another client's.
#[tokio::test]
async fn requests_that_have_no_key_may_take_all_places() {
    for is_named in [false, true] {
        let limiter = limiter(&ManualClock::new(START));
        let layer = limiter.layer(&HOURLY);
        let layer = if is_named { layer.key(global().unless(|_| false)) } else { layer };
        let layer = layer.queue(queue());
        let app = Router::new().route("/", get(async || "ran").rate_limit(layer));
        let mut server = Watched::serve(app).await;
        let mut attacker = Http2::connect(ATTACKER, server.address).await;
        attacker.get(PLACES + 3).await;
        server.arrived(ATTACKER, PLACES + 3).await;
        assert_eq!(limiter.peek(&HOURLY).waiting(), PLACES);
        assert_eq!(server.answers(ATTACKER)[&503].len(), 2);
    }
}

/// With `missing_key_shared`, all clients that leave their key out have one key together.
#[tokio::test]
async fn clients_without_a_key_share_the_places_of_one_key() {
    let limiter = limiter(&ManualClock::new(START));
    let rule = Rule::new(&HOURLY).key(header("x-user")).missing_key_shared();
    let layer = limiter.layer(rule).queue(queue());
    let app = Router::new().route("/", get(async || "ran").rate_limit(layer));
    let mut server = Watched::serve(app).await;
    let mut attacker = Http2::connect(ATTACKER, server.address).await;
    attacker.get(PLACES + 3).await;
    server.arrived(ATTACKER, PLACES + 3).await;
    assert_eq!(limiter.peek(&HOURLY).waiting(), PLACES / 2);
    assert_eq!(server.answers(ATTACKER)[&429].len(), PLACES / 2 + 2);
}

// The counts, call by call. No server is needed: the service is called directly.

type Call = Pin<Box<ResponseFuture<Recorder, u64>>>;

fn call(service: &RateLimit<Recorder>, fields: &[(&str, &str)]) -> Call {
    let request = fields
        .iter()
        .fold(Request::builder(), |request, (name, value)| request.header(*name, *value));
    Box::pin(service.clone().call(request.body(0).unwrap()))
}

fn poll(call: &mut Call) -> Poll<Response<ResponseBody<()>>> {
    call.as_mut().poll(&mut Context::from_waker(Waker::noop())).map(Result::unwrap)
}

/// How many more requests of a key can wait now. They leave again.
fn free_places(service: &RateLimit<Recorder>, fields: &[(&str, &str)]) -> usize {
    let mut waiting = Vec::new();
    loop {
        let mut next = call(service, fields);
        if poll(&mut next).is_ready() {
            return waiting.len();
        }
        waiting.push(next);
    }
}

/// Holds no tokens, so that each request has to wait.
static EMPTY: Limit = Limit::new("empty", Quota::token_bucket(1, SECOND).capacity(0));
static ALSO: Limit = Limit::new("also", Quota::token_bucket(1, SECOND).capacity(0));

/// A tenant of many clients has the share of one tenant, and a client of many tenants the share of
/// one client.
#[tokio::test(start_paused = true)]
async fn each_key_of_several_rules_counts() {
    let limiter = paused();
    let service = limiter
        .layer(Rule::new(&EMPTY).key(header("x-tenant")))
        .and(Rule::new(&ALSO).key(header("x-user")))
        .queue(queue())
        .layer(Recorder::new());
    for [many, one] in [["x-user", "x-tenant"], ["x-tenant", "x-user"]] {
        let mut waiting = Vec::new();
        let names: Vec<_> = (0..PLACES).map(|number| number.to_string()).collect();
        for name in &names {
            let mut next = call(&service, &[(many, name), (one, "7")]);
            if poll(&mut next).is_pending() {
                waiting.push(next);
            }
        }
        assert_eq!(waiting.len(), PLACES / 2, "{one}");
        // A key of one rule is not that of another.
        assert_eq!(free_places(&service, &[(many, "7"), (one, "other")]), PLACES / 4, "{one}");
    }
}

/// A place stays taken until its request runs or is gone, whichever way it goes.
#[tokio::test(start_paused = true)]
async fn the_waiters_of_each_key_are_counted_exactly() {
    const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];
    let mut refused = BTreeMap::<u16, u32>::new();
    for seed in 0..times(40, 20) {
        let mut dice = Dice(seed);
        let most = (seed % 2 == 0).then_some(9);
        let queue = Queue::new(HOUR).max_waiters(20);
        let queue = most.map_or(queue, |most| queue.max_waiters_per_key(most));
        let layer = paused().layer(&EMPTY).key(header("x-user")).queue(queue);
        let service = layer.jitter(ms(seed % 3 * 200)).layer(Recorder::new());
        let mut waiting = Vec::<(usize, Call)>::new();
        for _ in 0..600 {
            match dice.below(20) {
                0..14 => {
                    let keys = 1 + dice.nth(&KEYS);
                    let key = dice.nth(&KEYS[..keys]);
                    let held = waiting.iter().filter(|(other, _)| *other == key).count();
                    let free = 20 - waiting.len();
                    let status = match most {
                        _ if free == 0 => 503,
                        Some(most) if held >= most => 429,
                        None if held >= free => 429,
                        _ => 0,
                    };
                    let mut next = call(&service, &[("x-user", KEYS[key])]);
                    match dice.below(4) {
                        // Gone before it was polled.
                        0 => continue,
                        _ => match poll(&mut next) {
                            Poll::Pending => {
                                assert_eq!(status, 0, "seed {seed}: {held} of {free}");
                                waiting.push((key, next));
                            }
                            Poll::Ready(response) => {
                                assert_eq!(response.status(), status, "seed {seed}: {held}");
                                *refused.entry(status).or_default() += 1;
                            }
                        },
                    }
                }
                14..17 if !waiting.is_empty() => drop(waiting.swap_remove(dice.nth(&waiting))),
                _ => {
                    advance(dice.time(SECOND)).await;
                    waiting.retain_mut(|(_, call)| poll(call).is_pending());
                }
            }
        }
        drop(waiting);
        assert_eq!(free_places(&service, &[("x-user", "a")]), most.unwrap_or(10), "seed {seed}");
    }
    assert!(refused[&429] > 300 && refused[&503] > 30, "{refused:?}");
}

/// In a store that answers later, a request can be dropped at each step from its call to its turn.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_at_any_step_frees_its_place() {
    let (store, limiter, _) = Late::new();
    let layer = limiter.layer(&EMPTY).key(header("x-user"));
    let service = layer.queue(Queue::new(HOUR).max_waiters(4)).layer(Recorder::new());
    let ask = || call(&service, &[("x-user", "alice")]);
    for step in 0..5 {
        let held = store.close();
        let mut gone = ask();
        let mut kept = Some(ask());
        if step > 0 {
            assert!(poll(&mut gone).is_pending(), "asked");
        }
        if step > 1 {
            held.let_go();
            settled().await;
            assert!(poll(&mut gone).is_pending(), "waiting");
        }
        if step > 2 {
            // Past the slots that earlier steps of this test may have spent.
            advance(60 * SECOND).await;
        }
        match step {
            4 => assert!(poll(&mut gone).is_ready(), "ran"),
            _ => drop(gone),
        }
        held.let_go();
        store.open();
        settled().await;
        kept.take();
        settled().await;
        assert_eq!(free_places(&service, &[("x-user", "alice")]), 2, "step {step}");
    }
}
