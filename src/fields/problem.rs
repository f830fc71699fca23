//! Problem details (RFC 9457), written by hand: five members, and no JSON library for everybody.

/// A quota is used up: the problem type that the IETF draft registers.
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

/// A failure that the status says enough about.
pub(super) fn plain(status: u16, title: &str) -> String {
    let mut json = String::with_capacity(64);
    json.push_str("{\"title\":");
    push_string(&mut json, title);
    json.push_str(",\"status\":");
    json.push_str(itoa::Buffer::new().format(status));
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
            // None comes in the text of a limit or an error, but a JSON string has no room for one.
            c if c.is_control() => json.push(' '),
            c => json.push(c),
        }
    }
    json.push('"');
}
