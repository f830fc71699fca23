//! Any answer of clusters and sentinels about their nodes: it is read as by a slow and simple
//! parser, or rejected.

use std::collections::{BTreeMap, BTreeSet};

use ::redis::Value;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tollgate_testing::fuzz::bytes::draws_each;

use super::super::address::is_host;
use super::super::sentinel;
use super::super::slot_map::SlotMap;
use tollgate_kit::key_name::slot;

/// Integers that slots, ports and their neighbours have.
fn integer() -> impl Strategy<Value = Value> {
    let known = [-1, 0, 1, 5_460, 16_383, 16_384, 65_535, 65_536, i64::MIN, i64::MAX];
    prop_oneof![6 => 0..16_384_i64, 1 => select(known.to_vec()), 1 => any::<i64>()]
        .prop_map(Value::Int)
}

pub(super) fn text() -> impl Strategy<Value = Value> {
    let known = ["127.0.0.1", "::1", "", "a.example", "?", "a b", "\r\n", "6379", "shop"];
    prop_oneof![
        4 => select(known.to_vec()).prop_map(|text| text.as_bytes().to_vec()),
        4 => "[a-z]{1,3}".prop_map(String::into_bytes),
        1 => vec(any::<u8>(), 0..300),
    ]
    .prop_map(Value::BulkString)
}

/// Any value, made of the parts that answers have.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => integer(),
        4 => text(),
        1 => Just(Value::Nil),
        1 => Just(Value::Okay),
        1 => any::<f64>().prop_map(Value::Double),
        1 => any::<String>().prop_map(Value::SimpleString),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            6 => vec(inner.clone(), 0..6).prop_map(Value::Array),
            1 => vec(inner.clone(), 0..4).prop_map(Value::Set),
            1 => vec((inner.clone(), inner), 0..4).prop_map(Value::Map),
        ]
    })
}

/// An answer to `CLUSTER SLOTS`, in which a part may be anything.
pub(super) fn slots() -> impl Strategy<Value = Value> {
    let host = prop_oneof![8 => "[a-z]{1,3}".prop_map(|host| Value::BulkString(host.into_bytes())), 1 => text()];
    let sound =
        (host, integer(), text()).prop_map(|(host, port, id)| Value::Array(vec![host, port, id]));
    let node = prop_oneof![40 => sound, 1 => value()];
    let ends =
        (0..16_384_i64, 0..16_384_i64).prop_map(|(one, other)| (one.min(other), one.max(other)));
    let ends = ends.prop_map(|(first, last)| (Value::Int(first), Value::Int(last)));
    let ends = prop_oneof![20 => ends, 1 => (integer(), integer())];
    let range = (ends, vec(node, 1..4)).prop_map(|((first, last), nodes)| {
        Value::Array([first, last].into_iter().chain(nodes).collect())
    });
    vec(prop_oneof![40 => range, 1 => value()], 0..6).prop_map(Value::Array)
}

/// The address of a master as a sentinel sends it, in which a part may be anything.
pub(super) fn master() -> impl Strategy<Value = Value> {
    let port = (0..70_000_u32).prop_map(|port| Value::BulkString(port.to_string().into_bytes()));
    let sound = (text(), port).prop_map(|(host, port)| Value::Array(vec![host, port]));
    let parts = vec(prop_oneof![4 => text(), 1 => integer()], 0..4).prop_map(Value::Array);
    prop_oneof![4 => sound, 2 => parts, 1 => Just(Value::Nil), 1 => value()]
}

/// A node's host and port.
fn reference_node(node: &Value) -> Option<(String, u16)> {
    let Value::Array(parts) = node else { return None };
    let host = match parts.first()? {
        Value::Nil => "own".to_owned(),
        Value::BulkString(host) if host.is_empty() => "own".to_owned(),
        Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
        _ => return None,
    };
    let Value::Int(port) = parts.get(1)? else { return None };
    let port = u16::try_from(*port).ok()?;
    is_host_name(&host).then_some((host, port))
}

fn is_host_name(host: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || ".-_:%".contains(letter);
    host.len() <= 253 && host.chars().all(is_letter)
}

/// The first and the last slot, the host and the port of each range; `None` if no cluster can have
/// sent it.
fn reference_slots(answer: &Value) -> Option<Vec<(i64, i64, String, u16)>> {
    let Value::Array(parts) = answer else { return None };
    let range = |part: &Value| match part {
        Value::Array(part) => match &part[..] {
            [Value::Int(first), Value::Int(last), master, ..]
                if 0 <= *first && first <= last && *last < 16_384 =>
            {
                let (host, port) = reference_node(master)?;
                Some((*first, *last, host, port))
            }
            _ => None,
        },
        _ => None,
    };
    parts.iter().map(range).collect()
}

#[track_caller]
pub(super) fn slots_are_read_or_left(answer: &Value) {
    let (read, slow) = (SlotMap::read(answer.clone(), "own"), reference_slots(answer));
    assert_eq!(read.is_some(), slow.is_some(), "{answer:?}");
    let (Some(read), Some(slow)) = (read, slow) else { return };
    assert_eq!(read.is_empty(), slow.is_empty());
    assert!(read.replicas().iter().all(|(host, _)| is_host(host)), "{answer:?}");
    // From master to master, each at its first slot, and one of those that begin together.
    let mut visited = vec![0];
    while let Some(next) = read.next_master(visited[visited.len() - 1]) {
        visited.push(next);
    }
    let mut firsts = BTreeMap::new();
    for (first, _, host, port) in &slow {
        let known = firsts.entry((host, port)).or_insert(*first);
        *known = (*known).min(*first);
    }
    let firsts: BTreeSet<i64> = firsts.into_values().chain([0]).collect();
    assert!(visited.into_iter().map(i64::from).eq(firsts), "{answer:?}");
    let ends = slow.iter().flat_map(|(first, last, ..)| [first - 1, *first, *last, last + 1]);
    for number in ends.chain([0, slot::LAST.into()]) {
        let Ok(number) = u16::try_from(number) else { continue };
        // The range that begins last. No cluster sends overlapping ranges.
        let begun = slow.iter().filter(|range| range.0 <= number.into());
        let last = begun.clone().map(|range| range.0).max();
        let mut owners = begun.filter(|range| Some(range.0) == last && range.1 >= number.into());
        match read.master(number) {
            Some(found) => assert!(
                owners.any(|(.., host, port)| *host == found.host && *port == found.port),
                "{number}: {found:?}, {answer:?}"
            ),
            None => {
                let is_twice = slow.iter().filter(|range| Some(range.0) == last).count() > 1;
                assert!(owners.next().is_none() || is_twice, "{number}: {answer:?}");
            }
        }
    }
}

/// The host and the port of a master; `None` if no sentinel can have sent it.
fn reference_master(answer: &Value) -> Option<Option<(String, u16)>> {
    let text = |part: &Value| match part {
        Value::BulkString(text) => String::from_utf8(text.clone()).ok(),
        _ => None,
    };
    match answer {
        Value::Nil => Some(None),
        Value::Array(parts) if parts.len() == 2 => {
            let (host, port) = (text(&parts[0])?, text(&parts[1])?.parse::<u16>().ok()?);
            (!host.is_empty() && is_host_name(&host)).then_some(Some((host, port)))
        }
        _ => None,
    }
}

#[track_caller]
pub(super) fn a_master_is_read_or_left(answer: &Value) {
    assert_eq!(sentinel::read_address(answer), reference_master(answer), "{answer:?}");
}

#[test]
fn the_inputs_have_sentinels_that_name_a_master_and_others() {
    draws_each(&master(), 3, |answer| reference_master(&answer).map(|named| named.is_some()));
}

#[test]
fn the_inputs_have_valid_and_invalid_answers_about_slots() {
    let inputs = prop_oneof![4 => slots(), 1 => value()];
    draws_each(&inputs, 2, |answer| reference_slots(&answer).is_some_and(|all| !all.is_empty()));
}

proptest! {
    #[test]
    fn any_answer_about_slots_is_read_as_by_the_slow_parser_or_rejected(
        answer in prop_oneof![4 => slots(), 1 => value()],
    ) {
        slots_are_read_or_left(&answer);
    }

    #[test]
    fn any_answer_of_a_sentinel_is_read_or_rejected(
        answer in master(),
    ) {
        a_master_is_read_or_left(&answer);
    }
}
