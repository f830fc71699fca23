//! The pace of sinks, and the one item that they hold.

use crate::SPACED;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{FutureExt, Sink, SinkExt, StreamExt, sink, stream};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tollgate::throttle::ThrottledSink;
use tollgate::{Limit, Quota, RateLimiter, SECOND};
use tollgate_testing::queue::{lines, ms, paused, tokens};

type Seen = Arc<Mutex<Vec<(u32, Duration)>>>;

/// A sink that lists what it gets, and when.
fn recorder() -> (Seen, impl Sink<u32, Error = Infallible> + Unpin) {
    let (seen, start) = (Seen::default(), Instant::now());
    let list = Arc::clone(&seen);
    let sink = sink::unfold((), move |(), item| {
        list.lock().unwrap().push((item, start.elapsed()));
        async { Ok(()) }
    });
    (seen, Box::pin(sink))
}

#[tokio::test(start_paused = true)]
async fn items_go_out_at_exactly_even_distances_and_in_their_order() {
    let (seen, inner) = recorder();
    let mut sink = paused().throttle(&SPACED).sink(inner);
    let start = Instant::now();
    for item in 1..=5 {
        sink.send(item).await.unwrap();
        assert_eq!(start.elapsed(), ms(100) * item, "`send` completes when the item has gone out");
    }
    sink.send_all(&mut stream::iter(6..=10).map(Ok)).await.unwrap();
    sink.close().await.unwrap();
    let even: Vec<_> = (1..=10).map(|item| (item, ms(100) * item)).collect();
    assert_eq!(*seen.lock().unwrap(), even);
}

#[tokio::test(start_paused = true)]
async fn items_cost_what_the_function_says() {
    let (seen, inner) = recorder();
    let mut sink = paused().throttle(&SPACED).sink(inner).cost_with(|item: &u32| u64::from(*item));
    for item in [3, 0, 2] {
        sink.feed(item).await.unwrap();
    }
    sink.flush().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [(3, ms(300)), (0, ms(300)), (2, ms(500))]);
}

#[tokio::test(start_paused = true)]
async fn one_item_is_held_and_the_next_is_not_taken() {
    let (seen, inner) = recorder();
    let mut sink = paused().throttle(&SPACED).sink(inner);
    // Taken in, and waiting.
    sink.feed(1).now_or_never().unwrap().unwrap();
    for _ in 0..10 {
        assert!(sink.feed(2).now_or_never().is_none(), "there is no place for a second item");
    }
    assert_eq!(seen.lock().unwrap().len(), 0);
    // A future of `send` that is dropped before it could hand its item over has not sent it.
    assert!(timeout(ms(50), sink.send(3)).await.is_err());
    sink.close().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [(1, ms(100))]);
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_is_full_holds_its_item_at_its_turn() {
    let (sender, mut receiver) = mpsc::channel::<u32>(1);
    let inner = Box::pin(sink::unfold(sender, |sender, item| async move {
        sender.send(item).await.map(|()| sender)
    }));
    let mut sink = paused().throttle(&SPACED).sink(inner);
    let sending = async {
        for item in 1..=4 {
            sink.send(item).await.unwrap();
        }
        sink.close().await.unwrap();
    };
    let receiving = async {
        tokio::time::sleep(SECOND).await;
        let mut got = Vec::new();
        while got.len() < 4 {
            got.push(receiver.recv().await.unwrap());
        }
        got
    };
    let ((), got) = tokio::join!(sending, receiving);
    assert_eq!(got, [1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_is_dropped_gives_its_turn_back() {
    let limiter = paused();
    let limit = Limit::new("slow", Quota::token_bucket(1, SECOND).capacity(1).initial(0));
    let waiting = |item| {
        let mut sink = limiter.throttle(&limit).sink(Vec::new());
        sink.feed(item).now_or_never().unwrap().unwrap();
        assert!(sink.flush().now_or_never().is_none());
        sink
    };
    let (gone, mut next, taken) = (waiting(1), waiting(2), waiting(3));
    let start = Instant::now();
    assert_eq!(tokens(&limiter, &limit), -3.0);
    drop(gone);
    assert_eq!(taken.into_parts(), (vec![], Some(3)));
    next.flush().await.unwrap();
    assert_eq!((start.elapsed(), next.get_ref()), (SECOND, &vec![2]));
    assert_eq!((tokens(&limiter, &limit), lines(&limiter)), (0.0, 0));
}

#[tokio::test]
#[should_panic(expected = "`start_send` needs a `poll_ready` that was ready")]
async fn start_send_without_poll_ready_panics() {
    let throttle = RateLimiter::in_memory().throttle(&SPACED);
    let mut sink: ThrottledSink<Vec<u32>, u32> = throttle.sink(Vec::new());
    sink.start_send_unpin(1).unwrap();
    drop(sink.start_send_unpin(2));
}

/// A sink that sends nothing before it is flushed, as a framed connection does.
#[derive(Default)]
struct Buffering {
    buffer: Vec<u32>,
    sent: Seen,
    start: Option<Instant>,
}

impl Sink<u32> for Buffering {
    type Error = Infallible;

    fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn start_send(mut self: Pin<&mut Self>, item: u32) -> Result<(), Infallible> {
        self.start.get_or_insert_with(Instant::now);
        self.buffer.push(item);
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        let Self { buffer, sent, start } = &mut *self;
        let elapsed = start.map_or(Duration::ZERO, |start| start.elapsed());
        sent.lock().unwrap().extend(buffer.drain(..).map(|item| (item, elapsed)));
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.poll_flush(cx)
    }
}

/// `forward` flushes only when its stream has nothing ready. Items that had passed stayed in the
/// buffer of a connection while the next one waited, and all came together at the end.
#[tokio::test(start_paused = true)]
async fn what_has_passed_is_flushed_while_the_next_item_waits() {
    let sent = Seen::default();
    let inner = Buffering { sent: Arc::clone(&sent), ..Buffering::default() };
    let sink = paused().throttle(&SPACED).sink(inner);
    stream::iter(1..=5).map(Ok).forward(sink).await.unwrap();
    // Counted from the first item, which has waited for 100 ms.
    let even: Vec<_> = (1..=5).map(|item| (item, ms(100) * (item - 1))).collect();
    assert_eq!(*sent.lock().unwrap(), even);
}
