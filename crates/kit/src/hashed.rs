//! Maps with keys that are hashes already, or that clients cannot choose.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map that takes the hash of a key from the key itself, because hashing it again costs as much
/// as the lookup. Clients must not be able to choose that hash.
pub type PrehashedMap<K, V> = HashMap<K, V, BuildHasherDefault<PassThroughHasher>>;

/// A hasher that returns the last number that was written.
#[derive(Debug, Default)]
pub struct PassThroughHasher(u64);

impl Hasher for PassThroughHasher {
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    /// Spreads the bits of a small number, such as a slot.
    fn write_u16(&mut self, number: u16) {
        self.0 = u64::from(number).wrapping_mul(SPREAD);
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(SPREAD);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// 2^64 divided by the golden ratio: its multiples are spread evenly over 64 bits.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
