//! The name of a bucket, hashed so that nobody can choose where it falls.

use std::hash::{BuildHasher, Hasher as _, RandomState};

use siphasher::sip128::{Hasher128, SipHasher13};

use super::BucketId;

/// A keyed hash with a key of its own for each store.
pub(super) struct Hasher {
    keys: (u64, u64),
}

impl Hasher {
    /// A hash whose key the operating system's randomness gives.
    pub(super) fn random() -> Self {
        // Each `RandomState` hashes under other keys, which nobody outside the process knows.
        let random = || RandomState::new().build_hasher().finish();
        Self { keys: (random(), random()) }
    }

    pub(super) fn fingerprint(&self, id: BucketId<'_>) -> Fingerprint {
        let hasher = SipHasher13::new_with_keys(self.keys.0, self.keys.1);
        // No text has a byte 0xff, so that the name ends where the shard begins; the key is last.
        let shard = id.shard_index().to_ne_bytes();
        let pieces = [id.limit().as_bytes(), &[0xff], &shard, id.key().as_bytes()];
        // Short names are hashed in one go, which is faster than piece by piece.
        let mut bytes = [0; SHORT];
        let mut rest = bytes.as_mut_slice();
        for piece in pieces {
            let Some((room, after)) = rest.split_at_mut_checked(piece.len()) else {
                return Self::long(hasher, pieces);
            };
            room.copy_from_slice(piece);
            rest = after;
        }
        let len = SHORT.saturating_sub(rest.len());
        let hash = hasher.hash(bytes.get(..len).unwrap_or(&bytes));
        Fingerprint { low: hash.h1, high: hash.h2 }
    }

    #[cold]
    fn long(mut hasher: SipHasher13, pieces: [&[u8]; 4]) -> Fingerprint {
        pieces.into_iter().for_each(|piece| hasher.write(piece));
        let hash = hasher.finish128();
        Fingerprint { low: hash.h1, high: hash.h2 }
    }
}

/// Room for the longest name of a limit or for a usual one and the longest key that is held in place.
const SHORT: usize = 96;

/// 128 bits that stand for a bucket's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    low: u64,
    high: u64,
}

impl Fingerprint {
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
