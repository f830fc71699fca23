//! Cookies: `cookie`, beside a slow reference and beside the jar that `tower-sessions` reads.

use std::sync::LazyLock;

use http::HeaderMap;
use http::header::COOKIE;
use proptest::prelude::*;
use tollgate::key::{self, cookie};
use tollgate_testing::fuzz::bytes::{blanks, draws_each, fields};
use tollgate_testing::fuzz::field::Field;
use tollgate_testing::fuzz::seeds::{Seed, seeds};
use tower_sessions::cookie::{Cookie, CookieJar};

use super::header_keys::Read;

const NAME: &str = "id";

const WORDS: [&str; 20] = [
    "id",
    "id=",
    "id=abc",
    "; id=",
    "; id=abc",
    ";id=abc",
    "i%64=",
    "%69d=",
    "=",
    "; ",
    ";",
    "abc",
    "%61bc",
    "\"abc\"",
    "%22",
    "%25",
    "%",
    "a=b; ",
    "\\xc2\\xa0",
    "\\xe2\\x80\\x83",
];

fn cookie_seeds() -> Vec<Seed> {
    seeds(include_str!("../data/fuzz/cookie.txt"))
}

#[test]
fn seeds_of_cookies_are_read_as_recorded() {
    for Seed { field, wanted } in cookie_seeds() {
        let found = Read::of(&cookie(NAME), &field.request("cookie"));
        assert_eq!(found, Read::written(wanted, key::digest), "{field:?}");
    }
}

/// The value that a cookie has on a server which trims, decodes and strips quotes: all spellings of one.
fn value(decoded: &[u8]) -> &[u8] {
    match decoded {
        [b'"', value @ .., b'"'] => value,
        value => value,
    }
}

fn decoded(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::new();
    let mut at = 0;
    let digit = |at: usize| text.get(at).and_then(|byte| (*byte as char).to_digit(16));
    while at < text.len() {
        match (text[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push(u8::try_from(high * 16 + low).unwrap());
                at += 3;
            }
            (byte, ..) => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    decoded
}

/// Without the white space around it, one character after the other.
fn trimmed(mut text: &[u8]) -> &[u8] {
    static BLANKS: LazyLock<Vec<String>> = LazyLock::new(|| {
        ('\0'..=char::MAX).filter(|c| c.is_whitespace()).map(|c| c.to_string()).collect()
    });
    let start = |text| BLANKS.iter().find_map(|c| <[u8]>::strip_prefix(text, c.as_bytes()));
    let end = |text| BLANKS.iter().find_map(|c| <[u8]>::strip_suffix(text, c.as_bytes()));
    while let Some(rest) = start(text).or_else(|| end(text)) {
        text = rest;
    }
    text
}

fn reference(field: &Field) -> Read {
    if field.0.iter().map(|line| line.trim_ascii().len()).sum::<usize>() > 65_536 {
        return Read::Invalid;
    }
    let mut values: Vec<Vec<u8>> = Vec::new();
    for pair in field.0.iter().flat_map(|line| line.split(|&byte| byte == b';')) {
        let mut parts = pair.splitn(2, |&byte| byte == b'=');
        if let (Some(name), Some(text)) = (parts.next(), parts.next())
            && decoded(trimmed(name)) == NAME.as_bytes()
        {
            values.push(value(&decoded(trimmed(text))).to_vec());
        }
    }
    match &values[..] {
        [] => Read::Missing,
        [first, others @ ..] if others.iter().any(|other| other != first) => Read::Invalid,
        [first, ..] if first.is_empty() => Read::Empty,
        [first, ..] => Read::Key(key::digest(first)),
    }
}

/// The jar as `tower-cookies` 0.11 makes it, from which `tower-sessions` takes the id of the session.
fn jar(headers: &HeaderMap) -> CookieJar {
    let mut jar = CookieJar::new();
    for line in headers.get_all(COOKIE) {
        if let Ok(text) = std::str::from_utf8(line.as_bytes()) {
            for pair in text.split(';') {
                if let Ok(cookie) = Cookie::parse_encoded(pair.to_owned()) {
                    jar.add_original(cookie);
                }
            }
        }
    }
    jar
}

#[test]
fn cookies_are_drawn_with_every_outcome_and_with_one_that_a_jar_finds() {
    let inputs = fields(&cookie_seeds(), &WORDS);
    draws_each(&inputs, 2, |field| jar(field.request("cookie").headers()).get(NAME).is_some());
    draws_each(&inputs, 4, |field| reference(&field).kind());
}

proptest! {
    #[test]
    fn cookies_are_read_as_by_the_slow_reference(
        field in fields(&cookie_seeds(), &WORDS),
        (before, after) in blanks(),
    ) {
        let found = Read::of(&cookie(NAME), &field.request("cookie"));
        prop_assert_eq!(&found, &reference(&field));
        let padded = field.padded(before, after).request("cookie");
        prop_assert_eq!(&found, &Read::of(&cookie(NAME), &padded));
        if let Read::Key(key) = found {
            prop_assert_eq!(key.as_bytes().len(), 18);
        }
    }

    /// The session that the server uses is the one that is counted, or the request fails: a client
    /// cannot be counted by another cookie, or by none.
    #[test]
    fn the_cookie_that_a_jar_finds_is_the_one_that_is_counted(
        field in fields(&cookie_seeds(), &WORDS),
    ) {
        let request = field.request("cookie");
        let found = Read::of(&cookie(NAME), &request);
        if let Some(used) = jar(request.headers()).get(NAME) {
            match found {
                Read::Key(key) => {
                    prop_assert_eq!(key, key::digest(value(used.value().as_bytes())));
                }
                Read::Empty => prop_assert_eq!(value(used.value().as_bytes()), b""),
                Read::Invalid => {}
                Read::Missing => prop_assert!(false, "a cookie is used that is not counted"),
            }
        }
    }
}
