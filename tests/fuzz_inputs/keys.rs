//! The encoding of keys: every key can be read back, and no two keys have one encoding.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;
use tollgate::Key;

use tollgate_testing::fuzz::bytes::fields;
use tollgate_testing::fuzz::field::{Field, unescaped};
use tollgate_testing::fuzz::seeds::{Seed, seeds};

const WORDS: [&str; 15] = [
    "\\xe2\\x80\\xa8",
    "\\xe2\\x80\\xae",
    "s",
    "b",
    "n",
    "4",
    "6",
    "-",
    "m",
    "w",
    "t",
    "f",
    "\\x01",
    "\\(38*a)",
    "\\(255*a)",
];

fn key_seeds() -> Vec<Seed> {
    seeds(include_str!("../data/fuzz/key.txt"))
}

/// A part of a key as a caller gives it.
#[derive(Clone, Debug, PartialEq)]
enum Given {
    Text(String),
    Bytes(Vec<u8>),
    Small(u8),
    Unsigned(u64),
    Signed(i64),
    Wide(u128),
    Bool(bool),
    V4(u32),
    V6(u128),
    Network(u128, u8),
    Fallback,
}

/// A part of a key, by the properties that set it apart in the documentation of `Key::as_bytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Vec<u8>),
    Bytes(Vec<u8>),
    Number(i128),
    /// A number that no `i128` holds.
    Wide(u128),
    Bool(bool),
    V4(u32),
    V6(u128, u8),
    Fallback,
}

impl Given {
    fn part(&self) -> Part {
        match self {
            Self::Text(text) => Part::Text(text.clone().into_bytes()),
            Self::Bytes(bytes) => Part::Bytes(bytes.clone()),
            Self::Small(number) => Part::Number((*number).into()),
            Self::Unsigned(number) => Part::Number((*number).into()),
            Self::Signed(number) => Part::Number((*number).into()),
            Self::Wide(number) => i128::try_from(*number).map_or(Part::Wide(*number), Part::Number),
            Self::Bool(value) => Part::Bool(*value),
            Self::V4(bits) => Part::V4(*bits),
            Self::V6(bits) => Part::V6(*bits, 128),
            Self::Network(bits, prefix) => {
                let prefix = (*prefix).min(128);
                let host = u128::MAX.checked_shr(prefix.into()).unwrap_or(0);
                Part::V6(bits & !host, prefix)
            }
            Self::Fallback => Part::Fallback,
        }
    }

    /// This part in front of the others.
    fn before(&self, rest: Key) -> Key {
        match self {
            Self::Text(text) if text.len() % 2 == 0 => Key::from(text).and(rest),
            Self::Text(text) => Key::from(text.as_str()).and(rest),
            Self::Bytes(bytes) => Key::from(bytes.as_slice()).and(rest),
            Self::Small(number) => Key::from(*number).and(rest),
            Self::Unsigned(number) => Key::from((*number, rest)),
            Self::Signed(number) => Key::from((*number, rest)),
            Self::Wide(number) => Key::from((*number, rest)),
            Self::Bool(value) => Key::from((*value, rest)),
            Self::V4(bits) => Key::from(Ipv4Addr::from_bits(*bits)).and(rest),
            Self::V6(bits) => Key::from(IpAddr::from(Ipv6Addr::from_bits(*bits))).and(rest),
            Self::Network(bits, prefix) => {
                Key::network(Ipv6Addr::from_bits(*bits), *prefix).and(rest)
            }
            Self::Fallback => rest.fallback(),
        }
    }
}

fn key(parts: &[Given]) -> Key {
    parts.iter().rev().fold(Key::GLOBAL, |rest, part| part.before(rest))
}

/// Reads an encoding back by the table of the documentation.
fn decoded(mut bytes: &[u8]) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    let take = |bytes: &mut &[u8], len: u64| {
        let (taken, rest) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
        *bytes = rest;
        Some(taken.to_vec())
    };
    let big_endian =
        |bytes: Vec<u8>| bytes.iter().fold(0_u128, |sum, byte| sum * 256 + u128::from(*byte));
    while !bytes.is_empty() {
        let [tag] = take(&mut bytes, 1)?[..] else { return None };
        parts.push(match tag {
            b's' | b'b' => {
                let len = match take(&mut bytes, 1)?[..] {
                    [0xff] => u64::try_from(big_endian(take(&mut bytes, 8)?)).ok()?,
                    [short] => u64::from(short),
                    _ => return None,
                };
                let content = take(&mut bytes, len)?;
                if tag == b's' { Part::Text(content) } else { Part::Bytes(content) }
            }
            b'n' => Part::Number(i128::try_from(big_endian(take(&mut bytes, 8)?)).ok()?),
            b'm' => Part::Number(-i128::try_from(big_endian(take(&mut bytes, 8)?)).ok()?),
            b'w' => {
                let number = big_endian(take(&mut bytes, 16)?);
                i128::try_from(number).map_or(Part::Wide(number), Part::Number)
            }
            b't' => Part::Bool(true),
            b'f' => Part::Bool(false),
            b'4' => Part::V4(u32::try_from(big_endian(take(&mut bytes, 4)?)).ok()?),
            b'6' => {
                let bits = big_endian(take(&mut bytes, 16)?);
                Part::V6(bits, take(&mut bytes, 1)?[0])
            }
            b'-' => Part::Fallback,
            _ => return None,
        });
    }
    Some(parts)
}

fn parts() -> impl Strategy<Value = Vec<Given>> {
    let any_field = || fields(&key_seeds(), &WORDS).prop_map(|field| field.bytes().to_vec());
    // Lengths around the inline capacity, and around the largest length that one byte can hold.
    let long = || prop_oneof![30_usize..46, 250_usize..260].prop_map(|len| "x".repeat(len));
    let part = prop_oneof![
        4 => any_field().prop_map(|bytes| Given::Text(String::from_utf8_lossy(&bytes).into_owned())),
        3 => any_field().prop_map(Given::Bytes),
        1 => long().prop_map(Given::Text),
        1 => long().prop_map(|text| Given::Bytes(text.into_bytes())),
        1 => any::<u8>().prop_map(Given::Small),
        1 => prop_oneof![any::<u64>(), 0_u64..3, Just(u64::MAX)].prop_map(Given::Unsigned),
        1 => prop_oneof![any::<i64>(), -3_i64..3, Just(i64::MIN)].prop_map(Given::Signed),
        1 => prop_oneof![any::<u128>(), any::<u64>().prop_map(u128::from), Just(1 << 64)]
            .prop_map(Given::Wide),
        1 => any::<bool>().prop_map(Given::Bool),
        1 => any::<u32>().prop_map(Given::V4),
        1 => any::<u128>().prop_map(Given::V6),
        1 => (any::<u128>(), any::<u8>()).prop_map(|(bits, prefix)| Given::Network(bits, prefix)),
        1 => Just(Given::Fallback),
    ];
    vec(part, 0..5)
}

fn hash(key: &Key) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// Whether two keys are equal by each way of comparing keys.
fn told_apart(one: &Key, other: &Key) -> Result<bool, TestCaseError> {
    let differ = one.as_bytes() != other.as_bytes();
    prop_assert_eq!(one != other, differ);
    prop_assert_eq!(one.cmp(other).is_ne(), differ);
    prop_assert_eq!(one.cmp(other), other.cmp(one).reverse());
    prop_assert!(differ || hash(one) == hash(other));
    Ok(differ)
}

/// A part of text that looks like parts is one part.
#[test]
fn seeds_of_keys_are_encoded_as_recorded() {
    for Seed { field, wanted } in key_seeds() {
        let key = Key::from(field.text());
        assert_eq!(key.as_bytes(), unescaped(wanted), "{field:?}");
        assert_eq!(decoded(key.as_bytes()), Some(vec![Part::Text(field.text().into_bytes())]));
    }
}

proptest! {
    #[test]
    fn a_key_is_read_back_as_its_parts(given in parts()) {
        let key = key(&given);
        let wanted: Vec<Part> = given.iter().map(Given::part).collect();
        prop_assert_eq!(decoded(key.as_bytes()), Some(wanted));
        // No part is longer than its content, and 18 bytes.
        let content = given.iter().map(|part| match part {
            Given::Text(text) => text.len() + 10,
            Given::Bytes(bytes) => bytes.len() + 10,
            _ => 18,
        });
        prop_assert!(key.as_bytes().len() <= content.sum());
        // A key is for logs: one line, and bounded by what is in it.
        let shown = key.to_string();
        prop_assert!(!shown.contains(char::is_control), "{shown:?}");
        prop_assert!(!shown.contains(['\u{2028}', '\u{2029}', '\u{202e}']), "{shown:?}");
        prop_assert!(shown.len() <= 9 * key.as_bytes().len(), "{shown:?}");
        prop_assert_eq!(format!("{key:?}"), format!("Key({shown})"));
    }

    /// However the parts of two keys are cut, the keys are equal only if all parts are.
    #[test]
    fn two_keys_are_equal_only_if_all_their_parts_are(
        one in parts(),
        other in parts(),
        cut in any::<usize>(),
    ) {
        let parts = |given: &[Given]| given.iter().map(Given::part).collect::<Vec<_>>();
        let differ = told_apart(&key(&one), &key(&other))?;
        prop_assert_eq!(differ, parts(&one) != parts(&other));
        // Parts in one go and one after the other.
        let cut = cut % (one.len() + 1);
        let joined = key(&one[..cut]).and(key(&one[cut..]));
        prop_assert!(!told_apart(&key(&one), &joined)?);
        // A key that is marked as a fallback differs from the same key without the mark.
        let is_marked = matches!(other.first(), Some(Given::Fallback));
        prop_assert!(is_marked || told_apart(&key(&one).fallback(), &key(&other))?);
    }

    /// A text that is cut at two different places makes two keys, whatever it holds.
    #[test]
    fn texts_that_are_cut_at_different_places_are_two_keys(
        text in fields(&key_seeds(), &WORDS).prop_map(|field: Field| field.text()),
        at in any::<usize>(),
        elsewhere in any::<usize>(),
    ) {
        let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let [at, elsewhere] = [at, elsewhere].map(|nth| ends[nth % ends.len()]);
        let cut = |at: usize| Key::from((&text[..at], &text[at..]));
        prop_assert_eq!(told_apart(&cut(at), &cut(elsewhere))?, at != elsewhere);
        prop_assert!(told_apart(&cut(at), &Key::from(text.as_str()))?);
        prop_assert!(told_apart(&Key::from(text.as_str()), &Key::from(text.as_bytes()))?);
    }
}
