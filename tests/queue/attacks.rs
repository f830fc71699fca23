//! Attacks on the queue of a layer, and what they do to the other clients.
//!
//! Servers and connections are real. The time of the store is injected and stands still unless a
//! test advances it, so no request gets its turn before that.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, Path};
use axum::routing::any;
use http::Method;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinHandle;
use tollgate::clock::ManualClock;
use tollgate::key::{ClientIp, Key};
use tollgate::middleware::Queue;
use tollgate::{DAY, HOUR, Limit, Quota, RateLimitLayer, RateLimiter, Rule};
use tollgate_testing::attack::{Frame, Frames, Guest, Http2, Watched, address, connect, frame};
use tollgate_testing::dice::Dice;
use tollgate_testing::web::Reply;
use tollgate_testing::{START, at_once, limiter};

/// One request an hour for all clients together: waiters have timers in real time, too, and a slow machine
/// must not reach them.
static SHARED: Limit = Limit::new("shared", Quota::token_bucket(1, HOUR));

/// One request an hour for each client, of which five may wait.
static PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(1, HOUR).max_reserved(5));

/// The same limit without that bound.
static PER_CLIENT_ALL: Limit = Limit::new("per-client", Quota::token_bucket(1, HOUR));

const PLACES: usize = 50;

const ATTACKER: u8 = 2;
const OTHER: u8 = 10;

fn queue() -> Queue {
    Queue::new(100 * DAY).max_waiters(PLACES)
}

/// A server behind this layer, and how often its handler has run.
async fn served(layer: impl Into<RateLimitLayer<Vec<Rule>>>) -> (Watched, Arc<AtomicUsize>) {
    let ran = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ran);
    let handler = async move || {
        count.fetch_add(1, Ordering::Relaxed);
    };
    let app = Router::new().route("/", any(handler)).layer(layer.into());
    (Watched::serve(app).await, ran)
}

/// Requests with bytes behind them that the server does not read before it has answered.
const UNREAD: [&[u8]; 2] = [
    b"GET / HTTP/1.1\r\nhost: test\r\n\r\nGET",
    b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\nh",
];

/// Sends a request on a connection of its own, and closes the connection.
async fn ask_and_close(server: &mut Watched, request: &[u8]) {
    let mut connection = connect(ATTACKER, server.address).await;
    connection.write_all(request).await.unwrap();
    drop(connection);
    server.arrived(ATTACKER, 1).await;
}

/// Opens this many connections, and closes them without the server noticing: it reads on only after
/// it has answered. No layer can notice either. A connection without unread bytes is seen to close.
async fn closes_unseen(server: &mut Watched, connections: usize, request: &[u8]) {
    for _ in 0..connections {
        ask_and_close(server, request).await;
    }
    // The server has seen by then what came before.
    ask_and_close(server, b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await;
}

/// Counts the waiters, which also grants those that are due.
fn look(limiter: &RateLimiter, limit: &Limit, client: Option<u8>) -> usize {
    let peek = limiter.peek(limit);
    client
        .map_or_else(|| peek.waiting(), |client| limiter.peek(limit).key(address(client)).waiting())
}

fn tokens(limiter: &RateLimiter, limit: &Limit, client: u8) -> f64 {
    at_once(limiter.peek(limit).key(address(client))).unwrap().tokens().to_f64()
}

/// A request of another client, which waits.
async fn other_waits(server: &mut Watched) -> JoinHandle<Reply> {
    let guest = Guest::new(OTHER, server.address);
    let asking = tokio::spawn(async move { guest.get().await });
    server.arrived(OTHER, 1).await;
    assert!(server.answers(OTHER).is_empty(), "it waits");
    asking
}

#[tokio::test]
async fn clients_that_are_gone_hold_a_queue_that_no_key_bounds() {
    for request in UNREAD {
        let clock = ManualClock::new(START);
        let limiter = limiter(&clock);
        let (mut server, ran) = served(limiter.layer(&SHARED).queue(queue())).await;
        closes_unseen(&mut server, PLACES + 1, request).await;
        assert_eq!(look(&limiter, &SHARED, None), PLACES, "all of them are gone");
        assert_eq!(Guest::new(OTHER, server.address).get().await.status, 503);
        // The handlers of the closed connections run all the same.
        let before = ran.load(Ordering::Relaxed);
        server.answers(ATTACKER);
        clock.advance(PLACES as u32 * HOUR);
        look(&limiter, &SHARED, None);
        server.answered(ATTACKER, PLACES).await;
        assert_eq!(ran.load(Ordering::Relaxed) - before, PLACES);
    }
}

/// What the guide advises: a second rule by client in the same layer.
#[tokio::test]
async fn beside_a_rule_by_client_the_others_get_through() {
    let per_client = Rule::new(&PER_CLIENT).key(ClientIp::peer());
    let bounded_by_share = Rule::new(&PER_CLIENT_ALL).key(ClientIp::peer());
    for (rule, held) in [(per_client, 5), (bounded_by_share, PLACES / 2)] {
        for request in UNREAD {
            let clock = ManualClock::new(START);
            let limiter = limiter(&clock);
            let layer = limiter.layer(rule.clone()).and(&SHARED).queue(queue());
            let (mut server, _) = served(layer).await;
            closes_unseen(&mut server, PLACES + 1, request).await;
            assert_eq!(look(&limiter, &SHARED, None), held);
            let asking = other_waits(&mut server).await;
            // Its turn is after those of the earlier requests.
            clock.advance(held as u32 * HOUR);
            look(&limiter, &SHARED, None);
            server.answered(ATTACKER, held).await;
            assert_eq!(look(&limiter, &SHARED, None), 1);
            clock.advance(HOUR);
            look(&limiter, &SHARED, None);
            assert_eq!(asking.await.unwrap().status, 200);
        }
    }
}

/// An HTTP/2 server reads frames all the time, so it sees the connection end.
#[tokio::test]
async fn clients_of_http_2_that_are_gone_give_up_their_places() {
    let limiter = limiter(&ManualClock::new(START));
    let (mut server, _) = served(limiter.layer(&SHARED).queue(queue())).await;
    let mut attacker = Http2::connect(ATTACKER, server.address).await;
    let streams: Vec<_> = (0..PLACES + 1).map(|_| attacker.stream()).collect();
    let ask = |frames: Frames, &stream: &u32| {
        frames.request(stream, &Method::POST).push(frame::DATA, 0, stream, b"not all of it")
    };
    attacker.send(streams.iter().fold(Frames::default(), ask)).await;
    server.arrived(ATTACKER, PLACES + 1).await;
    assert_eq!(look(&limiter, &SHARED, None), PLACES);
    drop(attacker);
    server.gone(ATTACKER, PLACES).await;
    assert_eq!(look(&limiter, &SHARED, None), 0);
}

/// All streams of a connection share the window of bytes that may be sent unread.
#[tokio::test]
async fn a_body_is_read_at_the_turn_of_its_request() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    let app = Router::new().route("/", any(async |body: Bytes| body.len().to_string()));
    let mut server = Watched::serve(app.layer(limiter.layer(&SHARED).queue(queue()))).await;
    let mut connection = Http2::connect(ATTACKER, server.address).await;
    connection.get(1).await;
    server.answered(ATTACKER, 1).await;
    let is_window = |frame: &Frame| frame.kind == frame::WINDOW_UPDATE && frame.stream == 0;
    connection.sync().await;
    let stream = connection.stream();
    connection.send(Frames::default().request(stream, &Method::POST)).await;
    // 1 MiB, which is what hyper lets a connection send.
    for last in (0..64_u8).rev() {
        let flags = if last == 0 { frame::END_STREAM } else { 0 };
        connection.send(Frames::default().push(frame::DATA, flags, stream, &[0; 1 << 14])).await;
    }
    server.arrived(ATTACKER, 1).await;
    let seen = connection.sync().await;
    assert_eq!(seen, [], "nothing was read");
    // Another connection has a window of its own.
    let mut other = Http2::connect(OTHER, server.address).await;
    let stream = other.stream();
    let body = Frames::default().request(stream, &Method::POST).push(
        frame::DATA,
        frame::END_STREAM,
        stream,
        b"body",
    );
    other.send(body).await;
    server.arrived(OTHER, 1).await;
    clock.advance(2 * HOUR);
    look(&limiter, &SHARED, None);
    connection.read_until(is_window).await;
    server.answered(OTHER, 1).await;
}

/// All streams that a connection may have open wait. The server resets those beyond.
#[tokio::test]
async fn a_connection_that_opens_as_many_streams_as_it_may_delays_no_other() {
    let limiter = limiter(&ManualClock::new(START));
    let queue = Queue::new(100 * DAY);
    let (mut server, _) =
        served(limiter.layer(&PER_CLIENT_ALL).key(ClientIp::peer()).queue(queue)).await;
    let mut attacker = Http2::connect(ATTACKER, server.address).await;
    attacker.get(1).await;
    server.answered(ATTACKER, 1).await;
    attacker.get(250).await;
    for _ in 0..50 {
        attacker.read_until(|frame| frame.kind == frame::RST_STREAM).await;
    }
    server.arrived(ATTACKER, 200).await;
    assert_eq!(look(&limiter, &PER_CLIENT_ALL, Some(ATTACKER)), 200);
    assert_eq!(Guest::new(OTHER, server.address).get().await.status, 200);
    drop(attacker);
    server.gone(ATTACKER, 200).await;
    assert_eq!(look(&limiter, &PER_CLIENT_ALL, Some(ATTACKER)), 0);
    assert_eq!(tokens(&limiter, &PER_CLIENT_ALL, ATTACKER), 0.0, "all were given back");
}

/// Whether the turn or the reset comes first, a token is either spent on a request that runs or
/// still in the bucket.
#[tokio::test]
async fn a_stream_that_is_reset_at_its_turn_loses_no_token() {
    static SAVED: Limit =
        Limit::new("saved", Quota::token_bucket(1, HOUR).capacity(1_000).initial(0));
    for seed in 0..10 {
        let (clock, mut dice) = (ManualClock::new(START), Dice(seed));
        let limiter = limiter(&clock);
        let layer = limiter.layer(&SAVED).key(ClientIp::peer()).queue(queue());
        let (mut server, ran) = served(layer).await;
        let mut attacker = Http2::connect(ATTACKER, server.address).await;
        let (mut open, mut hours) = (Vec::new(), 0);
        for _ in 0..40 {
            open.extend(attacker.get(3).await);
            server.arrived(ATTACKER, 3).await;
            let due = dice.below(4) as u32;
            let gone: Vec<_> = open.drain(..dice.nth(&open).min(4)).collect();
            let order = dice.below(3);
            if order == 0 {
                attacker.reset(&gone).await;
            }
            if order == 1 {
                attacker.reset(&gone).await;
                attacker.sync().await;
            }
            clock.advance(due * HOUR);
            hours += u64::from(due);
            look(&limiter, &SAVED, Some(ATTACKER));
            if order == 2 {
                attacker.reset(&gone).await;
            }
            attacker.sync().await;
        }
        attacker.reset(&open).await;
        while look(&limiter, &SAVED, Some(ATTACKER)) > 0 {
            attacker.sync().await;
        }
        drop(attacker);
        let ran = ran.load(Ordering::Relaxed) as f64;
        assert_eq!(tokens(&limiter, &SAVED, ATTACKER) + ran, hours as f64, "seed {seed}");
    }
}

/// HTTP/2 streams that come and go, and HTTP/1 connections that are closed unseen, while the server
/// shuts down.
#[tokio::test]
async fn a_drain_answers_all_waiters_in_a_flood_of_requests_that_come_and_go() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    let (mut server, ran) = served(limiter.layer(&SHARED).queue(queue())).await;
    let mut attacker = Http2::connect(ATTACKER, server.address).await;
    let mut open = attacker.get(20).await;
    server.arrived(ATTACKER, 20).await;
    for request in UNREAD {
        for _ in 0..5 {
            ask_and_close(&mut server, request).await;
        }
    }
    let asking = other_waits(&mut server).await;
    assert_eq!(look(&limiter, &SHARED, None), 30);
    // The turns of five waiters come within that time.
    limiter.drain(5 * HOUR);
    for _ in 0..20 {
        let gone: Vec<_> = open.drain(..10).collect();
        attacker.reset(&gone).await;
        open.extend(attacker.get(10).await);
        server.arrived(ATTACKER, 10).await;
    }
    assert_eq!(asking.await.unwrap().status, 503);
    attacker.sync().await;
    assert!(look(&limiter, &SHARED, None) <= 5);
    clock.advance(5 * HOUR);
    while look(&limiter, &SHARED, None) > 0 {
        attacker.sync().await;
    }
    assert!(ran.load(Ordering::Relaxed) <= 6);
    assert!(
        server.answers(ATTACKER)[&503].len() >= 25,
        "the waiters with turns after the end of the drain"
    );
}

/// A client with requests that change the very bucket that its other requests wait for.
#[tokio::test]
async fn a_client_that_resets_and_blocks_itself_moves_no_other_client() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    let layer = limiter.layer(&PER_CLIENT_ALL).key(ClientIp::peer()).queue(queue());
    let own = limiter.clone();
    let change = async move |ConnectInfo(peer): ConnectInfo<SocketAddr>,
                             Path(what): Path<String>| {
        let key = Key::from(peer.ip());
        match &*what {
            "reset" => own.reset(&PER_CLIENT_ALL).key(key).await.unwrap(),
            "block" => drop(own.block(&PER_CLIENT_ALL, HOUR).key(key).await.unwrap()),
            _ => drop(own.penalize(&PER_CLIENT_ALL, 1).key(key).await.unwrap()),
        }
    };
    let ran = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ran);
    let handler = async move || {
        count.fetch_add(1, Ordering::Relaxed);
    };
    let app = Router::new().route("/", any(handler)).layer(layer).route("/{what}", any(change));
    let mut server = Watched::serve(app).await;
    let mut attacker = Http2::connect(ATTACKER, server.address).await;
    let guest = Guest::new(OTHER, server.address);
    assert_eq!(guest.get().await.status, 200);
    server.arrived(OTHER, 1).await;
    server.answers(OTHER);
    attacker.get(10).await;
    server.arrived(ATTACKER, 10).await;
    let asking = other_waits(&mut server).await;
    let changes = Guest::new(ATTACKER, server.address);
    for _ in 0..5 {
        for what in ["block", "penalize", "reset", "block", "block", "penalize"] {
            changes.get_path(&format!("/{what}")).await;
            attacker.get(1).await;
        }
    }
    assert_eq!(look(&limiter, &PER_CLIENT_ALL, Some(OTHER)), 1, "not before its turn");
    clock.advance(HOUR);
    look(&limiter, &PER_CLIENT_ALL, Some(OTHER));
    assert_eq!(asking.await.unwrap().status, 200, "at its turn");
}
