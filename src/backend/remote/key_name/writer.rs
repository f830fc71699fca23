//! Writing the bytes of a name.

use std::fmt::{self, Write as _};
use std::hash::{BuildHasher as _, Hash, Hasher, RandomState};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use smallvec::SmallVec;

#[cfg(feature = "redis")]
use super::slot;
use crate::backend::key::{Part, next_part};

/// The name of a bucket in Redis.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::backend) struct KeyName {
    bytes: SmallVec<[u8; INLINE]>,
    hash: u64,
}

/// With a random key, so that no client can make up keys with names that share a hash.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The length up to which a name needs no allocation: that of most names.
const INLINE: usize = 64;

impl KeyName {
    #[inline]
    pub(super) fn new(head: &[u8]) -> Self {
        Self { bytes: SmallVec::from_slice(head), hash: 0 }
    }

    /// Computes the hash of the finished name.
    #[inline]
    pub(super) fn complete(mut self) -> Self {
        let mut hasher = HASHER.build_hasher();
        // Only these bytes decide, as names are compared by them: equal names have equal hashes.
        hasher.write(&self.bytes);
        self.hash = hasher.finish();
        self
    }

    /// The hash of the name, valid in this process.
    pub(in crate::backend) const fn own_hash(&self) -> u64 {
        self.hash
    }

    #[cfg(feature = "redis")]
    /// The slot of the name in a cluster.
    pub(in crate::backend) fn slot(&self) -> u16 {
        slot::slot_of(&self.bytes)
    }

    /// Whether all requests share this key, as far as the name shows. A hashed key does not show
    /// it.
    pub(in crate::backend) fn is_global(&self) -> bool {
        // The name of a limit and the parts of a key have no `*`.
        self.bytes.ends_with(b":*")
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    #[inline]
    pub(super) fn push(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    #[inline]
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn number(&mut self, number: impl itoa::Integer) {
        self.extend(itoa::Buffer::new().format(number).as_bytes());
    }

    /// Writes text, in which all but plain bytes are escaped.
    #[inline]
    pub(super) fn text(&mut self, text: &[u8]) {
        // Most text has nothing to escape, and is copied at once.
        let plain = text.iter().position(|&byte| !is_plain(byte)).unwrap_or(text.len());
        let (plain, rest) = text.split_at_checked(plain).unwrap_or((text, &[]));
        self.extend(plain);
        for &byte in rest {
            if is_plain(byte) {
                self.push(byte);
            } else {
                self.extend(&[b'%', digit(UPPER, byte >> 4), digit(UPPER, byte & 15)]);
            }
        }
    }

    /// Writes the first 128 bits of a hash.
    pub(super) fn hash(&mut self, kind: &[u8], hash: &[u8; 32]) {
        self.extend(kind);
        self.hex(hash.first_chunk::<16>().unwrap_or(&[0; 16]));
    }

    /// Writes the parts of a key while the name has at most `most` bytes; returns whether all fit.
    #[inline]
    pub(super) fn key(&mut self, mut key: &[u8], most: usize) -> bool {
        if key.is_empty() {
            self.push(b'*');
        }
        let mut is_first = true;
        while let Some((part, after)) = next_part(key) {
            if !is_first {
                self.push(b'|');
            }
            if !self.part(&part, most) || self.len() > most {
                return false;
            }
            (key, is_first) = (after, false);
        }
        self.len() <= most
    }

    /// Writes one part; returns false for one that is too long by itself.
    #[inline]
    fn part(&mut self, part: &Part<'_>, most: usize) -> bool {
        match *part {
            Part::Text(content) | Part::Bytes(content) if content.len() > most => return false,
            Part::Text([]) => self.extend(b"text="),
            Part::Text(text) => self.text(text),
            Part::Bytes(bytes) => {
                self.extend(b"b=");
                self.hex(bytes);
            }
            Part::Number(number) => {
                self.extend(b"n=");
                self.number(number);
            }
            Part::BelowZero(number) => {
                self.extend(b"n=-");
                self.number(number);
            }
            Part::Wide(number) => {
                self.extend(b"n=");
                self.number(number);
            }
            Part::Bool(value) => self.extend(if value { b"bool=true" } else { b"bool=false" }),
            Part::V4(address) => self.v4(address),
            Part::V6(address, prefix) => self.v6(address, prefix),
            Part::Fallback => self.extend(b"else="),
        }
        true
    }

    fn v4(&mut self, address: Ipv4Addr) {
        let [a, b, c, d] = address.octets();
        self.extend(b"ip=");
        self.number(a);
        for octet in [b, c, d] {
            self.push(b'.');
            self.number(octet);
        }
    }

    fn v6(&mut self, address: Ipv6Addr, prefix: u8) {
        // Writing to memory cannot fail.
        let _ = write!(self, "ip={address}/{prefix}");
    }

    fn hex(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.extend(&[digit(LOWER, byte >> 4), digit(LOWER, byte & 15)]);
        }
    }
}

/// Passes on the hash of the whole name, which is computed once.
impl Hash for KeyName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl AsRef<[u8]> for KeyName {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Write for KeyName {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.extend(text.as_bytes());
        Ok(())
    }
}

impl fmt::Debug for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyName({})", String::from_utf8_lossy(&self.bytes))
    }
}

/// Whether a byte of text stands for itself.
#[inline]
pub(super) const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~' | b'@' | b'+' | b'/')
}

#[inline]
fn digit(digits: &[u8; 16], value: u8) -> u8 {
    digits.get(usize::from(value)).copied().unwrap_or(b'0')
}

const UPPER: &[u8; 16] = b"0123456789ABCDEF";
const LOWER: &[u8; 16] = b"0123456789abcdef";
