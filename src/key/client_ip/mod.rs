//! Keys from the address of the client.
//!
//! # Design
//!
//! A client can write anything into a field such as `X-Forwarded-For`; only entries of known
//! proxies are reliable. So no field is read by default, and never more than one: a client that can
//! choose between two fields can choose its address.
//!
//! Each proxy appends the address that it sees. So the field is read from the right, hop by hop, as
//! long as the hop that wrote an entry is trusted. An entry that cannot be parsed ends the walk,
//! since the entries to its left may be written by the client.

mod forwarded;
mod networks;
mod node;
mod peer;
mod proxies;
mod setup_warnings;
mod source;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub use self::networks::Networks;
use self::peer::{PeerPlaces, peer};
pub use self::proxies::Proxies;
use self::source::AddressSource;
use crate::backend::Key;
use crate::key::extractor::{Extracted, KeyExtractor};
use crate::key::head::Head;
use crate::key::header::header_name;
use crate::key::key_error::KeyError;
use crate::key::setup_warning::SetupWarning;

/// Takes the IP address of the client as the key.
///
/// [`peer`](Self::peer) takes the address of the other end of the connection and ignores all header
/// fields. Behind a proxy, that is the address of the proxy. Name the proxies that you trust, and
/// the field into which they write the address of the client:
/// [`x_forwarded_for`](Self::x_forwarded_for), [`forwarded`](Self::forwarded) or
/// [`header`](Self::header).
///
/// An IPv4 address that is embedded in IPv6 (`::ffff:192.0.2.1`, or `64:ff9b::192.0.2.1` of NAT64)
/// is the same key as the IPv4 address. IPv6 addresses share a key by network of [64
/// bits](Self::ipv6_prefix), since one client usually has a whole network of them.
///
/// The server has to provide the address of the peer: axum by
/// `into_make_service_with_connect_info`, any other server by a request extension of type
/// [`SocketAddr`](std::net::SocketAddr), or of a type of its own that [`peer_from`](Self::peer_from)
/// reads. Without it, requests are answered with 500, and the log says why. On a Unix socket, the peer
/// has no address: trust the proxy that connects to it, as in `ClientIp::x_forwarded_for(1)`.
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
#[doc(alias("SmartIpKeyExtractor", "SecureClientIp", "RealIp"))]
#[doc(alias("remote_addr", "req.ip", "trust proxy", "ipv6Subnet"))]
#[derive(Clone, Debug)]
pub struct ClientIp {
    source: AddressSource,
    ipv6_prefix: u8,
    peers: PeerPlaces,
}

impl ClientIp {
    /// The address of the other end of the connection.
    #[doc(alias("PeerIpKeyExtractor", "ConnectInfo", "SocketAddr"))]
    #[must_use]
    pub const fn peer() -> Self {
        Self::from_source(AddressSource::Peer)
    }

    /// The address that trusted proxies have written into `X-Forwarded-For`.
    ///
    /// All field lines are read as one list, from the right. As long as a hop is trusted, the entry
    /// that it added is the next hop. The first hop that is not trusted is the client. If a trusted
    /// hop added an entry that is not an address, that hop counts as the client.
    ///
    /// An entry is an IPv4 or IPv6 address, with or without quotes, brackets and port; zones (`%eth0`)
    /// are dropped. Empty members of the list are no hops.
    ///
    /// # Panics
    ///
    /// If a text is given that is not a network; [`Networks::try_new`] returns an error instead.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::net::{IpAddr, SocketAddr};
    /// use tollgate::key::{ClientIp, Head};
    ///
    /// let client = ClientIp::x_forwarded_for(["10.0.0.0/8"]); // or 1, if there is one proxy
    ///
    /// // The load balancer at 10.0.0.1 has appended what it saw to what the client made up.
    /// let request = http::Request::builder().header("x-forwarded-for", "192.0.2.99, 203.0.113.7");
    /// let mut request = request.body(()).unwrap();
    /// request.extensions_mut().insert(SocketAddr::from(([10, 0, 0, 1], 5123)));
    /// assert_eq!(client.address(&Head::new(&request)), Ok(IpAddr::from([203, 0, 113, 7])));
    ///
    /// // A peer that is not trusted is the client, whatever the field says.
    /// request.extensions_mut().insert(SocketAddr::from(([198, 51, 100, 5], 5123)));
    /// assert_eq!(client.address(&Head::new(&request)), Ok(IpAddr::from([198, 51, 100, 5])));
    /// ```
    #[doc(alias("x-forwarded-for", "X-Forwarded-For", "trust proxy", "XFF"))]
    #[must_use]
    #[track_caller]
    pub fn x_forwarded_for(trusted: impl TryInto<Proxies, Error: fmt::Display>) -> Self {
        Self::from_source(AddressSource::XForwardedFor(valid(trusted)))
    }

    /// The address that trusted proxies have written into `Forwarded` (RFC 7239), in the parameter
    /// `for`.
    ///
    /// It is read like [`x_forwarded_for`](Self::x_forwarded_for). The walk also ends at `unknown`,
    /// at a name that hides the address (`_hidden`), at an element without `for`, and at an element
    /// that breaks the grammar, such as an IPv6 address without quotes.
    ///
    /// # Panics
    ///
    /// Like [`x_forwarded_for`](Self::x_forwarded_for).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::net::{IpAddr, SocketAddr};
    /// use tollgate::key::{ClientIp, Head};
    ///
    /// let field = "for=\"[2001:db8:cafe::17]:4711\";proto=https";
    /// let mut request = http::Request::builder().header("forwarded", field).body(()).unwrap();
    /// request.extensions_mut().insert(SocketAddr::from(([10, 0, 0, 1], 5123)));
    ///
    /// let address = ClientIp::forwarded(1).address(&Head::new(&request));
    /// assert_eq!(address, Ok("2001:db8:cafe::17".parse::<IpAddr>().unwrap()));
    /// ```
    #[must_use]
    #[track_caller]
    pub fn forwarded(trusted: impl TryInto<Proxies, Error: fmt::Display>) -> Self {
        Self::from_source(AddressSource::Forwarded(valid(trusted)))
    }

    /// The address in a header field if the peer is trusted, else that of the peer.
    ///
    /// Use it behind an edge that overwrites a field of its own, such as `CF-Connecting-IP`,
    /// `True-Client-IP`, `Fly-Client-IP`, or `X-Real-IP`. The address of the peer also counts if the
    /// field is missing, is there more than once, or has no address.
    ///
    /// **Only the peer is looked at.** If a proxy of yours stands between the edge and this server, the
    /// peer is that proxy, and whoever reaches it without the edge has the field believed that it sends.
    /// Name such a proxy only if it lets in nobody but the edge, or removes the field from all other
    /// requests. Or have the edge and the proxy append to `X-Forwarded-For`, and read that: it is
    /// checked hop by hop.
    ///
    /// # Panics
    ///
    /// If `name` is not a valid name of a header field, or if a text is given that is not a network.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::ClientIp;
    ///
    /// // In production, all networks of the edge.
    /// let edge = ["173.245.48.0/20", "2400:cb00::/32"];
    /// let client = ClientIp::header("cf-connecting-ip", edge);
    /// # drop(client);
    /// ```
    #[doc(alias("cf-connecting-ip", "true-client-ip", "fly-client-ip", "x-real-ip", "Cloudflare"))]
    #[must_use]
    #[track_caller]
    pub fn header(name: &str, set_by: impl TryInto<Proxies, Error: fmt::Display>) -> Self {
        Self::from_source(AddressSource::Header(header_name(name), valid(set_by)))
    }

    const fn from_source(source: AddressSource) -> Self {
        Self { source, ipv6_prefix: 64, peers: PeerPlaces::NONE }
    }

    /// Takes the address of the peer also from this extension of the request, if no other one has it.
    ///
    /// Use it for servers that leave it in a type of their own, as [`tonic`][tonic] does; one bucket then
    /// counts the requests of a client over HTTP and over gRPC.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::net::SocketAddr;
    /// use tollgate::key::ClientIp;
    ///
    /// /// What a server of your own leaves in each request.
    /// #[derive(Clone)]
    /// struct Connection {
    ///     peer: SocketAddr,
    /// }
    ///
    /// let client = ClientIp::peer().peer_from(|connection: &Connection| Some(connection.peer));
    /// # drop(client);
    /// ```
    ///
    /// [tonic]: crate::_guide::keys_and_proxies#tonic
    #[doc(alias("tonic", "TcpConnectInfo", "TlsConnectInfo"))]
    #[must_use]
    pub fn peer_from<T, F>(mut self, address: F) -> Self
    where
        T: Send + Sync + 'static,
        F: Fn(&T) -> Option<SocketAddr> + Send + Sync + 'static,
    {
        self.peers.push(move |extensions| extensions.get().and_then(&address));
        self
    }

    /// Sets the prefix by which IPv6 addresses share a key, in bits: 64 by default, at most 128.
    ///
    /// Many providers give networks of 56 bits to households and of 48 bits to companies.
    #[doc(alias("ipv6Subnet", "subnet"))]
    #[must_use]
    pub const fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits;
        self
    }

    /// Returns a predicate for [`unless`](KeyExtractor::unless): whether the address is in these
    /// networks.
    ///
    /// A request without an address is in none of them. Behind a proxy, read the address in the
    /// same way as for the key, since the peer of every request is the proxy. Do not name a network
    /// that contains a proxy: the address of the proxy stands for each client whose own address
    /// cannot be read.
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
        // `find`, not `address`: a client that NAT64 has translated is outside of these networks.
        move |head| self.find(head).is_some_and(|address| networks.contains(address))
    }

    /// Returns the key that a client of this address has: for calls, such as one that lifts a block.
    ///
    /// An IPv6 address is the key of its network. As a key by itself, it would name a bucket of its own.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use tollgate::key::ClientIp;
    /// use tollgate::{HOUR, Limit, Quota, RateLimited, RateLimiter};
    ///
    /// const SIGN_IN: Limit = Limit::new("sign-in", Quota::token_bucket(5, HOUR));
    ///
    /// async fn unlock(limiter: &RateLimiter, address: IpAddr) -> Result<(), RateLimited> {
    ///     let client = ClientIp::x_forwarded_for(1); // as in the layer
    ///     limiter.reset(&SIGN_IN).key(client.key_of(address)).await
    /// }
    /// ```
    #[must_use]
    pub fn key_of(&self, address: IpAddr) -> Key {
        match address {
            IpAddr::V4(address) => Key::from(address),
            IpAddr::V6(address) => self.key_of_v6(address),
        }
    }

    /// Returns the address of the client itself, not its network. An embedded IPv4 address is
    /// returned as IPv4.
    ///
    /// # Errors
    ///
    /// If the server does not provide the peer's address.
    pub fn address(&self, head: &Head<'_>) -> Result<IpAddr, KeyError> {
        self.find(head).map(to_canonical).ok_or_else(|| self.no_address())
    }

    #[inline(never)]
    fn key_of_v6(&self, address: Ipv6Addr) -> Key {
        match embedded_ipv4(address) {
            Some(address) => Key::from(address),
            None => Key::network(address, self.ipv6_prefix),
        }
    }

    #[cold]
    fn no_address(&self) -> KeyError {
        // Only a number of hops trusts a peer without an address.
        match self.source.field().filter(|_| self.source.trusts(None)) {
            Some(field) => KeyError::misconfigured(format!(
                "no client address: none can be read from `{field}`, and the peer has none (have the \
                 proxy write the field, as by `proxy_set_header` of nginx; on a TCP socket, \
                 serve the router with `into_make_service_with_connect_info::<SocketAddr>()`)"
            )),
            None => KeyError::misconfigured(NO_ADDRESS),
        }
    }

    #[inline]
    fn find(&self, head: &Head<'_>) -> Option<IpAddr> {
        let peer = peer(head, &self.peers);
        match &self.source {
            AddressSource::Peer => peer,
            source => source.find(head, peer),
        }
    }
}

impl KeyExtractor for ClientIp {
    fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
        match self.find(head) {
            // The common case first: it has no embedded address. As in `key_of`, which would cost a copy.
            Some(IpAddr::V4(address)) => Ok(Extracted::Key(Key::from(address))),
            Some(IpAddr::V6(address)) => Ok(Extracted::Key(self.key_of_v6(address))),
            None => Err(self.no_address()),
        }
    }

    fn setup_warning(&self, head: &Head<'_>) -> Option<SetupWarning> {
        let peer = peer(head, &self.peers);
        setup_warnings::find_warning(&self.source, head, peer, self.address(head).ok()?)
    }
}

/// The networks or proxies that are given.
///
/// # Panics
///
/// If they are texts that cannot be read.
#[track_caller]
fn valid<T>(given: impl TryInto<T, Error: fmt::Display>) -> T {
    match given.try_into() {
        Ok(valid) => valid,
        Err(error) => panic!("{error}"),
    }
}

/// Converts an IPv6 address with an embedded IPv4 address into the latter.
fn to_canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => embedded_ipv4(v6).map_or(address, IpAddr::from),
        v4 => v4,
    }
}

/// The IPv4 address that is embedded in an IPv6 address: mapped (RFC 4291, section 2.5.5.2) or
/// translated by the well-known prefix `64:ff9b::/96` (RFC 6052, section 2.1).
fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    address.to_ipv4_mapped().or(match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
            Some(Ipv4Addr::new(a, b, c, d))
        }
        _ => None,
    })
}

const NO_ADDRESS: &str = "no client address: `ConnectInfo` is missing (serve the router with \
     `into_make_service_with_connect_info::<SocketAddr>()`, add a layer of `MockConnectInfo` in tests, \
     or insert a `SocketAddr` as a request extension; tonic: `ClientIp::peer_from`; behind a proxy on \
     a Unix socket, which has no address: `ClientIp::x_forwarded_for(1)`)";
