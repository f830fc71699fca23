//! Responses to gRPC requests: a gRPC client reads the status of gRPC, not that of HTTP.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version};

use super::{NO_STORE, number};

/// Whether a request is gRPC: a POST over HTTP/2 with the content type `application/grpc`, with or
/// without a codec (`+proto`). `application/grpc-web` is another protocol, whose layer in tonic makes
/// such a request of it, over any version, with `te: trailers`.
///
/// Any client can send this content type, and refusals in gRPC have status 200. With another method
/// than POST, a cache could store such a refusal as the content of the resource.
pub(crate) fn is_grpc(method: &Method, version: Version, headers: &HeaderMap) -> bool {
    let has_trailers = || headers.get(TE).is_some_and(|te| te == "trailers");
    if method != Method::POST || !(version == Version::HTTP_2 || has_trailers()) {
        return false;
    }
    let Some(content_type) = headers.get(CONTENT_TYPE) else { return false };
    let content_type = content_type.as_bytes().trim_ascii();
    let Some((start, rest)) = content_type.split_at_checked(GRPC.len()) else { return false };
    // Blanks are allowed before parameters only (RFC 9110, section 5.6.6).
    start.eq_ignore_ascii_case(GRPC.as_bytes())
        && (rest.starts_with(b"+") || matches!(rest.trim_ascii_start().first(), None | Some(b';')))
}

/// The status that a refusal would have without gRPC, in the extensions of its response.
#[derive(Clone, Copy)]
struct RefusedStatus(StatusCode);

/// The status of a response; for a refusal in gRPC, the status that it would have without gRPC.
///
/// An outer layer may count by the status, and the client must not change that by choosing gRPC.
pub(crate) fn status_of<B>(response: &Response<B>) -> StatusCode {
    match (response.status(), response.extensions().get()) {
        (StatusCode::OK, Some(&RefusedStatus(status))) => status,
        (status, _) => status,
    }
}

/// Whether the head of a response says that the call has failed. A status in the trailers is not
/// known yet.
pub(crate) fn has_grpc_failed(headers: &HeaderMap) -> bool {
    headers.get(GRPC_STATUS).is_some_and(|status| status != "0")
}

/// Makes a response of header fields only ("Trailers-Only", gRPC over HTTP/2): HTTP status 200, the
/// gRPC status that corresponds to `status`, and `retry_after` as `google.rpc.RetryInfo`.
pub(super) fn respond(
    status: StatusCode,
    message: &str,
    retry_after: Option<Duration>,
) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let (code, headers) = (code(status), response.headers_mut());
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
    headers.insert(CACHE_CONTROL, NO_STORE);
    headers.insert(GRPC_STATUS, number::value(code));
    // Of printable ASCII, only the percent sign has to be encoded.
    if let Ok(message) = HeaderValue::try_from(message.replace('%', "%25")) {
        headers.insert(GRPC_MESSAGE, message);
    }
    if let Some(delay) = retry_after {
        let details = STANDARD_NO_PAD.encode(retry_details(code, message, delay));
        if let Ok(details) = HeaderValue::try_from(details) {
            headers.insert(GRPC_STATUS_DETAILS, details);
        }
    }
    response.extensions_mut().insert(RefusedStatus(status));
    response
}

/// The gRPC status (`google.rpc.Code`) that corresponds to a status of HTTP.
fn code(status: StatusCode) -> u64 {
    match status.as_u16() {
        400 => 3,  // INVALID_ARGUMENT
        401 => 16, // UNAUTHENTICATED
        403 => 7,  // PERMISSION_DENIED
        404 => 5,  // NOT_FOUND
        // The request asks for more than there can be: to send it again does not help.
        413 | 422 => 11, // OUT_OF_RANGE
        429 => 8,        // RESOURCE_EXHAUSTED
        503 => 14,       // UNAVAILABLE
        504 => 4,        // DEADLINE_EXCEEDED
        500..=599 => 13, // INTERNAL
        _ => 2,          // UNKNOWN
    }
}

/// Encodes a `google.rpc.Status` with one detail, a `google.rpc.RetryInfo`.
///
/// The wire format of protocol buffers is written by hand, since five fields do not justify a
/// dependency.
fn retry_details(code: u64, message: &str, delay: Duration) -> Vec<u8> {
    // google.protobuf.Duration: seconds = 1, nanos = 2
    let mut duration = Vec::new();
    number_field(&mut duration, 1, delay.as_secs().min(MAX_SECONDS));
    number_field(&mut duration, 2, u64::from(delay.subsec_nanos()));
    // google.rpc.RetryInfo: retry_delay = 1
    let mut retry_info = Vec::new();
    bytes_field(&mut retry_info, 1, &duration);
    // google.protobuf.Any: type_url = 1, value = 2
    let mut any = Vec::new();
    bytes_field(&mut any, 1, b"type.googleapis.com/google.rpc.RetryInfo");
    bytes_field(&mut any, 2, &retry_info);
    // google.rpc.Status: code = 1, message = 2, details = 3
    let mut status = Vec::new();
    number_field(&mut status, 1, code);
    bytes_field(&mut status, 2, message.as_bytes());
    bytes_field(&mut status, 3, &any);
    status
}

/// Appends a field of wire type 0 (varint). Zero is the default and is omitted.
fn number_field(to: &mut Vec<u8>, field: u8, number: u64) {
    if number > 0 {
        to.push(field << 3);
        varint(to, number);
    }
}

/// Appends a field of wire type 2 (length-delimited).
fn bytes_field(to: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    to.push((field << 3) | 2);
    varint(to, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    to.extend_from_slice(bytes);
}

/// Appends seven bits in each byte, the lowest first. The eighth bit says that more bytes follow.
fn varint(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        let [low, ..] = number.to_le_bytes();
        to.push(low | 0x80);
        number >>= 7;
    }
    let [low, ..] = number.to_le_bytes();
    to.push(low);
}

const GRPC: &str = "application/grpc";
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// The largest `google.protobuf.Duration`: 10,000 years.
const MAX_SECONDS: u64 = 315_576_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_grpc_over_http_2_is_grpc() {
        for (content_type, wanted) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc+json", true),
            ("application/grpc; charset=utf-8", true),
            ("application/grpc\t; charset=utf-8", true),
            ("application/grpc proto", false),
            ("Application/GRPC", true),
            ("application/grpc-web", false),
            ("application/grpc-web+proto", false),
            ("application/grpcx", false),
            ("application/grp", false),
            ("application/json", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            let (post, second) = (&Method::POST, Version::HTTP_2);
            assert_eq!(is_grpc(post, second, &headers), wanted, "{content_type:?}");
            assert!(!is_grpc(&Method::GET, second, &headers), "{content_type:?}");
            assert!(!is_grpc(post, Version::HTTP_11, &headers), "{content_type:?}");
            headers.insert(TE, HeaderValue::from_static("trailers"));
            assert_eq!(is_grpc(post, Version::HTTP_11, &headers), wanted, "{content_type:?}");
            assert!(!is_grpc(post, second, &HeaderMap::new()));
        }
    }

    /// `crates/compat` reads them by the decoder of `tonic-types`.
    #[test]
    fn numbers_of_details_are_varints_and_bounded() {
        for (number, wanted) in [
            (0, &[][..]),
            (1, &[8, 1]),
            (127, &[8, 127]),
            (128, &[8, 128, 1]),
            (16_384, &[8, 128, 128, 1]),
            (MAX_SECONDS, &[8, 128, 188, 174, 206, 151, 9]),
            (u64::MAX, &[8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
        ] {
            let mut field = Vec::new();
            number_field(&mut field, 1, number);
            assert_eq!(field, wanted, "{number}");
        }
        let longest = Duration::new(MAX_SECONDS, 999_999_999);
        assert_eq!(retry_details(8, "", Duration::MAX), retry_details(8, "", longest));
    }
}
