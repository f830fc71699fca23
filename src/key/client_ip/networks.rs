//! Sets of IP networks, for trusted proxies and for exempt clients.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::clock::ParseError;

/// A set of IPv4 and IPv6 networks.
///
/// # Examples
///
/// ```
/// use tollgate::key::Networks;
///
/// let ours = Networks::new(["10.0.0.0/8", "2001:db8:1::/48", "192.0.2.7"]);
/// assert!(ours.contains([10, 1, 2, 3].into()));
/// assert!(ours.contains("::ffff:192.0.2.7".parse().unwrap()));
/// assert!(!ours.contains("2001:db8:2::1".parse().unwrap()));
/// ```
#[derive(Clone)]
pub struct Networks {
    // Sorted and disjoint, so a binary search finds the only candidate.
    v4: Arc<[Ipv4Net]>,
    v6: Arc<[Ipv6Net]>,
}

impl Networks {
    /// Makes a set of networks from texts such as `10.0.0.0/8`, or an address alone.
    ///
    /// # Panics
    ///
    /// If one of the texts is not a network. For texts from a configuration, use
    /// [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub fn new<T: AsRef<str>>(networks: impl IntoIterator<Item = T>) -> Self {
        match Self::try_new(networks) {
            Ok(networks) => networks,
            Err(error) => panic!("{error}"),
        }
    }

    /// Makes a set of networks from texts, like [`new`](Self::new), but returns errors.
    ///
    /// White space around a text is ignored.
    ///
    /// # Errors
    ///
    /// If one of the texts is not a network.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::Networks;
    ///
    /// assert!(Networks::try_new("10.0.0.0/8, fd00::/8".split(',')).is_ok());
    /// let error = Networks::try_new(["10.0.0.0/33"]).unwrap_err();
    /// assert!(error.to_string().starts_with("\"10.0.0.0/33\" is not a network"));
    /// ```
    pub fn try_new<T: AsRef<str>>(
        networks: impl IntoIterator<Item = T>,
    ) -> Result<Self, ParseError> {
        networks.into_iter().map(|text| parse_network(text.as_ref())).collect()
    }

    /// Returns the loopback, link-local and private networks (RFC 1122, 3927, 1918, 4291 and 4193).
    ///
    /// They are not routed on the Internet. Trust them as proxies only if no client is in the same
    /// network.
    #[must_use]
    pub fn private() -> Self {
        let [loopback, link_local] = [([127, 0, 0, 0], 8), ([169, 254, 0, 0], 16)];
        let private = [([10, 0, 0, 0], 8), ([172, 16, 0, 0], 12), ([192, 168, 0, 0], 16)];
        let v4 = private.into_iter().chain([loopback, link_local]);
        let v6 = [(1, 128), (0xfe80 << 112, 10), (0xfc00 << 112, 7)];
        let v4 = v4.map(|(octets, prefix)| IpNet::new(Ipv4Addr::from(octets).into(), prefix));
        let v6 = v6.map(|(bits, prefix)| IpNet::new(Ipv6Addr::from_bits(bits).into(), prefix));
        v4.chain(v6).flatten().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Whether each IPv4 address, or each IPv6 address, is in it.
    pub(super) fn has_all_of_a_family(&self) -> bool {
        // They are aggregated, so one network has them all.
        self.v4.iter().any(|network| network.prefix_len() == 0)
            || self.v6.iter().any(|network| network.prefix_len() == 0)
    }

    /// Whether the address is in one of the networks.
    ///
    /// An IPv4 address that is mapped into IPv6 counts as the IPv4 address. An address that NAT64
    /// has translated does not, since such a client is outside of the network.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let end = self.v4.partition_point(|network| network.network() <= address);
                end.checked_sub(1)
                    .and_then(|last| self.v4.get(last))
                    .is_some_and(|network| network.contains(&address))
            }
            IpAddr::V6(address) => {
                let end = self.v6.partition_point(|network| network.network() <= address);
                end.checked_sub(1)
                    .and_then(|last| self.v6.get(last))
                    .is_some_and(|network| network.contains(&address))
            }
        }
    }
}

/// Reads texts as [`Networks::try_new`] does.
impl<T: AsRef<str>, const N: usize> TryFrom<[T; N]> for Networks {
    type Error = ParseError;

    fn try_from(networks: [T; N]) -> Result<Self, ParseError> {
        Self::try_new(networks)
    }
}

impl<T: AsRef<str>> TryFrom<Vec<T>> for Networks {
    type Error = ParseError;

    fn try_from(networks: Vec<T>) -> Result<Self, ParseError> {
        Self::try_new(networks)
    }
}

/// Collects networks that are parsed already.
impl FromIterator<IpNet> for Networks {
    fn from_iter<I: IntoIterator<Item = IpNet>>(networks: I) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for network in networks {
            match unmap(network) {
                IpNet::V4(network) => v4.push(network),
                IpNet::V6(network) => v6.push(network),
            }
        }
        let (v4, v6) = (Ipv4Net::aggregate(&v4), Ipv6Net::aggregate(&v6));
        Self { v4: v4.into(), v6: v6.into() }
    }
}

impl fmt::Debug for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.v4.iter()).entries(self.v6.iter()).finish()
    }
}

fn parse_network(text: &str) -> Result<IpNet, ParseError> {
    parse_cidr(text.trim()).ok_or_else(|| {
        let text: String = text.chars().take(MAX_QUOTED).collect();
        ParseError::new(format!(
            "{text:?} is not a network (write an address and the length of its prefix, as in \
             `10.0.0.0/8` or `2001:db8::/32`, or an address alone)"
        ))
    })
}

/// The standard library parses the address, as it does for clients. The parser of `ipnet` reads
/// `010.0.0.0/8` as decimal, which other programs read as octal.
fn parse_cidr(text: &str) -> Option<IpNet> {
    let Some((address, prefix)) = text.split_once('/') else {
        return text.parse::<IpAddr>().ok().map(IpNet::from);
    };
    let is_number = prefix.len() <= 3 && prefix.bytes().all(|byte| byte.is_ascii_digit());
    let prefix = prefix.parse().ok().filter(|_| is_number)?;
    IpNet::new(address.parse().ok()?, prefix).ok()
}

/// Converts a network of mapped IPv4 addresses into an IPv4 network, since addresses are converted
/// as well before they are looked up.
fn unmap(network: IpNet) -> IpNet {
    let mapped = match network {
        IpNet::V4(_) => None,
        IpNet::V6(v6) => v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(96)),
    };
    let v4 = mapped.and_then(|(address, prefix)| Ipv4Net::new(address, prefix).ok());
    v4.map_or(network, IpNet::V4)
}

/// An error quotes at most this many characters of an invalid text.
const MAX_QUOTED: usize = 64;
