//! Writing the bytes of a name.

use std::fmt;
use std::hash::{BuildHasher as _, Hash, Hasher, RandomState};
use std::sync::LazyLock;

use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;

use super::slot;
use tollgate::kit::{KeySink, write_key, write_text};

/// The name of a bucket in a store.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyName {
    bytes: SmallVec<[u8; INLINE]>,
    hash: u64,
}

/// The longest name of a [`Limit`](tollgate::Limit). Calls of a backend by itself may name longer ones,
/// which no index of PostgreSQL could hold.
const MAX_LIMIT: usize = 64;

/// With a random key, so that no client can make up keys with names that share a hash.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The length up to which a name needs no allocation: that of most names.
const INLINE: usize = 64;

impl KeyName {
    #[inline]
    pub(super) fn new(head: &[u8]) -> Self {
        Self { bytes: SmallVec::from_slice(head), hash: 0 }
    }

    /// The field of a limit, as names have it.
    pub(crate) fn of_limit(limit: &str) -> Self {
        let mut field = Self::new(b"");
        field.limit(limit);
        field
    }

    /// Computes the hash of the finished name.
    #[inline]
    pub(crate) fn complete(mut self) -> Self {
        let mut hasher = HASHER.build_hasher();
        // Only these bytes decide, as names are compared by them: equal names have equal hashes.
        hasher.write(&self.bytes);
        self.hash = hasher.finish();
        self
    }

    /// The hash of the name, valid in this process.
    pub const fn own_hash(&self) -> u64 {
        self.hash
    }

    /// The slot of the name in a cluster.
    pub fn slot(&self) -> u16 {
        slot::slot_of(&self.bytes)
    }

    /// Whether all requests share this key, as far as the name shows. A hashed key does not show
    /// it.
    pub fn is_global(&self) -> bool {
        // The name of a limit and the parts of a key have no `*`.
        self.bytes.ends_with(b":*")
    }

    /// The name as text: it is of ASCII.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes).unwrap_or_default()
    }

    /// Writes the name of a limit.
    #[inline]
    pub(super) fn limit(&mut self, limit: &str) {
        match limit.as_bytes() {
            limit if limit.len() <= MAX_LIMIT => self.text(limit),
            limit => self.hash(b"%sha256-", &Sha256::digest(limit).into()),
        }
    }

    /// Writes the shard, unless it is the first, and what is before a key.
    #[inline]
    pub(crate) fn shard(&mut self, shard: u32) {
        if shard > 0 {
            self.push(b'#');
            self.number(u64::from(shard));
        }
        self.push(b':');
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    #[inline]
    pub(super) fn push(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    #[inline]
    pub(crate) fn text(&mut self, text: &[u8]) {
        write_text(self, text);
    }

    /// Writes the first 128 bits of a hash.
    pub(crate) fn hash(&mut self, kind: &[u8], hash: &[u8; 32]) {
        self.extend(kind);
        self.hex(hash.first_chunk::<16>().unwrap_or(&[0; 16]));
    }

    /// Writes the parts of a key while the name has at most `most` bytes; returns whether all fit.
    #[inline]
    pub(super) fn key(&mut self, key: &[u8], most: usize) -> bool {
        write_key(self, key, most)
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

impl KeySink for KeyName {
    #[inline]
    fn len(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    #[inline]
    fn number(&mut self, number: u64) {
        self.extend(itoa::Buffer::new().format(number).as_bytes());
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

#[inline]
fn digit(digits: &[u8; 16], value: u8) -> u8 {
    digits.get(usize::from(value)).copied().unwrap_or(b'0')
}

const LOWER: &[u8; 16] = b"0123456789abcdef";
