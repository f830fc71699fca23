//! Lists of structured fields (RFC 9651), written into one buffer and joined with existing lists.

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

pub(super) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

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
#[inline]
pub(super) fn prepend(
    headers: &mut HeaderMap,
    name: impl Fn() -> HeaderName,
    members: Option<HeaderValue>,
) {
    if let Some(members) = members
        && let Ok(true) = headers.try_append(name(), members)
        && let Some(list) = join_last_first(headers, &name())
    {
        headers.insert(name(), list);
    }
}

/// Joins the lines of a field into one, the last line first, since that is ours.
///
/// The others may come from anywhere. Those members of them are taken that follow the grammar, have a
/// value of the same type as ours, and a value that no member before them has: clients look a limit up
/// by it. In a refusal, a member of theirs stands in the place of ours, since it says when to come back.
#[cold]
fn join_last_first(headers: &HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let mut lines = headers.get_all(name).iter();
    let own = lines.next_back()?.as_bytes();
    let is_text = own.starts_with(b"\"");
    let others = lines.filter_map(|line| members(line.as_bytes())).flatten();
    let others = others.filter(|member| member.item.starts_with(b"\"") == is_text);
    let others: SmallVec<[Member<'_>; 8]> = others.collect();
    let is_refused = headers.contains_key(RETRY_AFTER);
    let (mut list, mut known) = (FieldList::default(), SmallVec::<[&[u8]; 8]>::new());
    for Member { item, text } in members(own)? {
        let refusal = others.iter().find(|other| is_refused && other.item == item);
        known.push(item);
        list.begin_member().bytes(refusal.map_or(text, |refusal| refusal.text));
    }
    for Member { item, text } in others {
        if !known.contains(&item) {
            known.push(item);
            list.begin_member().bytes(text);
        }
    }
    // Every line is a valid header value, so the list is one.
    list.value()
}

/// A member of a list: its value, and all of it with its parameters.
struct Member<'l> {
    item: &'l [u8],
    text: &'l [u8],
}

/// The members of a list whose values are texts or numbers (RFC 9651, section 4.2.1); `None` if it is
/// none.
fn members(line: &[u8]) -> Option<SmallVec<[Member<'_>; 4]>> {
    let (mut members, mut rest) = (SmallVec::new(), line.trim_ascii());
    while !rest.is_empty() {
        let member = rest;
        let (item, after) = bare_item(member).filter(|(item, _)| is_value(item))?;
        rest = after;
        while let Some(parameter) = rest.strip_prefix(b";") {
            let (_, parameter) = split_while(parameter, |byte| byte == b' ');
            let is_start = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'*';
            let is_in = |byte: u8| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte)
            };
            parameter.first().filter(|byte| is_start(byte))?;
            (_, rest) = split_while(parameter, is_in);
            if let Some(value) = rest.strip_prefix(b"=") {
                (_, rest) = bare_item(value)?;
            }
        }
        let text = member.get(..member.len().checked_sub(rest.len())?)?;
        members.push(Member { item, text });
        rest = rest.trim_ascii_start();
        if !rest.is_empty() {
            rest = rest.strip_prefix(b",")?.trim_ascii_start();
            // A comma at the end is an error.
            rest.first()?;
        }
    }
    Some(members)
}

fn is_value(item: &[u8]) -> bool {
    item.first().is_some_and(|&byte| byte == b'"' || byte == b'-' || byte.is_ascii_digit())
}

/// A bare item at the start (section 4.2.3.1), and what follows it.
fn bare_item(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&first, after) = text.split_first()?;
    let len = match first {
        b'"' => {
            let mut is_escaped = false;
            let end = after.iter().position(|&byte| {
                let is_end = byte == b'"' && !is_escaped;
                is_escaped = byte == b'\\' && !is_escaped;
                is_end
            })?;
            after.get(..end).filter(|text| is_string(text))?;
            end.checked_add(2)?
        }
        b':' => {
            let is_in = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
            let (_, rest) = split_while(after, is_in);
            let rest = rest.strip_prefix(b":")?;
            let len = text.len().checked_sub(rest.len())?;
            // Base64 has groups of four; parsers forgive it if the padding at the end is missing.
            let encoded = after.get(..len.checked_sub(2)?)?;
            let (data, padding) = split_while(encoded, |byte| byte != b'=');
            let room = match data.len() % 4 {
                0 => 0,
                1 => return None,
                2 => 2,
                _ => 1,
            };
            let is_padding = padding.len() <= room && padding.iter().all(|&byte| byte == b'=');
            is_padding.then_some(len)?
        }
        b'?' => after.first().filter(|byte| matches!(byte, b'0' | b'1')).map(|_| 2)?,
        b'@' | b'-' | b'0'..=b'9' => {
            let sign = text.strip_prefix(b"@").unwrap_or(text);
            let digits = sign.strip_prefix(b"-").unwrap_or(sign);
            let (whole, rest) = split_while(digits, |byte| byte.is_ascii_digit());
            let (most, rest) = match rest.strip_prefix(b".").filter(|_| first != b'@') {
                Some(rest) => {
                    let (part, rest) = split_while(rest, |byte| byte.is_ascii_digit());
                    ((1..=3).contains(&part.len()).then_some(12)?, rest)
                }
                None => (15, rest),
            };
            (1..=most).contains(&whole.len()).then_some(text.len().checked_sub(rest.len())?)?
        }
        b'*' | b'a'..=b'z' | b'A'..=b'Z' => {
            let is_in =
                |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte);
            let (_, rest) = split_while(text, is_in);
            text.len().checked_sub(rest.len())?
        }
        _ => return None,
    };
    text.split_at_checked(len)
}

/// Whether this may stand in a string: printable, and a backslash escapes itself or a quote.
fn is_string(text: &[u8]) -> bool {
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        let is_good = match byte {
            b'\\' => matches!(bytes.next(), Some(b'\\' | b'"')),
            byte => (b' '..=b'~').contains(&byte),
        };
        if !is_good {
            return false;
        }
    }
    true
}

fn split_while(text: &[u8], is_in: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    let end = text.iter().position(|&byte| !is_in(byte)).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, &[]))
}
