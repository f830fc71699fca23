//! Keys: which client, user or tenant a bucket belongs to.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// What a bucket belongs to: a user, an address, a tenant, or [all requests](Self::GLOBAL).
///
/// A key is made of parts, and two keys are equal if all their parts are: `("a", "bc")` is not
/// `("ab", "c")`, and the text `"7"` is not the number 7. Numbers are equal whatever their type.
/// Short keys (up to 36 bytes of text, as in a UUID) do not allocate. Keys have an order, which is
/// arbitrary but always the same.
///
/// Texts, numbers, addresses, bytes, `bool`, tuples of two or three of them, and references to all of
/// these convert into keys by [`From`]; with the feature `uuid`, `Uuid` as well. So a parameter of type
/// `impl Into<Key>` takes them as they are. For a type of your own, implement `From`, as below.
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
///
/// let user = (7_u64, String::from("alice"));
/// assert_eq!(Key::from(&user), Key::from((7_u8, "alice")));
/// assert_eq!(Key::from(7_u128), Key::from(7_usize));
/// # #[cfg(feature = "uuid")]
/// assert_eq!(Key::from(uuid::Uuid::nil()), Key::from([0; 16]));
/// ```
///
/// A type of your own as a key, in calls and in extractors:
///
/// ```
/// use tollgate::key::extension;
/// use tollgate::{HOUR, Key, Limit, Quota, RateLimiter};
///
/// const EXPORTS: Limit = Limit::new("exports", Quota::token_bucket(5, HOUR));
///
/// #[derive(Clone)]
/// struct UserId(u64);
///
/// impl From<UserId> for Key {
///     fn from(user: UserId) -> Self {
///         Self::from(user.0)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::RateLimited> {
/// let limiter = RateLimiter::in_memory();
/// let permit = limiter.limit(&EXPORTS).key(UserId(7)).await?;
/// let layer = limiter.layer(&EXPORTS).key(extension(|user: &UserId| Key::from(user.clone())));
/// # drop((permit, layer));
/// # Ok(())
/// # }
/// ```
#[doc(alias = "identifier")]
#[doc(alias = "bucket_key")]
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Repr);

/// The bytes of an inline key: its length, and its content.
const INLINE: usize = 1 + 38;

/// The number of words that an inline key takes.
#[cfg(feature = "memory")]
pub(super) const KEY_WORDS: usize = INLINE.div_ceil(8);

// A key that fits is always inline, so the derived equality and hash are those of the encoded
// bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Repr {
    /// The length, the content, and zeros.
    Inline([u8; INLINE]),
    Heap(Box<[u8]>),
}

/// The first byte of a part's encoding, which says what the part is.
pub(super) mod tag {
    pub(in crate::backend) const TEXT: u8 = b's';
    pub(in crate::backend) const BYTES: u8 = b'b';
    pub(in crate::backend) const NUMBER: u8 = b'n';
    pub(in crate::backend) const BELOW_ZERO: u8 = b'm';
    pub(in crate::backend) const WIDE: u8 = b'w';
    pub(in crate::backend) const TRUE: u8 = b't';
    pub(in crate::backend) const FALSE: u8 = b'f';
    pub(in crate::backend) const V4: u8 = b'4';
    pub(in crate::backend) const V6: u8 = b'6';
    pub(in crate::backend) const FALLBACK: u8 = b'-';
}

impl Key {
    /// The key of a bucket that all requests share: no parts at all.
    pub const GLOBAL: Self = Self(Repr::Inline([0; INLINE]));

    /// This key with more parts.
    #[must_use]
    pub fn and(self, more: impl Into<Self>) -> Self {
        let more = more.into();
        Self::concat(&[self.as_bytes(), more.as_bytes()])
    }

    /// Marks this key as a fallback: it equals no key that is not marked as well.
    ///
    /// [`or`](crate::key::KeyExtractor::or) marks the keys that it puts in place of missing ones,
    /// so a session that is named like a user does not take from the user's bucket.
    #[must_use]
    pub fn fallback(self) -> Self {
        Self::concat(&[&[tag::FALLBACK], self.as_bytes()])
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
        Self::concat(&[&[tag::V6], &network.to_be_bytes(), &[prefix]])
    }

    /// The parts, encoded without ambiguity: what stores compare.
    ///
    /// Each part is a tag and its content. Numbers and lengths of more than one byte are
    /// big-endian:
    ///
    /// | tag | content |
    /// |---|---|
    /// | `s`, `b` | a length and that many bytes, of text (`s`) or of anything (`b`) |
    /// | `n`, `m` | a number in 8 bytes; for `m`, of that much below zero |
    /// | `w` | a number in 16 bytes, which does not fit into 8 |
    /// | `t`, `f` | nothing; they are `true` and `false` |
    /// | `4` | an IPv4 address |
    /// | `6` | an IPv6 address and the length of its prefix |
    /// | `-` | nothing; it marks the rest as a [fallback](Self::fallback) |
    ///
    /// A length is one byte, or 0xff and 8 bytes.
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline([len, bytes @ ..]) => bytes.get(..usize::from(*len)).unwrap_or(bytes),
            Repr::Heap(bytes) => bytes,
        }
    }

    /// The key with this [encoding](Self::as_bytes); `None` if no key has it.
    #[doc(hidden)]
    #[must_use]
    pub fn from_encoded(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (part, after) = next_part(rest)?;
            if let Part::Text(text) = part {
                std::str::from_utf8(text).ok()?;
            }
            rest = after;
        }
        Some(Self::concat(&[bytes]))
    }

    /// Takes the key out. One that is held in place is copied, and stays.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Self {
        match &self.0 {
            Repr::Inline(place) => Self(Repr::Inline(*place)),
            Repr::Heap(_) => std::mem::replace(self, Self::GLOBAL),
        }
    }

    /// Whether the key is one part without content, such as the empty name of a missing user.
    #[allow(dead_code, reason = "the extractors use it, which are a feature")]
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        matches!(self.0, Repr::Inline([2, tag::TEXT | tag::BYTES, 0, ..]))
    }

    /// The [bytes](Self::as_bytes) of an inline key as words, padded with zeros, and how many of
    /// the words are not zero. The first word begins with the length.
    #[cfg(feature = "memory")]
    #[inline(always)]
    pub(super) fn inline_words(&self) -> Option<([u64; KEY_WORDS], usize)> {
        let Repr::Inline(place) = &self.0 else { return None };
        let (&[first, second, third, fourth], &[a, b, c, d, e, f, g]) = place.as_chunks::<8>()
        else {
            return None;
        };
        let words = [first, second, third, fourth, [a, b, c, d, e, f, g, 0]];
        let words = words.map(u64::from_le_bytes);
        // The length is taken from the word and not from its byte: otherwise the compiler builds
        // the word from single bytes as well.
        let [len, ..] = words.map(|word| word & 0xff);
        let count = usize::try_from(len).unwrap_or(0).saturating_add(1).div_ceil(8);
        Some((words, count))
    }

    /// A key of one part that has a length before its content.
    #[inline(never)]
    pub(super) fn from_content(tag: u8, content: &[u8]) -> Self {
        let mut place = [0; INLINE];
        let [len, first, second, rest @ ..] = &mut place;
        if let (Some(room), Ok(count)) =
            (rest.get_mut(..content.len()), u8::try_from(content.len()))
        {
            (*len, *first, *second) = (count.saturating_add(2), tag, count);
            room.copy_from_slice(content);
            return Self(Repr::Inline(place));
        }
        Self::from_long_content(tag, content)
    }

    #[inline(never)]
    fn from_long_content(tag: u8, content: &[u8]) -> Self {
        match u8::try_from(content.len()) {
            Ok(len) if len < u8::MAX => Self::concat(&[&[tag, len], content]),
            _ => {
                let len = u64::try_from(content.len()).unwrap_or(u64::MAX).to_be_bytes();
                Self::concat(&[&[tag, u8::MAX], &len, content])
            }
        }
    }

    /// A key of so many bytes as are known at compile time, written in one move.
    #[inline]
    pub(super) fn from_array<const N: usize>(content: [u8; N]) -> Self {
        let mut place = [0; INLINE];
        let [len, rest @ ..] = &mut place;
        let (Some(room), Ok(count)) = (rest.first_chunk_mut::<N>(), u8::try_from(N)) else {
            return Self(Repr::Heap(content.into()));
        };
        (*len, *room) = (count, content);
        // Writes the first word in one move. The hash reads it in one as well, and would have to
        // wait for several small writes.
        if let Some(word) = place.first_chunk_mut::<8>() {
            *word = u64::from_le_bytes(*word).to_le_bytes();
        }
        Self(Repr::Inline(place))
    }

    /// Concatenates pieces, inline if they fit.
    #[inline]
    pub(super) fn concat(pieces: &[&[u8]]) -> Self {
        let mut place = [0; INLINE];
        let [len, rest @ ..] = &mut place;
        let (all, mut rest) = (rest.len(), rest.as_mut_slice());
        for piece in pieces {
            let Some((room, after)) = rest.split_at_mut_checked(piece.len()) else {
                return Self(Repr::Heap(pieces.concat().into()));
            };
            room.copy_from_slice(piece);
            rest = after;
        }
        // `INLINE` fits into a `u8`, so the conversion does not fail.
        *len = u8::try_from(all.saturating_sub(rest.len())).unwrap_or(u8::MAX);
        Self(Repr::Inline(place))
    }
}

/// Passes the bytes on as words of eight. Together with the length, they determine the bytes: the
/// last word may repeat bytes of the one before it, or have zeros.
///
/// Always inlined: if the state of the hash had to live in memory across a call, that would cost as
/// much as the hash itself.
#[cfg(feature = "memory")]
#[inline(always)]
pub(super) fn each_word(bytes: &[u8], mut take: impl FnMut(u64)) {
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().for_each(|word| take(u64::from_le_bytes(*word)));
    if rest.is_empty() {
        return;
    }
    // Overlapping loads, because a loop over bytes is slower, and a copy becomes a call of
    // `memcpy`.
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

/// What calls take as a key: all that converts into a [`Key`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key",
    note = "a key is a text, a number, an address, bytes, a `bool`, or a tuple of two or three of these",
    note = "`global()` and other extractors are for layers: without `key`, callers share one bucket",
    note = "of a header field it is `value.to_str()?`, of a socket `address.ip()`, of an `Option` what it \
            has; a type of your own needs `impl From<UserId> for Key`"
)]
pub trait IntoKey {
    /// Converts the value into a key.
    fn into_key(self) -> Key;
}

#[diagnostic::do_not_recommend]
impl<T: Into<Key>> IntoKey for T {
    #[inline(always)]
    fn into_key(self) -> Key {
        self.into()
    }
}

/// Shows the parts, joined by `|`. This is for people: two different keys may look alike.
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
                Part::Wide(number) => number.fmt(f)?,
                Part::Bool(value) => value.fmt(f)?,
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

/// One part of a key.
#[derive(Debug)]
#[allow(missing_docs, reason = "each is named as what it is")]
#[expect(clippy::exhaustive_enums, reason = "each store writes all of them")]
pub enum Part<'a> {
    Text(&'a [u8]),
    Bytes(&'a [u8]),
    Number(u64),
    BelowZero(u64),
    /// A number above `u64::MAX`.
    Wide(u128),
    Bool(bool),
    V4(Ipv4Addr),
    V6(Ipv6Addr, u8),
    Fallback,
}

/// The first part of an encoded key, and the encoding of the others.
#[must_use]
pub fn next_part(bytes: &[u8]) -> Option<(Part<'_>, &[u8])> {
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
        tag::WIDE => {
            let (number, rest) = rest.split_first_chunk::<16>()?;
            Some((Part::Wide(u128::from_be_bytes(*number)), rest))
        }
        tag::TRUE => Some((Part::Bool(true), rest)),
        tag::FALSE => Some((Part::Bool(false), rest)),
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
