//! A keyed hash of a bucket's name, which clients cannot predict.
//!
//! # Design
//!
//! The memory store does not keep names. It keeps 96 bits of a name's hash, the [`Tag`]. 32 of them
//! pick the shard, and the others the slot, so a tag alone says where its bucket belongs in a store
//! of any size. Two properties matter: two names must not share a tag, and no client may choose
//! keys that all fall into one place.
//!
//! **Words.** A name becomes a list of 64-bit words, in which each part has a fixed place and an
//! absent part is zero. Different names give different lists. Nearly every name has the *usual*
//! form: a limit's name of at most 16 bytes without zero bytes, and a key that is [held in
//! place](Key). It has eight words:
//!
//! ```text
//! shard | limit, bytes 0-7 | limit, bytes 8-15 | key: its length and bytes | 4 more words of the key
//! ```
//!
//! For example, the limit `login` with the key `"bob"` gives the words 0, `login`, 0,
//! `\x05s\x03bob` (5 bytes: the tag of text, the length 3, and `bob`), 0, 0, 0, 0. All other names
//! have the *general* form: one word with the shard and both lengths, then the bytes of the limit
//! and of the key.
//!
//! **Hash.** The hash is multilinear: the upper 64 bits of `k0 + k1·m1 + k2·m2 + …`, computed
//! modulo 2^128, where the keys `k` are 128 random bits each. It is computed twice, with
//! independent keys, which gives 128 bits. This family is strongly universal (Lemire and Kaser,
//! "Strongly universal string hashing is fast", The Computer Journal 57, 2014): over the choice of
//! the keys, the hashes of any two names are independent and evenly distributed. So two names share
//! a tag with a probability of 2⁻⁹⁶, and one of `n` slots with `1/n`.
//!
//! **Mixing.** Strong universality says nothing about three names or more. Hashes of names that
//! count up (`user-1`, `user-2`, …) are evenly spaced. If the space is close to a simple fraction
//! of the table they fall into a few heaps, which linear probing cannot bear (Pătraşcu and Thorup,
//! "On the k-independence required by linear probing and minwise independence", ICALP 2010). So
//! each half is mixed by a bijection at the end. A bijection does not change the probability for
//! two names.
//!
//! **Secrecy.** These bounds hold for names that are chosen without knowledge of the keys. The keys
//! are drawn for each store and leave the process only with a [dump](super::dump) of it, and no
//! answer depends on a hash.
//!
//! **Speed.** Each word takes four multiplications, which do not depend on each other, while the
//! rounds of SipHash do. SipHash makes the keys, and hashes names that are too long.

use std::array;
use std::hash::{BuildHasher, Hasher as _, RandomState};

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::backend::charge::BucketId;
use crate::backend::key::{KEY_WORDS, Key, each_word};

/// A keyed hash function. Each store has its own keys.
pub(super) struct Hasher {
    start: Lane,
    /// The keys for the words of the usual form: the shard, the two of the limit's name, and those
    /// of a key that is held in place.
    usual: [Lane; 3 + KEY_WORDS],
    /// The keys for the words of the general form.
    others: [Lane; WORDS],
    /// The SipHash key for longer names. The two functions are independent, so names of different
    /// forms share a tag no more often than by chance.
    long: [u64; 2],
}

/// The longest limit and key together, in bytes, that are hashed in words.
const LONGEST: usize = 104;

/// The word of the lengths, and the words of the longest name. Two more, because the last word of
/// the limit and that of the key may both be partly filled.
const WORDS: usize = 1 + LONGEST / 8 + 2;

/// The number of [words](Hasher::words) of a hash function: four for each lane, and those of
/// SipHash.
pub(super) const HASHER_WORDS: usize = 4 * (1 + 3 + KEY_WORDS + WORDS) + 2;

impl Hasher {
    /// A hash function with random keys from the operating system.
    pub(super) fn random() -> Self {
        // Each `RandomState` hashes under a secret key of its own.
        let states = [RandomState::new(), RandomState::new()];
        let mut count = 0_u64;
        Self::keyed(|| {
            count = count.wrapping_add(1);
            states.each_ref().map(|state| state.hash_one(count))
        })
    }

    /// The hash function with these [words](Self::words).
    pub(super) fn from_words(words: [u64; HASHER_WORDS]) -> Self {
        let (pairs, _) = words.as_chunks::<2>();
        let mut pairs = pairs.iter();
        // There is a pair for each that is drawn.
        Self::keyed(|| pairs.next().copied().unwrap_or_default())
    }

    /// All keys, in the order in which they were drawn. They are secret: see above.
    pub(super) fn words(&self) -> impl Iterator<Item = u64> {
        let lanes = [&self.start].into_iter().chain(&self.usual).chain(&self.others);
        let halves = lanes.flat_map(|lane| [lane.low, lane.high]);
        let words = halves.flat_map(|half| [upper_half(half), upper_half(half << 64)]);
        words.chain(self.long)
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

    /// The hash of a bucket's name.
    #[inline(always)]
    pub(super) fn fingerprint(&self, id: BucketId<'_>) -> Fingerprint {
        let [print] = self.fingerprints(id, [id.shard_index()]);
        print
    }

    /// The hashes of the names of these shards of a limit and key.
    #[inline(always)]
    pub(super) fn fingerprints<const N: usize>(
        &self,
        id: BucketId<'_>,
        shards: [u32; N],
    ) -> [Fingerprint; N] {
        match (id.head().whole(), id.key().inline_words()) {
            (Some(name), Some((key, count))) => self.short(shards, name, key, count),
            _ => shards.map(|shard| self.general(id.limit(), id.key(), shard)),
        }
    }

    /// The hashes of names of the usual form, of which `count` words of the key are not zero.
    #[inline(always)]
    fn short<const N: usize>(
        &self,
        shards: [u32; N],
        [name, tail]: [u64; 2],
        [key, second, third, fourth, last]: [u64; KEY_WORDS],
        count: usize,
    ) -> [Fingerprint; N] {
        let [of_shard, of_name, of_tail, of_key, of_second, of_third, of_fourth, of_last] =
            &self.usual;
        let mut sum = self.start;
        sum.add(of_name, name);
        sum.add(of_key, key);
        // A word of zeros would add zero, so it is left out.
        if tail != 0 {
            sum.add(of_tail, tail);
        }
        // Short keys have one or two words. The branches skip the multiplications by zeros.
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
        shards.map(|shard| {
            let mut sum = sum;
            if shard != 0 {
                sum.add(of_shard, u64::from(shard));
            }
            sum.fingerprint()
        })
    }

    /// The hash of a name of the general form.
    #[inline(never)]
    fn general(&self, limit: &str, key: &Key, shard: u32) -> Fingerprint {
        let (limit, key) = (limit.as_bytes(), key.as_bytes());
        if limit.len().saturating_add(key.len()) > LONGEST {
            return self.long(limit, key, shard);
        }
        // Both lengths are at most `LONGEST`, so the three parts of this word do not overlap.
        let [limit_len, key_len] =
            [limit.len(), key.len()].map(|len| u64::try_from(len).unwrap_or(0));
        let lengths = u64::from(shard) | limit_len << 32 | key_len << 48;

        let (mut sum, mut keys) = (self.start, self.others.iter());
        let mut add = |word| {
            // `WORDS` keys suffice for `LONGEST` bytes.
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
        // Of one width on every machine, so that a store can be moved to another.
        for len in [limit.len(), key.len()] {
            hasher.write(&u64::try_from(len).unwrap_or(u64::MAX).to_le_bytes());
        }
        hasher.write(&shard.to_le_bytes());
        let hash = hasher.finish128();
        Fingerprint { low: hash.h1, high: hash.h2 }
    }
}

/// The pair of keys of one word, or the pair of sums so far: one lane for each half of the hash.
#[derive(Clone, Copy)]
struct Lane {
    low: u128,
    high: u128,
}

impl Lane {
    /// Adds a word times its keys.
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
    // The shifted number has 64 bits, so the conversion does not fail.
    u64::try_from(sum >> 64).unwrap_or(0)
}

/// A bijection that makes evenly spaced hashes uneven.
#[inline]
const fn mix(hash: u64) -> u64 {
    (hash ^ (hash >> 32)).wrapping_mul(GOLDEN)
}

/// 2^64 divided by the golden ratio, made odd: multiplying by an odd number is a bijection modulo
/// 2^64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The 96 bits that stand for a bucket's name: those that pick its slot, and those that pick its
/// shard.
pub(super) type Tag = (u64, u32);

/// The hash of a bucket's name, 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fingerprint {
    low: u64,
    high: u64,
}

impl Fingerprint {
    pub(super) const ZERO: Self = Self { low: 0, high: 0 };

    #[cfg(test)]
    pub(super) const fn new(low: u64, high: u64) -> Self {
        Self { low, high }
    }

    /// The index of the bucket's shard, below `count`.
    pub(super) fn shard(self, count: usize) -> usize {
        shard_of(self.tag(), count)
    }

    /// The 96 bits by which a slot knows its bucket.
    pub(super) fn tag(self) -> Tag {
        // The mask leaves 32 bits, so the conversion does not fail.
        (self.low, u32::try_from(self.high & u64::from(u32::MAX)).unwrap_or(0))
    }
}

/// The index of the shard that holds the bucket with this tag, below `count`. It comes from the
/// bits of the tag that pick no slot, so the tags of one shard are still evenly distributed.
pub(super) fn shard_of((_, high): Tag, count: usize) -> usize {
    scale(u64::from(high) << 32, count)
}

/// Maps a hash evenly onto `0..count`: the upper half of `hash · count`. For example, with a count
/// of 10, hashes in the second tenth of all 64-bit numbers give 1.
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
    use tollgate_testing::cases::times;

    use super::*;
    use crate::backend::Key;

    /// Names with lengths around the bounds of a word, of the longest key in place and of the
    /// longest name that is hashed in words; and names that begin alike, end alike, or begin with
    /// zeros.
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

    fn seeded(seed: u64) -> Hasher {
        let state = BuildHasherDefault::<SipHasher13>::default();
        let mut count = 0_u64;
        Hasher::keyed(|| {
            count += 1;
            [0_u64, 1].map(|half| state.hash_one((seed, count, half)))
        })
    }

    /// Before the hashes were mixed, names that count up fell into a few heaps where their spacing
    /// happened to be close to a simple fraction: one store in a hundred stayed slow.
    #[test]
    fn names_that_count_up_do_not_pile_up() {
        const SLOTS: usize = 1_000;
        for seed in 0_u64..100 {
            let hasher = seeded(seed);
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
                // How far from its home each bucket is, when each takes the next free slot.
                let (mut free, mut off) = (0, 0);
                for home in homes {
                    let slot = home.max(free);
                    off += slot - home;
                    free = slot + 1;
                }
                // Random homes give two slots on average.
                assert!(off < 8 * 800, "seed {seed}, kind {kind}: {off} slots off");
            }
        }
    }

    /// Keys that count up fill the shards of a store evenly, whatever their number.
    #[test]
    fn names_that_count_up_fill_the_shards_evenly() {
        let names: [fn(u32) -> Key; 3] = [
            |n| Key::from(n),
            |n| Key::from(Ipv4Addr::from_bits(0x0a00_0000 + n)),
            |n| Key::from(format!("user-{n:06}")),
        ];
        for (seed, name) in (0..times(12, 6)).flat_map(|seed| names.map(|name| (seed, name))) {
            let (hasher, count) =
                (seeded(seed), [16, 256, 1_024][usize::try_from(seed % 3).unwrap()]);
            let mut shards = vec![0_u32; count];
            for n in 0..u32::try_from(count * 100).unwrap() {
                shards[hasher.fingerprint(BucketId::new("limit", &name(n))).shard(count)] += 1;
            }
            let fullest = shards.into_iter().max().unwrap();
            // By chance, the fullest of 1,024 shards holds some 135.
            assert!(fullest < 150, "seed {seed}, {count} shards: {fullest}");
        }
    }

    #[test]
    fn a_hash_function_is_made_of_its_words() {
        let hasher = Hasher::random();
        let words: Vec<_> = hasher.words().collect();
        let again = Hasher::from_words(words.clone().try_into().unwrap());
        assert!(again.words().eq(words));
        for text in ["", "bob", "a key of forty bytes, which is on the heap", &"x".repeat(200)] {
            let key = Key::from(text);
            let id = BucketId::new("limit", &key).shard(2);
            assert_eq!(hasher.fingerprint(id), again.fingerprint(id));
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
