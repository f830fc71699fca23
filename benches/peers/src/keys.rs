//! Keys, the same in every run, made before anything is timed.

use std::hash::Hash;
use std::net::Ipv4Addr;

/// A key that every peer takes in its own way.
pub trait Name: Hash + Eq + Clone + Send + Sync + 'static {
    /// The key of this number; different numbers are different keys.
    fn numbered(number: u32) -> Self;
    /// As our limiter takes it.
    fn key(&self) -> tollgate::Key;
}

impl Name for Ipv4Addr {
    fn numbered(number: u32) -> Self {
        // An odd factor makes it a permutation of all addresses.
        Self::from(number.wrapping_mul(0x9e37_79b1))
    }

    fn key(&self) -> tollgate::Key {
        (*self).into()
    }
}

/// 24 bytes, as a session or an API key has.
impl Name for String {
    fn numbered(number: u32) -> Self {
        let mixed = mix(u64::from(number));
        format!("{number:08x}{mixed:016x}")
    }

    fn key(&self) -> tollgate::Key {
        self.as_str().into()
    }
}

/// So many keys, in the order in which they are first seen.
pub fn all<K: Name>(count: usize) -> Vec<K> {
    (0..count as u32).map(K::numbered).collect()
}

/// `picks` of `count` keys at random. They lie in memory in the order in which they are asked for,
/// as the key of a request that was just read is in the cache too.
pub fn at_random<K: Name>(count: usize, picks: usize) -> Vec<K> {
    (0..picks as u64).map(|nth| K::numbered((mix(nth) % count as u64) as u32)).collect()
}

/// Runs through a list in pieces, and begins again at its end.
pub struct Pieces<'a, K> {
    keys: &'a [K],
    next: usize,
    size: usize,
}

impl<'a, K> Pieces<'a, K> {
    pub fn of(keys: &'a [K], size: usize) -> Self {
        Self { keys, next: 0, size: size.min(keys.len()) }
    }

    pub fn piece(&mut self) -> &'a [K] {
        if self.next + self.size > self.keys.len() {
            self.next = 0;
        }
        let piece = &self.keys[self.next..self.next + self.size];
        self.next += self.size;
        piece
    }
}

/// Spreads numbers over all of their range, as a random choice would.
pub fn mix(mut number: u64) -> u64 {
    number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
