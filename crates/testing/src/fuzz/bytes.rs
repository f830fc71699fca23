//! Hostile inputs: seeds with a few changes, words of the grammar in any order, and any bytes at
//! all.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::field::{Field, unescaped};
use super::seeds::Seed;
use crate::draw::draw;

/// Fields that are like the seeds, made of these words, or neither.
pub fn fields(seeds: &[Seed], words: &[&str]) -> impl Strategy<Value = Field> + use<> {
    let like_a_seed = changed(seeds, words);
    let of_words = vec(piece(words), 0..20).prop_map(|pieces| pieces.concat());
    prop_oneof![
        1 => Just(Field::default()),
        24 => like_a_seed.prop_map(|bytes| Field::from_bytes(&bytes)),
        16 => of_words.prop_map(|bytes| Field::from_bytes(&bytes)),
        4 => vec(byte(), 0..60).prop_map(|bytes| Field::from_bytes(&bytes)),
    ]
}

/// The same as texts: what is not UTF-8 is replaced.
pub fn texts(seeds: &[Seed], words: &[&str]) -> impl Strategy<Value = String> + use<> {
    prop_oneof![
        19 => fields(seeds, words).prop_map(|field| field.text()),
        1 => any::<String>(),
    ]
}

/// A property checks only the inputs that are drawn: asserts that a thousand inputs lead to exactly
/// this many outcomes, at least ten of them to each.
#[track_caller]
pub fn draws_each<S: Strategy, O: Ord + Debug>(
    inputs: &S,
    outcomes: usize,
    outcome: impl Fn(S::Value) -> O,
) {
    let mut counts = BTreeMap::new();
    for input in draw(inputs, 1_000) {
        *counts.entry(outcome(input)).or_insert(0) += 1;
    }
    let all_often = counts.len() == outcomes && counts.values().all(|count| *count >= 10);
    assert!(all_often, "{counts:?}");
}

/// Blanks around a value, which are no part of it.
pub fn blanks() -> impl Strategy<Value = (&'static str, &'static str)> {
    let some = || select(vec!["", " ", "\t", " \t", "     ", "\t \t"]);
    (some(), some())
}

/// A byte of a header field, or the end of a line.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![16 => 0x20_u8..=0x7e, 6 => 0x80_u8.., 1 => Just(b'\t'), 1 => Just(b'\n')]
}

/// The bytes that parsers get wrong most often: quotes, escapes, separators, blanks, line ends,
/// whole and cut UTF-8, and the white space of Unicode.
const TROUBLE: [&str; 22] = [
    "\"",
    "\\\\",
    ",",
    ";",
    "=",
    ":",
    "%",
    "\\s",
    "\\t",
    "\\n",
    "'",
    "+",
    "0",
    "\\x80",
    "\\xff",
    "\\xc2\\xa0",
    "\\xe3\\x80\\x80",
    "\\xe2\\x80\\xa8",
    "\\xc2\\x85",
    "\\xef\\xbb\\xbf",
    "\\xc3\\xbc",
    "\\xc2",
];

fn piece(words: &[&str]) -> impl Strategy<Value = Vec<u8>> + use<> {
    let read = |words: &[&str]| words.iter().map(|word| unescaped(word)).collect::<Vec<_>>();
    prop_oneof![
        8 => select(read(words)),
        3 => select(read(&TROUBLE)),
        1 => vec(byte(), 1..4),
    ]
}

#[derive(Clone, Debug)]
enum Change {
    Insert(u16, Vec<u8>),
    Remove(u16, u8),
    Copy(u16, u8, u16),
    /// Up to thousands of the byte that is there.
    Stretch(u16, u16),
    /// Upper to lower case or the other way round.
    Case(u16, u8),
}

fn change(words: &[&str]) -> impl Strategy<Value = Change> + use<> {
    prop_oneof![
        8 => (any::<u16>(), piece(words)).prop_map(|(at, piece)| Change::Insert(at, piece)),
        4 => (any::<u16>(), 1_u8..6).prop_map(|(at, len)| Change::Remove(at, len)),
        2 => (any::<u16>(), 1_u8..30, any::<u16>()).prop_map(|(at, len, to)| Change::Copy(at, len, to)),
        2 => (any::<u16>(), 1_u8..9).prop_map(|(at, len)| Change::Case(at, len)),
        1 => (any::<u16>(), prop_oneof![20 => 1_u16..40, 1 => 1_u16..2_000])
            .prop_map(|(at, times)| Change::Stretch(at, times)),
    ]
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let all = bytes.len();
        let place = |at: u16| usize::from(at) % (all + 1);
        let range = |at: u16, len: u8| place(at)..(place(at) + usize::from(len)).min(all);
        match self {
            Self::Insert(at, piece) => drop(bytes.splice(place(*at)..place(*at), piece.clone())),
            Self::Remove(at, len) => drop(bytes.drain(range(*at, *len))),
            Self::Copy(at, len, to) => {
                let copied = bytes[range(*at, *len)].to_vec();
                drop(bytes.splice(place(*to)..place(*to), copied));
            }
            Self::Stretch(at, times) => {
                if let Some(&byte) = bytes.get(place(*at)) {
                    let more = vec![byte; usize::from(*times)];
                    drop(bytes.splice(place(*at)..place(*at), more));
                }
            }
            Self::Case(at, len) => {
                for byte in &mut bytes[range(*at, *len)] {
                    *byte ^= if byte.is_ascii_alphabetic() { 0x20 } else { 0 };
                }
            }
        }
    }
}

fn changed(seeds: &[Seed], words: &[&str]) -> impl Strategy<Value = Vec<u8>> + use<> {
    let seeds: Vec<Arc<[u8]>> = seeds.iter().map(|seed| seed.field.bytes()).collect();
    (select(seeds), vec(change(words), 0..5)).prop_map(|(seed, changes)| {
        let mut bytes = seed.to_vec();
        changes.iter().for_each(|change| change.apply(&mut bytes));
        bytes
    })
}
