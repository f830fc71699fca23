//! The names of limits and keys in paths.

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::error::AdminError;

/// What stands for itself in each part of a path and of a query (RFC 3986, unreserved).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Text as a segment of a path, or as a value in a query.
pub(super) fn encode(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// The segments of a path, decoded.
pub(super) fn segments<T>(path: Result<Path<T>, PathRejection>) -> Result<T, AdminError> {
    let wrong = |_| {
        AdminError::bad_request("the decoded path is not UTF-8 (write bytes in a key as `b=00ff`)")
    };
    path.map(|Path(segments)| segments).map_err(wrong)
}

/// A link from the page at this path to what is below it: relative, so that it holds wherever the
/// routes are mounted.
pub(super) fn below(path: &str, name: &str) -> String {
    match path.rsplit('/').next() {
        None | Some("") => encode(name),
        // What has a colon in its first segment is no relative link, but one with a scheme.
        Some(last) => format!("{}/{}", last.replace(':', "%3A"), encode(name)),
    }
}

/// The text form of a key, for a path. `.` and `..` are steps of a path, percent-encoded or not, so
/// these keys are written with the escapes of the text form.
pub(super) fn key_segment(text: &str) -> &str {
    match text {
        "." => "%2E",
        ".." => "%2E%2E",
        _ => text,
    }
}
