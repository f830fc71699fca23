//! The service that all layers are around, and the requests it gets.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::{Ipv4Addr, SocketAddr};
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{Extensions, Request, Response};
use tower::Service;

/// Answers at once, with nothing.
#[derive(Clone, Copy, Debug)]
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

/// Says in a request's extensions where it comes from, as a server does.
pub type Extend = fn(&mut Extensions, SocketAddr);

pub fn connect_info(extensions: &mut Extensions, client: SocketAddr) {
    extensions.insert(ConnectInfo(client));
}

/// As axum 0.7 does.
pub fn connect_info_07(extensions: &mut Extensions, client: SocketAddr) {
    extensions.insert(axum07::extract::ConnectInfo(client));
}

/// Requests from these clients by turns, made outside of what is timed.
pub struct Requests<'a> {
    clients: &'a [Ipv4Addr],
    extend: Extend,
    next: usize,
}

impl<'a> Requests<'a> {
    pub fn from(clients: &'a [Ipv4Addr], extend: Extend) -> Self {
        Self { clients, extend, next: 0 }
    }

    pub fn take(&mut self, count: usize) -> Vec<Request<Body>> {
        let request = |_| {
            let client = self.clients[self.next % self.clients.len()];
            self.next += 1;
            let mut request = Request::new(Body::empty());
            (self.extend)(request.extensions_mut(), (client, 49_152).into());
            request
        };
        (0..count).map(request).collect()
    }
}
