//! The name of a bucket, hashed so that nobody can choose where it falls.

use std::hash::{BuildHasher, Hasher as _, RandomState};

use siphasher::sip128::{Hasher128, SipHasher13};

use super::BucketId;
use crate::backend::key::each_word;

/// A keyed hash with a key of its own for each store.
pub(super) struct Hasher {
    short: Secret,
    /// What is not hashed in whole words must not meet what is.
    long: Secret,
}

impl Hasher {
    /// A hash whose key the operating system's randomness gives.
    pub(super) fn random() -> Self {
        Self { short: Secret::random(), long: Secret::random() }
    }

    /// The hash of a bucket's name: the limit and the key in words, and behind them the shard and
    /// how long the two are, so that different names are different messages.
    pub(super) fn fingerprint(&self, id: BucketId<'_>) -> Fingerprint {
        let (limit, key) = (id.limit().as_bytes(), id.key());
        let (Ok(limit_len), Ok(key_len)) = (u8::try_from(limit.len()), u8::try_from(key.len()))
        else {
            return self.long(id);
        };
        let mut hasher = self.short.hasher();
        // Whole words are hashed without a detour over a buffer.
        each_word(limit, |word| hasher.write_u64(word));
        key.each_word(|word| hasher.write_u64(word));
        hasher.write_u32(id.shard_index());
        hasher.write_u16(u16::from_le_bytes([limit_len, key_len]));
        Fingerprint::of(hasher)
    }

    #[cold]
    fn long(&self, id: BucketId<'_>) -> Fingerprint {
        let (limit, key) = (id.limit().as_bytes(), id.key().as_bytes());
        let mut hasher = self.long.hasher();
        hasher.write(limit);
        hasher.write(key);
        hasher.write_usize(limit.len());
        hasher.write_usize(key.len());
        hasher.write_u32(id.shard_index());
        Fingerprint::of(hasher)
    }
}

/// The key of a hash.
struct Secret(u64, u64);

impl Secret {
    fn random() -> Self {
        // Each `RandomState` hashes under other keys, which nobody outside the process knows.
        let random = || RandomState::new().build_hasher().finish();
        Self(random(), random())
    }

    // Inlined, a hasher is known to be at the start of a word, and its length costs nothing.
    #[inline]
    fn hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, self.1)
    }
}

/// 128 bits that stand for a bucket's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    low: u64,
    high: u64,
}

impl Fingerprint {
    #[inline(always)]
    fn of(hasher: SipHasher13) -> Self {
        let hash = hasher.finish128();
        Self { low: hash.h1, high: hash.h2 }
    }

    #[cfg(test)]
    pub(super) const fn new(low: u64, high: u64) -> Self {
        Self { low, high }
    }

    /// A number below `count`, from bits that the tag does not have.
    pub(super) fn shard(self, count: usize) -> usize {
        scale(self.high & !u64::from(u32::MAX), count)
    }

    /// The 96 bits by which a slot knows its bucket.
    pub(super) fn tag(self) -> (u64, u32) {
        // The lower half is what is left of a 64-bit number after the mask.
        (self.low, u32::try_from(self.high & u64::from(u32::MAX)).unwrap_or(0))
    }
}

/// Maps a hash evenly onto `0..count`: the high half of their product.
pub(super) fn scale(hash: u64, count: usize) -> usize {
    let count = u128::try_from(count).unwrap_or(0);
    usize::try_from(u128::from(hash).wrapping_mul(count) >> 64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::backend::Key;

    /// Lengths on both sides of a word, of the longest key held in place and of the longest name
    /// that is hashed in words; names that begin or end alike, or with zeros.
    #[test]
    fn different_names_never_meet() {
        let hasher = Hasher::random();
        let mut seen = HashSet::new();
        for len in (0..=50).chain(250..=260) {
            for place in 0..=len {
                let mut bytes = vec![0; len];
                if let Some(byte) = bytes.get_mut(place) {
                    *byte = b'a';
                }
                let text = String::from_utf8(bytes).unwrap();
                for (limit, key) in [("", &*text), (&text, ""), ("a", &text), (&text, "a")] {
                    let (key, limit) = (Key::from(key), limit.to_owned());
                    let Fingerprint { low, high } =
                        hasher.fingerprint(BucketId::new(&limit, &key).shard(7));
                    // The same name is built in more than one way.
                    seen.insert((low, high, key, limit));
                }
            }
        }
        let names: HashSet<_> = seen.iter().map(|(.., key, limit)| (key, limit)).collect();
        let prints: HashSet<_> = seen.iter().map(|(low, high, ..)| (low, high)).collect();
        assert!(names.len() > 4_000);
        assert_eq!(names.len(), prints.len());
        assert_eq!(names.len(), seen.len());
    }

    #[test]
    fn each_shard_is_a_bucket_of_its_own() {
        let (hasher, key) = (Hasher::random(), Key::from("key"));
        let print = |shard| hasher.fingerprint(BucketId::new("limit", &key).shard(shard));
        let prints: HashSet<_> =
            (0..=300).map(print).map(|print| (print.low, print.high)).collect();
        assert_eq!(prints.len(), 301);
    }
}
