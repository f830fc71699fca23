//! A second parser of `X-Forwarded-For` and `Forwarded`, which reads from the left and need not be
//! fast.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tollgate::key::Proxies;

use tollgate_testing::address::ours;

/// An element of `Forwarded`: whether it is well formed, and its address.
fn reference_element(element: &[u8]) -> Option<IpAddr> {
    let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let mut pairs: Vec<Vec<u8>> = vec![Vec::new()];
    let (mut quoted, mut escaped) = (false, false);
    for &byte in element {
        match byte {
            b';' if !quoted => {
                pairs.push(Vec::new());
                continue;
            }
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => {}
        }
        pairs.last_mut().unwrap().push(byte);
    }
    if quoted {
        return None;
    }
    let mut found = Vec::new();
    for pair in pairs.iter().map(|pair| pair.trim_ascii()).filter(|pair| !pair.is_empty()) {
        let equals = pair.iter().position(|&byte| byte == b'=')?;
        let (name, value) = (&pair[..equals], &pair[equals + 1..]);
        if name.is_empty() || !name.iter().all(token) {
            return None;
        }
        let text = if value.len() >= 2 && value.starts_with(b"\"") && value.ends_with(b"\"") {
            let inner = &value[1..value.len() - 1];
            // A quote inside has to be escaped.
            let (mut at, mut is_fine) = (0, true);
            while at < inner.len() {
                is_fine &= inner[at] != b'"';
                at += if inner[at] == b'\\' { 2 } else { 1 };
            }
            if !is_fine || at != inner.len() {
                return None;
            }
            inner
        } else if !value.is_empty() && value.iter().all(token) {
            value
        } else {
            return None;
        };
        if name.eq_ignore_ascii_case(b"for") {
            found.push(reference_node(str::from_utf8(text).ok()?, true)?);
        }
    }
    match found[..] {
        [only] => Some(only),
        _ => None,
    }
}

fn reference_node(text: &str, is_forwarded: bool) -> Option<IpAddr> {
    let zoneless = |text: &str| match text.split_once('%') {
        Some((before, zone)) if !zone.is_empty() => before.to_owned(),
        _ => text.to_owned(),
    };
    if !is_forwarded && let Ok(address) = zoneless(text).parse::<Ipv6Addr>() {
        return Some(address.into());
    }
    let is_port = |port: &str| {
        let digits = (1..=5).contains(&port.len()) && port.bytes().all(|b| b.is_ascii_digit());
        let hidden = port.len() > 1
            && port.starts_with('_')
            && port.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        digits && port.parse::<u32>().unwrap() <= 65_535 || is_forwarded && hidden
    };
    let (host, port) = match text.rfind(':') {
        Some(at) if !text[at..].contains(']') => (&text[..at], Some(&text[at + 1..])),
        _ => (text, None),
    };
    if !port.is_none_or(is_port) {
        return None;
    }
    if host.starts_with('[') && host.ends_with(']') && host.len() > 2 {
        let inner = &host[1..host.len() - 1];
        // A zone may have an opening bracket in it.
        let is_one = !inner.contains(']') && (!inner.contains('[') || inner.contains('%'));
        return zoneless(inner).parse::<Ipv6Addr>().ok().filter(|_| is_one).map(IpAddr::from);
    }
    host.parse::<Ipv4Addr>().ok().map(IpAddr::from)
}

/// An address in a list, or alone in a field, which may be a quoted string.
pub(crate) fn reference_listed(text: &str) -> Option<IpAddr> {
    let is_quoted = text.len() > 1 && text.starts_with('"') && text.ends_with('"');
    reference_node(if is_quoted { &text[1..text.len() - 1] } else { text }, false)
}

/// The hops of a line, nearest first, up to the first that is malformed.
fn reference_hops(field: &str, line: &[u8]) -> Vec<Option<IpAddr>> {
    if field != "forwarded" {
        let entries = line.split(|&byte| byte == b',').rev().map(|entry| entry.trim_ascii());
        let members = entries.filter(|entry| !entry.is_empty());
        return members.map(|entry| reference_listed(str::from_utf8(entry).ok()?)).collect();
    }
    // The last element is the shortest end of the line that is a whole element.
    let commas = line.iter().enumerate().rev().filter(|&(_, &byte)| byte == b',');
    let starts = commas.map(|(at, _)| at + 1).chain([0]);
    for start in starts {
        if line[start..].trim_ascii().is_empty() {
            // An empty member, or an empty line.
            let comma = start.checked_sub(1);
            return comma.map_or_else(Vec::new, |comma| reference_hops(field, &line[..comma]));
        }
        if let Some(address) = reference_element(line[start..].trim_ascii()) {
            let mut hops = vec![Some(address)];
            if let Some(comma) = start.checked_sub(1) {
                hops.extend(reference_hops(field, &line[..comma]));
            }
            return hops;
        }
    }
    vec![None]
}

/// The client of a request from this peer.
pub(crate) fn reference(field: &str, lines: &[Vec<u8>], peer: IpAddr, trusted: &Trusted) -> IpAddr {
    let mut client = peer;
    let hops = lines.iter().rev().flat_map(|line| reference_hops(field, line));
    for (behind, hop) in hops.enumerate() {
        let is_trusted = match trusted {
            Trusted::Ours => match client.to_canonical() {
                IpAddr::V4(address) => address.octets()[0] == 10,
                IpAddr::V6(address) => address.octets()[0] == 0xfd,
            },
            Trusted::Hops(hops) => behind < *hops,
        };
        match hop {
            Some(hop) if is_trusted => client = hop,
            _ => break,
        }
    }
    unembedded(client)
}

/// The IPv4 address that is embedded in IPv6, or the address as it is.
pub(crate) fn unembedded(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if v6.to_bits() >> 32 == 0x64_ff9b << 64 => {
            let [.., a, b, c, d] = v6.octets();
            [a, b, c, d].into()
        }
        address => address,
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Trusted {
    Ours,
    Hops(usize),
}

impl Trusted {
    pub(crate) fn proxies(&self) -> Proxies {
        match self {
            Self::Ours => ours().into(),
            Self::Hops(hops) => Proxies::hops(*hops),
        }
    }
}
