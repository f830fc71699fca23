//! What is seen of a response.

use http::{Extensions, HeaderMap, Response, StatusCode};

use crate::fields::{has_grpc_failed, status_of};

/// The head of a response, borrowed: all but its body.
///
/// # Examples
///
/// ```
/// use http::Response;
/// use tollgate::middleware::ResponseHead;
///
/// let response = Response::builder().status(204).header("x-cache", "hit").body(()).unwrap();
/// let head = ResponseHead::new(&response);
/// assert!(head.is_success() && head.headers().contains_key("x-cache"));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    status: StatusCode,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

impl<'a> ResponseHead<'a> {
    /// The head of a response.
    #[must_use]
    pub fn new<B>(response: &'a Response<B>) -> Self {
        let (headers, extensions) = (response.headers(), response.extensions());
        Self { status: status_of(response), headers, extensions }
    }

    /// The status.
    ///
    /// If an inner layer of this crate has refused the request in gRPC, it is 429 or the other status
    /// that the refusal has without gRPC, and not 200: a client of HTTP/2 chooses by its `Content-Type`
    /// whether it is refused in gRPC.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// Whether the status says that it has worked: 200 to 299, or 101, and no `grpc-status` but 0.
    ///
    /// 101 is the response of HTTP/1.1 to a WebSocket, whose response over HTTP/2 is 200.
    ///
    /// A gRPC call that fails is 200 for HTTP, and says so in `grpc-status`: in the head if it
    /// fails before its first message, as `tonic` does where a method returns an error. After that
    /// it is in the trailers, of which the head knows nothing.
    #[must_use]
    pub fn is_success(&self) -> bool {
        let is_upgrade = self.status == StatusCode::SWITCHING_PROTOCOLS;
        (is_upgrade || self.status.is_success()) && !has_grpc_failed(self.headers)
    }

    /// Whether the status says that the client is to blame: 400 to 499.
    #[must_use]
    pub fn is_client_error(&self) -> bool {
        self.status.is_client_error()
    }

    /// Whether the status says that the server is to blame: 500 to 599.
    #[must_use]
    pub fn is_server_error(&self) -> bool {
        self.status.is_server_error()
    }

    /// The header fields.
    #[must_use]
    pub const fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// What the handler and inner layers have added.
    #[must_use]
    pub const fn extensions(&self) -> &'a Extensions {
        self.extensions
    }
}
