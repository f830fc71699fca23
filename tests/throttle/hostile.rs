//! Costs that no limit was made for, limits that change while an item waits, and streams that move
//! between tasks.

use crate::{SPACED, timed};

use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::{FutureExt, SinkExt, Stream, StreamExt, stream};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tokio::time::Instant;
use tollgate::{DAY, HOUR, Limit, Quota, SECOND};

use tollgate_testing::queue::{lines, ms, paused, settled, tokens};

fn pend<S: Stream + Unpin>(stream: &mut S) {
    let polled = stream.poll_next_unpin(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "the item has to wait");
}

/// No cost panics, and none passes early: it is too large, or waits for longer than a test can.
#[tokio::test(start_paused = true)]
async fn the_largest_costs_are_refused_or_wait() {
    for quota in [
        Quota::token_bucket(1, DAY).capacity(0),
        Quota::token_bucket(1_000_000, SECOND).capacity(0),
        Quota::token_bucket(1_000_000, SECOND),
        Quota::token_bucket(64, SECOND).shards(8),
        Quota::fixed_window(10, DAY),
    ] {
        let limiter = paused();
        let limit = Limit::new("any", quota);
        for cost in [u64::MAX, u64::MAX - 1, 1 << 62, 1 << 53, 1 << 40] {
            let mut stream =
                limiter.throttle(&limit).stream(stream::iter([1])).cost_with(move |_| cost);
            match stream.next().now_or_never() {
                None => drop(stream),
                Some(item) => assert!(item.unwrap().unwrap_err().is_too_large(), "{quota} {cost}"),
            }
            let mut sink = limiter.throttle(&limit).sink(Vec::new()).cost_with(move |_: &u8| cost);
            sink.feed(1).now_or_never().unwrap().unwrap();
            let sent = sink.flush().now_or_never();
            assert!(
                sent.is_none_or(|sent| sent.unwrap_err().rate_limited().unwrap().is_too_large())
            );
            assert!(sink.get_ref().is_empty());
        }
        assert_eq!(lines(&limiter), 0, "what was dropped has left");
    }
}

/// A future that is moved to another task has to wake that one.
#[tokio::test(start_paused = true)]
async fn a_stream_that_was_polled_elsewhere_is_woken_where_it_is_now() {
    let limiter = paused();
    let limit = Limit::new("slow", Quota::token_bucket(1, SECOND).capacity(1).initial(0));
    let throttle = limiter.throttle(&limit);
    let mut first = throttle.stream(stream::iter([1])).cost_with(|_| 1_000);
    let mut moved = throttle.stream(stream::iter([2]));
    pend(&mut first);
    pend(&mut moved);
    let start = Instant::now();
    let moved = tokio::spawn(async move { (moved.next().await, start.elapsed()) });
    settled().await;
    // By a timer alone, it would come after 1,001 s.
    drop(first);
    let (item, at) = moved.await.unwrap();
    assert_eq!((item.unwrap().unwrap(), at), (2, SECOND));
}

/// A penalty delays the items that come after it. Those that wait were promised their turns.
#[tokio::test(start_paused = true)]
async fn a_limit_in_debt_or_blocked_delays_and_loses_nothing() {
    let limiter = paused();
    let limit = Limit::new("two", Quota::token_bucket(10, SECOND).capacity(2));
    limiter.penalize(&limit, 12).await.unwrap();
    assert_eq!(tokens(&limiter, &limit), -10.0);
    let seen = timed(limiter.throttle(&limit).stream(stream::iter(0..3))).await;
    let instants: Vec<_> = seen.iter().map(|(_, at)| *at).collect();
    assert_eq!(instants, [1_100, 1_200, 1_300].map(ms));

    limiter.block(&limit, HOUR).await.unwrap();
    let mut patient = limiter.throttle(&limit).stream(stream::iter([1]));
    let start = Instant::now();
    assert!(patient.next().await.unwrap().is_ok());
    assert!(start.elapsed() >= HOUR && start.elapsed() <= HOUR + SECOND);

    limiter.block(&limit, HOUR).await.unwrap();
    let bounded = limiter.throttle(&limit).max_wait(SECOND);
    let mut bounded = bounded.stream(stream::iter([1]));
    let error = bounded.next().now_or_never().unwrap().unwrap().unwrap_err();
    assert!(error.retry_after() >= Some(HOUR));
    // A reset while an item waits: the item keeps its place, and passes no later than promised.
    let mut waits = limiter.throttle(&limit).stream(stream::iter([1]));
    pend(&mut waits);
    limiter.reset(&limit).await.unwrap();
    let start = Instant::now();
    assert!(waits.next().await.unwrap().is_ok());
    assert!(start.elapsed() <= HOUR + SECOND);
    assert_eq!(lines(&limiter), 0);
}

/// A function whose answer changes is asked once for each item, so an item cannot get cheaper by
/// being polled again.
#[tokio::test(start_paused = true)]
async fn a_cost_that_changes_between_polls_is_that_of_the_first() {
    let mut cost = 5;
    let mut stream = paused().throttle(&SPACED).stream(stream::iter(1..=2)).cost_with(move |_| {
        cost -= 1;
        cost
    });
    for _ in 0..100 {
        pend(&mut stream);
    }
    let instants: Vec<_> = timed(stream).await.into_iter().map(|(_, at)| at).collect();
    assert_eq!(instants, [400, 700].map(ms));
}

/// The hint promised bytes that an ended body does not give.
#[tokio::test(start_paused = true)]
async fn a_body_that_has_ended_with_an_error_promises_no_bytes() {
    let limit = Limit::new("ten", Quota::token_bucket(10, SECOND).max_reserved(0));
    let mut body = paused().throttle(&limit).body(Full::new(Bytes::from_static(b"hello, world")));
    assert_eq!(body.size_hint().exact(), Some(12));
    while body.frame().await.unwrap().is_ok() {}
    assert!(body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(0));
    let polled = std::pin::Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(None)));
}
