//! Lists of structured fields (RFC 9651), written into one buffer and joined with existing lists.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

pub(super) static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The largest integer of structured fields (RFC 9651, section 3.3.1).
pub(super) const MAX_INTEGER: u64 = 999_999_999_999_999;

/// The members of one field.
#[derive(Debug, Default)]
pub(super) struct FieldList(Vec<u8>);

impl FieldList {
    /// Begins the next member.
    pub(super) fn begin_member(&mut self) -> &mut Self {
        let separator: &[u8] = if self.0.is_empty() { b"" } else { b", " };
        self.bytes(separator)
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends an integer; larger ones become [`MAX_INTEGER`].
    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        self.bytes(itoa::Buffer::new().format(number.min(MAX_INTEGER)).as_bytes())
    }

    /// Adds the parameter `pk` to the last member, as a byte sequence (RFC 9651, section 3.3.5).
    pub(super) fn partition_key(&mut self, base64: &str) {
        self.bytes(b";pk=:").bytes(base64.as_bytes()).bytes(b":");
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// The value of the field; `None` if the list has no members.
    pub(super) fn value(self) -> Option<HeaderValue> {
        if self.0.is_empty() {
            return None;
        }
        HeaderValue::from_maybe_shared(Bytes::from(self.0)).ok()
    }
}

/// Adds members at the start of a field that is a list.
///
/// In most cases the field is absent, and one lookup is enough. An error means that the map is
/// full; the field is then omitted.
pub(super) fn prepend(
    headers: &mut HeaderMap,
    name: &'static HeaderName,
    members: Option<HeaderValue>,
) {
    if let Some(members) = members
        && let Ok(true) = headers.try_append(name, members)
        && let Some(list) = join_last_first(headers, name)
    {
        headers.insert(name, list);
    }
}

/// Joins the lines of a field into one, the last line first.
#[cold]
fn join_last_first(headers: &HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let mut lines = headers.get_all(name).iter();
    let mut list = lines.next_back()?.as_bytes().to_vec();
    for line in lines {
        if !line.as_bytes().trim_ascii().is_empty() {
            list.extend_from_slice(b", ");
            list.extend_from_slice(line.as_bytes());
        }
    }
    // Every line is a valid header value, so the list is one.
    HeaderValue::from_maybe_shared(Bytes::from(list)).ok()
}
