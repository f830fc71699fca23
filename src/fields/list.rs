//! Lists of structured fields (RFC 9651), written into one buffer.

use bytes::Bytes;
use http::HeaderValue;

/// The largest integer of structured fields (RFC 9651, section 3.3.1).
pub(super) const MAX_INTEGER: u64 = 999_999_999_999_999;

/// The members of one field.
#[derive(Debug, Default)]
pub(super) struct FieldList(Vec<u8>);

impl FieldList {
    /// Begins the next member.
    pub(super) fn next(&mut self) -> &mut Self {
        let separator: &[u8] = if self.0.is_empty() { b"" } else { b", " };
        self.bytes(separator)
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// An integer; larger ones become [`MAX_INTEGER`].
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

    /// The field's value; `None` if the list has no members.
    pub(super) fn value(self) -> Option<HeaderValue> {
        if self.0.is_empty() {
            return None;
        }
        HeaderValue::from_maybe_shared(Bytes::from(self.0)).ok()
    }
}
