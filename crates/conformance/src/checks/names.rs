//! Names of buckets: whatever they are made of, different names are different buckets.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::super::subject::Subject;
use super::super::trial::Trial;
use super::random::seeds;
use tollgate::algebra::Bucket;
use tollgate::backend::{BucketId, Charge, Key};

/// Takes another number of units from each bucket, and then looks at all of them.
async fn tell_apart(trial: &mut Trial, ids: &[BucketId<'_>], bucket: &Bucket) {
    for (nth, &id) in ids.iter().enumerate() {
        trial.take(id, bucket, i64::try_from(nth % 997).unwrap() + 1).await;
    }
    for &id in ids {
        trial.look(id, bucket).await;
    }
    // In one list, as far as the units of the first do.
    let some: Vec<_> = ids.iter().take(20).map(|&id| Charge::take(id, bucket, 1)).collect();
    trial.apply(&some).await;
    // One of them is forgotten, and no other.
    for ids in ids.windows(2).step_by(5) {
        trial.reset(&ids[..1]).await;
        trial.apply(&[Charge::look(ids[0], bucket, 0), Charge::look(ids[1], bucket, 0)]).await;
    }
}

/// Empty and long keys, keys with separators, escapes, NUL and case, and keys that look alike but
/// are of other types or have other parts.
pub(crate) async fn hostile_keys_have_buckets_of_their_own(subject: Subject) {
    let long = "k".repeat(65_535);
    let texts = [
        "",
        " ",
        "  ",
        "a",
        "A",
        "a ",
        " a",
        "a\0",
        "a\0b",
        "\0",
        "\0\0",
        "a:b",
        "a%3Ab",
        "a%3ab",
        "a%253Ab",
        "a|b",
        "a||b",
        "a/b",
        "a#b",
        "a#1",
        "a{b}",
        "{a}",
        "{a}b",
        "{}",
        "a\\b",
        "a\nb",
        "a\r\nb",
        "a\tb",
        "'",
        "''",
        "\"",
        "a'; DROP TABLE buckets; --",
        "*",
        "a*",
        "%",
        "_",
        "a_b",
        "?",
        "7",
        "07",
        "7.0",
        "-7",
        "+7",
        "true",
        "false",
        "null",
        "NULL",
        "192.0.2.1",
        "::1",
        // Normal forms of Unicode: é in one and in two, ligatures, wide letters, the Kelvin sign.
        "\u{e9}",
        "e\u{301}",
        "\u{fb01}",
        "fi",
        "\u{ff21}",
        "\u{212a}",
        "K",
        "k",
        "\u{df}",
        "ss",
        "\u{130}",
        "i",
        "I",
        "\u{131}",
        "\u{200b}",
        "\u{feff}",
        "\u{feff}a",
        "\u{10ffff}",
        "\u{fffd}",
        "global",
        "else",
        "init",
        "tollgate",
    ];
    let mut keys: Vec<Key> = texts.map(Key::from).to_vec();
    keys.extend([
        Key::GLOBAL,
        Key::from(7_u64),
        Key::from(-7),
        Key::from(0_u64),
        Key::from(u64::MAX),
        Key::from(u128::MAX),
        Key::from(i64::MIN),
        Key::from(true),
        Key::from(false),
        Key::from(*b""),
        Key::from(*b"a"),
        Key::from(*b"7"),
        Key::from([0xff_u8, 0xfe]),
        Key::from([0_u8; 16]),
        Key::from(Ipv4Addr::new(192, 0, 2, 1)),
        Key::from(Ipv6Addr::LOCALHOST),
        Key::from(Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped()),
        Key::network(Ipv6Addr::LOCALHOST, 64),
        Key::network(Ipv6Addr::UNSPECIFIED, 64),
        Key::network(Ipv6Addr::UNSPECIFIED, 56),
        Key::from("a").fallback(),
        Key::GLOBAL.fallback(),
        Key::from(("a", "b")),
        Key::from(("ab", "")),
        Key::from(("", "ab")),
        Key::from(("b", "a")),
        Key::from(("a", "b", "")),
        Key::from(("a", 7_u64)),
        Key::from(("a", "7")),
        Key::from(long.as_str()),
        Key::from(format!("{long}a")),
        Key::from(format!("{long}b")),
        Key::from(format!("a{long}")),
        Key::from((long.as_str(), "a")),
        Key::from("x".repeat(254)),
        Key::from("x".repeat(255)),
        Key::from("x".repeat(256)),
        Key::from("\u{1f600}".repeat(16_384)),
    ]);
    let bucket = subject.lasting_bucket().await;
    let ids: Vec<_> = keys.iter().map(|key| BucketId::new("conformance-keys", key)).collect();
    tell_apart(&mut Trial::new(&subject), &ids, &bucket).await;
}

/// All characters of Unicode, in keys of up to 64 KiB, and some in names of limits as long. With fewer
/// than 16 random histories, as small a part of those behind the first 65,536.
pub(crate) async fn every_character_has_a_bucket_of_its_own(subject: Subject) {
    let characters: Vec<char> = ('\0'..=char::MAX).collect();
    let pieces = characters.chunks(16_384).map(|piece| piece.iter().collect::<String>());
    // Stores treat the rare characters behind the first 65,536 alike: four bytes each.
    let pieces = (0..).zip(pieces).filter(|(nth, _)| *nth < 4 || nth % 16 < seeds());
    let pieces: Vec<_> = pieces.map(|(_, piece)| piece).collect();
    let keys: Vec<_> = pieces.iter().map(Key::from).collect();
    let short = Key::from("a");
    // Most stores that confuse characters confuse the first of them.
    let first: Vec<_> = ('\0'..'\u{180}').map(|one| Key::from(one.to_string())).collect();
    let ids: Vec<_> = keys
        .iter()
        .chain(&first)
        .map(|key| BucketId::new("conformance-unicode", key))
        .chain(pieces.iter().step_by(9).map(|piece| BucketId::new(piece, &short)))
        .collect();
    let bucket = subject.lasting_bucket().await;
    tell_apart(&mut Trial::new(&subject), &ids, &bucket).await;
}

/// The same key under other names of limits and in other shards, with separators in any place.
pub(crate) async fn limits_and_shards_have_buckets_of_their_own(subject: Subject) {
    let limits = [
        "conformance",
        "conformance:",
        "conformance:a",
        "conformance%3Aa",
        "conformance|a",
        "conformance/a",
        "conformance#1",
        "conformance{a}",
        "conformance ",
        "Conformance",
        "conformance\0",
        "conformance\0a",
        "conformance-a",
        "conformance-and-a-long-name",
        "",
        ":",
        "%",
        "{}",
        "{conformance}",
        "conformance\u{e9}",
        "conformancee\u{301}",
    ];
    let keys = ["", "a", ":a", "a:", "b:a", "a#1", "1", "0"].map(Key::from);
    let keys = [&keys[..], &[Key::GLOBAL, Key::from(1_u64), Key::from(0_u64)]].concat();
    let mut ids = Vec::new();
    for limit in limits {
        for key in &keys {
            ids.push(BucketId::new(limit, key));
        }
    }
    for shard in [1, 2, 10, 11, 255, 256, 65_536, u32::MAX] {
        ids.push(BucketId::new("conformance", &keys[1]).shard(shard));
        ids.push(BucketId::new("conformance", &keys[6]).shard(shard));
        ids.push(BucketId::new("conformance#1", &keys[1]).shard(shard));
    }
    let bucket = subject.lasting_bucket().await;
    tell_apart(&mut Trial::new(&subject), &ids, &bucket).await;
}
