//! Keys from the address of the client.

use std::net::{IpAddr, SocketAddr};

use super::{Extracted, Head, Key, KeyError, KeyExtractor};

/// Takes the address that the request came from.
///
/// It is the address of the peer, whatever the request's header fields say. Behind a proxy that is
/// the proxy's. An IPv4 address in IPv6 clothing (`::ffff:192.0.2.1`) is the IPv4 address, and
/// IPv6 addresses count by network, as one client usually has a whole network of them.
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
        Ok(Extracted::Key(match peer.ip().to_canonical() {
            IpAddr::V4(address) => Key::from(address),
            IpAddr::V6(address) => Key::network(address, self.ipv6_prefix),
        }))
    }
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
