//! Header fields that are a key as they stand: `header`, `api_key` and `bearer`.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use proptest::prelude::*;
use tollgate::key::{self, Extracted, Head, Key, KeyExtractor, api_key, bearer, header};

use tollgate_testing::fuzz::bytes::{blanks, draws_each, fields};
use tollgate_testing::fuzz::field::{Field, unescaped};
use tollgate_testing::fuzz::seeds::{Seed, seeds};

/// What an extractor makes of a field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Read {
    Key(Key),
    Missing,
    Empty,
    Invalid,
}

impl Read {
    pub(crate) fn of(extractor: &impl KeyExtractor, request: &http::Request<()>) -> Self {
        match extractor.extract(&Head::new(request)) {
            Ok(Extracted::Key(key)) => Self::Key(key),
            Ok(other) => panic!("a field exempts nothing: {other:?}"),
            Err(error) => {
                assert!(!error.is_misconfigured(), "a client cannot misconfigure: {error}");
                match (error.is_missing(), error.is_empty()) {
                    (true, _) => Self::Missing,
                    (_, true) => Self::Empty,
                    _ => Self::Invalid,
                }
            }
        }
    }

    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Key(_) => "key",
            Self::Missing => "missing",
            Self::Empty => "empty",
            Self::Invalid => "invalid",
        }
    }

    /// The outcome that a seed names: `key` and a text, from which `make` makes the key.
    #[track_caller]
    pub(crate) fn written(text: &str, make: impl Fn(Vec<u8>) -> Key) -> Self {
        match text.split_once(' ') {
            Some(("key", value)) => Self::Key(make(unescaped(value))),
            _ => match text {
                "missing" => Self::Missing,
                "empty" => Self::Empty,
                "invalid" => Self::Invalid,
                other => panic!("{other:?} is not what comes of a field"),
            },
        }
    }
}

const WORDS: [&str; 16] = [
    "Bearer ",
    "bearer\\t",
    "Bearer",
    "Basic ",
    "alice",
    "Alice",
    "s3cret",
    "abc==",
    "==",
    "a+/~9",
    "-._~+/",
    "YWxpY2U6",
    "%61",
    "\\(30*a)",
    "\\(40*a)",
    "\\(1024*a)",
];

fn header_seeds() -> Vec<Seed> {
    seeds(include_str!("../data/fuzz/header.txt"))
}

fn bearer_seeds() -> Vec<Seed> {
    seeds(include_str!("../data/fuzz/bearer.txt"))
}

fn api_key_seeds() -> Vec<Seed> {
    seeds(include_str!("../data/fuzz/api_key.txt"))
}

#[test]
fn seeds_of_header_fields_are_read_as_recorded() {
    for Seed { field, wanted } in header_seeds() {
        let make = |value| Key::from(String::from_utf8(value).unwrap());
        let found = Read::of(&header("x-key"), &field.request("x-key"));
        assert_eq!(found, Read::written(wanted, make), "{field:?}");
    }
    for Seed { field, wanted } in bearer_seeds() {
        let found = Read::of(&bearer(), &field.request("authorization"));
        assert_eq!(found, Read::written(wanted, key::digest), "{field:?}");
    }
    for Seed { field, wanted } in api_key_seeds() {
        let found = Read::of(&api_key("x-key"), &field.request("x-key"));
        assert_eq!(found, Read::written(wanted, key::digest), "{field:?}");
    }
}

// A second reading, byte by byte.

/// The value of a field that has to be there once.
fn only_value(field: &Field, max_len: usize) -> Result<&[u8], Read> {
    let [line] = &field.0[..] else {
        return Err(if field.0.is_empty() { Read::Missing } else { Read::Invalid });
    };
    let is_blank = |byte: &u8| *byte == 0x20 || *byte == 0x09;
    let Some(first) = line.iter().position(|byte| !is_blank(byte)) else {
        return Err(Read::Empty);
    };
    let last = line.iter().rposition(|byte| !is_blank(byte)).unwrap();
    let value = &line[first..=last];
    if value.len() > max_len { Err(Read::Invalid) } else { Ok(value) }
}

fn header_reference(field: &Field, max_len: usize, ignores_case: bool) -> Read {
    let value = match only_value(field, max_len) {
        Ok(value) => value,
        Err(read) => return read,
    };
    let mut text = String::new();
    for &byte in value {
        match char::from(byte) {
            c @ 'A'..='Z' if ignores_case => text.push(c.to_ascii_lowercase()),
            c @ ' '..='~' => text.push(c),
            _ => return Read::Invalid,
        }
    }
    Read::Key(Key::from(text))
}

fn bearer_reference(field: &Field, max_len: usize) -> Read {
    let value = match only_value(field, max_len) {
        Ok(value) => value,
        Err(read) => return read,
    };
    // The scheme ends at the first blank, and the token begins at the next byte that is none.
    let words: Vec<&[u8]> = value.split(|byte| b" \t".contains(byte)).collect();
    if words[0].iter().any(|byte| *byte > 0x7f) {
        return Read::Invalid;
    }
    if !words[0].eq_ignore_ascii_case(b"bearer") {
        return Read::Missing;
    }
    let words: Vec<_> = words[1..].iter().filter(|word| !word.is_empty()).collect();
    let [token] = words[..] else {
        return if words.is_empty() { Read::Empty } else { Read::Invalid };
    };
    let (mut content, mut padding) = (0, 0);
    for byte in *token {
        match byte {
            b'=' => padding += 1,
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'+' | b'/'
                if padding == 0 =>
            {
                content += 1;
            }
            _ => return Read::Invalid,
        }
    }
    if content == 0 { Read::Invalid } else { Read::Key(key::digest(token)) }
}

fn api_key_reference(field: &Field, max_len: usize) -> Read {
    only_value(field, max_len).map_or_else(|read| read, |value| Read::Key(key::digest(value)))
}

#[test]
fn header_fields_are_drawn_with_every_outcome() {
    draws_each(&fields(&header_seeds(), &WORDS), 4, |field| {
        header_reference(&field, 1_024, false).kind()
    });
    draws_each(&fields(&bearer_seeds(), &WORDS), 4, |field| bearer_reference(&field, 8_192).kind());
    draws_each(&fields(&api_key_seeds(), &WORDS), 4, |field| {
        api_key_reference(&field, 1_024).kind()
    });
}

/// The message without its numbers, if the request has no key.
fn message(extractor: &impl KeyExtractor, request: &http::Request<()>) -> Option<String> {
    let error = extractor.extract(&Head::new(request)).err()?.to_string();
    Some(error.split(|c: char| c.is_ascii_digit()).filter(|text| !text.is_empty()).collect())
}

proptest! {
    /// The key is the value exactly as it is written.
    #[test]
    fn a_header_field_is_read_as_by_the_slow_reference(
        field in fields(&header_seeds(), &WORDS),
        max_len in prop_oneof![Just(1_024), 0_usize..40],
        (before, after) in blanks(),
    ) {
        let extractor = header("x-key").max_len(max_len);
        let found = Read::of(&extractor, &field.request("x-key"));
        prop_assert_eq!(&found, &header_reference(&field, max_len, false));
        prop_assert_eq!(&found, &Read::of(&extractor, &field.padded(before, after).request("x-key")));
        let ignoring = extractor.ignore_case();
        let folded = Read::of(&ignoring, &field.request("x-key"));
        prop_assert_eq!(&folded, &header_reference(&field, max_len, true));
        let upper = Field(field.0.iter().map(|line| line.to_ascii_uppercase()).collect());
        prop_assert_eq!(&folded, &Read::of(&ignoring, &upper.request("x-key")));
        if let Read::Key(key) = found {
            // A tag, the length, and what was sent.
            let head = if max_len < 255 { 2 } else { 10 };
            prop_assert!(key.as_bytes().len() <= max_len + head);
        }
    }

    /// Two different values are two keys.
    #[test]
    fn two_header_fields_are_one_key_only_if_they_differ_in_blanks(
        one in fields(&header_seeds(), &WORDS),
        other in fields(&header_seeds(), &WORDS),
    ) {
        let read = |field: &Field| Read::of(&header("x-key"), &field.request("x-key"));
        if let (Read::Key(one_key), Read::Key(other_key)) = (read(&one), read(&other)) {
            let same = only_value(&one, 1_024) == only_value(&other, 1_024);
            prop_assert_eq!(one_key == other_key, same);
        }
    }

    #[test]
    fn a_bearer_token_is_read_as_by_the_slow_reference(
        field in fields(&bearer_seeds(), &WORDS),
        max_len in prop_oneof![Just(8_192), 0_usize..40],
        (before, after) in blanks(),
    ) {
        let extractor = bearer().max_len(max_len);
        let request = field.request("authorization");
        let found = Read::of(&extractor, &request);
        prop_assert_eq!(&found, &bearer_reference(&field, max_len));
        let padded = field.padded(before, after).request("authorization");
        prop_assert_eq!(&found, &Read::of(&extractor, &padded));
        if let Read::Key(key) = found {
            prop_assert_eq!(key.as_bytes().len(), 18);
        }
    }

    #[test]
    fn an_api_key_is_read_as_by_the_slow_reference(
        field in fields(&api_key_seeds(), &WORDS),
        max_len in prop_oneof![Just(1_024), 0_usize..40],
        (before, after) in blanks(),
    ) {
        let extractor = api_key("x-key").max_len(max_len);
        let found = Read::of(&extractor, &field.request("x-key"));
        prop_assert_eq!(&found, &api_key_reference(&field, max_len));
        let padded = field.padded(before, after).request("x-key");
        prop_assert_eq!(&found, &Read::of(&extractor, &padded));
        if let Read::Key(key) = found {
            prop_assert_eq!(key.as_bytes().len(), 18);
        }
    }

    /// An error says what is wrong with a field, and nothing of what is in it.
    #[test]
    fn an_error_has_nothing_of_the_value(field in fields(&bearer_seeds(), &WORDS)) {
        // The messages of the seeds, which are all that there are.
        static KNOWN: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
            let seeds = bearer_seeds().into_iter().chain(header_seeds());
            seeds.flat_map(|seed| messages(&seed.field)).collect()
        });
        prop_assert!(messages(&field).all(|message| KNOWN.contains(&message)));
    }
}

fn messages(field: &Field) -> impl Iterator<Item = String> + use<> {
    let (key, token) = (field.request("x-key"), field.request("authorization"));
    let of_values = [message(&header("x-key"), &key), message(&api_key("x-key"), &key)];
    of_values.into_iter().chain([message(&bearer(), &token)]).flatten()
}
