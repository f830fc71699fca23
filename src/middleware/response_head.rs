//! The head of a response.

use http::{Extensions, HeaderMap, Response, StatusCode};

use crate::fields::{has_grpc_failed, status_of};

/// The head of a response, borrowed: everything but its body.
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
    /// If an inner layer of this crate has refused a gRPC request, it is the status that the
    /// refusal would have without gRPC, such as 429, and not the 200 that is sent. Otherwise,
    /// clients could change what an outer layer counts, by a content type of gRPC.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// Whether the request succeeded: the status is 200 to 299 or 101, and `grpc-status` is absent
    /// or 0.
    ///
    /// A redirect is no success. For a form that answers with 303 once it is done, ask for
    /// `status().is_redirection()` as well.
    ///
    /// 101 is the response that opens a WebSocket over HTTP/1.1; over HTTP/2, that is 200.
    ///
    /// A gRPC call that fails has HTTP status 200. The failure is in the field `grpc-status`: in
    /// the head if the call fails before its first message, as in `tonic` if a method returns an
    /// error. Later failures are in the trailers, so this method returns true for them.
    #[must_use]
    pub fn is_success(&self) -> bool {
        let is_upgrade = self.status == StatusCode::SWITCHING_PROTOCOLS;
        (is_upgrade || self.status.is_success()) && !has_grpc_failed(self.headers)
    }

    /// Whether the status is an error of the client: 400 to 499.
    #[must_use]
    pub fn is_client_error(&self) -> bool {
        self.status.is_client_error()
    }

    /// Whether the status is an error of the server: 500 to 599.
    #[must_use]
    pub fn is_server_error(&self) -> bool {
        self.status.is_server_error()
    }

    /// The header fields.
    #[must_use]
    pub const fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// The extensions, which the handler and inner layers have added.
    #[must_use]
    pub const fn extensions(&self) -> &'a Extensions {
        self.extensions
    }
}
