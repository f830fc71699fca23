//! The inputs of the tests of cookies.

use proptest::prelude::*;

use super::bytes;
use super::field::Field;
use super::seeds::{Seed, seeds};

/// The name of the cookie that is looked for.
pub const NAME: &str = "id";

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

/// The seeds of cookies.
pub fn cookie_seeds() -> Vec<Seed> {
    seeds(include_str!("../../../../tests/data/fuzz/cookie.txt"))
}

/// Random fields with cookies, or without.
pub fn cookie_fields() -> impl Strategy<Value = Field> {
    bytes::fields(&cookie_seeds(), &WORDS)
}

/// The value that a cookie has on a server which trims, decodes and strips quotes: all spellings of one.
pub fn value(decoded: &[u8]) -> &[u8] {
    match decoded {
        [b'"', value @ .., b'"'] => value,
        value => value,
    }
}
