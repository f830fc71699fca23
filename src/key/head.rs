//! The head of a request, which extractors read.

use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Uri, Version};

/// The head of a request, borrowed: everything but its body.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    method: &'a Method,
    uri: &'a Uri,
    version: Version,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

impl<'a> Head<'a> {
    /// The head of a request.
    #[must_use]
    pub fn new<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    /// The method.
    #[must_use]
    pub const fn method(&self) -> &'a Method {
        self.method
    }

    /// The target of the request.
    #[must_use]
    pub const fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// The version of HTTP.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// The header fields.
    #[must_use]
    pub const fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// The extensions, which outer layers have added.
    #[must_use]
    pub const fn extensions(&self) -> &'a Extensions {
        self.extensions
    }
}

impl<'a> From<&'a Parts> for Head<'a> {
    fn from(parts: &'a Parts) -> Self {
        Self {
            method: &parts.method,
            uri: &parts.uri,
            version: parts.version,
            headers: &parts.headers,
            extensions: &parts.extensions,
        }
    }
}

/// Trims spaces and tabs, which are not part of the value (RFC 9110, section 5.5).
///
/// Parsers of HTTP/1 strip them. HTTP/2 forbids them (RFC 9113, section 8.2.1), but `h2` passes
/// them on. Without trimming, a client that adds spaces would get a new bucket for a value that
/// servers treat as the same.
pub(super) fn trim(value: &HeaderValue) -> &[u8] {
    // A header value cannot contain any other ASCII white space than these two.
    value.as_bytes().trim_ascii()
}
