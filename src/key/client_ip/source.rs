//! The source of the client's address.

use std::net::IpAddr;

use http::HeaderName;
use http::header::FORWARDED;

use super::proxies::Proxies;
use super::{forwarded, node};
use crate::key::head::{Head, trim};

#[derive(Clone, Debug)]
pub(super) enum AddressSource {
    Peer,
    XForwardedFor(Proxies),
    Forwarded(Proxies),
    Header(HeaderName, Proxies),
}

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

impl AddressSource {
    /// The field that is read, if any.
    pub(super) fn field(&self) -> Option<&HeaderName> {
        match self {
            Self::Peer => None,
            Self::XForwardedFor(_) => Some(&X_FORWARDED_FOR),
            Self::Forwarded(_) => Some(&FORWARDED),
            Self::Header(name, _) => Some(name),
        }
    }

    /// Whether the field is read if it comes from this peer.
    pub(super) fn trusts(&self, peer: Option<IpAddr>) -> bool {
        match self {
            Self::Peer => false,
            Self::XForwardedFor(trusted) | Self::Forwarded(trusted) | Self::Header(_, trusted) => {
                trusted.trust(peer, 0)
            }
        }
    }

    /// Whether no field is read, whatever peer it comes from.
    pub(super) fn trusts_none(&self) -> bool {
        match self {
            Self::Peer => true,
            Self::XForwardedFor(trusted) | Self::Forwarded(trusted) | Self::Header(_, trusted) => {
                trusted.trusts_none()
            }
        }
    }

    /// Whether each client can write the list of addresses that is read, because a network of trusted
    /// proxies contains all addresses. `Header` reads one address, which the proxy may overwrite.
    pub(super) fn trusts_all(&self) -> bool {
        match self {
            Self::Peer | Self::Header(..) => false,
            Self::XForwardedFor(trusted) | Self::Forwarded(trusted) => trusted.trusts_all(),
        }
    }

    /// Finds the address of the client.
    // Not inlined, so that `ClientIp::peer` stays small for servers without a proxy.
    #[inline(never)]
    pub(super) fn find(&self, head: &Head<'_>, peer: Option<IpAddr>) -> Option<IpAddr> {
        match self {
            Self::Peer => peer,
            Self::XForwardedFor(trusted) => {
                let lines = head.headers().get_all(&X_FORWARDED_FOR).iter().rev();
                let entries = lines.flat_map(|line| line.as_bytes().rsplit(|&byte| byte == b','));
                // An empty member of a list counts for nothing (RFC 9110, section 5.6.1).
                let entries = entries.map(<[u8]>::trim_ascii).filter(|entry| !entry.is_empty());
                trusted.client(peer, entries.map(node::parse_listed))
            }
            Self::Forwarded(trusted) => {
                let lines = head.headers().get_all(FORWARDED).iter().rev();
                let hops = lines.flat_map(|line| forwarded::Elements::new(line.as_bytes()));
                trusted.client(peer, hops)
            }
            Self::Header(name, _) => {
                let mut values = head.headers().get_all(name).iter();
                match (values.next(), values.next()) {
                    (Some(only), None) if self.trusts(peer) => {
                        node::parse_listed(trim(only)).or(peer)
                    }
                    _ => peer,
                }
            }
        }
    }
}
