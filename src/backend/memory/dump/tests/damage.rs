//! A dump that is not what was written is an error.

use std::io::{self, ErrorKind};

use tollgate_testing::cases::times;

use super::{at_start, bucket, dump_of, take};
use crate::backend::Memory;
use crate::backend::tests::Dice;
use crate::quota::{DAY, HOUR, Quota};

/// A store with buckets of three quotas, one of them blocked and some in debt.
fn filled(keys: u64) -> Memory {
    let memory = at_start(5_000);
    let quotas = [
        bucket(Quota::token_bucket(5, HOUR)),
        bucket(Quota::fixed_window(1_000, DAY)),
        bucket(Quota::token_bucket(100, DAY).initial(7)),
    ];
    for key in 0..keys {
        take(&memory, key, &quotas[usize::try_from(key % 3).unwrap()], 1 + key % 9);
    }
    memory
}

fn load(dump: &[u8]) -> Result<Memory, io::Error> {
    // Without the million keys of a new store, which take their time.
    at_start(10).load(dump)
}

/// The byte at which the message says that the damage is; 0 if it is no dump at all.
fn offset(error: &io::Error) -> u64 {
    let text = error.to_string();
    let Some((_, rest)) = text.split_once("at byte ") else { return 0 };
    rest.split(|other: char| !other.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// The place of each block, the part before the first one included.
fn blocks(dump: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut found: Vec<_> = std::iter::once(0..28).collect();
    while let Some(rest) = dump.get(found.last().unwrap().end..).filter(|rest| !rest.is_empty()) {
        let len = u32::from_le_bytes(rest[1..5].try_into().unwrap());
        let start = found.last().unwrap().end;
        found.push(start..start + 21 + usize::try_from(len).unwrap());
    }
    found
}

/// A random change of some bytes, and what it is.
fn damage(dice: &mut Dice, dump: &[u8]) -> (&'static str, Vec<u8>) {
    let mut bytes = dump.to_vec();
    let index = |dice: &mut Dice, below: usize| {
        usize::try_from(dice.below(u64::try_from(below).unwrap())).unwrap()
    };
    let range = |dice: &mut Dice| {
        let from = index(dice, dump.len());
        let len = 1 + usize::try_from(dice.up_to(5_000)).unwrap();
        from..(from + len).min(dump.len())
    };
    let blocks = blocks(dump);
    let what = match dice.below(10) {
        0 => {
            bytes[index(dice, dump.len())] ^= 1 << dice.below(8);
            "a bit is flipped"
        }
        1 => {
            // In what steers the reader: the magic, the version, kinds, lengths and checks.
            let block = dice.pick(&blocks);
            let near = [block.start, block.start + 5, block.end - 8][index(dice, 3)];
            bytes[near + index(dice, 8)] ^= u8::try_from(1 + dice.below(255)).unwrap();
            "a byte at the edge of a block is another"
        }
        2 => {
            for _ in 0..2 + dice.below(30) {
                bytes[index(dice, dump.len())] ^= 1 << dice.below(8);
            }
            "bits are flipped"
        }
        3 => {
            bytes.truncate(index(dice, dump.len()));
            "it is cut"
        }
        4 => {
            // At the end of a block, where nothing is cut in two.
            bytes.truncate(blocks[index(dice, blocks.len() - 1)].end);
            "it is cut between blocks"
        }
        5 => {
            let more = 1 + dice.below(100);
            let byte = u8::try_from(dice.below(256)).unwrap();
            bytes.extend((0..more).map(|_| byte));
            "bytes follow"
        }
        6 => {
            bytes[range(dice)].fill(if dice.one_in(2) { 0 } else { 0xff });
            "a range is blank"
        }
        7 => {
            let [a, b] = [index(dice, blocks.len()), index(dice, blocks.len())];
            let order: Vec<_> = (0..blocks.len())
                .map(|nth| {
                    if nth == a {
                        b
                    } else if nth == b {
                        a
                    } else {
                        nth
                    }
                })
                .collect();
            bytes = order.into_iter().flat_map(|nth| &dump[blocks[nth].clone()]).copied().collect();
            "two blocks are swapped"
        }
        8 => {
            let block = blocks[index(dice, blocks.len())].clone();
            match dice.one_in(2) {
                true => drop(bytes.drain(block)),
                false => {
                    let again = dump[block.clone()].to_vec();
                    drop(bytes.splice(block.end..block.end, again));
                }
            }
            "a block is missing, or there twice"
        }
        _ => {
            let (from, to) = (range(dice), index(dice, dump.len()));
            let moved = dump[from.clone()].to_vec();
            drop(bytes.drain(from));
            let to = to.min(bytes.len());
            drop(bytes.splice(to..to, moved));
            "a range is elsewhere"
        }
    };
    (what, bytes)
}

#[test]
fn each_of_many_damaged_dumps_is_an_error() {
    let dump = dump_of(&filled(3_000));
    assert!(load(&dump).is_ok());
    assert_eq!(blocks(&dump).len(), 6, "three blocks of buckets");
    let (mut dice, mut damaged) = (Dice(7), 0);
    while damaged < times(1_000, 200) {
        let (what, bytes) = damage(&mut dice, &dump);
        if bytes == dump {
            continue;
        }
        let error = load(&bytes).err().unwrap_or_else(|| panic!("{damaged}: {what}, and it loads"));
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{damaged}: {what}: {error}");
        assert!(offset(&error) <= bytes.len() as u64, "{what}: {error}");
        damaged += 1;
    }
}

#[test]
fn a_dump_that_is_cut_anywhere_is_an_error() {
    let dump = dump_of(&filled(9));
    for len in 0..dump.len() {
        let error = load(&dump[..len]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{len}: {error}");
        assert_eq!(offset(&error), len as u64);
    }
}

#[test]
fn a_dump_with_any_byte_changed_is_an_error() {
    let dump = dump_of(&filled(9));
    for place in 0..dump.len() {
        let mut bytes = dump.clone();
        bytes[place] ^= 1 << (place % 8);
        let error = load(&bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{place}: {error}");
        assert!(offset(&error) <= place as u64, "{place}: {error}");
    }
}

/// A block of another dump of the same store, at the same place and with a check that was right
/// there.
#[test]
fn a_block_of_another_dump_is_an_error() {
    let memory = filled(20);
    let first = dump_of(&memory);
    take(&memory, 0, &bucket(Quota::token_bucket(5, HOUR)), 1);
    let second = dump_of(&memory);
    let places = blocks(&first);
    assert_eq!(places, blocks(&second));
    let mixed = [&first[..places[2].start], &second[places[2].clone()], &first[places[3].clone()]];
    let error = load(&mixed.concat()).unwrap_err();
    assert_eq!(offset(&error), places[3].start as u64, "{error}");
}
