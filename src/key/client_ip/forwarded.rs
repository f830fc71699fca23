//! The elements of a `Forwarded` field line (RFC 7239), from the right.
//!
//! # Design
//!
//! Each proxy appends its element at the right end, and only the elements of trusted proxies count,
//! so a line is read from the right. A parser that begins at the left would trust the quotes of the
//! client: if the client sends `for="`, such a parser reads the elements of all proxies on that
//! line as the content of one string.
//!
//! ```text
//! for=", for=203.0.113.7          read from the left, one string that never ends
//!        ^^^^^^^^^^^^^^^          read from the right, the element of the proxy
//! ```
//!
//! Read from the right, the element of a proxy does not depend on the text before it: outside of
//! quoted strings, a quote always ends a string, and the string begins at the next quote to the
//! left that no backslash escapes.
//!
//! Each byte is read a bounded number of times, and nothing is copied.

use std::net::IpAddr;

use super::node;

/// The addresses in the elements of a line, the last one first. An element is `None` if it is
/// malformed or if its `for` is not an address; no element to the left of it may be trusted.
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
        loop {
            let Some((rest, element)) = split_last(self.rest.take()?) else { return Some(None) };
            self.rest = rest;
            // An empty member of a list counts for nothing (RFC 9110, section 5.6.1).
            if !element.trim_ascii().is_empty() {
                return Some(address(element));
            }
        }
    }
}

/// The text to the left of the last comma, and the last element; `None` if a quote is unbalanced.
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

/// The text in front of the quoted string that ends with `content`.
fn before_quoted(mut content: &[u8]) -> Option<&[u8]> {
    loop {
        let quote = content.iter().rposition(|&byte| byte == b'"')?;
        content = content.get(..quote)?;
        // An escaped backslash does not escape the quote, so only an odd number of backslashes
        // does.
        let backslashes = content.iter().rev().take_while(|&&byte| byte == b'\\').count();
        if backslashes.is_multiple_of(2) {
            return Some(content);
        }
    }
}

/// The address in `for`, if the whole element follows the grammar.
fn address(element: &[u8]) -> Option<IpAddr> {
    let mut rest = element;
    let mut found = None;
    loop {
        let (name, after) = token(rest.trim_ascii_start());
        rest = after;
        // The grammar allows empty pairs.
        if !name.is_empty() {
            let (value, after) = value(rest.strip_prefix(b"=")?)?;
            rest = after;
            if name.eq_ignore_ascii_case(b"for") {
                // Each parameter may occur once (section 4).
                let before = found.replace(node::parse_forwarded(value)?);
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

/// A token or the content of a quoted string, and the text after it.
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

/// The longest token at the start (RFC 9110, section 5.6.2), and the text after it.
fn token(text: &[u8]) -> (&[u8], &[u8]) {
    let is_in = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let end = text.iter().position(|byte| !is_in(byte)).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, &[]))
}
