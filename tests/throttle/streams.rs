//! The pace of streams, their order, and what they hold.

use crate::{SPACED, timed};

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::stream::{self, FusedStream};
use futures_util::{FutureExt, Stream, StreamExt, TryStreamExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tollgate::throttle::{Throttle, ThrottleError, ThrottledStream};
use tollgate::{Limit, Quota, RateLimiter, SECOND};
use tollgate_testing::queue::{Late, lines, ms, paused, settled, tokens};

/// A source without end that counts how often it is polled.
fn counted() -> (Arc<AtomicU64>, impl Stream<Item = u64> + Unpin + Send + 'static) {
    let polls = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&polls);
    (polls, stream::poll_fn(move |_| Poll::Ready(Some(count.fetch_add(1, Ordering::Relaxed)))))
}

fn pend<S: Stream + Unpin>(stream: &mut S) {
    let polled = stream.poll_next_unpin(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "the item has to wait");
}

#[tokio::test(start_paused = true)]
async fn items_come_at_exactly_even_distances_and_in_their_order() {
    for a_second in [1_u32, 8, 50] {
        let quota = Quota::token_bucket(a_second.into(), SECOND).capacity(0);
        let stream = paused().throttle(&Limit::new("even", quota)).stream(stream::iter(1..=20_u32));
        let seen = timed(stream).await;
        assert_eq!(seen.len(), 20);
        for (number, (item, at)) in (1..).zip(seen) {
            assert_eq!((item.unwrap(), at), (number, number * SECOND / a_second));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_limit_has_saved_up_passes_at_once() {
    let limit = Limit::new("saved", Quota::token_bucket(10, SECOND).capacity(3));
    let seen = timed(paused().throttle(&limit).stream(stream::iter(0..6))).await;
    let instants: Vec<_> = seen.iter().map(|(_, at)| *at).collect();
    assert_eq!(instants, [ms(0), ms(0), ms(0), ms(100), ms(200), ms(300)]);
}

#[tokio::test(start_paused = true)]
async fn a_source_slower_than_the_limit_is_not_delayed() {
    let limit = Limit::new("slow", Quota::token_bucket(10, SECOND).capacity(1));
    let source = Box::pin(stream::iter(1..=5_u32).then(async |item| {
        sleep(ms(250)).await;
        item
    }));
    for (number, (item, at)) in (1..).zip(timed(paused().throttle(&limit).stream(source)).await) {
        assert_eq!((item.unwrap(), at), (number, ms(250) * number));
    }
}

#[tokio::test(start_paused = true)]
async fn while_an_item_waits_the_source_is_not_polled() {
    let (polls, source) = counted();
    let mut stream = paused().throttle(&SPACED).stream(source);
    for passed in 0..5 {
        for _ in 0..10 {
            pend(&mut stream);
            assert_eq!(polls.load(Ordering::Relaxed), passed + 1, "one item is held");
        }
        // A future of `next` that is dropped loses nothing.
        assert!(timeout(ms(50), stream.next()).await.is_err());
        assert_eq!(stream.next().await.unwrap().unwrap(), passed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_channel_in_front_of_the_throttle_fills_up() {
    let (sender, mut receiver) = mpsc::channel(3);
    let source = stream::poll_fn(move |cx| receiver.poll_recv(cx));
    let mut stream = paused().throttle(&SPACED).stream(source);
    let start = Instant::now();
    let sending = tokio::spawn(async move {
        let mut sent = Vec::new();
        for item in 0..7 {
            sender.send(item).await.unwrap();
            sent.push(start.elapsed());
        }
        sent
    });
    let mut seen = Vec::new();
    while let Some(item) = stream.next().await {
        seen.push((item.unwrap(), start.elapsed()));
    }
    let due = |nth: u32| ms(100) * (nth + 1);
    assert_eq!(seen, (0..7).map(|nth| (nth, due(nth))).collect::<Vec<_>>());
    // Three are in the channel and one is held: the fifth has to wait until the first has passed.
    let sent = sending.await.unwrap();
    assert_eq!(sent, [0, 0, 0, 0, 100, 200, 300].map(ms));
}

#[tokio::test(start_paused = true)]
async fn streams_of_one_key_share_its_pace_and_those_of_two_do_not() {
    let limiter = paused();
    let run = |key: &'static str| {
        let stream = limiter.throttle(&SPACED).key(key).stream(stream::iter(0..4));
        tokio::spawn(timed(stream))
    };
    let instants = |seen: Vec<(_, Duration)>| seen.iter().map(|(_, at)| *at).collect::<Vec<_>>();
    let (first, second, other) = (run("alice"), run("alice"), run("bob"));
    assert_eq!(instants(first.await.unwrap()), [100, 300, 500, 700].map(ms));
    assert_eq!(instants(second.await.unwrap()), [200, 400, 600, 800].map(ms));
    assert_eq!(instants(other.await.unwrap()), [100, 200, 300, 400].map(ms));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_gives_its_turn_to_the_next() {
    let limiter = paused();
    let limit = Limit::new("slow", Quota::token_bucket(1, SECOND).capacity(1).initial(0));
    let throttle = limiter.throttle(&limit);
    let mut gone = throttle.stream(stream::iter([1]));
    let mut next = throttle.stream(stream::iter([2]));
    let mut taken = throttle.stream(stream::iter([3]));
    pend(&mut gone);
    pend(&mut next);
    pend(&mut taken);
    assert_eq!(tokens(&limiter, &limit), -3.0);
    let start = Instant::now();
    drop(gone);
    assert_eq!(tokens(&limiter, &limit), -2.0, "given back");
    assert_eq!(next.next().await.unwrap().unwrap(), 2);
    assert_eq!(start.elapsed(), SECOND, "not 2 s: it has moved up");
    // To take a stream apart gives the turn back as well, and keeps the item.
    let (mut source, held) = taken.into_parts();
    assert_eq!((held, source.next().await), (Some(3), None));
    assert_eq!(tokens(&limiter, &limit), 0.0);
    assert_eq!(lines(&limiter), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_while_the_store_is_asked_gives_back() {
    let (store, limiter, memory) = Late::new();
    let held = store.close();
    let mut stream = limiter.throttle(&SPACED).stream(stream::iter([1]));
    pend(&mut stream);
    drop(stream);
    settled().await;
    assert_eq!(tokens(&memory, &SPACED), -1.0, "the store has not told yet what was reserved");
    held.let_go();
    settled().await;
    assert_eq!(tokens(&memory, &SPACED), 0.0, "undone");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_later_holds_the_same_pace() {
    let (_store, limiter, _) = Late::new();
    let seen = timed(limiter.throttle(&SPACED).stream(stream::iter(1..=4_u32))).await;
    for (number, (item, at)) in (1..).zip(seen) {
        assert_eq!((item.unwrap(), at), (number, ms(100) * number));
    }
}

#[tokio::test(start_paused = true)]
async fn items_cost_what_the_function_says_and_pass_at_once_for_nothing() {
    let limiter = paused();
    let items = ["abc", "", "de", "", "fghij"];
    let mut calls = 0;
    let stream = limiter.throttle(&SPACED).stream(stream::iter(items)).cost_with(move |item| {
        calls += 1;
        assert!(calls <= 5, "once for each item");
        item.len() as u64
    });
    let seen: Vec<_> =
        timed(stream).await.into_iter().map(|(item, at)| (item.unwrap(), at)).collect();
    let due = [ms(300), ms(300), ms(500), ms(500), ms(1_000)];
    assert_eq!(seen, items.into_iter().zip(due).collect::<Vec<_>>());
    // What costs nothing does not stand in line behind those that pay.
    let mut waits = limiter.throttle(&SPACED).stream(stream::iter([1]));
    pend(&mut waits);
    let mut free = limiter.throttle(&SPACED).stream(stream::iter([2])).cost_with(|_| 0);
    assert_eq!(free.next().now_or_never().flatten().unwrap().unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn errors_of_a_stream_pass_at_once_and_cost_nothing() {
    let source = stream::iter([Ok(1), Err("torn"), Err("worn"), Ok(22)]);
    let stream = paused().throttle(&SPACED).try_stream(source).cost_with(|item| item % 10);
    let seen = timed(stream).await;
    let shown: Vec<_> =
        seen.into_iter().map(|(item, at)| (item.map_err(ThrottleError::into_inner), at)).collect();
    let torn = |text| Err(Some(text));
    assert_eq!(
        shown,
        [(Ok(1), ms(100)), (torn("torn"), ms(100)), (torn("worn"), ms(100)), (Ok(22), ms(300))]
    );
}

#[tokio::test(start_paused = true)]
async fn the_hint_counts_the_item_that_is_held() {
    let mut stream = paused().throttle(&SPACED).stream(stream::iter(0..3));
    assert_eq!(stream.size_hint(), (1, Some(3)), "the first error would be the last item");
    pend(&mut stream);
    assert_eq!((stream.get_ref().size_hint().0, stream.size_hint()), (2, (1, Some(3))));
    let _item = stream.next().await.unwrap().unwrap();
    assert_eq!(stream.size_hint(), (1, Some(2)));
    let mut rest = pin!(stream.fuse());
    while rest.next().await.is_some() {}
    assert!(rest.is_terminated());
    let source = stream::iter([Ok::<_, ()>(1)]);
    let mut stream = paused().throttle(&SPACED).try_stream(source);
    pend(&mut stream);
    assert_eq!((stream.size_hint(), stream.try_next().await.unwrap()), ((1, Some(1)), Some(1)));
}

#[test]
fn a_throttle_is_kept_anywhere_and_its_streams_can_be_spawned() {
    type Items = stream::Iter<std::vec::IntoIter<Result<u8, ()>>>;
    const fn is_shared<T: Send + Sync + Clone + 'static>() {}
    const fn is_send_unpin<T: Send + Unpin + 'static>() {}
    is_shared::<Throttle>();
    is_send_unpin::<ThrottledStream<Items>>();
    is_send_unpin::<ThrottledStream<Items, ThrottleError<()>>>();
    let stream = RateLimiter::in_memory().throttle(&SPACED).stream(stream::iter([1]));
    let shown = format!("{stream:?}");
    assert!(shown.contains("ThrottledStream") && shown.contains("state: \"empty\""), "{shown}");
}
