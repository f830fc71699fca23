//! Members of one field, written into one buffer.

use bytes::Bytes;
use http::HeaderValue;

use super::policy::{Label, Numbers};

/// The largest integer of structured fields (RFC 9651, section 3.3.1).
pub(super) const MAX_INTEGER: u64 = 999_999_999_999_999;

/// Members of one field.
#[derive(Debug, Default)]
pub(crate) struct List(Vec<u8>);

impl List {
    /// Begins the next member.
    pub(super) fn next(&mut self) -> &mut Self {
        let separator: &[u8] = if self.0.is_empty() { b"" } else { b", " };
        self.bytes(separator)
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        self.bytes(itoa::Buffer::new().format(number.min(MAX_INTEGER)).as_bytes())
    }

    /// A member of `RateLimit` in draft 11: `"name";r=19;t=114`.
    pub(super) fn member(&mut self, label: &Label, numbers: Numbers) {
        self.next().bytes(&label.member).number(numbers.remaining);
        self.bytes(b";t=").number(numbers.seconds());
    }

    /// The parameter `pk`, as a byte sequence (RFC 9651, section 3.3.5), of the last member.
    pub(super) fn partition_key(&mut self, base64: &str) {
        self.bytes(b";pk=:").bytes(base64.as_bytes()).bytes(b":");
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// The field's value, if there is any member.
    pub(super) fn value(self) -> Option<HeaderValue> {
        if self.0.is_empty() {
            return None;
        }
        HeaderValue::from_maybe_shared(Bytes::from(self.0)).ok()
    }
}

/// A field `RateLimit` with one member, in a buffer with no more room than it takes: so it becomes a
/// value without another allocation.
#[inline]
pub(super) fn single_member(label: &Label, numbers: Numbers) -> Option<HeaderValue> {
    let (mut remaining, mut seconds) = (itoa::Buffer::new(), itoa::Buffer::new());
    let remaining = remaining.format(numbers.remaining.min(MAX_INTEGER)).as_bytes();
    let seconds = seconds.format(numbers.seconds().min(MAX_INTEGER)).as_bytes();
    let digits = remaining.len().saturating_add(seconds.len()).saturating_add(T.len());
    let mut text = Vec::with_capacity(label.member.len().saturating_add(digits));
    text.extend_from_slice(&label.member);
    text.extend_from_slice(remaining);
    text.extend_from_slice(T);
    text.extend_from_slice(seconds);
    HeaderValue::from_maybe_shared(Bytes::from(text)).ok()
}

const T: &[u8; 3] = b";t=";
