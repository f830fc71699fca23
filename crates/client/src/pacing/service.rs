//! The service: sends a request at once, or lets it wait in the line of its host.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tokio::time::Instant;
use tower_service::Service;

use super::ResponseFuture;
use super::future::PacedCall;
use super::hosts::Hosts;
use super::policy::later;
use super::settings::PacingSettings;
use tollgate::key::Head;

/// Paces the requests to `S`; made by [`PacingLayer`](super::PacingLayer).
#[derive(Clone, Debug)]
pub struct Pace<S> {
    inner: S,
    settings: Arc<PacingSettings>,
    hosts: Arc<Hosts>,
}

impl<S> Pace<S> {
    pub(super) const fn new(inner: S, settings: Arc<PacingSettings>, hosts: Arc<Hosts>) -> Self {
        Self { inner, settings, hosts }
    }

    /// The inner service.
    #[must_use]
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service, mutably.
    #[must_use]
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service.
    #[must_use]
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, B, R> Service<Request<B>> for Pace<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<S, B> {
        let settings = &self.settings;
        let head = Head::new(&request);
        let Some(key) = (settings.key)(&head) else {
            return ResponseFuture::sent(self.inner.call(request), None);
        };
        let host = self.hosts.get(&key, &head, settings);
        let now = Instant::now();
        match host.enter(now, settings) {
            Some(mut turn) => {
                turn.send();
                ResponseFuture::sent(self.inner.call(request), Some(turn))
            }
            None => {
                // A request that waits holds no ready service: the clone is made ready at its turn.
                // The service that `poll_ready` readied is dropped: it may hold the very slot that
                // this request needs then.
                self.inner = self.inner.clone();
                let deadline = later(now, settings.max_wait);
                let (place, service) = (host.wait(settings), self.inner.clone());
                ResponseFuture::waiting(PacedCall::new(service, request, place, deadline))
            }
        }
    }
}
