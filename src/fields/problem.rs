//! Problem details (RFC 9457).
//!
//! They are written by hand: five members are not worth a JSON library.

pub(super) const MEDIA_TYPE: &str = "application/problem+json";

/// The problem type that the IETF draft registers for a quota that is used up.
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

/// A problem without a type of its own: the status says enough.
pub(super) fn plain(status: u16, title: &str, detail: Option<&str>) -> String {
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

/// A JSON string (RFC 8259, section 7).
fn push_string(json: &mut String, text: &str) {
    json.push('"');
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            // No text of ours has a control character, but a JSON string must not contain one.
            c if c.is_control() => json.push(' '),
            c => json.push(c),
        }
    }
    json.push('"');
}
