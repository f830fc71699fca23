//! Detects signs that the key is not the address of the client.

use std::net::IpAddr;

use super::peer::peer;
use super::source::AddressSource;
use crate::key::head::Head;
use crate::key::setup_warning::SetupWarning;

pub(super) fn find_warning(
    source: &AddressSource,
    head: &Head<'_>,
    address: IpAddr,
) -> Option<SetupWarning> {
    let is_present = |name| head.headers().contains_key(name);
    let mut fields = FIELDS.iter().filter(|field| is_present(field.name));
    match (source, source.field()) {
        (_, Some(read)) if is_present(read.as_str()) => None,
        (AddressSource::Peer, _) => {
            fields.next().map(|field| SetupWarning::new(field.no_proxy_trusted))
        }
        (source, _) if source.trusts(peer(head)) => {
            fields.next().map(|field| SetupWarning::new(field.other_field_read))
        }
        _ => None,
    }
    // If all requests come from one private address, that address is probably a proxy.
    .or_else(|| is_private(address).then(|| SetupWarning::with_common_key(address, ONE_PRIVATE)))
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

/// A field into which proxies and edges write the client's address, and its warnings.
struct AddressField {
    name: &'static str,
    no_proxy_trusted: &'static str,
    other_field_read: &'static str,
}

macro_rules! fields {
    ($($name:literal),*) => {
        [$(AddressField {
            name: $name,
            no_proxy_trusted: concat!(
                "`", $name, "` is present, but no proxy is trusted, so the key is the address of \
                 the peer (behind a proxy, all clients share that address: name the trusted \
                 proxies, as with `ClientIp::x_forwarded_for`; without a proxy, a client made the \
                 field up and nothing is wrong)",
            ),
            other_field_read: concat!(
                "`", $name, "` is present, and the field that is read is not, so the key is the \
                 address of the proxy (find out which field the trusted proxies write, and have \
                 `ClientIp` read that one)",
            ),
        }),*]
    };
}

const FIELDS: [AddressField; 6] = fields!(
    "x-forwarded-for",
    "forwarded",
    "x-real-ip",
    "cf-connecting-ip",
    "true-client-ip",
    "fly-client-ip"
);

const ONE_PRIVATE: &str = "all requests so far came from one private address, though the limit is \
                           for each client (if that is a proxy or a NAT router, have it pass on \
                           the addresses of the clients, and read them with \
                           `ClientIp::x_forwarded_for` or its siblings; if it is one client, \
                           nothing is wrong)";
