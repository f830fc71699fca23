//! Requests through a layer, around a service that answers at once.

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{Request, Response, StatusCode};
use http_body::Body as HttpBody;
use tollgate::fields::Dialect;
use tollgate::key::ClientIp;
use tollgate::{Limit, RateLimiter};
use tower::{Layer, Service};

use super::decisions::{at_once, measured, one_client, open_limit, replace, spent_limit};

/// How many requests are made before they are measured.
const AT_A_TIME: u32 = 4;

#[derive(Clone, Copy)]
pub struct Inner;

impl Service<Request<Body>> for Inner {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        drop(request);
        ready(Ok(Response::new(Body::empty())))
    }
}

fn requests(count: u32) -> Vec<Request<Body>> {
    let request = |_| {
        let mut request = Request::new(Body::empty());
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from((one_client(), 49_152))));
        request
    };
    (0..count).map(request).collect()
}

/// Answers these requests, reads every answer to its end and drops it.
pub fn drive<S, B>(mut service: S, wanted: StatusCode, times: u32)
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Debug,
    B: HttpBody,
{
    // Our layer looks closely at the first thousand requests for mistakes in the set-up.
    for request in requests(1_100) {
        answer(&mut service, request);
    }
    // Few are there at a time. The allocator merges what many of them free, which is its work and
    // not that of a request.
    for _ in 0..times / AT_A_TIME {
        measured(requests(AT_A_TIME), |request| assert_eq!(answer(&mut service, request), wanted));
    }
}

fn answer<S, B>(service: &mut S, request: Request<Body>) -> StatusCode
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Debug,
    B: HttpBody,
{
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

fn ours(limit: &'static Limit, dialect: Dialect, wanted: StatusCode, times: u32) {
    serve(&RateLimiter::in_memory(), limit, dialect, wanted, times);
}

fn serve(
    limiter: &RateLimiter,
    limit: &'static Limit,
    dialect: Dialect,
    wanted: StatusCode,
    times: u32,
) {
    let layer = limiter.layer(limit).key(ClientIp::peer()).dialects(dialect);
    drive(layer.layer(Inner), wanted, times);
}

pub fn bare(times: u32) {
    drive(Inner, StatusCode::OK, times);
}

pub fn plain(times: u32) {
    ours(open_limit(), Dialect::None, StatusCode::OK, times);
}

pub fn with_fields(times: u32) {
    ours(open_limit(), Dialect::default(), StatusCode::OK, times);
}

/// The numbers of another limiter are replaced.
pub fn another_replaced(times: u32) {
    replace(&RateLimiter::in_memory());
    plain(times);
}

pub fn replaced(times: u32) {
    let limiter = RateLimiter::in_memory();
    replace(&limiter);
    serve(&limiter, open_limit(), Dialect::None, StatusCode::OK, times);
}

pub fn with_fields_replaced(times: u32) {
    let limiter = RateLimiter::in_memory();
    replace(&limiter);
    serve(&limiter, open_limit(), Dialect::default(), StatusCode::OK, times);
}

pub fn refused(times: u32) {
    ours(spent_limit(), Dialect::default(), StatusCode::TOO_MANY_REQUESTS, times);
}
