//! Problem details (RFC 9457).
//!
//! The JSON is written by hand, since five members do not justify a dependency.

pub(super) const MEDIA_TYPE: &str = "application/problem+json";

/// Formats a problem of the type that the IETF draft registers for an exceeded quota.
pub(super) fn quota_exceeded<'a>(
    status: u16,
    violated: impl Iterator<Item = &'a str>,
    detail: Option<&str>,
) -> String {
    let mut json = String::with_capacity(192);
    json.push_str("{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\"");
    json.push_str(",\"title\":\"Quota Exceeded\",\"status\":");
    json.push_str(itoa::Buffer::new().format(status));
    if let Some(detail) = detail {
        json.push_str(",\"detail\":");
        push_string(&mut json, detail);
    }
    json.push_str(",\"violated-policies\":[");
    for (index, name) in violated.enumerate() {
        if index > 0 {
            json.push(',');
        }
        push_string(&mut json, name);
    }
    json.push_str("]}");
    json
}

/// Formats a problem without a type of its own.
pub(super) fn untyped(status: u16, title: &str, detail: Option<&str>) -> String {
    let mut json = String::with_capacity(64);
    json.push_str("{\"title\":");
    push_string(&mut json, title);
    json.push_str(",\"status\":");
    json.push_str(itoa::Buffer::new().format(status));
    if let Some(detail) = detail {
        json.push_str(",\"detail\":");
        push_string(&mut json, detail);
    }
    json.push('}');
    json
}

/// Appends a JSON string (RFC 8259, section 7).
pub(crate) fn push_string(json: &mut String, text: &str) {
    json.push('"');
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            // A JSON string must not contain control characters. Names of limits have none, so
            // nothing is lost.
            c if c.is_control() => json.push(' '),
            c => json.push(c),
        }
    }
    json.push('"');
}
