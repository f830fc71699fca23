//! Keys: what a limit counts by.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What a limit counts by: a user, an address, a tenant, or nothing at all.
///
/// A key is made of parts, and keys are equal if all their parts are: `("a", "bc")` is not
/// `("ab", "c")`, and the text `"7"` is not the number 7. Short keys (36 bytes of text, as in a
/// UUID) are held in place. Keys have an order, which is arbitrary but always the same.
///
/// # Examples
///
/// ```
/// use tollgate::Key;
///
/// let tenant_user = Key::from(("acme", "alice"));
/// assert_eq!(tenant_user, Key::from("acme").and("alice"));
/// assert_ne!(tenant_user, Key::from(("acmea", "lice")));
/// assert_eq!(tenant_user.to_string(), "acme|alice");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Repr);

const INLINE: usize = 38;

// A key that fits is always inline and padded with zeros, so that equality may be derived.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Repr {
    Inline { len: u8, bytes: [u8; INLINE] },
    Heap(Box<[u8]>),
}

/// What a part is; the first byte of its encoding.
mod tag {
    pub(super) const TEXT: u8 = b's';
    pub(super) const BYTES: u8 = b'b';
    pub(super) const NUMBER: u8 = b'n';
    pub(super) const BELOW_ZERO: u8 = b'm';
    pub(super) const V4: u8 = b'4';
    pub(super) const V6: u8 = b'6';
    pub(super) const FALLBACK: u8 = b'-';
}

impl Key {
    /// The key of limits that all clients share: no parts at all.
    pub const GLOBAL: Self = Self(Repr::Inline { len: 0, bytes: [0; INLINE] });

    /// This key with more parts.
    #[must_use]
    pub fn and(self, more: impl Into<Self>) -> Self {
        let more = more.into();
        Self::joined(&[self.as_bytes(), more.as_bytes()])
    }

    /// This key, set apart: it equals no key that was not set apart as well.
    ///
    /// It is what [`or`](crate::key::KeyExtractor::or) gives in place of a missing key, so that a
    /// session that is named like a user does not pay from the user's bucket.
    #[must_use]
    pub fn fallback(self) -> Self {
        Self::joined(&[&[tag::FALLBACK], self.as_bytes()])
    }

    /// The key of an IPv6 network: the first `prefix` bits of an address.
    ///
    /// A prefix above 128 is the whole address.
    #[must_use]
    pub fn network(address: Ipv6Addr, prefix: u8) -> Self {
        let prefix = prefix.min(128);
        let host_bits = u32::from(128_u8.saturating_sub(prefix));
        let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
        let network = address.to_bits() & mask;
        Self::joined(&[&[tag::V6], &network.to_be_bytes(), &[prefix]])
    }

    /// The parts, encoded without ambiguity: what stores compare.
    ///
    /// Each part is a tag and its content: `s` or `b`, a length and as many bytes of text or of
    /// anything; `n` and a number in 8 bytes, big end first; `m` and as much below zero; `4` and an
    /// IPv4 address; `6`, an IPv6
    /// address and the length of its prefix; `-` with no content sets the rest apart. A length is
    /// one byte, or 0xff and 8 more, big end first.
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or(bytes),
            Repr::Heap(bytes) => bytes,
        }
    }

    /// Whether it is one part of no content, as a name that is missing.
    #[cfg(feature = "middleware")]
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.as_bytes(), [tag::TEXT | tag::BYTES, 0])
    }

    /// How many [bytes](Self::as_bytes) it has.
    #[cfg(feature = "memory")]
    #[inline]
    pub(super) fn len(&self) -> usize {
        match &self.0 {
            Repr::Inline { len, .. } => usize::from(*len),
            Repr::Heap(bytes) => bytes.len(),
        }
    }

    /// Its [bytes](Self::as_bytes), in words as [`each_word`] makes them.
    #[cfg(feature = "memory")]
    #[inline(always)]
    pub(super) fn each_word(&self, mut take: impl FnMut(u64)) {
        match &self.0 {
            Repr::Inline { len, bytes } => {
                let (words, _) = bytes.as_chunks::<8>();
                let used = usize::from(*len).div_ceil(8);
                words.iter().take(used).for_each(|word| take(u64::from_le_bytes(*word)));
                if used > words.len()
                    && let &[.., a, b, c, d, e, f] = bytes
                {
                    take(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]));
                }
            }
            Repr::Heap(bytes) => each_word(bytes, take),
        }
    }

    #[inline]
    fn sized(tag: u8, content: &[u8]) -> Self {
        match u8::try_from(content.len()) {
            Ok(len) if len < u8::MAX => Self::joined(&[&[tag, len], content]),
            _ => {
                let len = u64::try_from(content.len()).unwrap_or(u64::MAX).to_be_bytes();
                Self::joined(&[&[tag, u8::MAX], &len, content])
            }
        }
    }

    /// Bytes whose number is known, written at once.
    #[inline]
    fn fixed<const N: usize>(content: [u8; N]) -> Self {
        let mut bytes = [0; INLINE];
        match (bytes.first_chunk_mut::<N>(), u8::try_from(N)) {
            (Some(room), Ok(len)) => {
                *room = content;
                Self(Repr::Inline { len, bytes })
            }
            _ => Self(Repr::Heap(content.into())),
        }
    }

    /// Pieces one after the other, in place if they fit.
    #[inline]
    fn joined(pieces: &[&[u8]]) -> Self {
        let mut bytes = [0; INLINE];
        let mut rest = bytes.as_mut_slice();
        for piece in pieces {
            let Some((room, after)) = rest.split_at_mut_checked(piece.len()) else {
                return Self(Repr::Heap(pieces.concat().into()));
            };
            room.copy_from_slice(piece);
            rest = after;
        }
        let len = INLINE.saturating_sub(rest.len());
        // As many as fit in place are always few enough.
        Self(Repr::Inline { len: u8::try_from(len).unwrap_or(u8::MAX), bytes })
    }
}

/// Eight bytes after the other as words, which together with the length tell what the bytes are:
/// the last word may have bytes of the one before it, or zeros.
///
/// Always inlined: a hasher that has to be in memory for it costs as much as the hashing.
#[cfg(feature = "memory")]
#[inline(always)]
pub(super) fn each_word(bytes: &[u8], mut take: impl FnMut(u64)) {
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().for_each(|word| take(u64::from_le_bytes(*word)));
    if rest.is_empty() {
        return;
    }
    // Not byte by byte, nor by a copy, which would be a call.
    if let Some(last) = bytes.last_chunk::<8>() {
        take(u64::from_le_bytes(*last));
    } else if let (Some(first), Some(last)) = (rest.first_chunk::<4>(), rest.last_chunk::<4>()) {
        let [first, last] = [first, last].map(|half| u64::from(u32::from_le_bytes(*half)));
        take(first << 32 | last);
    } else if let (Some(first), Some(last)) = (rest.first_chunk::<2>(), rest.last_chunk::<2>()) {
        let [first, last] = [first, last].map(|half| u64::from(u16::from_le_bytes(*half)));
        take(first << 32 | last);
    } else if let [only] = *rest {
        take(u64::from(only));
    }
}

impl From<&str> for Key {
    #[inline]
    fn from(text: &str) -> Self {
        Self::sized(tag::TEXT, text.as_bytes())
    }
}

impl From<&String> for Key {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<Cow<'_, str>> for Key {
    fn from(text: Cow<'_, str>) -> Self {
        Self::from(&*text)
    }
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Self {
        Self::sized(tag::BYTES, bytes)
    }
}

impl<const N: usize> From<[u8; N]> for Key {
    fn from(bytes: [u8; N]) -> Self {
        Self::from(bytes.as_slice())
    }
}

impl From<u64> for Key {
    #[inline]
    fn from(number: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
        Self::fixed([tag::NUMBER, a, b, c, d, e, f, g, h])
    }
}

/// Numbers below zero are set apart; others are the same key whatever their type.
impl From<i64> for Key {
    fn from(number: i64) -> Self {
        match u64::try_from(number) {
            Ok(number) => Self::from(number),
            Err(_) => {
                let below_zero = number.unsigned_abs().to_be_bytes();
                Self::joined(&[&[tag::BELOW_ZERO], &below_zero])
            }
        }
    }
}

impl From<i32> for Key {
    fn from(number: i32) -> Self {
        Self::from(i64::from(number))
    }
}

impl From<u32> for Key {
    fn from(number: u32) -> Self {
        Self::from(u64::from(number))
    }
}

/// The exact address; [`ClientIp`](crate::key::ClientIp) groups IPv6 addresses by network.
impl From<IpAddr> for Key {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::from(address),
            IpAddr::V6(address) => Self::from(address),
        }
    }
}

impl From<Ipv4Addr> for Key {
    #[inline]
    fn from(address: Ipv4Addr) -> Self {
        let [a, b, c, d] = address.octets();
        Self::fixed([tag::V4, a, b, c, d])
    }
}

impl From<Ipv6Addr> for Key {
    fn from(address: Ipv6Addr) -> Self {
        Self::network(address, 128)
    }
}

impl<A: Into<Key>, B: Into<Key>> From<(A, B)> for Key {
    fn from((a, b): (A, B)) -> Self {
        a.into().and(b)
    }
}

impl<A: Into<Key>, B: Into<Key>, C: Into<Key>> From<(A, B, C)> for Key {
    fn from((a, b, c): (A, B, C)) -> Self {
        a.into().and(b).and(c)
    }
}

/// Shows the parts, joined by `|`; for people, as two keys may look alike.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.as_bytes();
        let mut separator = "";
        while let Some((part, after)) = next_part(rest) {
            f.write_str(separator)?;
            match part {
                Part::Text(text) => String::from_utf8_lossy(text).escape_debug().fmt(f)?,
                Part::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?,
                Part::Number(number) => number.fmt(f)?,
                Part::BelowZero(number) => write!(f, "-{number}")?,
                Part::V4(address) => address.fmt(f)?,
                Part::V6(address, 128) => address.fmt(f)?,
                Part::V6(address, prefix) => write!(f, "{address}/{prefix}")?,
                Part::Fallback => f.write_str("else")?,
            }
            rest = after;
            separator = "|";
        }
        Ok(())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// What a key is made of.
pub(super) enum Part<'a> {
    Text(&'a [u8]),
    Bytes(&'a [u8]),
    Number(u64),
    BelowZero(u64),
    V4(Ipv4Addr),
    V6(Ipv6Addr, u8),
    Fallback,
}

/// The first part of an encoded key, and the encoding of the others.
pub(super) fn next_part(bytes: &[u8]) -> Option<(Part<'_>, &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    match tag {
        tag::TEXT | tag::BYTES => {
            let (&short, rest) = rest.split_first()?;
            let (len, rest) = match short {
                u8::MAX => {
                    let (len, rest) = rest.split_first_chunk::<8>()?;
                    (usize::try_from(u64::from_be_bytes(*len)).ok()?, rest)
                }
                short => (usize::from(short), rest),
            };
            let (content, rest) = rest.split_at_checked(len)?;
            let part = if tag == tag::TEXT { Part::Text(content) } else { Part::Bytes(content) };
            Some((part, rest))
        }
        tag::NUMBER => {
            let (number, rest) = rest.split_first_chunk::<8>()?;
            Some((Part::Number(u64::from_be_bytes(*number)), rest))
        }
        tag::BELOW_ZERO => {
            let (number, rest) = rest.split_first_chunk::<8>()?;
            Some((Part::BelowZero(u64::from_be_bytes(*number)), rest))
        }
        tag::V4 => {
            let (octets, rest) = rest.split_first_chunk::<4>()?;
            Some((Part::V4(Ipv4Addr::from(*octets)), rest))
        }
        tag::V6 => {
            let (octets, rest) = rest.split_first_chunk::<16>()?;
            let (&prefix, rest) = rest.split_first()?;
            Some((Part::V6(Ipv6Addr::from(*octets), prefix), rest))
        }
        tag::FALLBACK => Some((Part::Fallback, rest)),
        _ => None,
    }
}
