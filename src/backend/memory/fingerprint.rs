//! The name of a bucket, hashed so that a client cannot choose where it falls.
//!
//! # Design
//!
//! A name is a list of words `m1, m2, …`, each in a place of its own; what is not there is a zero.
//! Nearly every limit has a name of at most 16 bytes, none of which is zero, and a key that is held
//! in place: it is the shard, two words of the limit and five of the key with its length. Other
//! names have other places: the lengths, and what is in them. So different names are different
//! lists. Its hash is multilinear: the upper 64 bits of `k0 + k1·m1 + k2·m2 + …`, counted in 128
//! bits with random keys `k` of 128 bits; and the same once more with other keys. That is strongly
//! universal (Lemire and Kaser, "Strongly universal string hashing is fast", The Computer Journal
//! 57, 2014): whichever two names a client picks, their 128 bits are evenly distributed and
//! independent of each other over the choice of the keys. So two names meet in the 96 bits that
//! make the tag with a probability of 2⁻⁹⁶, and in one of `n` places with `1/n`.
//!
//! That says nothing about more than two: the hashes of names that count up are evenly spaced, and
//! where the space is close to a simple fraction they fall into a few heaps, which linear probing
//! does not bear (Pătraşcu and Thorup, "On the k-independence required by linear probing and
//! minwise independence", ICALP 2010). So each half is mixed once more, one to one: for two names
//! nothing changes by that.
//!
//! This holds for names that were chosen without knowledge of the keys. They never leave the
//! process, each store has others, and nothing that anybody is told depends on a hash.
//!
//! It takes four multiplications a word, and these need not wait for each other, as SipHash's
//! rounds have to. SipHash makes the keys here, and hashes what is too long.

use std::array;
use std::hash::{BuildHasher, Hasher as _, RandomState};

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::backend::charge::BucketId;
use crate::backend::key::{KEY_WORDS, Key, each_word};

/// A keyed hash with keys of its own for each store.
pub(super) struct Hasher {
    start: Lane,
    /// For the words of the usual names: the shard, the limit's name, and a key that is held in
    /// place.
    usual: [Lane; 3 + KEY_WORDS],
    /// For the words of other names.
    others: [Lane; WORDS],
    /// For names of more words. Two hashes that have nothing in common meet no more often than by
    /// chance.
    long: [u64; 2],
}

/// The bytes of the limit and the key that are hashed in words.
const LONGEST: usize = 104;

/// The lengths, and as many as there are in the longest names; each of the two may begin a word
/// that it does not fill.
const WORDS: usize = 1 + LONGEST / 8 + 2;

impl Hasher {
    /// A hash whose keys the operating system's randomness gives.
    pub(super) fn random() -> Self {
        // Each hashes under a key of its own, which does not leave the process.
        let states = [RandomState::new(), RandomState::new()];
        let mut count = 0_u64;
        Self::keyed(|| {
            count = count.wrapping_add(1);
            states.each_ref().map(|state| state.hash_one(count))
        })
    }

    fn keyed(mut random: impl FnMut() -> [u64; 2]) -> Self {
        let mut lane = || {
            let [[a, b], [c, d]] = [random(), random()];
            Lane { low: join_halves(a, b), high: join_halves(c, d) }
        };
        let start = lane();
        let (usual, others) = (array::from_fn(|_| lane()), array::from_fn(|_| lane()));
        Self { start, usual, others, long: random() }
    }

    /// The hash of a bucket's name, as words: different names are different lists.
    #[inline(always)]
    pub(super) fn fingerprint(&self, id: BucketId<'_>) -> Fingerprint {
        match (id.head().whole(), id.key().inline_words()) {
            (Some(name), Some((key, count))) => self.short(id.shard_index(), name, key, count),
            _ => self.general(id.limit(), id.key(), id.shard_index()),
        }
    }

    /// The hash of a name whose parts are in words already, each in a place of its own.
    #[inline(always)]
    fn short(
        &self,
        shard: u32,
        [name, tail]: [u64; 2],
        [key, second, third, fourth, last]: [u64; KEY_WORDS],
        count: usize,
    ) -> Fingerprint {
        let [of_shard, of_name, of_tail, of_key, of_second, of_third, of_fourth, of_last] =
            &self.usual;
        let mut sum = self.start;
        sum.add(of_name, name);
        sum.add(of_key, key);
        // A word of zeros adds nothing, so it may be left out.
        if tail != 0 {
            sum.add(of_tail, tail);
        }
        if shard != 0 {
            sum.add(of_shard, u64::from(shard));
        }
        if count > 1 {
            sum.add(of_second, second);
            if count > 2 {
                sum.add(of_third, third);
                sum.add(of_fourth, fourth);
                if count > 4 {
                    sum.add(of_last, last);
                }
            }
        }
        sum.fingerprint()
    }

    /// The hash of any other name: how long the limit and the key are and which shard it is, and
    /// then the two in words.
    #[inline(never)]
    fn general(&self, limit: &str, key: &Key, shard: u32) -> Fingerprint {
        let (limit, key) = (limit.as_bytes(), key.as_bytes());
        if limit.len().saturating_add(key.len()) > LONGEST {
            return self.long(limit, key, shard);
        }
        // Neither is longer than both, so nothing is lost, and none of the three overlaps another.
        let [limit_len, key_len] =
            [limit.len(), key.len()].map(|len| u64::try_from(len).unwrap_or(0));
        let lengths = u64::from(shard) | limit_len << 32 | key_len << 48;

        let (mut sum, mut keys) = (self.start, self.others.iter());
        let mut add = |word| {
            // There are as many as words, which were counted.
            if let Some(keys) = keys.next() {
                sum.add(keys, word);
            }
        };
        add(lengths);
        each_word(limit, &mut add);
        each_word(key, add);
        sum.fingerprint()
    }

    #[cold]
    fn long(&self, limit: &[u8], key: &[u8], shard: u32) -> Fingerprint {
        let [first, second] = self.long;
        let mut hasher = SipHasher13::new_with_keys(first, second);
        hasher.write(limit);
        hasher.write(key);
        hasher.write_usize(limit.len());
        hasher.write_usize(key.len());
        hasher.write_u32(shard);
        let hash = hasher.finish128();
        Fingerprint { low: hash.h1, high: hash.h2 }
    }
}

/// The keys of one word, or what the products of several come to.
#[derive(Clone, Copy)]
struct Lane {
    low: u128,
    high: u128,
}

impl Lane {
    /// Counts a word in, whose keys are these.
    #[inline(always)]
    fn add(&mut self, keys: &Self, word: u64) {
        let word = u128::from(word);
        self.low = self.low.wrapping_add(keys.low.wrapping_mul(word));
        self.high = self.high.wrapping_add(keys.high.wrapping_mul(word));
    }

    #[inline(always)]
    fn fingerprint(self) -> Fingerprint {
        Fingerprint { low: mix(upper_half(self.low)), high: mix(upper_half(self.high)) }
    }
}

fn join_halves(high: u64, low: u64) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

fn upper_half(sum: u128) -> u64 {
    // What is left of 128 bits after the shift.
    u64::try_from(sum >> 64).unwrap_or(0)
}

/// Another number for each, so that even spaces between hashes become uneven.
#[inline]
const fn mix(hash: u64) -> u64 {
    (hash ^ (hash >> 32)).wrapping_mul(GOLDEN)
}

/// 2^64 divided by the golden ratio, made odd: a multiplication by it loses nothing.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// By what a slot knows its bucket.
pub(super) type Tag = (u64, u32);

/// 128 bits that stand for a bucket's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    pub(super) fn tag(self) -> Tag {
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
    use std::hash::BuildHasherDefault;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use siphasher::sip::SipHasher13;

    use super::*;
    use crate::backend::Key;

    /// Lengths on both sides of a word, of the longest key held in place and of the longest name
    /// that is hashed in words; names that begin or end alike, or with zeros.
    #[test]
    fn different_names_never_meet() {
        let hasher = Hasher::random();
        let mut seen = HashSet::new();
        for len in (0..=50).chain(96..=108) {
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

    /// Multilinear hashes of names that count up are evenly spaced, and fell into a few heaps where
    /// the space happened to be close to a simple fraction: one store in a hundred stayed slow.
    #[test]
    fn names_that_count_up_do_not_pile_up() {
        const SLOTS: usize = 1_000;
        for seed in 0_u64..100 {
            let state = BuildHasherDefault::<SipHasher13>::default();
            let mut count = 0_u64;
            let hasher = Hasher::keyed(|| {
                count += 1;
                [0_u64, 1].map(|half| state.hash_one((seed, count, half)))
            });
            let names: [fn(u32) -> Key; 4] = [
                |n| Key::from(n),
                |n| Key::from(Ipv4Addr::from_bits(0x0a00_0000 + n)),
                |n| Key::from(format!("user-{n:06}")),
                |n| {
                    Key::network(Ipv6Addr::from_bits((0x2001_0db8 << 96) | u128::from(n) << 64), 64)
                },
            ];
            for (kind, name) in names.into_iter().enumerate() {
                let key_of = |n| hasher.fingerprint(BucketId::new("limit", &name(n))).tag().0;
                let mut homes: Vec<_> = (0..800).map(|n| scale(key_of(n), SLOTS)).collect();
                homes.sort_unstable();
                // How far from home each is that is put into the next free slot.
                let (mut free, mut off) = (0, 0);
                for home in homes {
                    let slot = home.max(free);
                    off += slot - home;
                    free = slot + 1;
                }
                // Two where all is chance.
                assert!(off < 8 * 800, "seed {seed}, kind {kind}: {off} slots off");
            }
        }
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
