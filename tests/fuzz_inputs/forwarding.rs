//! Addresses of clients: `X-Forwarded-For`, `Forwarded` and the field of an edge, whatever is in them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::Request;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tollgate::Key;
use tollgate::key::{ClientIp, Head, KeyExtractor, Proxies};
use tollgate_testing::address::{FIELDS, by, found, headers, ip, key, ours, request};
use tollgate_testing::fuzz::bytes::{blanks, draws_each, fields};
use tollgate_testing::fuzz::field::{Field, unescaped};
use tollgate_testing::fuzz::seeds::{Seed, seeds};

use super::forwarding_reference::{Trusted, reference, reference_listed, unembedded};

const WORDS: [&str; 44] = [
    "for=",
    "For=",
    "by=",
    "host=",
    "x=",
    "for",
    ", ",
    ",",
    ";",
    "[",
    "]",
    ":",
    ":80",
    ":_p",
    "%eth0",
    "%25",
    "unknown",
    "_hidden",
    "10.0.0.2",
    "10.0.0.3",
    "010.0.0.2",
    "fd00::2",
    "203.0.113.7",
    "198.51.100.9",
    "2001:db8::7",
    "[2001:db8::7]",
    "\"[2001:db8::7]:4711\"",
    "\"10.0.0.4:80\"",
    "::ffff:10.0.0.5",
    "64:ff9b::10.0.0.6",
    "for=10.0.0.2, ",
    "for=203.0.113.7;",
    "10.0.0.2, ",
    ", 10.0.0.2",
    ", for=10.0.0.2",
    ", for=\"10.0.0.4:80\"",
    ", for=fd00",
    ", for=203.0.113.7;host=\"a, b\"",
    ", host=\"a\\\\\",\";for=10.0.0.3",
    "=\"",
    "\\\\\"",
    "\n10.0.0.2",
    "\nfor=10.0.0.2",
    "\n",
];

fn field_seeds(field: &str) -> Vec<Seed> {
    match field {
        "forwarded" => seeds(include_str!("../data/fuzz/forwarded.txt")),
        _ => seeds(include_str!("../data/fuzz/x_forwarded_for.txt")),
    }
}

fn edge_seeds() -> Vec<Seed> {
    seeds(include_str!("../data/fuzz/client_header.txt"))
}

#[test]
fn seeds_of_addresses_are_read_as_recorded() {
    for name in FIELDS {
        for Seed { field, wanted } in field_seeds(name) {
            let found = found(&by(name, ours()), &request("10.0.0.1", name, &field.0));
            assert_eq!(found, unembedded(ip(wanted)), "{name}: {field:?}");
        }
    }
    for Seed { field, wanted } in edge_seeds() {
        let client = ClientIp::header("x-ip", ours());
        let found = found(&client, &request("10.0.0.1", "x-ip", &field.0));
        assert_eq!(found, unembedded(ip(wanted)), "{field:?}");
    }
}

fn peer() -> impl Strategy<Value = &'static str> {
    select(vec!["10.0.0.1", "::ffff:10.0.0.1", "fd00::1", "198.51.100.5", "2001:db8::5"])
}

/// One of the fields, and lines for it: like the seeds, or a list of hops with something between them.
fn walked() -> impl Strategy<Value = (&'static str, Field)> {
    let [one, other] = FIELDS.map(|name| {
        let hop = prop_oneof![
            5 => (0_u8..4, 0_u8..16).prop_map(move |(nth, form)| {
                honest(name, IpAddr::from([[10, 0, 0, 2], [10, 0, 0, 3], [203, 0, 113, 7], [198, 51, 100, 9]][usize::from(nth)]), form)
            }),
            1 => select(WORDS.to_vec()).prop_map(|word| String::from_utf8(unescaped(word)).unwrap()),
        ];
        let separated = (hop, select(vec![", ", ",", "\n", "\t,\t"]));
        let list = vec(separated, 1..7).prop_map(|hops| {
            let text: String = hops.iter().map(|(hop, separator)| [separator, &**hop].concat()).collect();
            Field::from_bytes(text.trim_start_matches([',', ' ', '\n', '\t']).as_bytes())
        });
        prop_oneof![2 => fields(&field_seeds(name), &WORDS), 1 => list].prop_map(move |field| (name, field))
    });
    prop_oneof![one, other]
}

#[test]
fn fields_are_drawn_in_which_the_walk_ends_at_the_peer_and_further_on() {
    draws_each(&walked(), 6, |(name, field)| {
        let end = |hops| reference(name, &field.0, ip("10.0.0.1"), &Trusted::Hops(hops));
        // How many hops can be read: none, one, or several.
        (name, [end(1) != end(0), end(9) != end(1)].map(u8::from).iter().sum::<u8>())
    });
}

/// What honest proxies add, nearest first: addresses they saw, each in one of many forms.
fn honest(field: &'static str, address: IpAddr, form: u8) -> String {
    let text = match (address, form % 2) {
        (IpAddr::V6(address), _) => format!("[{address}]"),
        (IpAddr::V4(address), 0) => address.to_string(),
        (IpAddr::V4(address), _) => format!("[::ffff:{address}]"),
    };
    let port = if form & 2 == 0 { "" } else { ":443" };
    if field != "forwarded" {
        return format!("{text}{port}");
    }
    let node = match address.is_ipv4() && form & 3 == 0 {
        true => text,
        false => format!("\"{text}{port}\""),
    };
    match form >> 2 & 3 {
        0 => format!("for={node}"),
        1 => format!("For={node};proto=https"),
        // The client chooses the host, and the proxy quotes it.
        2 => format!("for={node};host=\"a\\\", for=6.6.6.6;x=\\\"\""),
        _ => format!("host=\"\\\\\\\\\";for={node};by=\"_us\""),
    }
}

/// An address outside the trusted networks.
fn outsider() -> impl Strategy<Value = IpAddr> {
    let any_address = prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::from(Ipv4Addr::from_bits(bits))),
        any::<u128>().prop_map(|bits| IpAddr::from(Ipv6Addr::from_bits(bits))),
    ];
    any_address.prop_map(|address| match ours().contains(address) {
        true => ip("203.0.113.7"),
        false => address,
    })
}

proptest! {
    /// Never an address that stands left of a hop that is not trusted, or malformed.
    #[test]
    fn walk_agrees_with_a_slow_reading_from_the_left(
        (name, field) in walked(),
        peer in peer(),
        trusted in prop_oneof![Just(Trusted::Ours), (0_usize..6).prop_map(Trusted::Hops)],
    ) {
        let found = found(&by(name, trusted.proxies()), &request(peer, name, &field.0));
        prop_assert_eq!(found, reference(name, &field.0, ip(peer), &trusted), "{}", name);
    }

    /// Whatever a client sends, its address is the one that the first trusted proxy saw.
    #[test]
    fn walk_finds_the_peer_of_the_first_trusted_proxy_whatever_that_peer_sent(
        (field, forged) in walked(),
        client in outsider(),
        chain in vec((any::<u8>(), 0_u8..16, any::<bool>()), 0..5),
        form in 0_u8..16,
        joined in any::<bool>(),
    ) {
        let mut lines = forged.0;
        let mut add = |entry: String, is_joined: bool| match lines.last_mut() {
            // As proxies do that append to an existing line.
            Some(line) if is_joined => {
                line.extend_from_slice(b", ");
                line.extend_from_slice(entry.as_bytes());
            }
            _ => lines.push(entry.into_bytes()),
        };
        add(honest(field, client, form), joined);
        let hops = chain.len();
        for (last, form, is_joined) in chain {
            add(honest(field, Ipv4Addr::new(10, 0, 0, last).into(), form), is_joined);
        }
        let request = request("10.0.0.1", field, &lines);
        let only = self::request("10.0.0.1", field, &[honest(field, client, 0)]);
        for trusted in [ours().into(), Proxies::hops(hops + 1)] {
            let client = by(field, trusted);
            let wanted = found(&by(field, ours()), &only);
            prop_assert_eq!(found(&client, &request), wanted);
        }
    }

    /// A peer that is not trusted is the client itself.
    #[test]
    fn walk_does_not_begin_at_a_peer_that_is_not_trusted(
        (name, field) in walked(),
        peer in outsider(),
    ) {
        let mut request = request(&peer.to_string(), name, &field.0);
        let with_fields = found(&by(name, ours()), &request);
        request.headers_mut().clear();
        prop_assert_eq!(with_fields, found(&ClientIp::peer(), &request));
    }

    /// Blanks around a line change nothing, nor does what other fields say.
    #[test]
    fn walk_ignores_blanks_and_other_fields(
        (name, field) in walked(),
        (before, after) in blanks(),
        (other, more) in walked(),
    ) {
        let client = by(name, Proxies::hops(3));
        let plain = request("10.0.0.1", name, &field.0);
        let mut padded = request("10.0.0.1", name, &field.padded(before, after).0);
        if other != name {
            padded.headers_mut().extend(headers(other, &more.0));
        }
        prop_assert_eq!(found(&client, &plain), found(&client, &padded));
    }

    /// One address from an edge that is trusted, or the peer.
    #[test]
    fn an_edge_s_field_is_read_as_by_the_slow_reference(
        field in fields(&edge_seeds(), &WORDS),
        peer in peer(),
        (before, after) in blanks(),
    ) {
        let client = ClientIp::header("x-ip", ours());
        let read = |field: &Field| found(&client, &request(peer, "x-ip", &field.0));
        let named = match &field.0[..] {
            [line] if ours().contains(ip(peer)) => std::str::from_utf8(line.trim_ascii()).ok(),
            _ => None,
        };
        let wanted = named.and_then(reference_listed).unwrap_or(ip(peer));
        prop_assert_eq!(read(&field), unembedded(wanted));
        prop_assert_eq!(read(&field), read(&field.padded(before, after)));
    }

    /// The key is the IPv4 address, or the network of the IPv6 address, and 18 bytes at most.
    #[test]
    fn a_key_is_the_network_of_the_address(
        (name, field) in walked(),
        bits in prop_oneof![Just(64_u8), 0_u8..=128, any::<u8>()],
    ) {
        let client = by(name, Proxies::hops(9)).ipv6_prefix(bits);
        let request = request("2001:db8::1", name, &field.0);
        let found = key(&client, &request);
        let wanted = match client.address(&Head::new(&request)).unwrap() {
            IpAddr::V4(address) => Key::from(address),
            IpAddr::V6(address) => {
                let kept = u32::from(bits.min(128));
                let host = u128::MAX.checked_shr(kept).unwrap_or(0);
                Key::network(Ipv6Addr::from_bits(address.to_bits() & !host), bits)
            }
        };
        prop_assert_eq!(&found, &wanted);
        prop_assert!(found.as_bytes().len() <= 18);
    }

    /// A request without a peer has an address only by the number of its hops.
    #[test]
    fn without_a_peer_no_network_is_trusted((name, field) in walked()) {
        let mut request = Request::new(());
        *request.headers_mut() = headers(name, &field.0);
        let error = by(name, ours()).extract(&Head::new(&request)).unwrap_err();
        prop_assert!(error.is_misconfigured());
    }
}
