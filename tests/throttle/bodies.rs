//! The pace of bodies: frames, pieces, trailers and sizes.

use std::convert::Infallible;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::HeaderMap;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use tokio::time::Instant;
use tollgate::throttle::ThrottledBody;
use tollgate::{DAY, Limit, Quota, SECOND};
use tollgate_testing::queue::{ms, paused, tokens};

/// A byte each millisecond; a piece is 50 bytes.
const BYTES: Limit = Limit::new("bytes", Quota::token_bucket(1_000, SECOND).capacity(0));

fn numbered(from: usize, count: usize) -> Bytes {
    (from..from + count).map(|number| (number % 251) as u8).collect()
}

/// Reads a body to its end: its bytes, the size and instant of each frame, and its trailers.
async fn read<B>(mut body: B) -> (Bytes, Vec<(usize, Duration)>, Option<HeaderMap>)
where
    B: Body<Data = Bytes, Error: std::fmt::Debug> + Unpin,
{
    let start = Instant::now();
    let (mut bytes, mut frames, mut trailers) = (BytesMut::new(), Vec::new(), None);
    while let Some(frame) = body.frame().await {
        match frame.unwrap().into_data() {
            Ok(data) => {
                frames.push((data.len(), start.elapsed()));
                bytes.extend_from_slice(&data);
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    assert!(body.is_end_stream() || trailers.is_some());
    (bytes.freeze(), frames, trailers)
}

#[tokio::test(start_paused = true)]
async fn a_large_frame_is_split_and_flows_evenly() {
    let data = numbered(0, 1_020);
    let body = paused().throttle(&BYTES).body(Full::new(data.clone()));
    let (bytes, frames, _) = read(body).await;
    assert_eq!(bytes, data);
    let mut even: Vec<_> = (1..=20).map(|nth| (50, ms(50 * nth))).collect();
    even.push((20, ms(1_020)));
    assert_eq!(frames, even);
}

#[tokio::test(start_paused = true)]
async fn small_frames_stay_whole_and_trailers_pass() {
    let mut trailers = HeaderMap::new();
    trailers.insert("checksum", http::HeaderValue::from_static("42"));
    let frames = [
        Frame::data(numbered(0, 30)),
        Frame::data(Bytes::new()),
        Frame::data(numbered(30, 120)),
        Frame::trailers(trailers.clone()),
    ];
    let inner = StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>)));
    let (bytes, frames, seen) = read(paused().throttle(&BYTES).body(inner)).await;
    assert_eq!(bytes, numbered(0, 150));
    let due = [(30, ms(30)), (0, ms(30)), (50, ms(80)), (50, ms(130)), (20, ms(150))];
    assert_eq!((frames, seen), (due.to_vec(), Some(trailers)));
}

/// A piece that was cut by other numbers might cost more than the limit can ever grant.
#[tokio::test(start_paused = true)]
async fn pieces_are_cut_by_the_numbers_in_force() {
    let limiter = paused();
    let mut begun = limiter.throttle(&BYTES).body(Full::new(numbered(0, 120)));
    let first = begun.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first.len(), 50);
    let slow = Quota::token_bucket(100, SECOND).capacity(10).max_reserved(20);
    limiter.replace(&BYTES, slow).unwrap();
    let later = limiter.throttle(&BYTES).body(Full::new(numbered(50, 70)));
    for body in [begun, later] {
        let (bytes, frames, _) = read(body).await;
        assert_eq!(bytes, numbered(50, 70));
        assert!(frames.iter().all(|(size, _)| *size == 5), "what comes in 50 ms: {frames:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn sizes_and_ends_are_those_of_what_is_left() {
    let mut body = paused().throttle(&BYTES).body(Full::new(numbered(0, 120)));
    for left in [120, 70, 20] {
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(left), false));
        // The inner body has nothing left after its first frame, and the outer one waits.
        let waiting = tokio::time::timeout(ms(10), body.frame()).await;
        assert!(waiting.is_err());
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(left), false));
        assert!(body.get_ref().is_end_stream());
        let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(piece.len() as u64, left.min(50));
    }
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
    assert!(body.frame().await.is_none());
    let empty = paused().throttle(&BYTES).body(Empty::<Bytes>::new());
    assert!(empty.is_end_stream() && empty.size_hint().exact() == Some(0));
}

#[tokio::test(start_paused = true)]
async fn what_the_limit_has_saved_up_comes_at_once_and_the_rest_evenly() {
    let limit = Limit::new("saved", Quota::token_bucket(1_000, SECOND).capacity(200));
    let (bytes, frames, _) =
        read(paused().throttle(&limit).body(Full::new(numbered(0, 400)))).await;
    assert_eq!(bytes, numbered(0, 400));
    let instants: Vec<_> = frames.iter().map(|(_, at)| *at).collect();
    assert_eq!(instants, [0, 0, 0, 0, 50, 100, 150, 200].map(ms));
}

#[tokio::test(start_paused = true)]
async fn bodies_of_one_key_share_the_bytes() {
    let limiter = paused();
    let run = |key: &'static str| {
        let body = limiter.throttle(&BYTES).key(key).body(Full::new(numbered(0, 500)));
        tokio::spawn(read(body))
    };
    let (first, second, other) = (run("alice"), run("alice"), run("bob"));
    let last = |frames: Vec<(usize, Duration)>| frames.last().unwrap().1;
    assert_eq!(last(first.await.unwrap().1), ms(950));
    assert_eq!(last(second.await.unwrap().1), SECOND);
    assert_eq!(last(other.await.unwrap().1), ms(500));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_dropped_gives_its_turn_back() {
    let limiter = paused();
    let mut body: ThrottledBody<_> = limiter.throttle(&BYTES).body(Full::new(numbered(0, 500)));
    assert!(tokio::time::timeout(ms(20), body.frame()).await.is_err());
    assert_eq!(tokens(&limiter, &BYTES), -30.0);
    drop(body);
    assert_eq!(tokens(&limiter, &BYTES), 0.0);
}

/// A limit of a day gains some 50 bytes in 50 ms. In such pieces, a megabyte that it had saved up
/// took 17,544 calls to the store, each of which is a round trip with Redis.
#[tokio::test(start_paused = true)]
async fn what_a_limit_of_a_day_has_saved_up_does_not_come_in_crumbs() {
    let limit = Limit::new("a day", Quota::token_bucket(100_000_000, DAY));
    let data = numbered(0, 1_000_000);
    let (bytes, frames, _) = read(paused().throttle(&limit).body(Full::new(data.clone()))).await;
    assert_eq!(bytes, data);
    assert!(frames.len() < 100 && frames.iter().all(|(_, at)| at.is_zero()), "{}", frames.len());
    // What has to wait still comes every 10 s.
    let limit = Limit::new("a day", Quota::token_bucket(100_000_000, DAY).initial(0));
    let (_, frames, _) = read(paused().throttle(&limit).body(Full::new(data))).await;
    let mut last = Duration::ZERO;
    for (_, at) in frames {
        assert!(at - last <= 10 * SECOND, "{at:?} after {last:?}");
        last = at;
    }
}

/// Both ended with an error, though smaller pieces would have met the bound.
#[tokio::test(start_paused = true)]
async fn a_piece_fits_the_bounds_of_its_limit_and_of_its_wait() {
    let reserving = Quota::token_bucket(1_000_000, SECOND).max_reserved(10_000);
    let daily = Quota::token_bucket(100_000_000, DAY).capacity(10_000);
    for (quota, max_wait, bytes) in
        [(reserving, Duration::MAX, 1_500_000), (daily, Duration::from_secs(5), 50_000)]
    {
        let limit = Limit::new("bytes", quota);
        let throttle = paused().throttle(&limit).max_wait(max_wait);
        let (read, ..) = read(throttle.body(Full::new(numbered(0, bytes)))).await;
        assert_eq!(read.len(), bytes, "{quota}");
    }
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn a_download_within_a_small_debt_arrives_whole() {
    use axum::routing::get;
    use tollgate_testing::web::{get as fetch, serve};
    let quota = Quota::token_bucket(1_000_000, SECOND).capacity(20_000).max_reserved(10_000);
    let throttle = tollgate::RateLimiter::in_memory().throttle(&Limit::new("bytes", quota));
    let download = async move || {
        axum::body::Body::new(throttle.body(axum::body::Body::from("x".repeat(100_000))))
    };
    let server = serve(axum::Router::new().route("/", get(download))).await;
    assert_eq!(fetch(server, "/").await.body.len(), 100_000);
}

/// reqwest takes no other bodies.
#[test]
fn adapters_are_sync() {
    fn sync<T: Send + Sync>(value: T) -> T {
        value
    }
    let throttle = tollgate::RateLimiter::in_memory().throttle(&BYTES);
    drop(sync(throttle.body(Full::new(Bytes::new()))));
    drop(sync(throttle.stream(stream::iter([1_u8])).cost_with(|byte| u64::from(*byte))));
    drop(sync(throttle.try_stream(stream::iter([Ok::<_, ()>(1_u8)])).cost_with(|_| 2)));
}
