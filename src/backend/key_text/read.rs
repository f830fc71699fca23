//! Reading the text form of a key.

use std::net::{IpAddr, Ipv6Addr};

use super::error::KeyTextProblem;
use crate::backend::key::Key;
use crate::clock::{ParseError, excerpt};

pub(super) fn parse(text: &str) -> Result<Key, ParseError> {
    parse_parts(text)
        .map_err(|problem| ParseError::new(format!("`{}` is not a key: {problem}", excerpt(text))))
}

fn parse_parts(text: &str) -> Result<Key, KeyTextProblem> {
    match text {
        "" => return Err(KeyTextProblem::Nothing),
        "*" => return Ok(Key::GLOBAL),
        _ => {}
    }
    // Collected first: `Key::and` would copy the parts before for each one.
    let mut encoded = Vec::new();
    for part in text.split('|') {
        encoded.extend_from_slice(parse_part(part)?.as_bytes());
    }
    Ok(Key::concat(&[&encoded]))
}

fn parse_part(part: &str) -> Result<Key, KeyTextProblem> {
    let given = || excerpt(part);
    match part.split_once('=') {
        None if part.is_empty() => Err(KeyTextProblem::EmptyPart),
        None => parse_text(part),
        Some(("text", "")) => Ok(Key::from("")),
        Some(("text", given)) => {
            Err(KeyTextProblem::Content { name: "text", given: excerpt(given) })
        }
        Some(("else", "")) => Ok(Key::GLOBAL.fallback()),
        Some(("else", given)) => {
            Err(KeyTextProblem::Content { name: "else", given: excerpt(given) })
        }
        Some(("n", number)) => {
            parse_number(number).ok_or_else(|| KeyTextProblem::Number(excerpt(number)))
        }
        Some(("ip", address)) => {
            parse_address(address).ok_or_else(|| KeyTextProblem::Address(excerpt(address)))
        }
        Some(("b", digits)) => match parse_bytes(digits) {
            Some(bytes) => Ok(Key::from(bytes.as_slice())),
            None => Err(KeyTextProblem::Bytes(excerpt(digits))),
        },
        Some(("bool", "true")) => Ok(Key::from(true)),
        Some(("bool", "false")) => Ok(Key::from(false)),
        Some(("bool", value)) => Err(KeyTextProblem::Bool(excerpt(value))),
        Some(("sha256" | "hmac", _)) => Err(KeyTextProblem::Digest(given())),
        Some((name, _)) => Err(KeyTextProblem::Type(excerpt(name))),
    }
}

fn parse_number(number: &str) -> Option<Key> {
    // The library would allow a plus sign as well.
    let digits = number.strip_prefix('-').unwrap_or(number);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    match number.parse::<i64>() {
        Ok(number) => Some(Key::from(number)),
        Err(_) => number.parse::<u128>().ok().map(Key::from),
    }
}

fn parse_address(address: &str) -> Option<Key> {
    let Some((address, prefix)) = address.split_once('/') else {
        return address.parse::<IpAddr>().ok().map(Key::from);
    };
    let address = address.parse::<Ipv6Addr>().ok()?;
    let is_digits = prefix.bytes().all(|byte| byte.is_ascii_digit());
    let prefix = prefix.parse::<u8>().ok().filter(|prefix| is_digits && *prefix <= 128)?;
    Some(Key::network(address, prefix))
}

fn parse_bytes(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(byte_of).collect())?
}

/// The text without its escapes.
fn parse_text(text: &str) -> Result<Key, KeyTextProblem> {
    if !text.contains('%') {
        return Ok(Key::from(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut pieces = text.split('%');
    bytes.extend_from_slice(pieces.next().unwrap_or_default().as_bytes());
    for piece in pieces {
        let escape = piece.as_bytes().split_first_chunk::<2>();
        let Some((byte, rest)) = escape.and_then(|(pair, rest)| Some((byte_of(pair)?, rest)))
        else {
            let given: String = piece.chars().take(2).collect();
            return Err(KeyTextProblem::Escape(excerpt(&format!("%{given}"))));
        };
        bytes.push(byte);
        bytes.extend_from_slice(rest);
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(Key::from(text)),
        Err(_) => Err(KeyTextProblem::Utf8(excerpt(text))),
    }
}

/// The byte of two hexadecimal digits.
fn byte_of(pair: &[u8; 2]) -> Option<u8> {
    let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
    u8::try_from(high?.checked_mul(16)?.checked_add(low?)?).ok()
}
