//! The text of one hop: an address, possibly with a port.
//!
//! The standard library parses the addresses. It accepts none of the forms that programs read
//! differently (`010.0.0.1`, `127.1`, `0x7f.0.0.1`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Parses an entry of `X-Forwarded-For`. There is no standard for it, so quotes, brackets, port and
/// zone are optional.
pub(super) fn parse_listed(text: &[u8]) -> Option<IpAddr> {
    let quoted = text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\""));
    let text = str::from_utf8(quoted.unwrap_or(text)).ok()?;
    match text.split_once(':') {
        // Without brackets, more than one colon means an IPv6 address without a port.
        Some((_, rest)) if rest.contains(':') && !text.starts_with('[') => v6(text),
        _ => with_port(text, is_number),
    }
}

/// Parses a node of `Forwarded` (RFC 7239, section 6): an IPv6 address is in brackets, and a port
/// may be obfuscated.
///
/// Neither `unknown` nor an obfuscated name such as `_hidden` is an address. Nor is a text with
/// quoted pairs (`\1`): the grammar allows them, but no proxy writes an address like that.
pub(super) fn parse_forwarded(text: &[u8]) -> Option<IpAddr> {
    with_port(str::from_utf8(text).ok()?, |port| is_number(port) || is_obfuscated(port))
}

fn with_port(text: &str, is_port: fn(&str) -> bool) -> Option<IpAddr> {
    if let Some((address, after)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        let is_complete = after.is_empty() || after.strip_prefix(':').is_some_and(is_port);
        return if is_complete { v6(address) } else { None };
    }
    let address = match text.split_once(':') {
        Some((address, port)) => is_port(port).then_some(address)?,
        None => text,
    };
    address.parse().ok().map(|address: Ipv4Addr| address.into())
}

/// An IPv6 address without its zone, which has a meaning only on the machine that wrote it.
fn v6(text: &str) -> Option<IpAddr> {
    let address = match text.split_once('%') {
        Some((_, "")) => return None,
        Some((address, _)) => address,
        None => text,
    };
    address.parse().ok().map(|address: Ipv6Addr| address.into())
}

fn is_number(port: &str) -> bool {
    port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok()
}

fn is_obfuscated(port: &str) -> bool {
    let is_in = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    port.strip_prefix('_').is_some_and(|rest| !rest.is_empty() && rest.bytes().all(is_in))
}
