//! Items that cannot pass: what the adapters answer, and that no item is lost.

use crate::{SPACED, timed};

use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, SinkExt, Stream, StreamExt, sink, stream};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, StreamBody};
use tollgate::throttle::{Throttle, ThrottleError};
use tollgate::{Limit, OnFailure, Quota, RateLimited, RateLimiter, SECOND};
use tollgate_testing::broken::Broken;
use tollgate_testing::queue::{ms, paused};

/// Two at once, and no waiting.
const IMPATIENT: Limit =
    Limit::new("impatient", Quota::token_bucket(10, SECOND).capacity(2).max_reserved(0));

/// Plays four items through each kind of adapter. The third one cannot pass, for this reason.
async fn ends_at_the_third(
    throttle: Throttle,
    cost: fn(u32) -> u64,
    is_it: fn(&RateLimited) -> bool,
) {
    let mut stream = throttle.stream(stream::iter(1..=4)).cost_with(move |item| cost(*item));
    assert_eq!(stream.next().await.unwrap().unwrap(), 1);
    assert_eq!(stream.next().await.unwrap().unwrap(), 2);
    let error = stream.next().await.unwrap().unwrap_err();
    assert!(is_it(&error), "{error:?}");
    for _ in 0..3 {
        assert_eq!(stream.size_hint(), (0, Some(0)));
        assert!(stream.next().await.is_none(), "it has ended");
    }
    let (rest, held) = stream.into_parts();
    assert_eq!((held, rest.collect::<Vec<_>>().await), (Some(3), vec![4]), "nothing is lost");
}

/// The same through a stream of results, and a sink; the bucket is as full as before.
async fn ends_others(throttle: &Throttle, cost: fn(u32) -> u64, is_it: fn(&RateLimited) -> bool) {
    let source = stream::iter([3, 4].map(Ok::<_, Infallible>));
    let mut stream = throttle.key_of("b").try_stream(source).cost_with(move |item| cost(*item));
    while let Some(item) = stream.next().await {
        let Err(error) = item else { continue };
        assert!(is_it(error.rate_limited().unwrap()), "{error:?}");
        assert!(is_it(RateLimited::find(&error).unwrap()));
        assert_eq!(error.to_string(), "the limit did not admit an item");
        assert!(stream.next().await.is_none(), "it has ended");
        break;
    }
    assert!(stream.into_parts().1.is_some());
    let mut sink = throttle.key_of("c").sink(Vec::new()).cost_with(move |item: &u32| cost(*item));
    let mut error = None;
    for item in [3, 4, 5] {
        error = sink.send(item).await.err();
        if error.is_some() {
            break;
        }
    }
    assert!(is_it(error.unwrap().rate_limited().unwrap()));
    // It stays so, it does not take another item, and it can be closed.
    let again = sink.send(6).await.unwrap_err();
    assert!(is_it(again.rate_limited().unwrap()));
    assert!(sink.flush().await.is_err());
    sink.close().await.unwrap();
    let (sent, held) = sink.into_parts();
    assert_eq!(held.into_iter().chain(sent).filter(|item| *item == 6).count(), 0);
}

trait WithKey {
    fn key_of(&self, key: &str) -> Throttle;
}

impl WithKey for Throttle {
    fn key_of(&self, key: &str) -> Throttle {
        self.clone().key(key)
    }
}

#[tokio::test(start_paused = true)]
async fn with_max_reserved_zero_the_first_item_that_would_wait_ends_it() {
    let throttle = paused().throttle(&IMPATIENT);
    let refused: fn(&RateLimited) -> bool =
        |error| error.is_refused() && error.retry_after() == Some(ms(100));
    ends_at_the_third(throttle.clone(), |_| 1, refused).await;
    ends_others(&throttle, |_| 2, |error| error.is_refused()).await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_above_max_wait_ends_it_at_once_and_one_below_does_not() {
    let limit = Limit::new("two", Quota::token_bucket(10, SECOND).capacity(2));
    let patient = paused().throttle(&limit).max_wait(ms(100));
    let seen = timed(patient.stream(stream::iter(0..5))).await;
    assert_eq!(seen.last().map(|(_, at)| *at), Some(ms(300)));
    assert!(seen.iter().all(|(item, _)| item.is_ok()));
    let throttle = paused().throttle(&limit).max_wait(ms(99));
    let start = tokio::time::Instant::now();
    ends_at_the_third(throttle.clone(), |_| 1, RateLimited::is_refused).await;
    ends_others(&throttle, |_| 2, RateLimited::is_refused).await;
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_item_that_can_never_fit_ends_it_and_is_told_apart() {
    let limit = Limit::new("small", Quota::token_bucket(10, SECOND).capacity(2).max_reserved(3));
    let throttle = paused().throttle(&limit);
    let cost: fn(u32) -> u64 = |item| if item == 3 { 6 } else { 1 };
    ends_at_the_third(throttle.clone(), cost, RateLimited::is_too_large).await;
    ends_others(&throttle, cost, RateLimited::is_too_large).await;
    // Five fit: two that are there, and three that are reserved.
    let mut stream = throttle.key_of("d").stream(stream::iter([5])).cost_with(|item| *item);
    assert_eq!(stream.next().await.unwrap().unwrap(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_ends_it_unless_told_otherwise() {
    for later in [false, true] {
        let limiter = RateLimiter::new(Broken { later });
        let throttle = limiter.throttle(&SPACED);
        let free_at_first: fn(u32) -> u64 = |item| u64::from(item == 3);
        ends_at_the_third(throttle.clone(), free_at_first, RateLimited::is_unavailable).await;
        ends_others(&throttle, free_at_first, RateLimited::is_outage).await;
        let mut body = throttle.body(Full::new(Bytes::from_static(b"secret")));
        let error = body.frame().await.unwrap().unwrap_err();
        assert!(error.rate_limited().unwrap().is_outage(), "no byte gets through");
        assert!(body.is_end_stream() && body.frame().await.is_none());

        let open = throttle.on_failure(OnFailure::Admit);
        let seen = timed(open.stream(stream::iter(0..100))).await;
        assert_eq!(seen.len(), 100);
        assert!(seen.iter().all(|(item, at)| item.is_ok() && at.is_zero()));
        let whole = open.body(Full::new(Bytes::from_static(b"public"))).collect().await.unwrap();
        assert_eq!(whole.to_bytes(), "public");
    }
}

/// Only an outage admits: what the limit can never grant stays out.
#[tokio::test(start_paused = true)]
async fn what_is_no_outage_is_not_admitted() {
    let limiter = paused();
    let throttle = limiter.throttle(&IMPATIENT).on_failure(OnFailure::Admit);
    ends_at_the_third(throttle.clone(), |_| 1, RateLimited::is_refused).await;
    let mut large = throttle.key_of("e").stream(stream::iter([3])).cost_with(|item| *item);
    assert!(large.next().await.unwrap().unwrap_err().is_too_large());
}

#[tokio::test(start_paused = true)]
async fn a_body_ends_with_the_error_after_the_bytes_that_were_paid() {
    let limit = Limit::new("ten", Quota::token_bucket(10, SECOND).max_reserved(0));
    let mut body = paused().throttle(&limit).body(Full::new(Bytes::from_static(b"hello, world")));
    let mut got = Vec::new();
    let error = loop {
        match body.frame().await.expect("an error comes before the end") {
            Ok(frame) => got.extend_from_slice(&frame.into_data().unwrap()),
            Err(error) => break error,
        }
    };
    assert_eq!(got, b"hello, wor");
    assert!(error.rate_limited().unwrap().is_refused());
    assert!(body.is_end_stream() && body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn errors_from_inside_are_passed_on_with_their_cause() {
    let torn = || std::io::Error::other("torn");
    let frames = stream::iter([Ok(Frame::data(Bytes::from_static(b"a"))), Err(torn())]);
    let mut body = paused().throttle(&SPACED).body(StreamBody::new(frames));
    assert!(body.frame().await.unwrap().is_ok());
    let error = body.frame().await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the throttled stream, sink or body failed");
    assert_eq!(error.source().unwrap().to_string(), "torn");
    assert!(RateLimited::find(&error).is_none() && error.rate_limited().is_none());

    let full = sink::unfold((), move |(), _: u32| async move { Err(torn()) });
    let mut sink = paused().throttle(&SPACED).sink(Box::pin(full));
    let error: ThrottleError<std::io::Error> = sink.send(1).await.unwrap_err();
    assert_eq!(error.into_inner().unwrap().to_string(), "torn");
}

/// A sink that was closed while its item could not pass would have closed as if all had gone out.
#[tokio::test(start_paused = true)]
async fn closing_a_sink_tells_that_its_item_has_not_gone_out() {
    let throttle = RateLimiter::new(Broken { later: false }).throttle(&SPACED);
    let mut sink = throttle.sink(Vec::new());
    sink.feed(1).now_or_never().unwrap().unwrap();
    assert!(sink.close().await.unwrap_err().rate_limited().is_some());
    sink.close().await.unwrap();
    assert_eq!(sink.into_parts(), (vec![], Some(1)));
}
