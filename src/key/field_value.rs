//! The value of a header field, trimmed the same way for every extractor.

use http::HeaderValue;

/// Trims spaces and tabs, which are not part of the value (RFC 9110, section 5.5).
///
/// Parsers of HTTP/1 strip them. HTTP/2 forbids them (RFC 9113, section 8.2.1), but `h2` passes
/// them on. Without trimming, a client that adds spaces would get a new bucket for a value that
/// servers treat as the same.
pub(super) fn trim(value: &HeaderValue) -> &[u8] {
    // A header value cannot contain any other ASCII white space than these two.
    value.as_bytes().trim_ascii()
}
