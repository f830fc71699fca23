//! Detects signs that the key is not the address of the client.

use std::hash::{DefaultHasher, Hasher};
use std::net::IpAddr;

use http::HeaderName;

use super::source::AddressSource;
use crate::key::head::Head;
use crate::key::header::ADDRESS_FIELDS;
use crate::key::setup_warning::{Beside, SetupWarning};

pub(super) fn find_warning(
    source: &AddressSource,
    head: &Head<'_>,
    peer: Option<IpAddr>,
    address: IpAddr,
) -> Option<SetupWarning> {
    if source.trusts_all() {
        return Some(SetupWarning::new(ALL_TRUSTED));
    }
    let is_present = |name: &str| head.headers().contains_key(name);
    let mut fields = ADDRESS_FIELDS.into_iter().filter(|field| is_present(field));
    let read = source.field().map(HeaderName::as_str).filter(|read| is_present(read));
    match (read, source.trusts(peer)) {
        _ if source.trusts_none() => fields.next().map(no_proxy_trusted),
        (Some(_), true) | (None, false) => None,
        (None, true) => fields.next().map(other_field_read),
        (Some(read), false) => peer.and_then(|peer| not_trusted(read, peer, source, head)),
    }
    // If all requests come from one private address, that address is probably a proxy.
    .or_else(|| is_private(address).then(|| SetupWarning::with_common_key(address, ONE_PRIVATE)))
    // So is any other address, if the fields of proxies name several clients behind it.
    .or_else(|| {
        let beside = fingerprint(source, head)?;
        Some(SetupWarning::with_common_key(address, ONE_FOR_MANY).while_differs(beside))
    })
}

/// A private address that names clients is that of a proxy nearly always. A public one may be that of a
/// client that has gone past the proxies.
fn not_trusted(
    field: &str,
    peer: IpAddr,
    source: &AddressSource,
    head: &Head<'_>,
) -> Option<SetupWarning> {
    if is_private(peer) {
        return Some(SetupWarning::new(format!(
            "`{field}` comes from {peer}, which is not among the trusted proxies, so the key is that \
             address (if it is a proxy, trust it by its network; if it is a client that made the field \
             up, nothing is wrong)"
        )));
    }
    Some(SetupWarning::in_each_request(NONE_TRUSTED).while_differs(fingerprint(source, head)?))
}

/// The fields that name clients; `None` without any.
fn fingerprint(source: &AddressSource, head: &Head<'_>) -> Option<Beside> {
    let names = source.field().map(HeaderName::as_str).into_iter();
    let names = names.chain(ADDRESS_FIELDS);
    let (mut fields, mut hasher) = (0, DefaultHasher::new());
    for (place, name) in (0_u32..).zip(names) {
        for line in head.headers().get_all(name) {
            fields |= 1_u8.checked_shl(place).unwrap_or(0);
            hasher.write(line.as_bytes());
        }
    }
    (fields != 0).then(|| Beside { fields, values: hasher.finish() })
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            address.is_private() || address.is_loopback() || address.is_link_local()
        }
        IpAddr::V6(address) => {
            address.is_unique_local() || address.is_loopback() || address.is_unicast_link_local()
        }
    }
}

fn no_proxy_trusted(field: &str) -> SetupWarning {
    SetupWarning::new(format!(
        "`{field}` is present, but no proxy is trusted, so the key is the address of the peer (behind \
         a proxy, all clients share that address: name the trusted proxies, as with \
         `ClientIp::x_forwarded_for`; without a proxy, a client made the field up and nothing is \
         wrong)"
    ))
}

fn other_field_read(field: &str) -> SetupWarning {
    SetupWarning::new(format!(
        "`{field}` is present, and the field that is read is not, so the key is the address of the \
         proxy (find out which field the trusted proxies write, and have `ClientIp` read that one)"
    ))
}

const ALL_TRUSTED: &str = "a network of trusted proxies contains each address, so each client chooses \
                           its address by a header field, and its bucket (name the networks of the \
                           proxies alone, or their number, as in `ClientIp::x_forwarded_for(1)`)";

const ONE_PRIVATE: &str = "all requests so far came from one private address, though the limit is \
                           for each client (if that is a proxy or a NAT router, have it pass on \
                           the addresses of the clients, and read them with \
                           `ClientIp::x_forwarded_for` or its siblings; if it is one client, \
                           nothing is wrong)";

const NONE_TRUSTED: &str = "all requests so far name their clients in the field that is read, and none came \
                            from a trusted proxy, so the keys are the addresses of the peers (trust \
                            the proxies by their networks; if clients make these fields up, nothing is \
                            wrong)";

const ONE_FOR_MANY: &str = "all requests so far had one address as their key, but header fields \
                            name several clients (that address is probably a proxy: trust it, by \
                            its network or by one more hop, and read the field that it writes; if one \
                            client makes these fields up, nothing is wrong)";
