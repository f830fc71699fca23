//! What no exact limiter can do without: a clock, a hash, a swap, a look at memory.

use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::keys::{Name, mix};

pub fn clock<K: Name>() -> impl FnMut(&K) -> bool {
    |_| {
        black_box(Instant::now());
        true
    }
}

/// SipHash-1-3 of the key, as `HashMap` does by default.
pub fn hash<K: Name>() -> impl FnMut(&K) -> bool {
    let state = RandomState::new();
    move |key| black_box(state.hash_one(key)) != 0
}

pub fn swap<K: Name>() -> impl FnMut(&K) -> bool {
    let word = AtomicU64::new(0);
    move |_| {
        let old = word.load(Ordering::Relaxed);
        word.compare_exchange(old, old + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// An open-addressing table of slots of 32 bytes, at most four fifths full, as our store has: found
/// by a hash that is nearly free, and written. One table, no lock, no clock, no arithmetic.
pub struct Table {
    slots: Vec<[u64; 4]>,
}

impl Table {
    pub fn holding(keys: usize) -> Self {
        Self { slots: vec![[0; 4]; (keys + keys / 4).next_power_of_two().max(16)] }
    }

    /// Counts how often this number was seen.
    #[inline]
    pub fn count(&mut self, number: u32) -> u64 {
        let mask = self.slots.len() - 1;
        let tag = mix(u64::from(number)) | 1;
        let mut at = (tag >> 20) as usize & mask;
        loop {
            let slot = &mut self.slots[at];
            if slot[0] == tag || slot[0] == 0 {
                slot[0] = tag;
                slot[1] += 1;
                return slot[1];
            }
            at = (at + 1) & mask;
        }
    }
}
