//! Reading the text form of a key.

use std::net::{IpAddr, Ipv6Addr};

use crate::backend::key::Key;
use crate::clock::{ParseError, excerpt};

pub(super) fn parse(text: &str) -> Result<Key, ParseError> {
    parse_parts(text)
        .map_err(|problem| ParseError::new(format!("`{}` is not a key: {problem}", excerpt(text))))
}

fn parse_parts(text: &str) -> Result<Key, String> {
    match text {
        "" => {
            return Err(
                "nothing was given (write `text=` for the empty text, or `*` for the key that \
                        all requests share)"
                    .to_owned(),
            );
        }
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

fn parse_part(part: &str) -> Result<Key, String> {
    let Some((name, content)) = part.split_once('=') else {
        return match part {
            "" => {
                Err("a part is empty (write `text=` for the empty text, and `|` of text as `%7C`)"
                    .to_owned())
            }
            text => parse_text(text),
        };
    };
    let given = || excerpt(content);
    match (name, content) {
        ("text", "") => Ok(Key::from("")),
        ("else", "") => Ok(Key::GLOBAL.fallback()),
        ("text" | "else", _) => Err(format!(
            "`{name}=` takes no value, and it has `{}` (leave that out, or write `|` before it)",
            given()
        )),
        ("n", number) => parse_number(number).ok_or_else(|| {
            format!("`{}` is not a whole number from {} to {}", given(), i64::MIN, u128::MAX)
        }),
        ("ip", address) => parse_address(address).ok_or_else(|| {
            format!(
                "`{}` is not an address (write `ip=192.0.2.1`, `ip=2001:db8::1` or the network \
                 `ip=2001:db8::/64`)",
                given()
            )
        }),
        ("b", digits) => match parse_bytes(digits) {
            Some(bytes) => Ok(Key::from(bytes.as_slice())),
            None => Err(format!(
                "`{}` is not bytes (write two hexadecimal digits for each byte)",
                given()
            )),
        },
        ("bool", "true") => Ok(Key::from(true)),
        ("bool", "false") => Ok(Key::from(false)),
        ("bool", _) => Err(format!("`{}` is neither `true` nor `false`", given())),
        ("sha256" | "hmac", _) => Err(format!(
            "`{}` is a digest, which does not reveal its key (name the key itself)",
            excerpt(part)
        )),
        (name, _) => Err(format!(
            "`{}` is not a type (there are `n=7`, `ip=192.0.2.1`, `b=00ff`, `bool=true`, `text=` and \
             `else=`; in text, write `=` as `%3D`)",
            excerpt(name)
        )),
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
fn parse_text(text: &str) -> Result<Key, String> {
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
            return Err(format!(
                "`{}` is not `%` and two hexadecimal digits (write `%` of text as `%25`)",
                excerpt(&format!("%{given}"))
            ));
        };
        bytes.push(byte);
        bytes.extend_from_slice(rest);
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(Key::from(text)),
        Err(_) => Err(format!(
            "the bytes of `{}` are not UTF-8, as text is (write bytes as `b=00ff`)",
            excerpt(text)
        )),
    }
}

/// The byte of two hexadecimal digits.
fn byte_of(pair: &[u8; 2]) -> Option<u8> {
    let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
    u8::try_from(high?.checked_mul(16)?.checked_add(low?)?).ok()
}
