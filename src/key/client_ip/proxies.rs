//! Trusted proxies, and the walk from hop to hop.

use std::net::IpAddr;

use super::networks::Networks;
use crate::clock::ParseError;

/// The proxies that are trusted: those in some networks, or a number of hops.
///
/// # Examples
///
/// ```
/// use tollgate::key::{ClientIp, Networks, Proxies};
///
/// // Networks as texts, or a number of hops, will do where proxies are expected.
/// let ours = ClientIp::x_forwarded_for(["10.0.0.0/8", "fd00::/8"]);
/// let one_load_balancer = ClientIp::forwarded(1);
/// # drop((ours, one_load_balancer));
///
/// // Texts from a configuration, without a panic.
/// let configured = Networks::try_new("10.0.0.0/8, fd00::/8".split(','))?;
/// let configured = ClientIp::x_forwarded_for(Proxies::networks(configured));
/// # drop(configured);
/// # Ok::<(), tollgate::ParseError>(())
/// ```
#[doc(alias("trust proxy", "trusted proxies"))]
#[derive(Clone, Debug)]
pub struct Proxies(Trust);

#[derive(Clone, Debug)]
enum Trust {
    Networks(Networks),
    Hops(usize),
}

impl Proxies {
    /// Trusts the proxies in these networks.
    ///
    /// The client is the first hop from the right that is in none of the networks. If all hops are
    /// in the networks, the leftmost one is the client.
    #[must_use]
    pub const fn networks(networks: Networks) -> Self {
        Self(Trust::Networks(networks))
    }

    /// Trusts this many proxies, whatever their addresses. The peer is the first of them.
    ///
    /// With 1, the client is the last entry of the field; with 2, the last but one; with 0, the
    /// peer. A client that can bypass one of the proxies can choose its address. If you know the
    /// networks of the proxies, name them instead.
    #[must_use]
    pub const fn hops(hops: usize) -> Self {
        Self(Trust::Hops(hops))
    }

    /// Walks from the peer along `hops`, nearest first, and returns the hop at which the walk ends.
    /// That is the first hop that is not trusted, or the last hop before an entry that cannot be
    /// parsed (`None`).
    ///
    /// `hops` is advanced only after the hop that wrote the next entry proved to be trusted.
    pub(super) fn client(
        &self,
        peer: Option<IpAddr>,
        mut hops: impl Iterator<Item = Option<IpAddr>>,
    ) -> Option<IpAddr> {
        let mut client = peer;
        let mut behind = 0_usize;
        while self.trust(client, behind)
            && let Some(Some(hop)) = hops.next()
        {
            client = Some(hop);
            behind = behind.saturating_add(1);
        }
        client
    }

    /// Whether there are none.
    pub(super) fn trusts_none(&self) -> bool {
        match &self.0 {
            Trust::Networks(networks) => networks.is_empty(),
            Trust::Hops(hops) => *hops == 0,
        }
    }

    /// Whether a network contains each address of its family.
    pub(super) fn trusts_all(&self) -> bool {
        matches!(&self.0, Trust::Networks(networks) if networks.has_all_of_a_family())
    }

    /// Whether a hop is trusted that has `behind` other hops between itself and this server.
    pub(super) fn trust(&self, hop: Option<IpAddr>, behind: usize) -> bool {
        match &self.0 {
            Trust::Networks(networks) => hop.is_some_and(|hop| networks.contains(hop)),
            Trust::Hops(hops) => behind < *hops,
        }
    }
}

impl From<Networks> for Proxies {
    fn from(networks: Networks) -> Self {
        Self::networks(networks)
    }
}

/// Trusts [so many hops](Proxies::hops).
impl From<usize> for Proxies {
    fn from(hops: usize) -> Self {
        Self::hops(hops)
    }
}

/// Trusts one network: an address, or one with a prefix length.
impl TryFrom<&str> for Proxies {
    type Error = ParseError;

    fn try_from(network: &str) -> Result<Self, ParseError> {
        Self::try_from([network])
    }
}

/// Reads the networks as [`Networks::try_new`] does.
impl<T: AsRef<str>, const N: usize> TryFrom<[T; N]> for Proxies {
    type Error = ParseError;

    fn try_from(networks: [T; N]) -> Result<Self, ParseError> {
        Networks::try_from(networks).map(Self::from)
    }
}

impl<T: AsRef<str>> TryFrom<Vec<T>> for Proxies {
    type Error = ParseError;

    fn try_from(networks: Vec<T>) -> Result<Self, ParseError> {
        Networks::try_from(networks).map(Self::from)
    }
}
