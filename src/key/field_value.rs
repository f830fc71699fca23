//! The value of a header field, as every extractor reads it.

use http::HeaderValue;

/// The value without the spaces and tabs around it, which are no part of it (RFC 9110, section 5.5).
///
/// Parsers of HTTP/1 strip them. HTTP/2 forbids them (RFC 9113, section 8.2.1), but `h2` passes them on:
/// a client that adds some would get a new bucket, and the server may take the value for the same one.
pub(super) fn trim(value: &HeaderValue) -> &[u8] {
    // A header value has no other white space of ASCII than these two.
    value.as_bytes().trim_ascii()
}
