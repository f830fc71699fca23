use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

#[test]
fn a_key_has_the_text_that_is_written_for_it() {
    let network = Key::network("2001:db8::1".parse().unwrap(), 64);
    for (text, key) in [
        ("*", Key::GLOBAL),
        ("azAZ09-_.~@+/", Key::from("azAZ09-_.~@+/")),
        ("%2A", Key::from("*")),
        ("7", Key::from("7")),
        ("n=7", Key::from(7)),
        ("n=-9223372036854775808", Key::from(i64::MIN)),
        ("n=18446744073709551616", Key::from(1_u128 << 64)),
        ("n=340282366920938463463374607431768211455", Key::from(u128::MAX)),
        ("text=", Key::from("")),
        ("text=|text=", Key::from(("", ""))),
        ("a%7Cb%3Dc%25", Key::from("a|b=c%")),
        ("Zo%C3%AB%0A", Key::from("Zoë\n")),
        ("b=", Key::from([0_u8; 0])),
        ("b=00ff1a", Key::from([0x00, 0xff, 0x1a])),
        ("ip=192.0.2.1", Key::from(Ipv4Addr::new(192, 0, 2, 1))),
        ("ip=2001:db8::/64", network),
        ("ip=::ffff:192.0.2.1/128", Key::from(Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped())),
        ("bool=true|bool=false", Key::from((true, false))),
        ("else=|alice", Key::from("alice").fallback()),
        ("acme|else=|n=7", Key::from("acme").and(Key::from(7).fallback())),
        ("else=", Key::GLOBAL.fallback()),
    ] {
        assert_eq!(key.to_text(), text);
        assert_eq!(Key::from_text(text), Ok(key));
    }
}

/// What people write, and what other programs print.
#[test]
fn other_spellings_of_a_key_are_read() {
    for (spelling, text) in [
        ("Zoë Müller", "Zo%C3%AB%20M%C3%BCller"),
        ("Zo%c3%ab", "Zo%C3%AB"),
        ("a:b*", "a%3Ab%2A"),
        ("*|*", "%2A|%2A"),
        ("n=007", "n=7"),
        ("n=-0", "n=0"),
        ("b=00Ff", "b=00ff"),
        ("ip=::1", "ip=::1/128"),
        ("ip=2001:DB8::1/64", "ip=2001:db8::/64"),
        ("%61", "a"),
    ] {
        assert_eq!(Key::from_text(spelling).unwrap().to_text(), text);
    }
}

#[test]
fn what_is_no_key_is_an_error_with_the_way_out() {
    for (text, error) in [
        (
            "",
            "nothing was given (write `text=` for the empty text, or `*` for the key that all \
             requests share)",
        ),
        ("a||b", "a part is empty (write `text=` for the empty text, and `|` of text as `%7C`)"),
        ("a|", "a part is empty (write `text=` for the empty text, and `|` of text as `%7C`)"),
        (
            "n=7.5",
            "`7.5` is not a whole number from -9223372036854775808 to \
          340282366920938463463374607431768211455",
        ),
        (
            "ip=192.0.2.0/24",
            "`192.0.2.0/24` is not an address (write `ip=192.0.2.1`, \
          `ip=2001:db8::1` or the network `ip=2001:db8::/64`)",
        ),
        ("b=0", "`0` is not bytes (write two hexadecimal digits for each byte)"),
        ("bool=yes", "`yes` is neither `true` nor `false`"),
        (
            "text=a",
            "`text=` takes no value, and it has `a` (leave that out, or write `|` before it)",
        ),
        (
            "hmac=9486dee8",
            "`hmac=9486dee8` is a digest, which does not reveal its key (name the key itself)",
        ),
        ("100%", "`%` is not `%` and two hexadecimal digits (write `%` of text as `%25`)"),
        ("50%é", "`%é` is not `%` and two hexadecimal digits (write `%` of text as `%25`)"),
        ("%FF", "the bytes of `%FF` are not UTF-8, as text is (write bytes as `b=00ff`)"),
        (
            "a=b",
            "`a` is not a type (there are `n=7`, `ip=192.0.2.1`, `b=00ff`, `bool=true`, \
          `text=` and `else=`; in text, write `=` as `%3D`)",
        ),
    ] {
        let expected = format!("`{text}` is not a key: {error}");
        assert_eq!(Key::from_text(text).unwrap_err().to_string(), expected);
    }
    for wrong in [
        "n=",
        "n=-",
        "n=+7",
        "n=--7",
        "n=0x7",
        "n= 7",
        "n=-9223372036854775809",
        "n=340282366920938463463374607431768211456",
        "ip=",
        "ip=::1/129",
        "ip=::1/",
        "ip=::1/+1",
        "ip=::1/1/1",
        "ip=1.2.3",
        "b=0g",
        "b=000",
        "bool=",
        "bool=TRUE",
        "else=a",
        "=",
        "=a",
        "%",
        "%4",
        "%zz",
        "%+1",
        "|",
        "sha256=",
        "%C3",
    ] {
        assert!(Key::from_text(wrong).is_err(), "{wrong}");
    }
    let long = "a=".repeat(100);
    assert!(Key::from_text(&long).unwrap_err().to_string().len() < 400);
}

fn part() -> impl Strategy<Value = Key> {
    prop_oneof![
        3 => "[ab|=%*/ é]{0,4}".prop_map(Key::from),
        1 => prop::sample::select(vec!["*", "else=", "text=", "n=7", "%41", "hmac=00", "sha256="])
            .prop_map(Key::from),
        1 => any::<String>().prop_map(Key::from),
        1 => any::<i64>().prop_map(Key::from),
        1 => any::<u128>().prop_map(Key::from),
        1 => any::<bool>().prop_map(Key::from),
        1 => prop::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| Key::from(bytes.as_slice())),
        1 => any::<u32>().prop_map(|bits| Key::from(Ipv4Addr::from_bits(bits))),
        1 => (any::<u128>(), 0..=128_u8)
            .prop_map(|(bits, prefix)| Key::network(Ipv6Addr::from_bits(bits), prefix)),
        1 => Just(Key::GLOBAL.fallback()),
    ]
}

proptest! {
    #[test]
    fn each_key_is_read_from_its_text(parts in prop::collection::vec(part(), 0..4)) {
        let key = parts.into_iter().fold(Key::GLOBAL, Key::and);
        let text = key.to_text();
        prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
        prop_assert_eq!(Key::from_text(&text), Ok(key));
    }

    /// Any text is refused, or is a key whose text is read as the same key.
    #[test]
    fn any_text_is_a_key_or_an_error(text in "[a-c|=%*0-9n:/.-]{0,12}|\\PC{0,20}") {
        if let Ok(key) = Key::from_text(&text) {
            prop_assert_eq!(Key::from_text(&key.to_text()), Ok(key));
        }
    }
}
