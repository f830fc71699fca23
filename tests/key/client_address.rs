//! Which address counts as that of the client, whatever the header fields say.

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use http::Request;
use tollgate::clock::ManualClock;
use tollgate::key::{ClientIp, Extracted, Head, Key, KeyExtractor, Networks, Proxies, header};
use tollgate::{Limit, MINUTE, Quota};
use tollgate_testing::address::{FIELDS, by, found, headers, ip, key, ours, request};
use tollgate_testing::cases::times;
use tollgate_testing::{START, is_admitted, limiter};

// The recorded vectors.

#[test]
fn the_recorded_texts_are_read_as_recorded() {
    let vectors = include_str!("../data/addresses.jsonl");
    for vector in vectors.lines().map(serde_json::from_str::<serde_json::Value>) {
        let vector = vector.unwrap();
        let of = |name: &str| vector[name].as_str();
        let (field, text) = (of("field").unwrap(), of("text").unwrap());
        let request = request("10.0.0.1", field, &[text]);
        for (bits, wanted) in [(56, of("by_56")), (64, of("by_64"))] {
            let found = key(&by(field, ours()).ipv6_prefix(bits), &request);
            // What is not an address ends the walk at the peer.
            assert_eq!(found.to_string(), wanted.unwrap_or("10.0.0.1"), "{field}: {text}");
        }
    }
    assert_eq!(vectors.lines().count(), 26);
}

#[test]
fn the_peer_s_address_is_read_as_recorded() {
    for (peer, by_56, by_64) in [
        ("::ffff:1.2.3.4", "1.2.3.4", "1.2.3.4"),
        ("64:ff9b::1.2.3.4", "1.2.3.4", "1.2.3.4"),
        ("2001:db8:1234:56ff::9", "2001:db8:1234:5600::/56", "2001:db8:1234:56ff::/64"),
        ("2001:db8:1234:5700::9", "2001:db8:1234:5700::/56", "2001:db8:1234:5700::/64"),
    ] {
        let request = request::<&str>(peer, "x-forwarded-for", &[]);
        assert_eq!(key(&ClientIp::peer().ipv6_prefix(56), &request).to_string(), by_56);
        assert_eq!(key(&ClientIp::peer(), &request).to_string(), by_64);
    }
}

// Texts that are addresses, and texts that are not.

#[test]
fn an_entry_of_x_forwarded_for_is_an_address_with_or_without_port() {
    for (entry, address) in [
        ("203.0.113.7", "203.0.113.7"),
        ("203.0.113.7:0", "203.0.113.7"),
        ("203.0.113.7:65535", "203.0.113.7"),
        ("\t 203.0.113.7 ", "203.0.113.7"),
        ("2001:db8::7", "2001:db8::7"),
        ("2001:DB8:0:0::7", "2001:db8::7"),
        // Without brackets this is no port.
        ("2001:db8::7:80", "2001:db8::7:80"),
        ("[2001:db8::7]", "2001:db8::7"),
        ("[2001:db8::7]:80", "2001:db8::7"),
        ("[fe80::7%25eth0]:80", "fe80::7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("[::ffff:203.0.113.7]:80", "203.0.113.7"),
        // A quoted string, as in other lists (RFC 9110, section 5.6.4).
        ("\"203.0.113.7\"", "203.0.113.7"),
        ("\"[2001:db8::7]:80\"", "2001:db8::7"),
    ] {
        let request = request("10.0.0.1", "x-forwarded-for", &[entry]);
        assert_eq!(found(&by("x-forwarded-for", ours()), &request), ip(address), "{entry:?}");
    }
}

#[test]
fn a_text_that_programs_read_differently_is_no_address() {
    for entry in [
        // Octal to some, decimal to others.
        "010.0.0.1",
        "203.0.113.07",
        "0x7f.0.0.1",
        "127.1",
        "3405803783",
        "203.0.113.7.",
        "203.0.113.256",
        "203.0.113.7:65536",
        "203.0.113.7:000080",
        "203.0.113.7:",
        "203.0.113.7:+80",
        "203.0.113.7 203.0.113.8",
        "203.0.113.7%eth0",
        "[203.0.113.7]:80",
        "\"203.0.113.7",
        "203.0.113.7\"",
        "\"\"203.0.113.7\"\"",
        "\" 203.0.113.7\"",
        "\"203.0.113.\\7\"",
        "\"203.0.113.7, 203.0.113.7\"",
        "\"",
        "\"\"",
        "2001:db8::7::1",
        "2001:db8::7%",
        "[2001:db8::7",
        "2001:db8::7]",
        "[2001:db8::7]80",
        "[2001:db8::7]:",
        "[[2001:db8::7]]",
        ":",
        "::ffff:010.0.0.1",
        "localhost",
        "203.0.113.7\u{fc}",
    ] {
        let request = request("10.0.0.1", "x-forwarded-for", &[format!("198.51.100.9, {entry}")]);
        let client = by("x-forwarded-for", Proxies::hops(9));
        assert_eq!(found(&client, &request), ip("10.0.0.1"), "{entry:?}");
    }
}

#[test]
fn an_element_of_forwarded_is_what_the_grammar_says_or_nothing() {
    for (element, address) in [
        ("for=203.0.113.7", Some("203.0.113.7")),
        ("FOR=203.0.113.7", Some("203.0.113.7")),
        ("for=\"203.0.113.7:80\"", Some("203.0.113.7")),
        ("for=\"203.0.113.7:_port.1\"", Some("203.0.113.7")),
        ("for=\"[2001:db8::7]:_p\"", Some("2001:db8::7")),
        ("by=10.0.0.2;for=203.0.113.7;proto=https", Some("203.0.113.7")),
        (";;for=203.0.113.7; proto=https ;", Some("203.0.113.7")),
        ("host=\"a, for=6.6.6.6\";for=203.0.113.7", Some("203.0.113.7")),
        ("for=203.0.113.7;host=\"a, for=6.6.6.6\"", Some("203.0.113.7")),
        ("for=203.0.113.7;host=\"a,for=6.6.6.6;x=\\\"b\"", Some("203.0.113.7")),
        ("for=203.0.113.7;host=\"a\\\\\"", Some("203.0.113.7")),
        ("for=203.0.113.7;host=\"a\\\\\\\",for=6.6.6.6;x=\\\"\"", Some("203.0.113.7")),
        // Colons and brackets need quotes (RFC 7239, section 4), and IPv6 needs brackets.
        ("for=203.0.113.7:80", None),
        ("for=[2001:db8::7]", None),
        ("for=2001:db8::7", None),
        ("for=\"2001:db8::7\"", None),
        ("for=\"[2001:db8::7]:\"", None),
        ("for=\"[2001:db8::7]:_\"", None),
        ("for=\"[2001:db8::7]:_a/b\"", None),
        ("for=\"\\203.0.113.7\"", None),
        ("for= 203.0.113.7", None),
        ("for =203.0.113.7", None),
        ("for", None),
        ("for=203.0.113.7;for=203.0.113.8", None),
        ("for=203.0.113.7;for=203.0.113.7", None),
        ("for=203.0.113.7 proto=https", None),
        ("for=203.0.113.7;proto", None),
        ("for=203.0.113.7;host=\"a", None),
        ("for=203.0.113.7;host=a\"", None),
        ("for=203.0.113.7;host=\"a\\\"", None),
        ("for=203.0.113.7\"", None),
        ("203.0.113.7", None),
        ("proto=https;by=203.0.113.7", None),
    ] {
        let request = request("10.0.0.1", "forwarded", &[format!("for=198.51.100.9,{element}")]);
        let wanted = address.map_or(ip("10.0.0.1"), ip);
        assert_eq!(found(&by("forwarded", Proxies::hops(1)), &request), wanted, "{element}");
    }
}

// The walk.

/// An entry of `X-Forwarded-For` as an element of `Forwarded`.
fn element(entry: &str) -> String {
    match entry.contains(':') {
        true => format!("proto=https;for=\"[{entry}]:443\""),
        false => format!("for={entry};by=_us"),
    }
}

/// Walks the same hops in both fields: `/` begins a line.
#[track_caller]
fn walks(peer: &str, hops: &str, trusted: impl Into<Proxies>, wanted: &str) {
    let trusted = trusted.into();
    for field in FIELDS {
        let line = |line: &str| {
            let entry = |entry: &str| match (field, entry.trim()) {
                ("forwarded", "") => String::new(),
                ("forwarded", entry) => element(entry),
                (_, entry) => entry.to_owned(),
            };
            line.split(',').map(entry).collect::<Vec<_>>().join(", ")
        };
        let lines: Vec<_> = hops.split('/').map(line).collect();
        let request = request(peer, field, &lines);
        assert_eq!(found(&by(field, trusted.clone()), &request), ip(wanted), "{field}: {lines:?}");
    }
}

#[test]
fn the_walk_ends_at_the_first_hop_that_is_not_trusted() {
    walks("10.0.0.1", "203.0.113.7", ours(), "203.0.113.7");
    walks("10.0.0.1", "198.51.100.9, 203.0.113.7", ours(), "203.0.113.7");
    walks("10.0.0.1", "198.51.100.9, 203.0.113.7, 10.0.0.2, fd00::3", ours(), "203.0.113.7");
    walks("::ffff:10.0.0.1", "2001:db8::7, ::ffff:10.0.0.2", ours(), "2001:db8::7");
    // A client with an address in the trusted networks.
    walks("10.0.0.1", "10.0.0.9, 10.0.0.2", ours(), "10.0.0.9");
}

#[test]
fn all_field_lines_are_one_list() {
    walks("10.0.0.1", "198.51.100.9 / 203.0.113.7 / 10.0.0.2, 10.0.0.3", ours(), "203.0.113.7");
    walks("10.0.0.1", "198.51.100.9, 203.0.113.7 / 10.0.0.2 / 10.0.0.3", ours(), "203.0.113.7");
    walks("10.0.0.1", "203.0.113.7 / fd00::2", Proxies::hops(2), "203.0.113.7");
}

#[test]
fn an_unreadable_hop_ends_the_walk_at_the_last_trusted_hop() {
    for broken in ["unknown", "_hidden", "garbage", "1.2.3"] {
        for trusted in [ours().into(), Proxies::hops(9)] {
            let hops = format!("203.0.113.7, {broken}, 10.0.0.2, 10.0.0.3");
            walks("10.0.0.1", &hops, trusted.clone(), "10.0.0.2");
            let hops = format!("203.0.113.7 / {broken} / 10.0.0.2, 10.0.0.3");
            walks("10.0.0.1", &hops, trusted.clone(), "10.0.0.2");
            walks("10.0.0.1", &format!("203.0.113.7, {broken}"), trusted, "10.0.0.1");
        }
    }
}

/// RFC 9110, section 5.6.1: a recipient ignores empty members of a list. A line may have none at all.
#[test]
fn empty_members_of_the_list_are_no_hops() {
    for hops in [
        "203.0.113.7, , 10.0.0.2,",
        ",203.0.113.7,,,10.0.0.2 /  / , ,",
        "203.0.113.7 / , / 10.0.0.2",
        "198.51.100.9, , 203.0.113.7, \t , 10.0.0.2",
    ] {
        walks("10.0.0.1", hops, ours(), "203.0.113.7");
        walks("10.0.0.1", hops, Proxies::hops(2), "203.0.113.7");
    }
    walks("10.0.0.1", " , / ,", Proxies::hops(9), "10.0.0.1");
    // An element with nothing but a separator of pairs is malformed, and none that is empty.
    let request = request("10.0.0.1", "forwarded", &["for=203.0.113.7, ;"]);
    assert_eq!(found(&by("forwarded", ours()), &request), ip("10.0.0.1"));
}

#[test]
fn only_the_configured_number_of_hops_is_believed() {
    let hops = "198.51.100.9, 203.0.113.7, 192.0.2.5";
    for (trusted, wanted) in
        [(0, "10.0.0.1"), (1, "192.0.2.5"), (2, "203.0.113.7"), (3, "198.51.100.9")]
    {
        walks("10.0.0.1", hops, Proxies::hops(trusted), wanted);
    }
    // With fewer entries than configured hops, the last entry of the walk is the client.
    walks("10.0.0.1", "192.0.2.5", Proxies::hops(3), "192.0.2.5");
}

#[test]
fn with_a_number_of_hops_the_peer_need_not_be_known() {
    // As behind a proxy on a Unix socket.
    let mut request = Request::new(());
    *request.headers_mut() = headers("x-forwarded-for", &["198.51.100.9, 203.0.113.7"]);
    assert_eq!(found(&by("x-forwarded-for", Proxies::hops(1)), &request), ip("203.0.113.7"));
    assert!(by("x-forwarded-for", Proxies::hops(0)).address(&Head::new(&request)).is_err());
    assert!(by("x-forwarded-for", ours()).address(&Head::new(&request)).is_err());
}

#[test]
fn only_the_chosen_field_is_read() {
    let mut request = request("10.0.0.1", "forwarded", &["for=198.51.100.9"]);
    request.headers_mut().extend(headers("x-forwarded-for", &["203.0.113.7"]));
    request.headers_mut().extend(headers("x-real-ip", &["192.0.2.5"]));
    let real_ip = ClientIp::header("x-real-ip", ours());
    assert_eq!(found(&by("forwarded", ours()), &request), ip("198.51.100.9"));
    assert_eq!(found(&by("x-forwarded-for", ours()), &request), ip("203.0.113.7"));
    assert_eq!(found(&real_ip, &request), ip("192.0.2.5"));
    assert_eq!(found(&ClientIp::peer(), &request), ip("10.0.0.1"));
    // None of them stands in for another.
    request.headers_mut().remove("x-forwarded-for");
    assert_eq!(found(&by("x-forwarded-for", ours()), &request), ip("10.0.0.1"));
    request.headers_mut().remove("x-real-ip");
    assert_eq!(found(&real_ip, &request), ip("10.0.0.1"));
}

#[test]
fn an_edge_s_own_field_is_believed_from_the_edge_only() {
    let edge = || ClientIp::header("CF-Connecting-IP", Networks::new(["173.245.48.0/20"]));
    for (peer, lines, wanted) in [
        ("173.245.48.5", &["2001:db8::7"][..], "2001:db8::7"),
        ("::ffff:173.245.48.5", &[" 203.0.113.7:80 "], "203.0.113.7"),
        ("198.51.100.5", &["203.0.113.7"], "198.51.100.5"),
        ("173.245.48.5", &["\"203.0.113.7\""], "203.0.113.7"),
        // An edge that overwrites leaves one value, and one that is an address.
        ("173.245.48.5", &["203.0.113.7", "203.0.113.8"], "173.245.48.5"),
        ("173.245.48.5", &["203.0.113.7", "203.0.113.7"], "173.245.48.5"),
        ("173.245.48.5", &["203.0.113.7, 203.0.113.8"], "173.245.48.5"),
        ("173.245.48.5", &["unknown"], "173.245.48.5"),
        ("173.245.48.5", &[""], "173.245.48.5"),
        ("173.245.48.5", &[], "173.245.48.5"),
    ] {
        let request = request(peer, "cf-connecting-ip", lines);
        assert_eq!(found(&edge(), &request), ip(wanted), "{peer}: {lines:?}");
    }
}

/// The peer alone is looked at. So a proxy of one's own that stands between must not be named, unless
/// it drops the field of whoever is not the edge.
#[tokio::test]
async fn a_field_that_an_inner_proxy_hands_on_is_believed_if_that_proxy_is_named() {
    let keys = |set_by: &'static str| {
        let client = ClientIp::header("cf-connecting-ip", [set_by]);
        axum::Router::new().route(
            "/",
            axum::routing::get(async move |request: axum::extract::Request| {
                client.address(&Head::new(&request)).unwrap().to_string()
            }),
        )
    };
    // This server stands behind a proxy on the same machine, which hands on what a client forged.
    for (set_by, found) in [("127.0.0.1", "203.0.113.7"), ("173.245.48.0/20", "127.0.0.1")] {
        let to = tollgate_testing::web::serve(keys(set_by)).await;
        let forged = [("cf-connecting-ip", "203.0.113.7")];
        let reply = tollgate_testing::web::send(to, http::Method::GET, "/", &forged).await;
        assert_eq!(reply.body, found, "{set_by}");
    }
}

// Networks.

#[test]
fn a_network_holds_its_addresses_in_any_form() {
    let holds = |network: &str, address: &str| Networks::new([network]).contains(ip(address));
    for (network, inside, outside) in [
        ("10.0.0.0/8", "10.255.255.255", "11.0.0.0"),
        ("10.1.2.3/8", "10.0.0.0", "9.255.255.255"),
        ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
        ("::ffff:10.0.0.0/104", "10.9.9.9", "11.0.0.0"),
        ("::ffff:192.0.2.7", "192.0.2.7", "192.0.2.6"),
        ("2001:db8::/32", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db9::"),
        (" 2001:db8::7 ", "2001:db8::7", "2001:db8::8"),
        ("0.0.0.0/0", "255.255.255.255", "::"),
        ("::/0", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "0.0.0.0"),
        // An address into which a translator has embedded 10.0.0.1 is outside of the network.
        ("10.0.0.0/8", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1"),
    ] {
        assert!(holds(network, inside), "{inside} in {network}");
        assert!(!holds(network, outside), "{outside} in {network}");
    }
    assert!(!Networks::new(<[&str; 0]>::default()).contains(ip("10.0.0.1")));
}

#[test]
fn networks_are_found_among_many() {
    let texts = (0..=255_u32).map(|n| format!("{}.{n}.0.0/24", if n % 2 == 0 { 20 } else { 10 }));
    let within = ["10.0.0.0/16", "2001:db8::/32", "2001:db8:7::/48", "fd00::/8"].map(str::to_owned);
    let many = Networks::new(texts.chain(within));
    for (address, is_in) in [
        ("20.4.0.255", true),
        ("20.4.1.0", false),
        ("20.5.0.1", false),
        ("10.5.0.1", true),
        ("10.0.200.1", true),
        ("10.255.0.9", true),
        ("10.255.1.0", false),
        ("9.255.255.255", false),
        ("2001:db8:8::1", true),
        ("2001:db7::1", false),
        ("fdff::1", true),
        ("fe00::1", false),
    ] {
        assert_eq!(many.contains(ip(address)), is_in, "{address}");
    }
    let private = Networks::private();
    for (address, is_in) in [
        ("10.1.2.3", true),
        ("172.31.255.255", true),
        ("172.32.0.0", false),
        ("192.168.0.1", true),
        ("127.0.0.1", true),
        ("169.254.0.1", true),
        ("100.64.0.1", false),
        ("::1", true),
        ("::2", false),
        ("fe80::1", true),
        ("fec0::1", false),
        ("fc00::1", true),
        ("fe00::1", false),
    ] {
        assert_eq!(private.contains(ip(address)), is_in, "{address}");
    }
}

#[test]
fn the_error_of_a_text_that_is_no_network_shows_one() {
    for text in [
        "10.0.0.0/33",
        "010.0.0.0/8",
        "10.0.0/8",
        "",
        "localhost",
        "fe80::1%eth0",
        "10.0.0.1:80",
        "::/129",
    ] {
        let message = format!(
            "{text:?} is not a network (write an address and the length of its prefix, as in \
             `10.0.0.0/8` or `2001:db8::/32`, or an address alone)"
        );
        assert_eq!(Networks::try_new(["::/0", text]).unwrap_err().to_string(), message);
    }
    let long = Networks::try_new(["x".repeat(65_536)]).unwrap_err().to_string();
    assert!(long.len() < 250, "{long}");
    let panics = std::panic::catch_unwind(|| Networks::new(["10.0.0.0/33"]));
    assert!(panics.is_err());
}

// Attacks.

#[test]
fn fields_from_a_peer_that_is_not_trusted_are_ignored() {
    for (field, line) in
        [("x-forwarded-for", "10.0.0.2, 203.0.113.7"), ("forwarded", "for=203.0.113.7")]
    {
        for peer in ["198.51.100.5", "2001:db8::5", "11.0.0.1", "64:ff9b::10.0.0.1"] {
            let request = request(peer, field, &[line, line]);
            let plain = self::request::<&str>(peer, field, &[]);
            assert_eq!(key(&by(field, ours()), &request), key(&ClientIp::peer(), &plain));
        }
    }
}

#[test]
fn entries_that_a_client_forges_stand_left_of_the_proxy_s_and_are_not_believed() {
    for (field, forged, entry) in [
        ("x-forwarded-for", "203.0.113.7", "198.51.100.5"),
        ("x-forwarded-for", "203.0.113.7, 10.0.0.7", "198.51.100.5"),
        ("x-forwarded-for", "10.0.0.7,", "198.51.100.5"),
        ("forwarded", "for=203.0.113.7", "for=198.51.100.5"),
        ("forwarded", "for=203.0.113.7, for=10.0.0.7", "for=198.51.100.5"),
        // Quotes that would swallow what the proxy adds to the same line.
        ("forwarded", "for=203.0.113.7;x=\"", "for=198.51.100.5"),
        ("forwarded", "for=203.0.113.7;x=\"", "for=\"198.51.100.5:80\""),
        ("forwarded", "for=203.0.113.7;x=\"\\", "for=\"198.51.100.5:80\";host=\"a\\\"b\""),
        ("forwarded", "\"\"\"\\\\\"", "for=198.51.100.5;host=\"a, for=6.6.6.6\""),
    ] {
        let (one, two) = ([format!("{forged}, {entry}")], [forged, entry]);
        let requests = [request("10.0.0.1", field, &one), request("10.0.0.1", field, &two)];
        for request in requests {
            let found = found(&by(field, ours()), &request);
            assert_eq!(found, ip("198.51.100.5"), "{field}: {forged}");
        }
    }
}

#[test]
fn nothing_left_of_a_line_with_an_unpaired_quote_is_believed() {
    for line in [
        "for=203.0.113.7;x=\"",
        "for=203.0.113.7, for=\"10.0.0.2",
        "for=203.0.113.7, for=10.0.0.2\"",
        "for=203.0.113.7, for=\"10.0.0.2\\\"",
        "for=\"203.0.113.7, for=10.0.0.2\"",
    ] {
        let request = request("10.0.0.1", "forwarded", &["for=203.0.113.8", line]);
        assert_eq!(found(&by("forwarded", ours()), &request), ip("10.0.0.1"), "{line}");
    }
}

#[test]
fn ten_thousand_addresses_of_one_network_are_one_client() {
    static FIVE: Limit = Limit::new("five", Quota::token_bucket(5, MINUTE));
    let limiter = limiter(&ManualClock::new(START));
    let mut admitted = 0;
    for n in 0..10_000_u128 {
        // Spread over all 64 bits of the host.
        let host = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) & u128::from(u64::MAX);
        let address = Ipv6Addr::from_bits((0x2001_0db8_0000_0001 << 64) | host).to_string();
        let request = request("10.0.0.1", "x-forwarded-for", &[address]);
        let key = key(&by("x-forwarded-for", ours()), &request);
        admitted += usize::from(is_admitted(limiter.limit(&FIVE).key(key)));
    }
    assert_eq!(admitted, 5);
}

#[test]
fn an_address_is_one_key_however_it_is_written() {
    let spellings = [
        "203.0.113.7",
        "203.0.113.7:1",
        "::ffff:203.0.113.7",
        "::FFFF:cb00:7107",
        "0:0:0:0:0:ffff:203.0.113.7",
        "[::ffff:203.0.113.7]:443",
        "64:ff9b::203.0.113.7",
    ];
    let keys: HashSet<_> = spellings
        .iter()
        .map(|text| {
            key(&by("x-forwarded-for", ours()), &request("10.0.0.1", "x-forwarded-for", &[text]))
        })
        .collect();
    assert_eq!(keys, HashSet::from([Key::from(Ipv4Addr::new(203, 0, 113, 7))]));
}

/// The time of the walk is linear in the size: a quadratic walk would take hours in CI.
#[test]
fn a_quarter_of_a_megabyte_is_walked_without_an_allocation() {
    for piece in [
        "10.0.0.2,",
        ",",
        " ",
        "\"",
        "\\",
        "\\\"",
        "\"\"",
        "\",",
        ";",
        "=",
        "a",
        "for=",
        "for=10.0.0.2,",
        "for=\"10.0.0.2\",",
        "x=\"\\\\\",",
        "[",
        ":",
        "%",
        "1.",
        "\u{fc}",
    ] {
        for (field, last) in
            [("x-forwarded-for", "10.0.0.3"), ("forwarded", "for=10.0.0.3;x=\"\\\"\"")]
        {
            let length = usize::try_from(times(1 << 18, 1 << 15)).unwrap();
            let line = piece.repeat(length / piece.len());
            let last = format!(", {last}");
            let lines = [
                vec![line.clone()],
                vec![line.clone() + &last],
                vec![line.clone() + "\"" + &last],
                vec![piece.to_owned() + &last; 1_000],
            ];
            for lines in lines {
                let request = request("10.0.0.1", field, &lines);
                for client in [by(field, ours()), by(field, Proxies::hops(usize::MAX))] {
                    let work = || assert!(found(&client, &request).is_ipv4());
                    assert_eq!(allocation_counter::measure(work).count_total, 0, "{piece:?}");
                }
            }
        }
    }
}

#[test]
fn a_thousand_lines_and_64_kib_hide_no_client() {
    for (field, trusted, client) in [
        ("x-forwarded-for", "10.0.0.2", "203.0.113.7"),
        ("forwarded", "for=10.0.0.2", "for=203.0.113.7"),
    ] {
        let mut lines = vec![client.to_owned()];
        lines.resize(1_000, trusted.to_owned());
        let found =
            |lines: &[String]| found(&by(field, ours()), &request("10.0.0.1", field, lines));
        assert_eq!(found(&lines), ip("203.0.113.7"));
        lines[500] = "unknown".to_owned();
        assert_eq!(found(&lines), ip("10.0.0.2"));
        let line = client.to_owned() + &format!(", {trusted}").repeat(65_536 / (trusted.len() + 2));
        assert!(line.len() >= 65_536);
        assert_eq!(found(&[line]), ip("203.0.113.7"));
    }
}

// Exemptions.

#[test]
fn exempt_networks_are_compared_with_the_client_address() {
    let inside = || Networks::new(["192.168.0.0/16"]);
    let user = header("x-user").unless(by("x-forwarded-for", ours()).within(inside()));
    let exempt = |peer: &str, entries: &str| {
        let request = request(peer, "x-forwarded-for", &[entries]);
        user.extract(&Head::new(&request)) == Ok(Extracted::Exempt)
    };
    assert!(exempt("10.0.0.1", "192.168.0.7"));
    assert!(exempt("192.168.0.7", "203.0.113.7"));
    // Forged: in front of the proxy's own entry, and without a proxy.
    assert!(!exempt("10.0.0.1", "192.168.0.7, 203.0.113.7"));
    assert!(!exempt("198.51.100.5", "192.168.0.7"));
    // An address into which a translator has embedded an exempt one is not exempt.
    assert!(exempt("10.0.0.1", "::ffff:192.168.0.7"));
    assert!(!exempt("10.0.0.1", "64:ff9b::192.168.0.7"));
    assert!(!exempt("64:ff9b::192.168.0.7", ""));
    // A request without a client address is in no network.
    assert!(user.extract(&Head::new(&Request::new(()))).is_err());
}
