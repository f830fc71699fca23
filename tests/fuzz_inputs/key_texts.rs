//! Keys as text, which operators write into the paths of routes.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use tollgate::Key;

use tollgate_testing::fuzz::bytes::{draws_each, texts};
use tollgate_testing::fuzz::field::unescaped;
use tollgate_testing::fuzz::seeds::{Seed, seeds};

const WORDS: [&str; 26] = [
    "*",
    "|",
    "|",
    "=",
    "%",
    "%7C",
    "%3d",
    "%C3%AB",
    "%C3",
    "text=",
    "else=",
    "n=",
    "n=-",
    "b=",
    "ip=",
    "bool=",
    "true",
    "false",
    "sha256=",
    "hmac=",
    "0",
    "18446744073709551616",
    "192.0.2.1",
    "2001:db8::1",
    "/64",
    "alice",
];

fn text_seeds() -> Vec<Seed> {
    seeds(include_str!("../data/fuzz/key_text.txt"))
}

/// A second reading, byte by byte, into the encoding that the documentation of `Key::as_bytes` has.
fn reference(text: &str) -> Option<Vec<u8>> {
    if text == "*" {
        return Some(Vec::new());
    }
    text.split('|').map(part).collect::<Option<Vec<_>>>().map(|parts| parts.concat())
}

fn part(part: &str) -> Option<Vec<u8>> {
    let Some(at) = part.find('=') else {
        let text = unquoted(part)?;
        return (!part.is_empty()).then(|| content(b's', text.as_bytes()));
    };
    let value = &part[at + 1..];
    match &part[..at] {
        "text" => value.is_empty().then(|| content(b's', b"")),
        "else" => value.is_empty().then(|| b"-".to_vec()),
        "bool" if value == "true" => Some(b"t".to_vec()),
        "bool" if value == "false" => Some(b"f".to_vec()),
        "n" => number(value),
        "b" => {
            let digits = value.chars().map(|c| c.to_digit(16)).collect::<Option<Vec<_>>>()?;
            let bytes = digits.chunks(2).map(|pair| match pair {
                [high, low] => u8::try_from(high * 16 + low).ok(),
                _ => None,
            });
            Some(content(b'b', &bytes.collect::<Option<Vec<_>>>()?))
        }
        "ip" => address(value),
        _ => None,
    }
}

fn content(tag: u8, content: &[u8]) -> Vec<u8> {
    let len = match u8::try_from(content.len()) {
        Ok(len) if len < 0xff => vec![len],
        _ => [&[0xff][..], &u64::try_from(content.len()).unwrap().to_be_bytes()].concat(),
    };
    [&[tag][..], &len, content].concat()
}

/// Text without its escapes, by the bytes of its characters.
fn unquoted(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c == '%' {
            let digits = [rest.next()?.to_digit(16)?, rest.next()?.to_digit(16)?];
            bytes.push(u8::try_from(digits[0] * 16 + digits[1]).unwrap());
        } else {
            bytes.extend(c.to_string().into_bytes());
        }
    }
    String::from_utf8(bytes).ok()
}

fn number(text: &str) -> Option<Vec<u8>> {
    let (is_below, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let mut number = (!digits.is_empty()).then_some(0_u128)?;
    for c in digits.chars() {
        number = number.checked_mul(10)?.checked_add(c.to_digit(10)?.into())?;
    }
    match u64::try_from(number) {
        Ok(0) => Some([&b"n"[..], &[0; 8]].concat()),
        Ok(small) if is_below && small <= 1 << 63 => {
            Some([&b"m"[..], &small.to_be_bytes()].concat())
        }
        _ if is_below => None,
        Ok(small) => Some([&b"n"[..], &small.to_be_bytes()].concat()),
        Err(_) => Some([&b"w"[..], &number.to_be_bytes()].concat()),
    }
}

/// A network has the bits that its prefix counts; an IPv4 address has no prefix.
fn address(text: &str) -> Option<Vec<u8>> {
    let parts: Vec<&str> = text.split('/').collect();
    let prefix = match parts[..] {
        [address] => {
            if let Ok(address) = address.parse::<Ipv4Addr>() {
                return Some([&b"4"[..], &address.octets()].concat());
            }
            128
        }
        [_, digits] => {
            let digits = digits.chars().map(|c| c.to_digit(10)).collect::<Option<Vec<_>>>()?;
            let prefix = (digits.iter()).fold(None, |sum: Option<u32>, digit| {
                Some(sum.unwrap_or(0).saturating_mul(10).saturating_add(*digit))
            });
            u8::try_from(prefix?).ok().filter(|prefix| *prefix <= 128)?
        }
        _ => return None,
    };
    let mut bits = parts[0].parse::<Ipv6Addr>().ok()?.to_bits();
    for bit in u32::from(prefix)..128 {
        bits &= !(1 << (127 - bit));
    }
    Some([&b"6"[..], &bits.to_be_bytes(), &[prefix]].concat())
}

#[test]
fn seeds_of_keys_as_text_are_read_as_recorded() {
    for Seed { field, wanted } in text_seeds() {
        let text = field.text();
        let wanted = match wanted {
            "none" => None,
            "global" => Some(Vec::new()),
            wanted => Some(unescaped(wanted)),
        };
        assert_eq!(reference(&text), wanted, "{text:?}");
        let found = Key::from_text(&text).ok();
        assert_eq!(found.map(|key| key.as_bytes().to_vec()), wanted, "{text:?}");
    }
}

#[test]
fn texts_that_are_keys_and_others_are_drawn() {
    draws_each(&texts(&text_seeds(), &WORDS), 2, |text| reference(&text).is_some());
}

proptest! {
    #[test]
    fn a_text_is_the_key_of_the_slow_reference(text in texts(&text_seeds(), &WORDS)) {
        match (Key::from_text(&text), reference(&text)) {
            (Ok(key), wanted) => {
                prop_assert_eq!(Some(key.as_bytes()), wanted.as_deref(), "{:?}", text);
                let written = key.to_text();
                prop_assert!(written.bytes().all(|byte| byte.is_ascii_graphic()), "{written:?}");
                prop_assert_eq!(Key::from_text(&written), Ok(key));
            }
            (Err(error), None) => {
                // 64 characters are quoted twice at most, each escaped into ten at most.
                let message = error.to_string();
                prop_assert!(message.len() <= 1_500 && !message.contains(char::is_control));
            }
            (Err(error), Some(_)) => prop_assert!(false, "{error}"),
        }
    }
}
