//! Reads on what a client still sends after its request was answered early.
//!
//! # Design
//!
//! A server of HTTP/1 closes the connection if it has answered a request and nobody reads the rest of
//! it. Bytes that arrive after that make the system of the server send a reset, which destroys the
//! response: a client that writes all before it reads sees a broken pipe, and never learns that it was
//! refused (RFC 9112, section 9.6). So a task reads the rest and throws it away, while the response is
//! on its way. HTTP/2 tells the client by itself, and a client that waits for `100 Continue` sends
//! nothing: to read would invite it.
//!
//! Clients must not use this to keep a server busy. So there are bounds on the bytes, on the time and
//! on how many requests are read at once; beyond them, a connection is closed as before.

use std::any::Any;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use http::Request;
use http::{Method, Version, header::EXPECT};
use http_body::Body as _;

use super::plan::Plan;
use super::settings::ReadOn;

/// Reads on what the client still sends of this request, in a task.
///
/// Only the bodies of axum are read, as others may be of any type.
#[inline]
pub(super) fn read_on<B: 'static>(plan: &Arc<Plan>, request: Request<B>) {
    let mut request = Some(request);
    let any: &mut dyn Any = &mut request;
    let request = any.downcast_mut::<Option<Request<Body>>>().and_then(Option::take);
    if let Some(request) = request {
        begin(plan, request);
    }
}

#[cold]
#[inline(never)]
fn begin(plan: &Arc<Plan>, request: Request<Body>) {
    let ReadOn { bytes, time, at_once } = plan.settings.read_on;
    let (head, body) = request.into_parts();
    let tells_itself = head.version >= Version::HTTP_2 || head.headers.contains_key(EXPECT);
    if tells_itself || head.method == Method::HEAD || body.is_end_stream() {
        return;
    }
    // What cannot be read whole need not be read at all.
    if time.is_zero() || body.size_hint().lower() > bytes || bytes == 0 {
        return;
    }
    let place = Arc::clone(&plan.read_on);
    // This clone counts. So more requests are never read at once, whatever the threads that compare.
    if Arc::strong_count(&place) > at_once.saturating_add(1) {
        return;
    }
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move {
            let _ = tokio::time::timeout(time, discard(body, bytes)).await;
            drop(place);
        });
    }
}

/// Reads a body to its end, or until it has more than so many bytes.
async fn discard(mut body: Body, bytes: u64) {
    let mut left = bytes;
    while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let len = frame.data_ref().map_or(0, |data| data.len());
        match left.checked_sub(u64::try_from(len).unwrap_or(u64::MAX)) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}
