//! Writing the text form of a key.

use std::fmt::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::backend::key::{Part, next_part};

/// What a key is written to.
#[expect(clippy::len_without_is_empty, reason = "a name is never empty")]
pub trait KeySink: fmt::Write {
    /// The bytes that were written so far.
    fn len(&self) -> usize;

    /// Writes ASCII.
    fn extend(&mut self, bytes: &[u8]);

    /// Writes a number in decimal digits.
    fn number(&mut self, number: u64);
}

/// Writes text, in which all but plain bytes are escaped.
#[inline]
pub fn write_text(sink: &mut impl KeySink, text: &[u8]) {
    // Most text has nothing to escape, and is copied at once.
    let plain = text.iter().position(|&byte| !is_plain(byte)).unwrap_or(text.len());
    let (plain, rest) = text.split_at_checked(plain).unwrap_or((text, &[]));
    sink.extend(plain);
    for &byte in rest {
        if is_plain(byte) {
            sink.extend(&[byte]);
        } else {
            sink.extend(&[b'%', digit(UPPER, byte >> 4), digit(UPPER, byte & 15)]);
        }
    }
}

/// Writes the parts of a key while no more than `most` bytes were written; returns whether all fit.
#[inline]
pub fn write_key(sink: &mut impl KeySink, mut key: &[u8], most: usize) -> bool {
    if key.is_empty() {
        sink.extend(b"*");
    }
    let mut is_first = true;
    while let Some((part, after)) = next_part(key) {
        if !is_first {
            sink.extend(b"|");
        }
        if !write_part(sink, &part, most) || sink.len() > most {
            return false;
        }
        (key, is_first) = (after, false);
    }
    sink.len() <= most
}

/// Writes one part; returns false for one that is too long by itself.
#[inline]
fn write_part(sink: &mut impl KeySink, part: &Part<'_>, most: usize) -> bool {
    match *part {
        Part::Text(content) | Part::Bytes(content) if content.len() > most => return false,
        Part::Text([]) => sink.extend(b"text="),
        Part::Text(text) => write_text(sink, text),
        Part::Bytes(bytes) => {
            sink.extend(b"b=");
            for byte in bytes {
                sink.extend(&[digit(LOWER, byte >> 4), digit(LOWER, byte & 15)]);
            }
        }
        Part::Number(number) => {
            sink.extend(b"n=");
            sink.number(number);
        }
        Part::BelowZero(number) => {
            sink.extend(b"n=-");
            sink.number(number);
        }
        Part::Wide(number) => write_wide(sink, number),
        Part::Bool(value) => sink.extend(if value { b"bool=true" } else { b"bool=false" }),
        Part::V4(address) => write_v4(sink, address),
        Part::V6(address, prefix) => write_v6(sink, address, prefix),
        Part::Fallback => sink.extend(b"else="),
    }
    true
}

fn write_v4(sink: &mut impl KeySink, address: Ipv4Addr) {
    let [a, b, c, d] = address.octets();
    sink.extend(b"ip=");
    sink.number(u64::from(a));
    for octet in [b, c, d] {
        sink.extend(b".");
        sink.number(u64::from(octet));
    }
}

// Writing to memory cannot fail.

fn write_v6(sink: &mut impl KeySink, address: Ipv6Addr, prefix: u8) {
    let _ = write!(sink, "ip={address}/{prefix}");
}

fn write_wide(sink: &mut impl KeySink, number: u128) {
    let _ = write!(sink, "n={number}");
}

/// The text form of these bytes of a key, however long it is.
pub(super) fn text_of(key: &[u8]) -> String {
    let mut text = TextSink(String::new());
    write_key(&mut text, key, usize::MAX);
    text.0
}

struct TextSink(String);

impl fmt::Write for TextSink {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.push_str(text);
        Ok(())
    }
}

impl KeySink for TextSink {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn extend(&mut self, bytes: &[u8]) {
        self.0.extend(bytes.iter().copied().map(char::from));
    }

    fn number(&mut self, number: u64) {
        let _ = write!(self, "{number}");
    }
}

/// Whether a byte of text stands for itself.
#[inline]
#[must_use]
pub const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~' | b'@' | b'+' | b'/')
}

#[inline]
fn digit(digits: &[u8; 16], value: u8) -> u8 {
    digits.get(usize::from(value)).copied().unwrap_or(b'0')
}

const UPPER: &[u8; 16] = b"0123456789ABCDEF";
const LOWER: &[u8; 16] = b"0123456789abcdef";
