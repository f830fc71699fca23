//! Keys from the address of the client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Extracted, Head, Key, KeyError, KeyExtractor};

/// Takes the address that the request came from.
///
/// It is the address of the peer, whatever the request's header fields say. Behind a proxy that is
/// the proxy's. An IPv4 address in IPv6 clothing (`::ffff:192.0.2.1`, or `64:ff9b::192.0.2.1` of
/// NAT64) is the IPv4 address, and IPv6 addresses count by network, as one client usually has a whole network of them.
///
/// The server has to tell the address: axum by `into_make_service_with_connect_info`, any other by
/// an extension of type [`SocketAddr`].
///
/// # Examples
///
/// ```
/// use std::net::SocketAddr;
/// use tollgate::key::{ClientIp, Head, KeyExtractor};
///
/// let from = |address: &str| {
///     let mut request = http::Request::new(());
///     request.extensions_mut().insert(address.parse::<SocketAddr>().unwrap());
///     ClientIp::peer().extract(&Head::of(&request))
/// };
/// assert_eq!(from("192.0.2.1:5123"), from("[::ffff:192.0.2.1]:80"));
/// assert_eq!(from("[2001:db8::1]:80"), from("[2001:db8::2]:80"));
/// assert_ne!(from("[2001:db8::1]:80"), from("[2001:db8:0:1::1]:80"));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ClientIp {
    ipv6_prefix: u8,
}

impl ClientIp {
    /// The address of the peer, IPv6 by networks of 64 bits.
    #[must_use]
    pub const fn peer() -> Self {
        Self { ipv6_prefix: 64 }
    }

    /// Counts IPv6 addresses by networks of this many bits; above 128 is 128.
    ///
    /// 56 is what many providers give to a household, 48 to a company.
    #[must_use]
    pub const fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits;
        self
    }
}

impl KeyExtractor for ClientIp {
    fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
        let Some(peer) = peer(head) else {
            return Err(KeyError::missing(
                "no client address: `ConnectInfo` is missing (serve the router with \
                 `into_make_service_with_connect_info::<SocketAddr>()`, or insert a `SocketAddr` \
                 as a request extension)",
            ));
        };
        Ok(Extracted::Key(match peer.ip() {
            IpAddr::V4(address) => Key::from(address),
            IpAddr::V6(address) => match embedded(address) {
                Some(address) => Key::from(address),
                None => Key::network(address, self.ipv6_prefix),
            },
        }))
    }
}

/// The IPv4 address that an IPv6 address stands for: mapped (RFC 4291, section 2.5.5.2) or
/// translated by the well-known prefix `64:ff9b::/96` (RFC 6052, section 2.1).
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    address.to_ipv4_mapped().or(match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
            Some(Ipv4Addr::new(a, b, c, d))
        }
        _ => None,
    })
}

fn peer(head: &Head<'_>) -> Option<SocketAddr> {
    #[cfg(feature = "axum")]
    {
        use axum::extract::ConnectInfo;
        use axum::extract::connect_info::MockConnectInfo;
        let extensions = head.extensions();
        let real = extensions.get().map(|&ConnectInfo(peer)| peer);
        // As axum's own extractor does: what a test pretends counts where nothing is real.
        if let Some(peer) = real.or_else(|| extensions.get().map(|&MockConnectInfo(peer)| peer)) {
            return Some(peer);
        }
    }
    head.extensions().get().copied()
}
