//! Networks as text, and the names of limits: what a configuration says of both.

use std::net::{IpAddr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tollgate::key::Networks;
use tollgate::{Limit, MINUTE, Quota};

use tollgate_testing::fuzz::bytes::{draws_each, texts};
use tollgate_testing::fuzz::seeds::{Seed, seeds};

const WORDS: [&str; 24] = [
    "10.0.0.0",
    "10.0.0.0/8",
    "/8",
    "/",
    "/0",
    "/32",
    "/33",
    "/104",
    "/128",
    "/129",
    "010",
    "1",
    "255",
    ".",
    ":",
    "::",
    "::ffff:",
    "2001:db8::",
    "fe80::1",
    "%eth0",
    "[",
    "]",
    "192.0.2.7",
    "64:ff9b::",
];

fn network_seeds() -> Vec<Seed> {
    seeds(include_str!("../data/fuzz/networks.txt"))
}

/// A network as bits, and how many of them count; IPv4 is where IPv6 maps it.
type Bits = (u128, u32);

/// A second reading: the address by the standard library, the prefix digit by digit.
fn reference(text: &str) -> Option<Bits> {
    let text = text.trim_matches(char::is_whitespace);
    let mut parts = text.split('/');
    let address: IpAddr = parts.next()?.parse().ok()?;
    let all: u32 = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match parts.next() {
        None => all,
        Some(digits) => {
            let mut number = 0;
            for c in digits.chars() {
                number = number * 10 + c.to_digit(10)?;
                if number > all {
                    return None;
                }
            }
            if !(1..=3).contains(&digits.len()) || parts.next().is_some() {
                return None;
            }
            number
        }
    };
    let (bits, kept) = match address {
        IpAddr::V4(address) => (address.to_ipv6_mapped().to_bits(), prefix + 96),
        IpAddr::V6(address) => (address.to_bits(), prefix),
    };
    Some((first(bits, kept), kept))
}

/// The bits of a number that count.
fn first(bits: u128, kept: u32) -> u128 {
    if kept == 0 { 0 } else { bits >> (128 - kept) << (128 - kept) }
}

/// Whether one of the networks has this address; IPv4 is in networks of IPv4 only.
fn holds(networks: &[Bits], address: IpAddr) -> bool {
    let (bits, is_v4) = match address.to_canonical() {
        IpAddr::V4(address) => (address.to_ipv6_mapped().to_bits(), true),
        IpAddr::V6(address) => (address.to_bits(), false),
    };
    networks.iter().any(|&(network, kept)| {
        let is_of_v4 = kept >= 96 && network >> 32 == 0xffff;
        is_of_v4 == is_v4 && first(bits, kept) == network
    })
}

/// What a seed says.
#[track_caller]
fn written(text: &str) -> Option<Bits> {
    let (address, prefix) = text.split_once('/')?;
    let address: Ipv6Addr = address.parse().unwrap();
    Some((address.to_bits(), prefix.parse().unwrap()))
}

#[test]
fn seeds_of_networks_are_read_as_recorded() {
    for Seed { field, wanted } in network_seeds() {
        let text = field.text();
        assert_eq!(reference(&text), written(wanted), "{text:?}");
        let found = Networks::try_new([&text]);
        assert_eq!(found.is_ok(), wanted != "none", "{text:?}");
        if let (Ok(networks), Some(bits)) = (found, written(wanted)) {
            agree(&networks, &[bits], []).unwrap();
        }
    }
}

/// Looks at the ends of each network, at what is beside them, and at these.
fn agree(
    found: &Networks,
    networks: &[Bits],
    more: impl IntoIterator<Item = u128>,
) -> Result<(), TestCaseError> {
    let ends = networks.iter().flat_map(|&(bits, kept)| {
        let last = bits | !first(u128::MAX, kept);
        [bits, last, bits.wrapping_sub(1), last.wrapping_add(1)]
    });
    for bits in ends.chain(more) {
        let v6 = Ipv6Addr::from_bits(bits);
        // The same address in both forms, if it has two.
        for address in [IpAddr::from(v6), IpAddr::from(v6).to_canonical()] {
            let wanted = holds(networks, address);
            prop_assert_eq!(found.contains(address), wanted, "{} in {:?}", address, found);
        }
    }
    Ok(())
}

/// Networks that overlap, touch, and hold each other.
fn networks() -> impl Strategy<Value = String> {
    let v4 = (
        select(vec![0x0a00_0000_u32, 0x0a00_0100, 0xc000_0200, 0xffff_ff00]),
        any::<u8>(),
        0..=32_u32,
    );
    let v6 = (
        select(vec![0x2001_0db8_u128 << 96, 0xffff << 32, 0, u128::MAX << 16]),
        any::<u16>(),
        0..=128_u32,
    );
    prop_oneof![
        v4.prop_map(|(bits, low, prefix)| {
            format!("{}/{prefix}", std::net::Ipv4Addr::from_bits(bits | u32::from(low)))
        }),
        v6.prop_map(|(bits, low, prefix)| {
            format!("{}/{prefix}", Ipv6Addr::from_bits(bits | u128::from(low)))
        }),
    ]
}

#[test]
fn texts_that_are_networks_and_others_are_drawn() {
    draws_each(&texts(&network_seeds(), &WORDS), 2, |text| reference(&text).is_some());
}

proptest! {
    #[test]
    fn a_network_is_read_as_by_the_slow_reference(
        text in texts(&network_seeds(), &WORDS),
        address in any::<u128>(),
    ) {
        match (Networks::try_new([&text]), reference(&text)) {
            (Ok(found), Some(network)) => agree(&found, &[network], [address])?,
            (Ok(found), None) => prop_assert!(false, "{text:?} is no network, and not {found:?}"),
            (Err(error), Some(_)) => prop_assert!(false, "{error}"),
            (Err(error), None) => {
                // 64 characters are quoted, each escaped into ten at most.
                let message = error.to_string();
                prop_assert!(message.len() <= 800 && !message.contains(char::is_control));
            }
        }
    }

    /// However many there are, an address is in one of them or in none.
    #[test]
    fn many_networks_hold_what_one_of_them_holds(
        texts in vec(networks(), 0..12),
        addresses in vec(any::<u128>(), 4),
    ) {
        let bits: Vec<Bits> = texts.iter().map(|text| reference(text).unwrap()).collect();
        agree(&Networks::try_new(&texts).unwrap(), &bits, addresses)?;
    }

    /// The name of a limit is what a header field can hold, and an error does not repeat all of another.
    #[test]
    fn a_limit_has_a_name_that_a_field_can_hold(
        name in prop_oneof![texts(&network_seeds(), &WORDS), "[ -~]{0,70}"],
    ) {
        let quota = Quota::token_bucket(1, MINUTE);
        let is_name = name.chars().all(|c| (' '..='~').contains(&c)) && (1..=64).contains(&name.len());
        match Limit::try_new(&*name, quota) {
            Ok(limit) => {
                prop_assert!(is_name, "{:?}", name);
                prop_assert_eq!(limit.name(), name);
                prop_assert!(http::HeaderValue::try_from(limit.name()).is_ok());
            }
            Err(error) => {
                prop_assert!(!is_name, "{:?}", name);
                let message = error.to_string();
                prop_assert!(message.len() <= 900 && !message.contains(char::is_control));
            }
        }
    }
}
