//! The table of proxies in the guide: each setting finds the client in what the proxy sends.

use std::net::{IpAddr, Ipv4Addr};

use http::Request;
use tollgate::key::{ClientIp, Head};
use tollgate_testing::address::{found, request};
use tollgate_testing::proxies::CHAINS;

#[test]
fn each_setting_of_the_guide_finds_the_client_behind_its_proxies() {
    let client: IpAddr = "203.0.113.7".parse().unwrap();
    for chain in CHAINS {
        // Whatever the client claims, also to be one of the proxies or nobody.
        for forged in ["198.51.100.9", "10.0.0.4", "172.68.4.9", "127.0.0.1"] {
            let request = chain.request(client, forged.parse().unwrap());
            let found = (chain.setting)().address(&Head::new(&request));
            assert_eq!(found, Ok(client), "{}: {forged}", chain.name);
        }
    }
}

#[test]
fn each_row_of_the_guide_is_one_of_these_chains() {
    let guide = include_str!("../../docs/keys-and-proxies.md");
    for chain in CHAINS {
        assert!(guide.contains(&format!("| {} |", chain.name)), "{}", chain.name);
    }
}

/// Lists may have empty members, and values may be quoted (RFC 9110, sections 5.6.1 and 5.6.4).
#[test]
fn empty_members_do_not_count_and_quotes_are_read() {
    for (field, line) in [
        ("x-forwarded-for", "198.51.100.9, 203.0.113.7, , 10.0.0.1,"),
        ("x-forwarded-for", ", \"203.0.113.7\",, \"10.0.0.1:80\" ,"),
        ("forwarded", "for=198.51.100.9, for=203.0.113.7,, for=10.0.0.1 , "),
        ("forwarded", " ,for=203.0.113.7;proto=https, ,"),
    ] {
        for lines in [&[line][..], &[line, ""]] {
            let client = tollgate_testing::address::by(field, tollgate_testing::address::ours());
            let request = request("10.0.0.2", field, lines);
            assert_eq!(found(&client, &request).to_string(), "203.0.113.7", "{line}");
        }
    }
    // Quotes that do not match are not an address.
    let request = request("10.0.0.2", "x-forwarded-for", &["203.0.113.7, \"10.0.0.1"]);
    let client = ClientIp::x_forwarded_for(["10.0.0.0/8"]);
    assert_eq!(found(&client, &request).to_string(), "10.0.0.2");
}

/// A server that leaves the address in a type of its own, as tonic does.
#[test]
fn the_peer_may_be_in_an_extension_of_another_type() {
    #[derive(Clone)]
    struct Info(Option<std::net::SocketAddr>);
    let peer = |info: Info| {
        let mut request = Request::new(());
        request.extensions_mut().insert(info);
        let client = ClientIp::peer().peer_from(|_: &Vec<u8>| None).peer_from(|info: &Info| info.0);
        client.address(&Head::new(&request)).ok()
    };
    let address = std::net::SocketAddr::from(([192, 0, 2, 1], 80));
    assert_eq!(peer(Info(Some(address))), Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))));
    assert_eq!(peer(Info(None)), None);
}
