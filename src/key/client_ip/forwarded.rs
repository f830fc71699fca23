//! The elements of a `Forwarded` field line (RFC 7239), from the right.
//!
//! # Design
//!
//! Each proxy adds its element at the right end, and only what trusted ones have added counts, so a line
//! is read from there. A reader that begins at the left believes the client's quotes: `for="` in the
//! client's own field would swallow the elements of all proxies that add to the same line. Read from
//! the right, what a proxy has added is the same whatever stands before it: a quote is met outside of
//! a quoted string only where one ends, and the next one to the left that no backslash escapes is where that
//! began.
//!
//! Each byte is looked at a bounded number of times, and nothing is copied.

use std::net::IpAddr;

use super::node;

/// Where the elements of a line lead, last one first: `None` is one that is malformed, or whose `for` is
/// not an address. What is left of that must not be believed.
#[derive(Clone, Debug)]
pub(super) struct Elements<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Elements<'a> {
    pub(super) const fn new(line: &'a [u8]) -> Self {
        Self { rest: Some(line) }
    }
}

impl Iterator for Elements<'_> {
    type Item = Option<IpAddr>;

    fn next(&mut self) -> Option<Option<IpAddr>> {
        let (rest, element) = match split_last(self.rest?) {
            Some((rest, element)) => (rest, address(element)),
            None => (None, None),
        };
        self.rest = rest;
        Some(element)
    }
}

/// The last element, and what is left of its comma; nothing if a quote has no partner.
fn split_last(line: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let mut outside = line;
    while let Some(at) = outside.iter().rposition(|byte| matches!(byte, b',' | b'"')) {
        let (before, from) = outside.split_at_checked(at)?;
        if from.starts_with(b",") {
            let (_, element) = line.split_at_checked(at)?;
            return Some((Some(before), element.strip_prefix(b",")?));
        }
        outside = before_quoted(before)?;
    }
    Some((None, line))
}

/// What stands before the quoted string whose content ends here.
fn before_quoted(mut content: &[u8]) -> Option<&[u8]> {
    loop {
        let quote = content.iter().rposition(|&byte| byte == b'"')?;
        content = content.get(..quote)?;
        // A backslash that is escaped itself escapes nothing.
        let backslashes = content.iter().rev().take_while(|&&byte| byte == b'\\').count();
        if backslashes.is_multiple_of(2) {
            return Some(content);
        }
    }
}

/// The address in `for`, if the whole element is as it should be.
fn address(element: &[u8]) -> Option<IpAddr> {
    let mut rest = element;
    let mut found = None;
    loop {
        let (name, after) = token(rest.trim_ascii_start());
        rest = after;
        // The grammar has pairs that are not there.
        if !name.is_empty() {
            let (value, after) = value(rest.strip_prefix(b"=")?)?;
            rest = after;
            if name.eq_ignore_ascii_case(b"for") {
                // Each may be there once (section 4).
                let before = found.replace(node::forwarded(value)?);
                if before.is_some() {
                    return None;
                }
            }
        }
        rest = match rest.trim_ascii_start().split_first() {
            None => return found,
            Some((b';', after)) => after,
            Some(_) => return None,
        };
    }
}

/// A token or the content of a quoted string, and what follows.
fn value(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let (value, rest) = token(text);
        return (!value.is_empty()).then_some((value, rest));
    };
    let mut is_escaped = false;
    let end = quoted.iter().position(|&byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })?;
    let (content, rest) = quoted.split_at_checked(end)?;
    Some((content, rest.strip_prefix(b"\"")?))
}

/// As many bytes of a token as there are (RFC 9110, section 5.6.2), and what follows.
fn token(text: &[u8]) -> (&[u8], &[u8]) {
    let is_in = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let end = text.iter().position(|byte| !is_in(byte)).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, &[]))
}
