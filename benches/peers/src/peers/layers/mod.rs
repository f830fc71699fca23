//! The layers of the contenders, all around the same service, all keyed by the client's address.

mod inner;
mod ours;
mod theirs;

use std::fmt::Debug;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use axum::body::Body;
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use tower::Service;

pub use self::inner::{Extend, Inner, Requests, connect_info, connect_info_07};
pub use self::ours::{ours, ours_layer};
pub use self::theirs::{
    axum_gcra, axum_governor, throttle_kit, tower_governor, tower_governor_headers,
    tower_rate_limit,
};

use super::at_once;

/// A service with a layer around it, or none.
pub trait Layered:
    Service<Request<Body>, Response = Response<Self::Answer>, Error = Self::Failure>
{
    type Answer: http_body::Body;
    type Failure: Debug;
}

impl<S, B> Layered for S
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Debug,
    B: http_body::Body,
{
    type Answer = B;
    type Failure = S::Error;
}

/// Lets a service answer these requests, reads every answer to its end and drops it; returns the
/// time of all. A profiler finds what is measured by this name.
///
/// # Panics
///
/// If an answer has not the status that is wanted, as what is measured would be something else.
#[inline(never)]
pub fn drive<S: Layered>(
    service: &mut S,
    requests: Vec<Request<Body>>,
    wanted: StatusCode,
) -> Duration {
    let start = Instant::now();
    for request in requests {
        let status = answer(service, request);
        assert_eq!(black_box(status), wanted);
    }
    start.elapsed()
}

/// The status of one request, its body read to the end.
pub fn answer<S: Layered>(service: &mut S, request: Request<Body>) -> StatusCode {
    let mut cx = Context::from_waker(Waker::noop());
    assert!(matches!(service.poll_ready(&mut cx), Poll::Ready(Ok(()))), "nothing is to wait for");
    let response = at_once(service.call(request)).expect("no service fails");
    let status = response.status();
    let mut body = pin!(response.into_body());
    while let Poll::Ready(Some(frame)) = body.as_mut().poll_frame(&mut cx) {
        black_box(frame.is_ok());
    }
    status
}
