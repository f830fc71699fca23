//! Dumps of a memory store, with contents that no store writes and checks that are right.
//!
//! The seed is a dump as a store has written it. Its blocks are changed, and sealed with new
//! checks, so that all that can be wrong is left to the reader of the contents.

use std::collections::HashSet;
use std::hash::Hasher;
use std::io::ErrorKind;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use siphasher::sip::SipHasher13;
use tollgate::algebra::Bucket;
use tollgate::backend::{Adjustment, Backend, BucketId, Charge, Memory};
use tollgate::clock::ManualClock;
use tollgate::{Key, Quota};
use tollgate_testing::{START, at_once};

use tollgate_testing::fuzz::bytes::draws_each;

const SEED: &[u8] = include_bytes!("../data/memory-1.dump");

/// The largest number of units, and the longest step.
const MAX: i128 = 1 << 53;

/// The kinds and contents of the blocks of a dump.
type Blocks = Vec<(u8, Vec<u8>)>;

fn seed() -> Blocks {
    let (mut blocks, mut rest) = (Vec::new(), &SEED[28..]);
    while let Some((&kind, after)) = rest.split_first() {
        let len = usize::try_from(u32::from_le_bytes(after[..4].try_into().unwrap())).unwrap();
        blocks.push((kind, after[12..12 + len].to_vec()));
        rest = &after[12 + len + 8..];
    }
    blocks
}

/// The bytes of a dump with these blocks, and with the right checks.
fn sealed(blocks: &Blocks) -> Vec<u8> {
    fn seal(dump: &mut Vec<u8>) {
        let mut check = SipHasher13::new_with_keys(0x746f_6c6c_6761_7465, 0x6d65_6d6f_7279_0001);
        check.write(dump);
        dump.extend(check.finish().to_le_bytes());
    }
    let mut dump = b"tollgate memory\n\x01\0\0\0".to_vec();
    seal(&mut dump);
    for (kind, content) in blocks {
        dump.push(*kind);
        dump.extend(u32::try_from(content.len()).unwrap().to_le_bytes());
        seal(&mut dump);
        dump.extend(content);
        seal(&mut dump);
    }
    dump
}

/// The little-endian number of so many bytes at a place; with a sign if it has eight.
fn number(content: &[u8], at: usize, width: usize) -> Option<i128> {
    let bytes = content.get(at..at + width)?;
    match width {
        8 => Some(i64::from_le_bytes(bytes.try_into().unwrap()).into()),
        _ => Some(bytes.iter().rev().fold(0, |sum, byte| sum * 256 + i128::from(*byte))),
    }
}

/// The buckets of a dump, as the format describes it: tag, value and time. `None` if it is no dump.
/// The keys of the hash have to be those of the seed.
fn reference(blocks: &Blocks) -> Option<Vec<(Vec<u8>, i128, i128)>> {
    let [(1, store), middle @ .., (3, end)] = blocks.as_slice() else { return None };
    let mut buckets = Vec::new();
    for (kind, content) in middle {
        let (quotas, count) = (number(content, 0, 2)?, number(content, 2, 2)?);
        let [quotas, count] = [quotas, count].map(|count| usize::try_from(count).unwrap());
        let first = 4 + quotas * 58;
        if *kind != 2 || content.len() > 92_164 || content.len() != first + count * 32 {
            return None;
        }
        let mut capacities = Vec::new();
        for nth in 0..quotas {
            let byte = |at| content[4 + nth * 58 + at];
            let [step, gain, token, capacity, floor, initial, start] =
                [1, 9, 17, 25, 33, 41, 50].map(|at| number(content, 4 + nth * 58 + at, 8).unwrap());
            let is_quota = [step, gain, token].iter().all(|number| (1..=MAX).contains(number))
                && (0..=MAX).contains(&capacity)
                && (-MAX..=0).contains(&floor)
                && (0..=capacity).contains(&initial)
                && match (byte(0), byte(49)) {
                    (0, 0) => start == 0,
                    (1, 0 | 2 | 3) => start == 0,
                    (1, 1) => true,
                    _ => false,
                };
            is_quota.then(|| capacities.push(capacity))?;
        }
        for at in (0..count).map(|nth| first + nth * 32) {
            let [value, ts] = [16, 24].map(|place| number(content, at + place, 8).unwrap());
            let quota = usize::try_from(number(content, at + 12, 4)?).ok()?;
            let fits = (-MAX..=*capacities.get(quota)?).contains(&value);
            fits.then(|| buckets.push((content[at..at + 12].to_vec(), value, ts)))?;
        }
    }
    let tags: HashSet<_> = buckets.iter().map(|(tag, ..)| tag).collect();
    let is_whole = store.len() == 832
        && store[8..] == seed()[0].1[8..]
        && tags.len() == buckets.len()
        && end.len() == 24
        && number(end, 8, 8)? == i128::try_from(buckets.len()).unwrap();
    is_whole.then_some(buckets)
}

/// A change of one block, or of their order.
#[derive(Clone, Debug)]
enum Damage {
    /// Another number at a place of a field; the last two are the field's index and its value.
    Field(usize, usize, i64),
    Byte(usize, usize, u8),
    Kind(usize, u8),
    Cut(usize, usize),
    Append(usize, Vec<u8>),
    Remove(usize),
    Repeat(usize, usize),
    Swap(usize, usize),
    /// The last bucket once more, in the same block and with the right counts.
    Twice,
    /// So many buckets as the end mark says.
    Count(i64),
}

/// The places and widths of the numbers of a block of this kind.
fn fields(kind: u8, content: &[u8]) -> Vec<(usize, usize)> {
    match kind {
        1 => vec![(0, 8)],
        3 => vec![(0, 8), (8, 8), (16, 8)],
        _ => {
            let quotas = usize::try_from(number(content, 0, 2).unwrap_or(0)).unwrap();
            let mut found = vec![(0, 2), (2, 2)];
            for at in (0..quotas).map(|nth| 4 + nth * 58) {
                let numbers = [1, 9, 17, 25, 33, 41, 50].map(|place| (at + place, 8));
                found.extend(numbers.into_iter().chain([(at, 1), (at + 49, 1)]));
            }
            for at in (4 + quotas * 58..content.len()).step_by(32) {
                found.extend([(at, 8), (at + 8, 4), (at + 12, 4), (at + 16, 8), (at + 24, 8)]);
            }
            found
        }
    }
}

fn damaged(mut blocks: Blocks, damage: &[Damage]) -> Blocks {
    for one in damage {
        let count = blocks.len();
        if count == 0 {
            break;
        }
        match one {
            Damage::Field(block, field, value) => {
                let (kind, content) = &mut blocks[block % count];
                let places = fields(*kind, content);
                let (at, width) = places[field % places.len()];
                if let Some(place) = content.get_mut(at..at + width) {
                    place.copy_from_slice(&value.to_le_bytes()[..width]);
                }
            }
            Damage::Byte(block, at, byte) => {
                let content = &mut blocks[block % count].1;
                let len = content.len().max(1);
                if let Some(place) = content.get_mut(at % len) {
                    *place = *byte;
                }
            }
            Damage::Kind(block, kind) => blocks[block % count].0 = *kind,
            Damage::Cut(block, by) => {
                let content = &mut blocks[block % count].1;
                content.truncate(content.len().saturating_sub(*by));
            }
            Damage::Append(block, bytes) => blocks[block % count].1.extend(bytes),
            Damage::Remove(block) => drop(blocks.remove(block % count)),
            Damage::Repeat(block, to) => {
                let again = blocks[block % count].clone();
                blocks.insert(to % (count + 1), again);
            }
            Damage::Swap(a, b) => blocks.swap(a % count, b % count),
            Damage::Twice => {
                if let Some((_, content)) = blocks.get_mut(1).filter(|(kind, _)| *kind == 2)
                    && let Some(last) = content.len().checked_sub(32)
                {
                    let again = content[last..].to_vec();
                    content.extend(again);
                    let count = number(content, 2, 2).unwrap_or(0) + 1;
                    content[2..4].copy_from_slice(&u16::try_from(count).unwrap_or(0).to_le_bytes());
                }
            }
            Damage::Count(by) => {
                if let Some((3, content)) = blocks.last_mut()
                    && let Some(counted) = number(content, 8, 8)
                {
                    let counted = i64::try_from(counted).unwrap().wrapping_add(*by);
                    content[8..16].copy_from_slice(&counted.to_le_bytes());
                }
            }
        }
    }
    blocks
}

/// Numbers around each bound, and any others.
fn numbers() -> impl Strategy<Value = i64> {
    let bounds =
        [0, 1, 2, 66, 1_000, 65_536, START.as_micros(), 1 << 53, u32::MAX.into(), i64::MAX];
    prop_oneof![
        6 => (select(bounds.to_vec()), -2_i64..=2).prop_map(|(bound, by)| bound.saturating_add(by)),
        2 => (select(bounds.to_vec()), -2_i64..=2).prop_map(|(bound, by)| (-bound).saturating_add(by)),
        1 => any::<i64>(),
    ]
}

fn dumps() -> impl Strategy<Value = Blocks> {
    let place = || 0_usize..10_000;
    let one = prop_oneof![
        20 => (place(), place(), numbers()).prop_map(|(a, b, c)| Damage::Field(a, b, c)),
        4 => (place(), place(), any::<u8>()).prop_map(|(a, b, c)| Damage::Byte(a, b, c)),
        1 => (place(), any::<u8>()).prop_map(|(a, b)| Damage::Kind(a, b)),
        1 => (place(), 0_usize..100).prop_map(|(a, b)| Damage::Cut(a, b)),
        1 => (place(), vec(any::<u8>(), 0..100)).prop_map(|(a, b)| Damage::Append(a, b)),
        1 => place().prop_map(Damage::Remove),
        1 => (place(), place()).prop_map(|(a, b)| Damage::Repeat(a, b)),
        1 => (place(), place()).prop_map(|(a, b)| Damage::Swap(a, b)),
        1 => Just(Damage::Twice),
        1 => (-2_i64..=2).prop_map(Damage::Count),
    ];
    vec(one, 0..3).prop_map(|damage| damaged(seed(), &damage))
}

/// A small store, which has one shard.
fn empty() -> Memory {
    Memory::new().max_keys(1_000).clock(ManualClock::new(START))
}

#[test]
fn the_seed_is_a_dump() {
    assert_eq!(sealed(&seed()), SEED);
    let buckets = reference(&seed()).unwrap();
    assert_eq!(empty().load(SEED).unwrap().len(), buckets.len());
    assert!(buckets.len() > 30 && fields(2, &seed()[1].1).len() > 200);
}

/// What is wrong with a content is named, with the block that has it.
#[test]
fn a_wrong_content_is_named() {
    let buckets = fields(2, &seed()[1].1);
    let first = buckets.iter().position(|(_, width)| *width == 4).unwrap() - 1;
    let named = |damage: &[Damage]| {
        let error = empty().load(sealed(&damaged(seed(), damage)).as_slice()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        let text = error.to_string();
        let rest = text.strip_prefix("the dump is damaged: the block at byte ").unwrap();
        rest.strip_suffix(
            " (restore an older dump, or start without one: then all buckets are full)",
        )
        .unwrap()
        .to_owned()
    };
    for (damage, wanted) in [
        (Damage::Field(1, first + 3, i64::MAX), "881 has a value above the capacity of its quota"),
        (Damage::Field(1, first + 3, i64::MIN), "881 has a value below the lowest possible one"),
        (Damage::Field(1, first + 2, 9), "881 refers to a quota that it lacks"),
        (Damage::Field(1, 3, 0), "881 has numbers of no possible quota"),
        (Damage::Field(1, 0, 7), "881 is longer or shorter than its counts say"),
        (Damage::Cut(1, 10_000), "881 has no counts"),
        (Damage::Append(1, vec![0; 100_000]), "881 is longer than a block can be"),
        (Damage::Twice, "881 has a bucket that was there before"),
        (Damage::Kind(1, 9), "881 is of no known kind"),
        (Damage::Kind(1, 1), "881 describes the store again"),
        (Damage::Remove(0), "28 does not describe a store"),
        (Damage::Append(0, vec![0]), "28 does not describe a store"),
        (Damage::Append(2, vec![0]), "2482 is not an end mark"),
        (Damage::Count(1), "2482 counts other buckets"),
    ] {
        assert_eq!(named(&[damage]), wanted);
    }
    // Keys of another hash.
    let error = empty().load(sealed(&damaged(seed(), &[Damage::Byte(0, 9, 1)])).as_slice());
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(
        error.to_string(),
        "the dump was written by a version of tollgate that names buckets by other hashes (go back \
         to that version, or start without a dump: then all buckets are full)"
    );
}

#[test]
fn dumps_and_others_are_drawn() {
    draws_each(&dumps(), 2, |blocks| reference(&blocks).is_some());
}

#[test]
fn no_length_and_no_count_allocates_more_than_a_block() {
    let mut long = seed();
    long[1].1.resize(92_165, 0);
    let mut counts = seed();
    counts[1].1[..4].fill(0xff);
    let mut lengths = sealed(&seed());
    lengths[29..33].fill(0xff);
    for dump in [sealed(&long), sealed(&counts), lengths] {
        let store = empty();
        let mut loaded = None;
        let kept = allocation_counter::measure(|| loaded = Some(store.load(dump.as_slice())));
        assert_eq!(loaded.unwrap().unwrap_err().kind(), ErrorKind::InvalidData);
        assert!(kept.bytes_max < 200_000, "{} bytes", kept.bytes_max);
    }
}

proptest! {
    /// Each dump is read or refused as the format says, and what is read can be charged and saved.
    #[test]
    fn a_dump_is_read_as_by_the_slow_reference(
        blocks in dumps(),
        quota in tollgate_testing::quotas(),
        waits in vec(any::<u32>(), 4),
    ) {
        let wanted = reference(&blocks);
        let dump = sealed(&blocks);
        let loaded = match empty().load(dump.as_slice()) {
            Ok(loaded) => loaded,
            Err(error) => {
                prop_assert!(wanted.is_none(), "{}", error);
                prop_assert!(matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::Unsupported), "{}", error);
                return Ok(());
            }
        };
        // The keys of the hash may have others that make the same names.
        let has_same_keys = blocks[0].1[8..] == seed()[0].1[8..];
        prop_assert!(wanted.is_some() || !has_same_keys, "it was read");
        if let Some(wanted) = &wanted {
            prop_assert_eq!(loaded.len(), wanted.len());
        }
        // All of the names in the seed, and some that are not.
        let bucket = Bucket::new(&quota).unwrap();
        let clock = ManualClock::new(START);
        let loaded = loaded.clock(clock.clone());
        let names = ["login", "per-address", "a limit with a long name", "other"];
        let keys = [Key::GLOBAL, Key::from("alice"), Key::from("blocked"), Key::from("in debt")];
        let own = Bucket::new(&Quota::token_bucket(50, tollgate::HOUR)).unwrap();
        for (wait, key) in waits.into_iter().zip(&keys) {
            for (name, bucket) in names.iter().flat_map(|name| [(name, &own), (name, &bucket)]) {
                let id = BucketId::new(name, key);
                let charge = Charge::take(id, bucket, bucket.units(1).unwrap());
                let applied = at_once(loaded.apply(&[charge]).wait()).unwrap();
                let value = applied.readings()[0].state().value;
                prop_assert!(value <= bucket.capacity());
                for change in [
                    Adjustment::refund(id, bucket, 1),
                    Adjustment::block(id, bucket, Duration::from_secs(1)),
                ] {
                    let _ = at_once(loaded.adjust(&[change]).wait()).unwrap();
                }
            }
            clock.advance(Duration::from_micros(wait.into()));
        }
        let mut again = Vec::new();
        loaded.save(&mut again).unwrap();
        prop_assert!(empty().load(again.as_slice()).is_ok(), "what a store saves can be loaded");
    }
}
