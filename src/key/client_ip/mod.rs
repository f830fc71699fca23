//! Keys from the address of the client.
//!
//! # Design
//!
//! A field such as `X-Forwarded-For` says what its sender wants, unless it comes from a proxy that is
//! known. So none is read but by an explicit choice, and only one: whoever may choose between two fields
//! chooses the address. It is read from the right, since proxies add what they see at that end, from hop
//! to hop as long as the hop that wrote it is trusted. What cannot be read ends the walk: to skip it
//! would be to believe what stands left of it.

mod forwarded;
mod networks;
mod node;
mod peer;
mod proxies;
mod setup_warnings;
mod source;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use self::networks::{NetworkError, Networks};
use self::peer::peer;
pub use self::proxies::Proxies;
use self::source::AddressSource;
use crate::backend::Key;
use crate::key::extractor::{Extracted, KeyExtractor};
use crate::key::head::Head;
use crate::key::header;
use crate::key::key_error::KeyError;
use crate::key::setup_warning::SetupWarning;

/// Takes the address that the request came from.
///
/// By [`peer`](Self::peer), it is the address of the peer, whatever the request's header fields say.
/// Behind a proxy that is the proxy's, so say which proxies are trusted, and where they write the
/// client's address: [`x_forwarded_for`](Self::x_forwarded_for), [`forwarded`](Self::forwarded) or
/// [`header`](Self::header).
///
/// An IPv4 address in IPv6 clothing (`::ffff:192.0.2.1`, or `64:ff9b::192.0.2.1` of
/// NAT64) is the IPv4 address, and IPv6 addresses count by network, as one client usually has a whole network of them.
///
/// The server has to tell the peer's address: axum by `into_make_service_with_connect_info`, any other by
/// an extension of type [`SocketAddr`](std::net::SocketAddr).
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
///     ClientIp::peer().extract(&Head::new(&request))
/// };
/// assert_eq!(from("192.0.2.1:5123"), from("[::ffff:192.0.2.1]:80"));
/// assert_eq!(from("[2001:db8::1]:80"), from("[2001:db8::2]:80"));
/// assert_ne!(from("[2001:db8::1]:80"), from("[2001:db8:0:1::1]:80"));
/// ```
#[derive(Clone, Debug)]
pub struct ClientIp {
    source: AddressSource,
    ipv6_prefix: u8,
}

impl ClientIp {
    /// The address of the peer, IPv6 by networks of 64 bits.
    #[must_use]
    pub const fn peer() -> Self {
        Self::from_source(AddressSource::Peer)
    }

    /// The address that trusted proxies have written into `X-Forwarded-For`.
    ///
    /// All its field lines are read as one list, from the right: as long as a hop is trusted, what it
    /// has added is believed. The first that is not trusted is the client; so is the last trusted one
    /// if what it has added is no address. Each entry is an IPv4 or IPv6 address, the latter in brackets or not,
    /// with or without port; zones (`%eth0`) are dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::net::{IpAddr, SocketAddr};
    /// use tollgate::key::{ClientIp, Head, Networks};
    ///
    /// let client = ClientIp::x_forwarded_for(Networks::new(["10.0.0.0/8"]));
    ///
    /// // The load balancer at 10.0.0.1 has added what it saw to what the client made up.
    /// let request = http::Request::builder().header("x-forwarded-for", "192.0.2.99, 203.0.113.7");
    /// let mut request = request.body(()).unwrap();
    /// request.extensions_mut().insert(SocketAddr::from(([10, 0, 0, 1], 5123)));
    /// assert_eq!(client.address(&Head::new(&request)), Ok(IpAddr::from([203, 0, 113, 7])));
    ///
    /// // Somebody else is the client, whatever the field says.
    /// request.extensions_mut().insert(SocketAddr::from(([198, 51, 100, 5], 5123)));
    /// assert_eq!(client.address(&Head::new(&request)), Ok(IpAddr::from([198, 51, 100, 5])));
    /// ```
    #[must_use]
    pub fn x_forwarded_for(trusted: impl Into<Proxies>) -> Self {
        Self::from_source(AddressSource::XForwardedFor(trusted.into()))
    }

    /// The address that trusted proxies have written into `Forwarded` (RFC 7239), in the parameter `for`.
    ///
    /// It is read as [`x_forwarded_for`](Self::x_forwarded_for) reads its field. What ends the walk is
    /// also `unknown`, a name that hides the address (`_hidden`), an element without `for`, and one that
    /// is not what the grammar says, such as an IPv6 address without quotes.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::net::{IpAddr, SocketAddr};
    /// use tollgate::key::{ClientIp, Head, Proxies};
    ///
    /// let field = "for=\"[2001:db8:cafe::17]:4711\";proto=https";
    /// let mut request = http::Request::builder().header("forwarded", field).body(()).unwrap();
    /// request.extensions_mut().insert(SocketAddr::from(([10, 0, 0, 1], 5123)));
    ///
    /// let address = ClientIp::forwarded(Proxies::hops(1)).address(&Head::new(&request));
    /// assert_eq!(address, Ok("2001:db8:cafe::17".parse::<IpAddr>().unwrap()));
    /// ```
    #[must_use]
    pub fn forwarded(trusted: impl Into<Proxies>) -> Self {
        Self::from_source(AddressSource::Forwarded(trusted.into()))
    }

    /// The address in the header field of this name, if the peer is in one of these networks; else the
    /// peer's.
    ///
    /// For an edge that overwrites a field of its own, such as `CF-Connecting-IP`, `True-Client-IP`,
    /// `Fly-Client-IP`, or `X-Real-IP`. An edge that lets the field through where it is there already is of no use.
    /// The peer's address counts also if the field is missing, there more than once, or no
    /// address.
    ///
    /// # Panics
    ///
    /// If this is not the name of a header field.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::{ClientIp, Networks};
    ///
    /// let edge = Networks::new(["173.245.48.0/20", "2400:cb00::/32"]); // in earnest, all of them
    /// let client = ClientIp::header("cf-connecting-ip", edge);
    /// # drop(client);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn header(name: &str, set_by: Networks) -> Self {
        Self::from_source(AddressSource::Header(header::name(name), set_by))
    }

    const fn from_source(source: AddressSource) -> Self {
        Self { source, ipv6_prefix: 64 }
    }

    /// Counts IPv6 addresses by networks of this many bits; above 128 is 128.
    ///
    /// 56 is what many providers give to a household, 48 to a company.
    #[must_use]
    pub const fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits;
        self
    }

    /// Whether a request's address is in one of these networks, as a predicate for
    /// [`unless`](KeyExtractor::unless).
    ///
    /// A request without an address is in none. Behind a proxy, have this read the address as the key does:
    /// that of the peer is the proxy's, for everybody. And name no network with a proxy in it, as the
    /// proxy's address counts for whoever's cannot be read.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::{ClientIp, KeyExtractor, Networks, header};
    ///
    /// let monitoring = Networks::new(["10.9.0.0/16"]);
    /// let key = header("x-user").unless(ClientIp::peer().within(monitoring));
    /// # drop(key);
    /// ```
    pub fn within(
        self,
        networks: Networks,
    ) -> impl Fn(&Head<'_>) -> bool + Clone + Send + Sync + 'static {
        // Not of what NAT64 has translated: that is nobody in the networks.
        move |head| self.find(head).is_some_and(|address| networks.contains(address))
    }

    /// The client's address itself, not its network; an IPv4 address is one in any clothing.
    ///
    /// # Errors
    ///
    /// If the server has not told the peer's address.
    pub fn address(&self, head: &Head<'_>) -> Result<IpAddr, KeyError> {
        self.find(head).map(canonical).ok_or_else(no_address)
    }

    #[inline]
    fn find(&self, head: &Head<'_>) -> Option<IpAddr> {
        let peer = peer(head);
        match &self.source {
            AddressSource::Peer => peer,
            source => source.find(head, peer),
        }
    }
}

impl KeyExtractor for ClientIp {
    fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
        match self.find(head) {
            // Most addresses, without a detour.
            Some(IpAddr::V4(address)) => Ok(Extracted::Key(Key::from(address))),
            Some(IpAddr::V6(address)) => Ok(Extracted::Key(match embedded(address) {
                Some(address) => Key::from(address),
                None => Key::network(address, self.ipv6_prefix),
            })),
            None => Err(no_address()),
        }
    }

    fn setup_warning(&self, head: &Head<'_>) -> Option<SetupWarning> {
        setup_warnings::find(&self.source, head, self.address(head).ok()?)
    }
}

/// An IPv4 address in any clothing is the IPv4 address.
fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => embedded(v6).map_or(address, IpAddr::from),
        v4 => v4,
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

#[cold]
fn no_address() -> KeyError {
    KeyError::misconfigured(
        "no client address: `ConnectInfo` is missing (serve the router with \
         `into_make_service_with_connect_info::<SocketAddr>()`, or insert a `SocketAddr` \
         as a request extension)",
    )
}
