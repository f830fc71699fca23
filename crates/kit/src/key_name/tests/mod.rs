mod forgeries;

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;

const SECRET: &[u8] = b"sixteen bytes or";

fn names(tag: HashTag) -> KeyNames {
    KeyNames::new("tollgate".into(), tag, None).unwrap()
}

fn hashed(tag: HashTag) -> KeyNames {
    KeyNames::new("tollgate".into(), tag, Some(SECRET)).unwrap()
}

#[track_caller]
fn text(name: &KeyName) -> &str {
    str::from_utf8(name.as_ref()).unwrap()
}

/// The field of the key, in a name without a tag.
fn shown(key: impl Into<Key>) -> String {
    let name = names(HashTag::Bucket).name(BucketId::new("l", &key.into()));
    text(&name).strip_prefix("tollgate:l:").unwrap().into()
}

#[test]
fn names_can_be_read() {
    let named = |tag, limit, key: Key, shard| {
        text(&names(tag).name(BucketId::new(limit, &key).shard(shard))).to_owned()
    };
    let client = Key::from(Ipv4Addr::new(192, 0, 2, 1));
    let alice = Key::from(("acme", "alice"));
    let fixed = HashTag::Fixed("one".into());
    for (name, expected) in [
        (
            named(HashTag::Bucket, "per-client", client.clone(), 0),
            "tollgate:per-client:ip=192.0.2.1",
        ),
        (named(HashTag::Bucket, "llm-tokens", Key::GLOBAL, 3), "tollgate:llm-tokens#3:*"),
        (named(HashTag::Bucket, "l", Key::GLOBAL, u32::MAX), "tollgate:l#4294967295:*"),
        (named(HashTag::Bucket, "a b:#{}%", Key::GLOBAL, 0), "tollgate:a%20b%3A%23%7B%7D%25:*"),
        (
            named(HashTag::FirstPart, "per-user", alice.clone(), 0),
            "tollgate:{acme}:per-user:acme|alice",
        ),
        (named(HashTag::FirstPart, "l", client, 7), "tollgate:{ip=192.0.2.1}:l#7:ip=192.0.2.1"),
        (
            named(HashTag::FirstPart, "l", alice.clone().fallback(), 0),
            "tollgate:{acme}:l:else=|acme|alice",
        ),
        (named(HashTag::FirstPart, "l", Key::from(""), 0), "tollgate:{text=}:l:text="),
        (named(HashTag::FirstPart, "l", Key::GLOBAL, 0), "tollgate:l:*"),
        (named(HashTag::FirstPart, "l", Key::GLOBAL.fallback(), 0), "tollgate:l:else="),
        (named(fixed.clone(), "per-user", alice, 0), "tollgate:{one}:per-user:acme|alice"),
        (named(fixed, "l", Key::GLOBAL, 2), "tollgate:{one}:l#2:*"),
    ] {
        assert_eq!(name, expected);
    }
}

#[test]
fn each_part_of_a_key_has_its_form() {
    for (shown, expected) in [
        (shown(Key::GLOBAL), "*"),
        (shown("azAZ09-_.~@+/"), "azAZ09-_.~@+/"),
        (shown("*"), "%2A"),
        (shown("a|b=c:d{e}f%g h#"), "a%7Cb%3Dc%3Ad%7Be%7Df%25g%20h%23"),
        (shown("é\0\r\n\u{7f}"), "%C3%A9%00%0D%0A%7F"),
        (shown(""), "text="),
        (shown(("", "")), "text=|text="),
        (shown(7_u64), "n=7"),
        (shown(0_u64), "n=0"),
        (shown(u64::MAX), "n=18446744073709551615"),
        (shown(-7_i64), "n=-7"),
        (shown(i64::MIN), "n=-9223372036854775808"),
        (shown("7"), "7"),
        (shown([0x00, 0xff, 0x1a]), "b=00ff1a"),
        (shown([0_u8; 0]), "b="),
        (shown(Ipv4Addr::new(255, 0, 10, 9)), "ip=255.0.10.9"),
        (shown("2001:db8::1".parse::<Ipv6Addr>().unwrap()), "ip=2001:db8::1/128"),
        (shown(Key::network("2001:db8::1".parse().unwrap(), 64)), "ip=2001:db8::/64"),
        (shown("::ffff:192.0.2.1".parse::<Ipv6Addr>().unwrap()), "ip=::ffff:192.0.2.1/128"),
        (shown(Key::network(Ipv6Addr::LOCALHOST, 0)), "ip=::/0"),
        (shown(Key::from(true).and(false)), "bool=true|bool=false"),
        (shown(Key::from(1_u128 << 64)), "n=18446744073709551616"),
        (shown(Key::from("alice").fallback()), "else=|alice"),
        (shown(Key::from("acme").and(Key::from("alice").fallback())), "acme|else=|alice"),
        (shown(("acme", 7_u64, Ipv4Addr::LOCALHOST)), "acme|n=7|ip=127.0.0.1"),
    ] {
        assert_eq!(shown, expected);
    }
}

#[test]
fn a_key_that_makes_the_name_long_is_hashed() {
    // "tollgate:l:" has 11 bytes.
    assert_eq!(shown("a".repeat(189)), "a".repeat(189));
    // As `printf 's\xbe%190s' | tr ' ' a | sha256sum` says.
    assert_eq!(shown("a".repeat(190)), LONG_A);
    assert!(shown("ä".repeat(40)).starts_with("sha256="), "240 bytes when escaped");
    assert!(shown(vec![7_u8; 100].as_slice()).starts_with("sha256="), "202 bytes as digits");
    let many = (0..60).fold(Key::GLOBAL, |key, part| key.and(part));
    assert!(shown(many).starts_with("sha256="), "60 parts");
    let name = names(HashTag::Bucket).name(BucketId::new(&":".repeat(64), &Key::GLOBAL));
    assert_eq!(name.as_ref().len(), 9 + 3 * 64 + 1 + 39, "no room is left for the key");
}

/// A backend may be called by itself, with names that no limit has.
#[test]
fn a_limit_with_a_long_name_is_hashed() {
    let named = |limit: &str| {
        text(&names(HashTag::Bucket).name(BucketId::new(limit, &Key::GLOBAL))).to_owned()
    };
    assert_eq!(named(&"l".repeat(64)), format!("tollgate:{}:*", "l".repeat(64)));
    // As `printf '%065d' 0 | tr 0 l | sha256sum` says.
    assert_eq!(named(&"l".repeat(65)), "tollgate:%sha256-6cf9087d227669bc6aa90a6c6b5181d9:*");
    assert_ne!(named("%sha256-6cf9087d227669bc6aa90a6c6b5181d9"), named(&"l".repeat(65)));
}

const LONG_A: &str = "sha256=2324ec6e6609a8ccfc17cb64b5f6dfd0";

#[test]
fn a_tag_has_the_first_part_alone_however_long_the_rest_is() {
    let names = names(HashTag::FirstPart);
    let of = |first: &str, rest: &str| {
        let key = Key::from((first, rest));
        text(&names.name(BucketId::new("l", &key))).to_owned()
    };
    let (fits, long) = ("t".repeat(64), "t".repeat(65));
    assert_eq!(of(&fits, "x"), format!("tollgate:{{{fits}}}:l:{fits}|x"));
    assert!(of(&fits, &"x".repeat(200)).starts_with(&format!("tollgate:{{{fits}}}:l:sha256=")));
    let tag = of(&long, "x").split_once('}').unwrap().0.to_owned();
    assert_eq!(tag.len(), "tollgate:{sha256=".len() + 32);
    assert!(of(&long, "y").starts_with(&format!("{tag}}}:l:{long}|y")));
    assert!(of(&long, &"x".repeat(200)).starts_with(&format!("{tag}}}:l:sha256=")));
}

#[test]
fn with_a_secret_no_key_is_shown() {
    let alice = Key::from(("acme", "alice"));
    let id = BucketId::new("per-user", &alice).shard(2);
    assert_eq!(text(&hashed(HashTag::Bucket).name(id)), HASHED);
    let by_part = hashed(HashTag::FirstPart);
    assert_eq!(text(&by_part.name(id)), HASHED.replacen(":", HASHED_TAG, 1));
    let acme = Key::from("acme");
    let of_acme = text(&by_part.name(BucketId::new("l", &acme))).to_owned();
    assert!(of_acme.starts_with(&format!("tollgate{HASHED_TAG}l:hmac=")));
    let another =
        KeyNames::new("tollgate".into(), HashTag::Bucket, Some(b"another of sixteen bytes"));
    assert_ne!(another.unwrap().name(id), hashed(HashTag::Bucket).name(id));
}

// HMAC-SHA-256 with `SECRET` of `s\x04acmes\x05alice`, and of `s\x04acme`.
const HASHED: &str = "tollgate:per-user#2:hmac=9486dee870413ee96e370a8f3def234a";
const HASHED_TAG: &str = ":{hmac=81a79e41efa90bc1e79f12b0fd3a9474}:";

#[test]
fn short_names_are_not_allocated() {
    // "tollgate:l:" and 53 more are 64 bytes.
    let (fits, longer) = (Key::from("a".repeat(53)), Key::from("a".repeat(54)));
    let address = Key::from(Ipv4Addr::new(192, 0, 2, 1));
    for (key, allocations) in [(&address, 0), (&Key::GLOBAL, 0), (&fits, 0), (&longer, 1)] {
        for names in [names(HashTag::Bucket), hashed(HashTag::Bucket)] {
            let name = names.name(BucketId::new("l", key));
            let counted = allocation_counter::measure(|| drop(names.name(BucketId::new("l", key))));
            let expected = if name.as_ref().len() > 64 { allocations } else { 0 };
            assert_eq!(counted.count_total, expected, "{name:?}");
        }
    }
}

#[test]
fn the_secret_is_not_shown() {
    let shown = format!("{:?}", hashed(HashTag::FirstPart));
    assert_eq!(shown, r#"KeyNames { head: "tollgate:", by_first_part: true, hashed: true, .. }"#);
}

#[test]
fn prefixes_and_tags_that_do_not_fit_a_name_are_refused() {
    let error = |prefix: &str, tag, secret| KeyNames::new(prefix.into(), tag, secret).unwrap_err();
    assert_eq!(
        error("a{b", HashTag::Bucket, None),
        "prefix \"a{b\" cannot be part of a name (use 1 to 64 letters, digits and `-_.~@+/:`)"
    );
    assert_eq!(
        error("a", HashTag::Fixed(String::new()), None),
        "hash tag \"\" cannot be part of a name (use 1 to 64 letters, digits and `-_.~@+/:`)"
    );
    assert_eq!(
        error("a", HashTag::Bucket, Some(b"fifteen bytes..")),
        "the secret to hash keys with has 15 bytes (use at least 16, drawn at random)"
    );
    for unfit in ["", "a b", "é", "a#", "a}", "a=", "a|", "a%", "a*", "a\n", &"a".repeat(65)] {
        error(unfit, HashTag::Bucket, None);
        error("a", HashTag::Fixed(unfit.into()), None);
    }
    for fit in ["a", "shop:eu-1/live_2.~@+", ":", &"a".repeat(64)] {
        assert!(KeyNames::new(fit.into(), HashTag::Fixed(fit.into()), Some(SECRET)).is_ok());
    }
}

#[test]
fn slots_equal_those_of_the_server() {
    // As `redis-cli cluster keyslot` says.
    for (key, expected) in SLOTS {
        assert_eq!(slot::slot_of(key.as_bytes()), *expected, "{key}");
    }
}

const SLOTS: &[(&str, u16)] = &[
    ("", 0),
    ("foo", 12_182),
    ("123456789", 12_739),
    ("{user1000}.following", 3_443),
    ("{}x", 10_595),
    ("a{}{b}", 15_033),
    ("a{{b}}", 6_215),
    ("a{b}{c}", 3_300),
    ("a{b", 13_340),
    ("a}b{c}", 7_365),
    ("tollgate:per-client:ip=192.0.2.1", 7_918),
    ("tollgate:llm-tokens#3:*", 12_824),
    ("tollgate:{acme}:per-user:acme|alice", 11_304),
    ("tollgate:#init:{0}", 13_907),
];

#[test]
fn names_with_one_tag_share_a_slot() {
    let (acme, alice) = (Key::from("acme"), Key::from(("acme", "alice")));
    let (tenant, user) = (BucketId::new("per-tenant", &acme), BucketId::new("per-user", &alice));
    let global = BucketId::new("global", &Key::GLOBAL);
    let slots =
        |names: &KeyNames| [tenant, user, user.shard(9), global].map(|id| names.name(id).slot());
    let [a, b, c, d] = slots(&names(HashTag::FirstPart));
    assert_eq!((a, b, c), (slot::slot_of(b"acme"), a, a));
    assert_eq!(d, slot::slot_of(b"tollgate:global:*"));
    let [a, b, c, _] = slots(&hashed(HashTag::FirstPart));
    assert_eq!((b, c), (a, a));
    assert_eq!(slots(&names(HashTag::Fixed("one".into()))), [slot::slot_of(b"one"); 4]);
}

#[test]
fn each_slot_has_an_initialization_key() {
    let names = names(HashTag::Bucket);
    let mut births = HashSet::new();
    for slot in 0..16_384 {
        let number = slot::number_in(slot);
        assert!(number < 109_758);
        assert_eq!(slot::slot_of(number.to_string().as_bytes()), slot);
        assert!(births.insert(number));
    }
    for user in 0..100_u64 {
        let key = Key::from(user);
        let name = names.name(BucketId::new("l", &key));
        let birth = names.init_key(&name, true);
        assert_eq!(birth.slot(), name.slot());
        assert_eq!(text(&birth), format!("tollgate:#init:{{{}}}", slot::number_in(name.slot())));
        assert_eq!(text(&names.init_key(&name, false)), "tollgate:#init");
    }
}
