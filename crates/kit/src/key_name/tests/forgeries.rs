//! Keys that a client forges to reach a bucket that is not its own.

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

#[test]
fn no_two_of_many_hostile_buckets_share_a_name() {
    let parts: Vec<Key> = [
        "",
        "a",
        "|",
        "a|a",
        "%7C",
        "%",
        "*",
        "=",
        "else=",
        "text=",
        "n=1",
        "ip=::/0",
        "bool=true",
    ]
    .map(Key::from)
    .into_iter()
    .chain([Key::from(1), Key::from(-1), Key::from([0]), Key::from(Ipv4Addr::UNSPECIFIED)])
    .chain([Key::network(Ipv6Addr::UNSPECIFIED, 0), Key::GLOBAL.fallback()])
    .chain([Key::from(true), Key::from(u128::MAX)])
    .collect();
    let mut keys = vec![Key::GLOBAL];
    let mut longest = keys.clone();
    for _ in 0..3 {
        let longer =
            |key: &Key| parts.iter().map(|part| key.clone().and(part.clone())).collect::<Vec<_>>();
        longest = longest.iter().flat_map(longer).collect();
        keys.extend_from_slice(&longest);
    }
    assert_eq!(keys.len(), 1 + 21 + 21 * 21 + 21 * 21 * 21);
    for names in [names(HashTag::Bucket), names(HashTag::FirstPart), hashed(HashTag::Bucket)] {
        let given: HashSet<KeyName> =
            keys.iter().map(|key| names.name(BucketId::new("l", key))).collect();
        assert_eq!(given.len(), keys.len());
    }
}

/// The buckets that an attacker might try to get this name: its text, cut where a field or a part
/// may end, as a prefix, a limit and a key.
fn forged(name: &str) -> Vec<(String, String, Key)> {
    let mut forged = Vec::new();
    let colons: Vec<usize> = name.match_indices(':').map(|(at, _)| at).collect();
    for (nth, &first) in colons.iter().enumerate() {
        for &second in colons.iter().skip(nth + 1) {
            let (prefix, limit, key) =
                (&name[..first], &name[first + 1..second], &name[second + 1..]);
            let parts = key.split('|').map(Key::from).reduce(Key::and).unwrap();
            for key in [Key::from(key), parts, Key::GLOBAL] {
                forged.push((prefix.into(), limit.into(), key));
            }
        }
    }
    forged
}

/// Text of a few characters, so that ambiguous texts meet; and text of any characters.
fn nasty() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[ab:#|=%{}*/.-]{0,4}",
        1 => prop::sample::select(vec![
            "*", "else=", "else=|a", "text=", "n=7", "b=00", "ip=1.2.3.4", "#init", "init", "%41", "A", "a#1",
            "ip=::/0", "sha256=00", "bool=true", "n=18446744073709551616",
        ]).prop_map(String::from),
        1 => any::<String>(),
        1 => "[aä]{180,200}",
    ]
}

fn part() -> impl Strategy<Value = Key> {
    prop_oneof![
        4 => nasty().prop_map(Key::from),
        1 => (-2..8_i64).prop_map(Key::from),
        1 => (0..2_u128).prop_map(|more| Key::from((1 << 64) + more)),
        1 => any::<bool>().prop_map(Key::from),
        1 => prop::collection::vec(0..2_u8, 0..3).prop_map(|bytes| Key::from(bytes.as_slice())),
        1 => prop::collection::vec(any::<u8>(), 80..120).prop_map(|bytes| Key::from(bytes.as_slice())),
        1 => (0..2_u32).prop_map(|bits| Key::from(Ipv4Addr::from_bits(bits))),
        1 => (0..2_u128, 0..=2_u8).prop_map(|(bits, off)| Key::network(Ipv6Addr::from_bits(bits), 128 - off)),
        1 => Just(Key::GLOBAL.fallback()),
    ]
}

fn key() -> impl Strategy<Value = Key> {
    prop::collection::vec(part(), 0..4)
        .prop_map(|parts| parts.into_iter().fold(Key::GLOBAL, Key::and))
}

fn id() -> impl Strategy<Value = (String, Key, u32)> {
    let limit = prop_oneof![4 => "[ab:#=1]{1,3}", 1 => "[ -~]{1,64}"];
    (limit, key(), prop_oneof![3 => 0..3_u32, 1 => any::<u32>()])
}

fn tag() -> impl Strategy<Value = HashTag> {
    prop_oneof![
        Just(HashTag::Bucket),
        Just(HashTag::FirstPart),
        "[ab:]{1,3}".prop_map(HashTag::Fixed),
    ]
}

/// Pairs of buckets that differ in little: each part is the same or not.
fn pairs() -> impl Strategy<Value = [(String, Key, u32); 2]> {
    (id(), id(), any::<[bool; 3]>()).prop_map(|(one, other, same)| {
        let limit = if same[0] { one.0.clone() } else { other.0 };
        let key = if same[1] { one.1.clone() } else { other.1 };
        let shard = if same[2] { one.2 } else { other.2 };
        [one, (limit, key, shard)]
    })
}

proptest! {
    #[test]
    fn names_are_equal_if_the_buckets_are(
        [one, other] in pairs(), tag in tag(), secret in any::<bool>(),
    ) {
        let names = KeyNames::new("p".into(), tag, secret.then_some(SECRET)).unwrap();
        let of = |(limit, key, shard): &(String, Key, u32)| {
            names.name(BucketId::new(limit, key).shard(*shard))
        };
        prop_assert_eq!(of(&one) == of(&other), one == other, "{:?} {:?}", of(&one), of(&other));
    }

    #[test]
    fn no_client_can_forge_a_name(
        (limit, key, shard) in id(), tag in tag(), prefix in "[ab:]{1,4}",
    ) {
        let names = KeyNames::new(prefix.clone(), tag, None).unwrap();
        let name = names.name(BucketId::new(&limit, &key).shard(shard));
        for name in [names.init_key(&name, true), names.init_key(&name, false), name.clone()] {
            for (other, forged_limit, forged_key) in forged(text(&name)) {
                let Ok(others) = KeyNames::new(other.clone(), HashTag::Bucket, None) else { continue };
                let forged = others.name(BucketId::new(&forged_limit, &forged_key));
                let is_it = (&other, &forged_limit, &forged_key, 0) == (&prefix, &limit, &key, shard);
                prop_assert_eq!(forged == name, is_it, "{:?} {:?}", forged, name);
            }
        }
    }

    #[test]
    fn names_with_different_prefixes_are_different(
        [one, other] in pairs(), tags in (tag(), tag()), prefixes in ("[ab:]{1,4}", "[ab:]{1,4}"),
    ) {
        prop_assume!(prefixes.0 != prefixes.1);
        let all = |prefix, tag, (limit, key, shard): &(String, Key, u32)| {
            let names = KeyNames::new(prefix, tag, None).unwrap();
            let name = names.name(BucketId::new(limit, key).shard(*shard));
            [names.init_key(&name, false), names.init_key(&name, true), name]
        };
        let ours = all(prefixes.0, tags.0, &one);
        let theirs = all(prefixes.1, tags.1, &other);
        prop_assert!(ours.iter().all(|name| !theirs.contains(name)), "{:?} {:?}", ours, theirs);
        let own: HashSet<_> = ours.iter().collect();
        prop_assert_eq!(own.len(), 3);
    }

    #[test]
    fn names_are_printable_and_have_one_tag_that_decides(
        (limit, key, shard) in id(), tag in tag(), secret in any::<bool>(),
    ) {
        let names = KeyNames::new("p".into(), tag.clone(), secret.then_some(SECRET)).unwrap();
        let name = names.name(BucketId::new(&limit, &key).shard(shard));
        prop_assert!(name.as_ref().iter().all(u8::is_ascii_graphic), "{:?}", name);
        let text = text(&name);
        let braces = text.matches(['{', '}']).count();
        let expected = match tag {
            HashTag::Bucket => None,
            HashTag::FirstPart => first_part(&key).map(|_| text.strip_prefix("p:{").unwrap().split_once("}:").unwrap().0),
            HashTag::Fixed(ref tag) => Some(tag.as_str()),
        };
        prop_assert_eq!(braces, if expected.is_some() { 2 } else { 0 });
        prop_assert_ne!(expected, Some(""));
        prop_assert_eq!(name.slot(), slot::slot_of(expected.unwrap_or(text).as_bytes()));
        prop_assert_eq!(names.init_key(&name, true).slot(), name.slot());
        // The part of the key has a bounded length.
        prop_assert!(text.len() <= 2 + 70 + 3 * 64 + 12 + 39);
    }

    /// Of a bucket's own limit, its name is read; of any other limit or prefix, it is not.
    #[test]
    fn a_name_is_read_as_what_it_was_written_for(
        [one, other] in pairs(), tags in (tag(), tag()), secret in any::<bool>(),
    ) {
        let names = KeyNames::new("p".into(), tags.0, secret.then_some(SECRET)).unwrap();
        let (limit, key, shard) = &one;
        let name = names.name(BucketId::new(limit, key).shard(*shard));
        let parts = names.read(limit, name.as_ref()).expect("the name of a bucket of the limit");
        prop_assert_eq!(parts.shard, *shard);
        let field = text(&name).rsplit_once(&format!("{}:", text(&KeyName::of_limit(limit)))).map(|(_, key)| key);
        match parts.key {
            Ok(read) => prop_assert_eq!(&read, key),
            Err(digest) => {
                prop_assert!(*shard > 0 || field == Some(&*digest), "{:?}", name);
                prop_assert!(secret || key.to_text().len() > 8, "{:?}", name);
            }
        }
        if *limit != other.0 {
            prop_assert_eq!(names.read(&other.0, name.as_ref()), None, "{:?} {}", name, other.0);
        }
        let others = KeyNames::new("p:".into(), tags.1, None).unwrap();
        prop_assert_eq!(others.read(limit, name.as_ref()), None);
    }

    /// The ranges and the pattern of a limit hold its names, and the ranges those of no other limit.
    #[test]
    fn the_ranges_of_a_limit_hold_its_names_alone([one, other] in pairs(), secret in any::<bool>()) {
        let names = KeyNames::untagged("p".into(), secret.then_some(SECRET)).unwrap();
        let ranges = names.ranges(&one.0);
        for (limit, key, shard) in [&one, &other] {
            let name = names.name(BucketId::new(limit, key).shard(*shard));
            let holds = |[first, behind]: &[Vec<u8>; 2]| {
                first.as_slice() <= name.as_ref() && name.as_ref() < behind.as_slice()
            };
            prop_assert_eq!(ranges.iter().any(holds), *limit == one.0, "{:?}", name);
        }
    }
}

/// Names that other programs may have put there, or that are spelled in another way.
#[test]
fn names_that_are_not_ours_are_not_read() {
    let plain = names(HashTag::Bucket);
    for name in [
        "",
        "tollgate:",
        "tollgate:l",
        "tollgate:l#1",
        "tollgate:l:",
        "tollgate:l#:a",
        "tollgate:l#0:a",
        "tollgate:l#01:a",
        "tollgate:l#-1:a",
        "tollgate:l#4294967296:a",
        "tollgate:l#+1:a",
        "tollgate:l:n=07",
        "tollgate:l:a b",
        "tollgate:l:%61",
        "tollgate:l:%c3%ab",
        "tollgate:l:x=1",
        "tollgate:l:a|",
        "tollgate:l:sha256=",
        "tollgate:l:hmac=9486DEE870413EE96E370A8F3DEF234A",
        "tollgate:lo:a",
        "tollgate:{a}:l:a",
        "other:l:a",
        "tollgate:#init",
        "tollgate:l::a",
        "tollgate:L:a",
    ] {
        assert_eq!(plain.read("l", name.as_bytes()), None, "{name}");
    }
    assert_eq!(plain.read("l", b"tollgate:l:\xff"), None);
    let parts = plain.read("l", b"tollgate:l#2:a").unwrap();
    assert_eq!((parts.key, parts.shard), (Ok(Key::from("a")), 2));
    let by_part = names(HashTag::FirstPart);
    for (name, is_read) in [
        ("tollgate:{a}:l:a|b", true),
        ("tollgate:{b}:l:a|b", false),
        ("tollgate:l:a|b", false),
        ("tollgate:l:*", true),
        ("tollgate:{:l:*", false),
        ("tollgate:{a}:l#3:sha256=00000000000000000000000000000000", true),
    ] {
        assert_eq!(by_part.read("l", name.as_bytes()).is_some(), is_read, "{name}");
    }
    assert_eq!(text_of(&plain.pattern("a b")), "tollgate:a%20b[:#]*");
    assert_eq!(text_of(&by_part.pattern("l")), "tollgate:*l[:#]*");
    let fixed = names(HashTag::Fixed("one".into()));
    assert_eq!(text_of(&fixed.pattern("l")), "tollgate:{one}:l[:#]*");
}

fn text_of(pattern: &[u8]) -> &str {
    str::from_utf8(pattern).unwrap()
}
