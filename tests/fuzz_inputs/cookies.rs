//! Cookies: `cookie`, beside a slow reference. `crates/compat` compares it with the jar of `tower-sessions`.

use std::sync::LazyLock;

use proptest::prelude::*;
use tollgate::key::{self, cookie};
use tollgate_testing::fuzz::bytes::{blanks, draws_each};
use tollgate_testing::fuzz::cookies::{NAME, cookie_fields, cookie_seeds, value};
use tollgate_testing::fuzz::field::Field;
use tollgate_testing::fuzz::seeds::Seed;

use super::header_keys::Read;

#[test]
fn seeds_of_cookies_are_read_as_recorded() {
    for Seed { field, wanted } in cookie_seeds() {
        let found = Read::of(&cookie(NAME), &field.request("cookie"));
        assert_eq!(found, Read::written(wanted, key::digest), "{field:?}");
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

#[test]
fn cookies_are_drawn_with_every_outcome() {
    draws_each(&cookie_fields(), 4, |field| reference(&field).kind());
}

proptest! {
    #[test]
    fn cookies_are_read_as_by_the_slow_reference(
        field in cookie_fields(),
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
}
